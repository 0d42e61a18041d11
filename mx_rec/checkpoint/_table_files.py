"""The files of one table in one checkpoint: what they say, and whether they are whole.

Columns are mapped, not read, so a table may be larger than memory. What was written by this package has an entry in a
manifest; what the original SDK wrote has none and is read by its attribute files alone.
"""

import dataclasses
import functools
import io
import os
from collections.abc import Iterator
from typing import Callable, Optional

import numpy as np

from mx_rec._native.file_facts import FileFacts, crc32c
from mx_rec._native.table import Tracking
from mx_rec.checkpoint import _columns, _files, _manifest
from mx_rec.checkpoint._errors import DamagedError, damage, unreadable

# A pickled copy of a table's rows, made by mx_rec.saver.sparse.export: in no manifest, and no damage.
EXPORTED = "key-emb.npy"
# Rows that tools handle at a time: a few MB of each column.
CHUNK = 1 << 16
_BLOCK = 1 << 22  # bytes between two calls of a progress bar
_WORD = 8


@dataclasses.dataclass(frozen=True)
class History:
    """What a table knows of its keys, with and without a row, in any order: int64 [n] each. Counts and times may be
    views of several files (_merging.py), which give arrays where they are indexed."""

    now: int  # the latest timestamp the table saw
    keys: np.ndarray
    counts: np.ndarray
    times: np.ndarray


