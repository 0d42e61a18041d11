"""NativeTable: one table of the core, by name."""

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Optional

import numpy as np

from mx_rec._native import library
from mx_rec._native.table_config import TableConfig
from mx_rec._process import Part, part, process


@dataclasses.dataclass(frozen=True)
class Facts:
    """A table's numbers at one moment; inserted = rows + erased, seen = inserted + refused (native/table/history.h)."""

    rows: int
    capacity: int
    bytes: int
    inserted: int
    erased: int
    shards: int
    seen: int
    refused: int
    candidates: int
    mutations: int  # training batches, writes, evictions and loads so far (native/table/table.h)
    nonfinite: int  # rows that were not updated because their gradients were not finite (native/table/nonfinite.h)
    elsewhere: int  # rows that other ranks have, as of the latest lookup

    @property
    def is_untouched(self) -> bool:
        """Whether the table is as it was made."""
        return self.mutations == 0 and self.inserted == 0


@dataclasses.dataclass(frozen=True)
class TierFacts:
    """What a table's disk tier holds, and what it has done so far (native/capi/capi.h: mxrec_table_tier)."""

    rows_in_memory: int
    rows_on_disk: int
    bytes_on_disk: int
    hits: int
    promotions: int
    demotions: int
    moved: int
    read_nanoseconds: int


@dataclasses.dataclass(frozen=True)
class Tracking:
    """What a table tracks of its keys; thresholds of -1 are off."""

    access_threshold: int
    eviction_threshold: int
    coefficient: int
    filter_bytes: int
    now: int = 0
    step: int = 0


def _saved_numbers(saved):
    return saved.access_threshold, saved.eviction_threshold, saved.coefficient, saved.step


