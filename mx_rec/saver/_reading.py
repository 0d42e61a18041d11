"""Reading the tables of a checkpoint without training: which files there are, what they say, whether they are whole.

A checkpoint is opened by its prefix ("D/model-7"), by its sparse directory ("D/sparse-model-7"), or as the latest of
the directory D. Columns are mapped, not read, so a table may be larger than memory. What was written by this package
has a manifest; what the original SDK wrote has none and is read by its attribute files alone.

Imports no TensorFlow: the command line's tools start in a fraction of a second.
"""

import dataclasses
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Callable, Optional

import numpy as np

from mx_rec._native import checkpoint
from mx_rec._native.checkpoint import FileFacts
from mx_rec._native.table import Tracking
from mx_rec.saver import _directory, _history, _manifest, _recovery
from mx_rec.saver._pair import Pair

# A pickled copy of a table's rows, made by mx_rec.saver.sparse.export: in no manifest, and no damage.
EXPORTED = "key-emb.npy"
# Written by the original, if RECORD_KEY_COUNT=1, and read by nobody.
_ORIGINAL_ONLY = {"key_count_map"}
# Rows that tools handle at a time: a few MB of each column.
CHUNK = 1 << 16
_BLOCK = 1 << 22  # bytes between two calls of a progress bar
_WORD = 8


class CheckpointError(ValueError):
    """A checkpoint cannot be used as asked; the message says why and what to do."""


class NewerFormatError(CheckpointError):
    """A later version of this package wrote it: whether it is whole, this one cannot know."""


class DamagedError(CheckpointError):
    """A file is missing or does not hold what it should; the message names it."""


# ---- Which checkpoint a path means.


def find(path: str) -> str:
    """The sparse directory that `path` means; of a directory with checkpoints, that of the latest one."""
    directory = _directory_of(path)
    if directory is not None:
        return directory
    if not os.path.isdir(path):
        raise CheckpointError(
            f"no checkpoint with tables at '{path}'; give a prefix (D/model-7), a sparse directory (D/sparse-model-7) "
            "or a directory with checkpoints"
        )
    state = os.path.join(path, "checkpoint")
    latest = read_state(state)
    if latest:
        directory = _directory_of(latest[0])
        if directory is None:
            raise CheckpointError(
                f"the latest checkpoint, by '{state}', is '{latest[0]}', which has no tables; give the prefix of "
                "another one"
            )
        return directory
    prefixes = list_prefixes(path)
    if not prefixes:
        raise CheckpointError(f"directory '{path}' holds no checkpoints with tables")
    return _recovery.locate(max(prefixes, key=_age)).sparse


def list_prefixes(directory: str) -> list[str]:
    """The prefixes of all checkpoints with tables that lie in `directory`, by name and step."""
    paths = [os.path.join(directory, name) for name in os.listdir(directory) if re.match(r"\.?sparse-", name)]
    prefixes = {prefix_of(path) for path in paths if is_sparse_directory(path)}
    held = [prefix for prefix in prefixes if os.path.isdir(_recovery.locate(prefix).sparse)]
    return sorted(held, key=lambda prefix: (split_step(prefix)[0], split_step(prefix)[1] or 0))


def is_sparse_directory(path: str) -> bool:
    """Whether `path` is a directory for the tables of one checkpoint, whole or not, that is not being removed."""
    path = os.path.normpath(path)
    hidden = _directory.parse(path)
    if not os.path.isdir(path) or (hidden is not None and (hidden.half, hidden.kind) != ("sparse", "tmp")):
        return False
    names = os.listdir(path)
    if _manifest.NAME in names or any(os.path.isdir(os.path.join(path, name, "key")) for name in names):
        return True
    # By its name alone, as nothing in it may be left; yet somebody may call his folder of checkpoints "sparse-runs".
    is_folder = any(name == "checkpoint" or name.startswith("sparse-") for name in names)
    return re.match(r"\.?sparse-", os.path.basename(path)) is not None and not is_folder


def prefix_of(directory: str) -> str:
    """The reverse of _directory.of: "D/sparse-model-7" -> "D/model-7", also for its hidden names."""
    hidden = _directory.parse(directory)
    if hidden is not None:
        return hidden.prefix
    parent, name = os.path.split(os.path.normpath(directory))
    return os.path.join(parent, name.removeprefix("sparse-"))