@dataclasses.dataclass(frozen=True)
class TableFiles:
    """One table: of a delta, what has changed. Arrays are mapped read-only; a column whose files contradict each other
    is a DamagedError."""

    name: str
    path: str
    entry: Optional[_manifest.TableEntry]  # of the manifest, or None without one

    @property
    def directory(self) -> str:
        """The directory of the checkpoint."""
        return os.path.dirname(self.path)

    @functools.cached_property
    def rows(self) -> int:
        return self._attribute("key", 2)[0] if self.entry is None else self.entry.rows

    @functools.cached_property
    def dim(self) -> int:
        return self._attribute("embedding", 3)[1] if self.entry is None else self.entry.dim

    @property
    def key_dtype(self) -> str:
        return "int64" if self.entry is None else self.entry.key_dtype

    @property
    def optimizer(self) -> Optional[str]:
        """The optimizer's name; None if there was none or no manifest tells it."""
        return None if self.entry is None else self.entry.optimizer

    @functools.cached_property
    def slots(self) -> tuple[str, ...]:
        if self.entry is not None:
            return self.entry.slots
        others = (*_columns.ALL, *_columns.ORIGINAL_ONLY)
        return tuple(sorted(name for name in self._columns_on_disk() if name not in others))

    @functools.cached_property
    def tracking(self) -> Optional[Tracking]:
        """Thresholds and clock; None if the table did not count its keys."""
        found = self.thresholds
        history = None if found is None or self.entry is not None else self.history()
        return found if history is None else dataclasses.replace(found, now=history.now)

    @functools.cached_property
    def thresholds(self) -> Optional[Tracking]:
        """The same without the clock where there is no manifest: it is with the history then."""
        if self.entry is not None:
            return self.entry.tracking
        path = self.data_file("table_2_threshold")
        if not os.path.exists(path):
            return None
        numbers = self._map("table_2_threshold", np.int32)
        if numbers.size != 3 or (numbers[:2] < -1).any():
            raise damage(path, f"is damaged: expected 3 int32 from -1, got {numbers[:8].tolist()}")
        return Tracking(int(numbers[0]), int(numbers[1]), 1, 0)

    @functools.cached_property
    def links(self) -> list["TableFiles"]:
        """The files it consists of: those of the chain, in a table that builds on others (_merging.py)."""
        return [self]

    @property
    def bytes(self) -> int:
        """The bytes of all files that belong to the table, as they are on disk."""
        return sum(size for size in map(_size, self.files()) if size is not None)

    def keys(self) -> np.ndarray:
        """Returns the keys, int64 [rows]."""
        return self._column("key", np.int64, (self.rows,), (self.rows, _WORD))

    def floats(self, column: str) -> np.ndarray:
        """Returns the embeddings ("embedding") or a slot, float32 [rows, dim]."""
        return self._column(column, np.float32, (self.rows, self.dim), (self.rows, self.dim, 4))

    def history(self) -> Optional[History]:
        """Returns what the table knows of its keys; None if it did not count them, or in a filter alone."""
        if not self._has("history_record"):
            return None
        # The original writes a wrong attribute here, so the size of the data counts.
        words = self._map("history_record", np.int64)
        path = self.data_file("history_record")
        if words.size % 3 != 1:
            raise damage(path, f"is damaged: its {words.size} words are no clock and whole records")
        if words[0] < 0:
            raise damage(path, f"is damaged: its clock stands at {words[0]}")
        return History(int(words[0]), *words[1:].reshape(-1, 3).T)

    def numbers(self, column: str) -> Optional[np.ndarray]:
        """Returns a column of _columns.NUMBERS, int64 [rows]; None if the table has none."""
        return self._column(column, np.int64, (self.rows,), None) if self._has(column) else None

    def filter(self) -> Optional[np.ndarray]:
        """Returns the counting filter of admission, uint16; None if the table has none."""
        return self._map("admission_filter", np.uint16) if self._has("admission_filter") else None

    def deleted(self) -> np.ndarray:
        """Returns, of a delta, the keys that lost their rows since its parent, int64 [n]; some may have one again."""
        if not self._has("deleted"):
            return np.empty(0, np.int64)
        count = self._attribute("deleted", 2)[0]
        return self._column("deleted", np.int64, (count,), (count, _WORD))

    def files(self) -> list[str]:
        """Returns the paths of all files that belong to the table."""
        if self.entry is not None:
            return [os.path.join(self.path, name) for name in self.entry.files]
        others = sorted({*_columns.ALL, *_columns.ORIGINAL_ONLY} - {"key", "embedding"})
        columns = ("key", "embedding", *self.slots, *filter(self._has, others))
        return [file for column in columns for file in (self.data_file(column), self.attribute_file(column))]

    def foreign_files(self) -> list[str]:
        """Files in the table's directory that do not belong to it; exports are at home there."""
        known = {*self.files(), os.path.join(self.path, EXPORTED)}
        found = (os.path.join(folder, name) for folder, _, names in os.walk(self.path) for name in names)
        return sorted(path for path in found if path not in known)

    def check_no_links(self) -> None:
        """Raises ValueError if a file of the table, or a directory above it in the checkpoint, is a symbolic link."""
        named = {} if self.entry is None else self.entry.files
        for column in {name.partition("/")[0] for name in named} or os.listdir(self.path):
            for file in ("slice.data", "slice.attribute"):
                _files.check_no_links(self.directory, self.name, column, file)

    def find(self, keys) -> dict[int, tuple["TableFiles", int]]:
        """Returns {key: (files, row)} of those `keys` that have a row: where it is to be read."""
        return {key: (self, row) for key, row in find_first(self.keys(), keys).items()}

    def find_history(self, keys) -> dict[int, tuple[int, int]]:
        """Returns {key: (count, last time)} of those `keys` that the table has counted."""
        history = self.history()
        if history is None:
            return {}
        places = find_first(history.keys, keys)
        return {key: (int(history.counts[at]), int(history.times[at])) for key, at in places.items()}

    def data_file(self, column: str) -> str:
        return os.path.join(self.path, column, "slice.data")

    def attribute_file(self, column: str) -> str:
        return os.path.join(self.path, column, "slice.attribute")

    def _columns_on_disk(self):
        try:
            names = os.listdir(self.path)
        except OSError as error:
            raise damage(self.path, f"cannot be read: {error.strerror}") from error
        return [name for name in names if os.path.exists(self.data_file(name))]

    def _has(self, column):
        if self.entry is not None:
            return f"{column}/slice.data" in self.entry.files
        return os.path.exists(self.data_file(column))

    def _column(self, column, dtype, shape, attribute):
        if attribute is not None:
            found = self._attribute(column, len(attribute))
            if found != attribute:
                raise damage(
                    self.attribute_file(column), f"is damaged: it says {list(found)}, expected {list(attribute)}"
                )
        check_size(self.data_file(column), int(np.prod(shape)) * np.dtype(dtype).itemsize, "by rows and dim")
        return self._map(column, dtype).reshape(shape)

    def _attribute(self, column, count):
        path = self.attribute_file(column)
        check_size(path, count * _WORD, f"{count} int64")
        with open_file(path) as file:
            numbers = np.fromfile(file, np.int64, count)
        if (numbers < 0).any() or (numbers > 1 << 48).any():  # shapes made of such numbers would overflow
            raise damage(path, f"is damaged: it says {numbers.tolist()}")
        return tuple(numbers.tolist())

    def _map(self, column, dtype):
        path = self.data_file(column)
        size = _size(path)
        if size is None:
            raise damage(path, "is missing")
        itemsize = np.dtype(dtype).itemsize
        if size % itemsize:
            raise damage(path, f"is cut off: its {size} bytes are no whole number of {np.dtype(dtype).name}")
        try:
            with open_file(path) as file:
                # There is nothing to map in an empty file.
                return np.memmap(file, dtype, mode="r") if size > 0 else np.empty(0, dtype)
        except OSError as error:
            raise unreadable(path, error) from error