class NativeTable:
    """A handle by name; the table itself belongs to the process and lives until `clear_all()`."""

    def __init__(self, config: TableConfig):
        self.name = config.name
        self.max_rows = config.max_rows  # 0: no limit
        self.dim = config.dim
        self.encoded = self.name.encode()
        self.slot_specs: tuple[tuple[str, float], ...] = ()  # as set through this handle
        library.core().mxrec_table_create(config.in_c())
        part(_Registry).known[self.name] = self

    def set_slots(self, slots: Sequence[tuple[str, float]]) -> None:
        """Makes room in every row for the optimizer's slots: (checkpoint name, initial value) each."""
        names = (ctypes.c_char_p * max(1, len(slots)))(*[name.encode() for name, _ in slots])
        values = (ctypes.c_float * max(1, len(slots)))(*[value for _, value in slots])
        library.core().mxrec_table_set_slots(self.encoded, len(slots), names, values)
        self.slot_specs = tuple(slots)

    @property
    def slots(self) -> tuple[str, ...]:
        """Checkpoint names of the slots in a row; none before an optimizer is applied."""
        names: list[str] = []
        buffer = ctypes.create_string_buffer(512)
        while True:
            try:
                library.core().mxrec_table_slot_name(self.encoded, len(names), buffer, len(buffer))
            except KeyError:
                return tuple(names)
            names.append(buffer.value.decode())

    def facts(self) -> Facts:
        numbers = (ctypes.c_int64 * len(dataclasses.fields(Facts)))()
        library.core().mxrec_table_facts(self.encoded, numbers)
        return Facts(*numbers)

    @property
    def tier(self) -> Optional[TierFacts]:
        """The numbers of the disk tier; None if the table has none."""
        return self._numbers_if_any(library.core().mxrec_table_tier, TierFacts)

    def track(self, tracking: Tracking) -> None:
        """Makes the table count and date its keys (native/table/table.h: Track)."""
        numbers = (ctypes.c_int64 * 4)(*dataclasses.astuple(tracking)[:4])
        library.core().mxrec_table_track(self.encoded, numbers)

    @property
    def tracking(self) -> Optional[Tracking]:
        """What the table tracks now; None if nothing."""
        return self._numbers_if_any(library.core().mxrec_table_tracking, Tracking)

    def _numbers_if_any(self, function, kind):
        """Returns what `function` tells of the table as a `kind`, whole numbers; None if it finds nothing."""
        numbers = (ctypes.c_int64 * len(dataclasses.fields(kind)))()
        try:
            function(self.encoded, numbers)
        except KeyError:
            return None
        return kind(*numbers)

    def check_tracking(self, saved: Tracking) -> None:
        """Raises what restore_tracking would."""
        library.core().mxrec_table_check_tracking(self.encoded, *_saved_numbers(saved))

    def restore_tracking(self, saved: Tracking) -> None:
        """Sets what a checkpoint holds beside the history of the keys; not the clock, which comes with that."""
        library.core().mxrec_table_restore_tracking(self.encoded, *_saved_numbers(saved))

    def history(self, keys) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns (count, last time, last step) of `keys`, int64 [n] each; zeros where unknown."""
        keys = np.ascontiguousarray(keys, np.int64).reshape(-1)
        found = tuple(np.empty(keys.size, np.int64) for _ in range(3))
        library.core().mxrec_table_history(self.encoded, keys, keys.size, *found)
        return found

    def keys(self) -> np.ndarray:
        """Returns all keys, int64, in the table's own order."""
        count = ctypes.c_int64(self.facts().rows)
        while True:
            out = np.empty(count.value, np.int64)
            capacity = out.size
            library.core().mxrec_table_keys(self.encoded, out, capacity, count)
            if count.value <= capacity:
                return out[: count.value]

    def some_keys(self, count: int) -> np.ndarray:
        """Returns up to `count` keys that have a row, int64, as good as drawn by lot, and without a walk over the
        table."""
        out, found = np.empty(count, np.int64), ctypes.c_int64()
        library.core().mxrec_table_some_keys(self.encoded, out, count, found)
        return out[: found.value]

    def read(self, keys) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values [n, 1 + slots, dim], found [n]) of `keys`; zeros where a key has no row. Changes nothing."""
        keys = np.ascontiguousarray(keys, np.int64).reshape(-1)
        values = np.empty((keys.size, 1 + len(self.slots), self.dim), np.float32)
        found = np.empty(keys.size, np.uint8)
        library.core().mxrec_table_read(self.encoded, keys, keys.size, values, found)
        return values, found.astype(bool)

    def write(self, keys, values) -> None:
        """Adds or replaces rows: values [n, 1 + slots, dim]."""
        keys = np.ascontiguousarray(keys, np.int64).reshape(-1)
        values = np.ascontiguousarray(values, np.float32)
        expected = (keys.size, 1 + len(self.slots), self.dim)
        if values.shape != expected:
            raise ValueError(f"table '{self.name}': values must have shape {expected}, got {values.shape}")
        library.core().mxrec_table_write(self.encoded, keys, keys.size, values)

    def assign(self, keys: np.ndarray, embeddings: np.ndarray) -> None:
        """Gives keys, int64 [n] and none of them twice, their embeddings, float32 [n, dim].

        Slots of rows that are there stay, those of new rows have their initial values. After a failure, all is as
        before."""
        library.core().mxrec_table_assign(self.encoded, keys, keys.size, embeddings)

    def erase(self, keys) -> int:
        """Removes the keys that are present; returns how many."""
        keys = np.ascontiguousarray(keys, np.int64).reshape(-1)
        erased = ctypes.c_int64()
        library.core().mxrec_table_erase(self.encoded, keys, keys.size, erased)
        return erased.value

    def clear(self) -> None:
        library.core().mxrec_table_clear(self.encoded)


class Eviction:
    """A pass of eviction over one table (native/table/eviction.h)."""

    SCORES = {"time": 0, "step": 1, "count": 2, "norm": 3}

    def __init__(self, table: NativeTable, score: str, threshold: float, keep: int):
        self.table = table
        self.evicted = 0
        self.is_done = False
        self._handle = ctypes.c_void_p()
        library.core().mxrec_eviction_begin(table.encoded, self.SCORES[score], threshold, keep, self._handle)

    def run(self, rows: int) -> None:
        """Walks on over `rows` rows or a little more. No step of the table may be running."""
        done, evicted = ctypes.c_int32(), ctypes.c_int64()
        library.core().mxrec_eviction_run(self._handle, rows, done, evicted)
        self.evicted, self.is_done = evicted.value, bool(done.value)

    def __del__(self):
        if self._handle:
            library.core().mxrec_eviction_end(self._handle)


class _Registry(Part):
    """The tables of the process."""

    def __init__(self):
        self.known: dict[str, NativeTable] = {}  # by name

    def close(self):
        clear_all()


def known() -> dict[str, NativeTable]:
    """Returns the tables of the process that exist now, by name, whatever graph has them."""
    return dict(part(_Registry).known)


def generation() -> int:
    """Returns how often all tables were forgotten: what tells a table from a later one of its name."""
    return process.generation


def clear_all() -> None:
    """Forgets every table of the process."""
    process.generation += 1
    part(_Registry).known.clear()
    library.core().mxrec_registry_clear()
