"""TableConfig: what a table of the core is made from, in Python and as the C interface takes it."""

import ctypes
import dataclasses
import os
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_uint64
from typing import Optional

import numpy as np


@dataclasses.dataclass(frozen=True)
class InitializerSpec:
    """How the first value of a row follows from its key (native/table/initializer.h)."""

    kind: str  # a key of KINDS
    a: float = 0.0
    b: float = 0.0
    scale: float = 1.0
    seed: int = 0
    pool: Optional[np.ndarray] = None  # float32 [rows, dim], for kind "pool"

    KINDS = {"constant": 0, "uniform": 1, "normal": 2, "truncated_normal": 3, "pool": 4}


@dataclasses.dataclass(frozen=True)
class DiskTier:
    """How many rows may be in memory, how many more on disk, and the directories for these (native/table/tier.h)."""

    memory_rows: int
    disk_rows: int
    paths: tuple[str, ...]


class InC(ctypes.Structure):
    """mxrec_table_config (native/capi/capi.h)."""

    _fields_ = [
        ("name", c_char_p),
        ("dim", c_int32),
        ("max_rows", c_int64),
        ("expected_rows", c_int64),
        ("initializer", c_int32),
        ("a", c_float),
        ("b", c_float),
        ("scale", c_float),
        ("seed", c_uint64),
        ("pool", POINTER(c_float)),
        ("pool_rows", c_int64),
        ("padding_keys", POINTER(c_int64)),
        ("padding_count", c_int64),
        ("memory_rows", c_int64),
        ("disk_rows", c_int64),
        ("paths", POINTER(c_char_p)),
        ("path_count", c_int32),
    ]


@dataclasses.dataclass(frozen=True)
class TableConfig:
    """A table's name, its form, and where its rows may be (native/table/table.h)."""

    name: str
    dim: int
    initializer: InitializerSpec
    max_rows: int = 0  # 0: no limit
    expected_rows: int = 0
    padding_keys: Sequence[int] = ()
    tier: Optional[DiskTier] = None  # None: all rows are in memory

    def in_c(self) -> InC:
        """Returns the same for mxrec_table_create; it holds what it points to."""
        spec, tier = self.initializer, self.tier or DiskTier(0, 0, ())
        pool = None if spec.pool is None else np.ascontiguousarray(spec.pool, np.float32)
        padding = np.ascontiguousarray(self.padding_keys, np.int64)
        config = InC(
            name=self.name.encode(),
            dim=self.dim,
            max_rows=self.max_rows,
            expected_rows=self.expected_rows,
            initializer=InitializerSpec.KINDS[spec.kind],
            a=spec.a,
            b=spec.b,
            scale=spec.scale,
            seed=spec.seed % 2**64,
            pool=None if pool is None else pool.ctypes.data_as(POINTER(c_float)),
            pool_rows=0 if pool is None else len(pool),
            padding_keys=padding.ctypes.data_as(POINTER(c_int64)),
            padding_count=padding.size,
            memory_rows=tier.memory_rows,
            disk_rows=tier.disk_rows,
            paths=(c_char_p * max(1, len(tier.paths)))(*map(os.fsencode, tier.paths)),
            path_count=len(tier.paths),
        )
        config.arrays = pool, padding  # so that they live as long
        return config
