"""Checkpoints of single tables (native/checkpoint): one directory per table."""

import ctypes
import dataclasses
import os
from collections.abc import Mapping

import numpy as np

from mx_rec._native import library
from mx_rec._native.errors import check
from mx_rec._native.table import NativeTable


@dataclasses.dataclass(frozen=True)
class FileFacts:
    """What tells whether a written file is still the same."""

    bytes: int
    crc32c: int


class _File(ctypes.Structure):
    """mxrec_checkpoint_file in native/capi/checkpoint_capi.h."""

    _fields_ = [("name", ctypes.c_char * 272), ("bytes", ctypes.c_int64), ("crc32c", ctypes.c_uint32)]


def save(table: NativeTable, directory: str) -> tuple[int, dict[str, FileFacts]]:
    """Writes the table into the new directory `directory`, synced. Returns (rows, files by relative name)."""
    capacity = 12 + 2 * len(table.slots)
    files = (_File * capacity)()
    rows, count = ctypes.c_int64(), ctypes.c_int32()
    check(
        library.core().mxrec_checkpoint_save(
            table.name.encode(),
            os.fsencode(directory),
            ctypes.byref(rows),
            files,
            ctypes.c_int32(capacity),
            ctypes.byref(count),
        )
    )
    return rows.value, {f.name.decode(): FileFacts(f.bytes, f.crc32c) for f in files[: count.value]}


def verify(table: NativeTable, directory: str, expected: Mapping[str, FileFacts]) -> None:
    """Raises unless `directory` can be loaded into the table: ValueError if a file is damaged or cut, or holds rows of
    another dim; MemoryError if there are more rows than the table may hold. Touches nothing. `expected` may be empty.
    """
    files = (_File * max(1, len(expected)))()
    for file, (name, facts) in zip(files, expected.items()):
        file.name, file.bytes, file.crc32c = name.encode(), facts.bytes, facts.crc32c
    check(
        library.core().mxrec_checkpoint_verify(
            table.name.encode(), os.fsencode(directory), files, ctypes.c_int32(len(expected))
        )
    )


def load(table: NativeTable, directory: str) -> int:
    """Replaces the table's rows by those in `directory`, which was verified. Returns their number."""
    rows = ctypes.c_int64()
    check(library.core().mxrec_checkpoint_load(table.name.encode(), os.fsencode(directory), ctypes.byref(rows)))
    return rows.value


def crc32c(data, crc: int = 0) -> int:
    """The checksum of A + `data`, bytes or an array of them, where `crc` is that of A."""
    function = library.core().mxrec_crc32c
    function.restype = ctypes.c_uint32
    block = np.frombuffer(data, np.uint8)
    return function(ctypes.c_uint32(crc), ctypes.c_void_p(block.ctypes.data), ctypes.c_int64(block.size))