def split_step(prefix: str) -> tuple[str, Optional[int]]:
    """Name and step: "D/model-7" -> ("D/model", 7); without a step, (prefix, None)."""
    match = re.fullmatch(r"(.+)-(\d+)", prefix)
    return (match.group(1), int(match.group(2))) if match else (prefix, None)


def read_state(path: str) -> list[str]:
    """The checkpoints that TensorFlow's state file `path` names, the latest first; none if it is no such file."""
    try:
        with open(path, "rb") as file:
            lines = re.findall(rb'^(model|all_model)_checkpoint_paths?: "(.*)"$', file.read(1 << 24), re.MULTILINE)
        # Protocol buffers write other bytes than ASCII in octal.
        named = [(kind, text.decode("unicode_escape").encode("latin-1").decode()) for kind, text in lines]
    except (OSError, ValueError):
        return []
    parent = os.path.dirname(path)
    paths = [os.path.join(parent, name) for _, name in sorted(named, key=lambda item: item[0] != b"model")]
    return list(dict.fromkeys(at_home(path, parent) for path in paths))


def at_home(prefix: str, directory: str) -> str:
    """`prefix`, as a state file in `directory` names it, but in there if it is there: a directory may have several
    names, and one that was copied or moved still names the place where it was written."""
    here = os.path.join(directory, os.path.basename(prefix))
    return prefix if _exists(prefix) and not _exists(here) else here


def _exists(prefix):
    return os.path.exists(prefix + ".index") or os.path.isdir(_directory.of(prefix))


def _directory_of(path):
    """The sparse directory of a prefix, or of itself; None if there is none."""
    if is_sparse_directory(path):
        return os.path.normpath(path)
    prefix = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path)
    if "://" in prefix or not os.path.basename(prefix):
        return None
    directory = _recovery.locate(prefix).sparse
    return directory if os.path.isdir(directory) else None


def _age(prefix):
    step = split_step(prefix)[1]
    return -1 if step is None else step, os.path.getmtime(_recovery.locate(prefix).sparse)