def chunks(rows: int) -> Iterator[slice]:
    """Returns slices that cover `rows` rows, in order."""
    return (slice(begin, min(begin + CHUNK, rows)) for begin in range(0, rows, CHUNK))


def find_first(array: np.ndarray, keys) -> dict[int, int]:
    """Returns {key: its first place in `array`} of those `keys` that are in it."""
    wanted = np.array(sorted({int(key) for key in keys}), np.int64)
    found = {}
    for part in chunks(len(array)):
        block = array[part]
        for at in np.flatnonzero(np.isin(block, wanted)):
            found.setdefault(int(block[at]), part.start + int(at))
    return found


# ---- Whether a file is whole.


def open_file(path: str) -> io.FileIO:
    """Opens a file <table>/<column>/<name> to be read. DamagedError if it is none that lies there."""
    parent, *names = path.rsplit("/", 3)
    try:
        _files.check_no_links(parent, *names)
        return _files.open_regular(path)
    except ValueError as error:
        raise DamagedError(str(error)) from error
    except FileNotFoundError as error:
        raise damage(path, "is missing") from error
    except OSError as error:
        raise unreadable(path, error) from error


def check_size(path: str, expected: int, source: str) -> None:
    """Raises DamagedError unless the file has `expected` bytes."""
    size = _size(path)
    if size is None:
        raise damage(path, "is missing")
    rule = f", expected {expected} bytes ({source})"
    if size < expected:
        raise damage(path, f"is cut off: it ends at offset {size}{rule}")
    if size > expected:
        raise damage(path, f"is too long: it has {size} bytes{rule}")


def check_content(path: str, facts: FileFacts, advance: Optional[Callable[[int], object]] = None) -> None:
    """Raises DamagedError unless the file has the size and the CRC32C of `facts`. Calls `advance` with the number of
    bytes read since its last call."""
    check_size(path, facts.bytes, "as written")
    block = np.empty(min(_BLOCK, max(facts.bytes, 1)), np.uint8)
    crc = 0
    try:
        # Read, not mapped: a bad sector is then an error and not the end of the process.
        with open_file(path) as file:
            while count := file.readinto(block):
                crc = crc32c(block[:count], crc)
                if advance is not None:
                    advance(count)
    except OSError as error:
        raise damage(path, f"cannot be read: {error.strerror or error}") from error
    if crc != facts.crc32c:
        raise damage(
            path,
            f"is damaged: the CRC32C of its {facts.bytes} bytes is 0x{crc:08x}, expected 0x{facts.crc32c:08x} "
            "(as written)",
        )


def _size(path):
    try:
        return os.path.getsize(path)
    except OSError:
        return None