# ---- A checkpoint.


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The tables of one checkpoint."""

    directory: str
    manifest: Optional[_manifest.Manifest]  # None: the original SDK wrote it
    format: Optional[int]
    writer: Optional[str]  # the version of mx_rec
    tables: Mapping[str, "TableFiles"]

    @property
    def prefix(self) -> str:
        """Its name, as TensorFlow calls it."""
        return prefix_of(self.directory)

    @property
    def dense_prefix(self) -> str:
        """Of the dense part that belongs to these tables: the prefix, unless they lie in a pair (_pair.py)."""
        hidden = _directory.parse(self.directory)
        return self.prefix if hidden is None else Pair(hidden.prefix, hidden.owner).dense_prefix

    @property
    def step(self) -> Optional[int]:
        return split_step(self.prefix)[1] if self.manifest is None else self.manifest.step

    @property
    def dense(self) -> str:
        """How the dense part beside it belongs to these tables: "fits", "differs", "missing", or "unknown"."""
        crc = _directory.dense_crc32c(self.dense_prefix)
        if crc is None:
            return "missing"
        if self.manifest is None or self.manifest.dense_index_crc32c is None:
            return "unknown"
        return "fits" if crc == self.manifest.dense_index_crc32c else "differs"

    def table(self, name: str) -> "TableFiles":
        if name not in self.tables:
            raise CheckpointError(
                f"checkpoint '{self.directory}': table '{name}' is not in it, only {sorted(self.tables)}"
            )
        return self.tables[name]


def open_checkpoint(path: str) -> Checkpoint:
    """The checkpoint that `path` means (find). Reads the manifest and nothing else."""
    directory = find(path)
    try:
        manifest = _manifest.read(directory)
        format_, writer = _read_head(directory)
    except ValueError as error:
        format_, _ = _read_head(directory)
        kind = NewerFormatError if isinstance(format_, int) and format_ > _manifest.FORMAT else DamagedError
        raise kind(str(error)) from error
    except OSError as error:
        raise _unreadable(os.path.join(directory, _manifest.NAME), error) from error
    if manifest is not None:
        entries = manifest.tables
    else:
        names = sorted(os.listdir(directory))
        entries = {name: None for name in names if os.path.isdir(os.path.join(directory, name, "key"))}
    tables = {name: TableFiles(name, os.path.join(directory, name), entry) for name, entry in entries.items()}
    return Checkpoint(directory, manifest, format_, writer, tables)


def _read_head(directory):
    """(format, version of mx_rec) as the manifest has them; Nones without one."""
    try:
        with open(os.path.join(directory, _manifest.NAME), encoding="utf-8") as file:
            content = json.load(file)
        return content.get("format"), content.get("mx_rec")
    except (OSError, ValueError, AttributeError):
        return None, None


def _damage(path, what):
    return DamagedError(f"checkpoint file '{path}' {what}")


def _unreadable(path, error):
    return CheckpointError(f"cannot read '{path}': {error.strerror or error}")


# ---- A table.


@dataclasses.dataclass(frozen=True)
class History:
    """What a table knows of its keys, with and without a row, in any order."""

    now: int  # the latest timestamp the table saw
    records: np.ndarray  # int64 [n, 3], mapped: key, count, last time

    @property
    def keys(self) -> np.ndarray:
        return self.records[:, 0]


@dataclasses.dataclass(frozen=True)
class TableFiles:
    """One table. Arrays are mapped read-only; a column whose files contradict each other is a DamagedError."""

    name: str
    path: str
    entry: Optional[_manifest.TableEntry]  # of the manifest, or None without one

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
        """Its name, or None if there was none or no manifest tells it."""
        return None if self.entry is None else self.entry.optimizer

    @functools.cached_property
    def slots(self) -> tuple[str, ...]:
        if self.entry is not None:
            return self.entry.slots
        others = {"key", "embedding", *_ORIGINAL_ONLY, *_history.COLUMNS}
        return tuple(sorted(name for name in self._columns_on_disk() if name not in others))

    @functools.cached_property
    def tracking(self) -> Optional[Tracking]:
        """Thresholds and clock; None if the table did not count its keys."""
        if self.entry is not None:
            return self.entry.tracking
        path = self.data_file("table_2_threshold")
        if not os.path.exists(path):
            return None
        numbers = self._map("table_2_threshold", np.int32)
        if numbers.size != 3 or (numbers[:2] < -1).any():
            raise _damage(path, f"is damaged: expected 3 int32 from -1, got {numbers[:8].tolist()}")
        history = self.history()
        return Tracking(int(numbers[0]), int(numbers[1]), 1, 0, now=history.now if history else 0)

    @property
    def bytes(self) -> int:
        """Of all files that belong to the table, as they are on disk."""
        return sum(size for size in map(_size, self.files()) if size is not None)

    def keys(self) -> np.ndarray:
        """int64 [rows]."""
        return self._column("key", np.int64, (self.rows,), (self.rows, _WORD))

    def floats(self, column: str) -> np.ndarray:
        """float32 [rows, dim]: "embedding" or a slot."""
        return self._column(column, np.float32, (self.rows, self.dim), (self.rows, self.dim, 4))

    def history(self) -> Optional[History]:
        """None if the table did not count its keys, or counts them in a filter alone and lost the records."""
        if not self._has("history_record"):
            return None
        # The original writes a wrong attribute here, so the size of the data counts.
        words = self._map("history_record", np.int64)
        path = self.data_file("history_record")
        if words.size % 3 != 1:
            raise _damage(path, f"is damaged: its {words.size} words are no clock and whole records")
        if words[0] < 0:
            raise _damage(path, f"is damaged: its clock stands at {words[0]}")
        return History(int(words[0]), words[1:].reshape(-1, 3))

    def last_steps(self) -> Optional[np.ndarray]:
        """int64 [rows]: the step in which a row was last trained; None if unknown."""
        if not self._has("last_step"):
            return None
        return self._column("last_step", np.int64, (self.rows,), None)

    def filter(self) -> Optional[np.ndarray]:
        """uint16: the counting filter of admission; None if the table has none."""
        return self._map("admission_filter", np.uint16) if self._has("admission_filter") else None

    def files(self) -> list[str]:
        """The paths of all files that belong to the table."""
        if self.entry is not None:
            return [os.path.join(self.path, name) for name in self.entry.files]
        besides = sorted(column for column in {*_history.COLUMNS, *_ORIGINAL_ONLY} if self._has(column))
        columns = ("key", "embedding", *self.slots, *besides)
        return [file for column in columns for file in (self.data_file(column), self.attribute_file(column))]

    def foreign_files(self) -> list[str]:
        """Files in the table's directory that do not belong to it; exports are at home there."""
        known = {*self.files(), os.path.join(self.path, EXPORTED)}
        found = (os.path.join(folder, name) for folder, _, names in os.walk(self.path) for name in names)
        return sorted(path for path in found if path not in known)

    def find_rows(self, keys) -> dict[int, int]:
        """{key: row} of those `keys` that have one."""
        return _find(self.keys(), keys)

    def find_history(self, keys) -> dict[int, tuple[int, int]]:
        """{key: (count, last time)} of those `keys` that the table has counted."""
        history = self.history()
        if history is None:
            return {}
        places = _find(history.keys, keys)
        return {key: (int(history.records[at, 1]), int(history.records[at, 2])) for key, at in places.items()}

    def data_file(self, column: str) -> str:
        return os.path.join(self.path, column, "slice.data")

    def attribute_file(self, column: str) -> str:
        return os.path.join(self.path, column, "slice.attribute")

    def _columns_on_disk(self):
        try:
            names = os.listdir(self.path)
        except OSError as error:
            raise _damage(self.path, f"cannot be read: {error.strerror}") from error
        return [name for name in names if os.path.exists(self.data_file(name))]

    def _has(self, column):
        if self.entry is not None:
            return f"{column}/slice.data" in self.entry.files
        return os.path.exists(self.data_file(column))

    def _column(self, column, dtype, shape, attribute):
        if attribute is not None:
            found = self._attribute(column, len(attribute))
            if found != attribute:
                raise _damage(
                    self.attribute_file(column), f"is damaged: it says {list(found)}, expected {list(attribute)}"
                )
        check_size(self.data_file(column), int(np.prod(shape)) * np.dtype(dtype).itemsize, "by rows and dim")
        return self._map(column, dtype).reshape(shape)

    def _attribute(self, column, count):
        path = self.attribute_file(column)
        check_size(path, count * _WORD, f"{count} int64")
        numbers = np.fromfile(path, np.int64)
        if (numbers < 0).any() or (numbers > 1 << 48).any():  # shapes made of such numbers would overflow
            raise _damage(path, f"is damaged: it says {numbers.tolist()}")
        return tuple(numbers.tolist())

    def _map(self, column, dtype):
        path = self.data_file(column)
        size = _size(path)
        if size is None:
            raise _damage(path, "is missing")
        itemsize = np.dtype(dtype).itemsize
        if size % itemsize:
            raise _damage(path, f"is cut off: its {size} bytes are no whole number of {np.dtype(dtype).name}")
        if size == 0:
            return np.empty(0, dtype)  # nothing to map
        try:
            return np.memmap(path, dtype, mode="r")
        except OSError as error:
            raise _unreadable(path, error) from error


def chunks(rows: int) -> Iterator[slice]:
    """Slices that cover `rows` rows, in order."""
    return (slice(begin, min(begin + CHUNK, rows)) for begin in range(0, rows, CHUNK))


def _find(array, keys):
    """{key: its first place in `array`}."""
    wanted = np.array(sorted({int(key) for key in keys}), np.int64)
    found = {}
    for part in chunks(len(array)):
        block = array[part]
        for at in np.flatnonzero(np.isin(block, wanted)):
            found.setdefault(int(block[at]), part.start + int(at))
    return found


# ---- Whether a file is whole.


def check_size(path: str, expected: int, source: str) -> None:
    """Raises DamagedError unless the file has `expected` bytes."""
    size = _size(path)
    if size is None:
        raise _damage(path, "is missing")
    rule = f", expected {expected} bytes ({source})"
    if size < expected:
        raise _damage(path, f"is cut off: it ends at offset {size}{rule}")
    if size > expected:
        raise _damage(path, f"is too long: it has {size} bytes{rule}")


def check_content(path: str, facts: FileFacts, advance: Optional[Callable[[int], object]] = None) -> None:
    """Raises DamagedError unless the file has the size and the CRC32C of `facts`. Calls `advance` with the number of
    bytes read since its last call."""
    check_size(path, facts.bytes, "as written")
    block = np.empty(min(_BLOCK, max(facts.bytes, 1)), np.uint8)
    crc = 0
    try:
        # Read, not mapped: a bad sector is then an error and not the end of the process.
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(block):
                crc = checkpoint.crc32c(block[:count], crc)
                if advance is not None:
                    advance(count)
    except OSError as error:
        raise _damage(path, f"cannot be read: {error.strerror or error}") from error
    if crc != facts.crc32c:
        raise _damage(
            path,
            f"is damaged: the CRC32C of its {facts.bytes} bytes is 0x{crc:08x}, expected 0x{facts.crc32c:08x} "
            "(as written)",
        )


def _size(path):
    try:
        return os.path.getsize(path)
    except OSError:
        return None
