"""Checkpoints of single tables (native/checkpoint): one directory per table."""

import ctypes
import dataclasses
import os
from collections.abc import Mapping
from typing import Optional

import numpy as np

from mx_rec._native import library
from mx_rec._native.errors import check
from mx_rec._native.table import NativeTable


@dataclasses.dataclass(frozen=True)
class FileFacts:
    """What tells whether a written file is still the same."""

    bytes: int
    crc32c: int


_NO_MOMENT = -1  # native/table/changes.h


class _File(ctypes.Structure):
    """mxrec_checkpoint_file in native/capi/checkpoint_capi.h."""

    _fields_ = [("name", ctypes.c_char * 272), ("bytes", ctypes.c_int64), ("crc32c", ctypes.c_uint32)]


class Snapshot:
    """A table as it is when this is made, between two steps: all rows, or those changed since the moment `since`.

    Steps may run at once if the table follows its changes (follow_changes), else after close(). RuntimeError if another
    snapshot of the table is open, or the changes since then are not known.
    """

    def __init__(self, table: NativeTable, since: Optional[int] = None, base: Optional[int] = None):
        """`base`: a moment that later snapshots may still ask for, if not `since`."""
        self._slots = len(table.slots)
        self._handle = ctypes.c_void_p()
        facts = (ctypes.c_int64 * 2)()
        moment = base if since is None else since
        check(
            library.core().mxrec_snapshot_take(
                table.name.encode(),
                ctypes.c_int64(_NO_MOMENT if moment is None else moment),
                ctypes.c_int32(since is None),
                ctypes.byref(self._handle),
                facts,
            )
        )
        self.moment: Optional[int] = None if facts[0] == _NO_MOMENT else facts[0]
        self.table_rows = facts[1]

    def write(self, directory: str) -> tuple[int, dict[str, FileFacts]]:
        """Writes it into the new directory `directory`, synced, once. Returns (rows, files by relative name)."""
        capacity = 14 + 2 * self._slots
        files = (_File * capacity)()
        rows, count = ctypes.c_int64(), ctypes.c_int32()
        check(
            library.core().mxrec_snapshot_write(
                self._handle,
                os.fsencode(directory),
                ctypes.byref(rows),
                files,
                ctypes.c_int32(capacity),
                ctypes.byref(count),
            )
        )
        return rows.value, {f.name.decode(): FileFacts(f.bytes, f.crc32c) for f in files[: count.value]}

    def close(self) -> None:
        """Lets go of what was kept. Repeating it changes nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        library.core().mxrec_snapshot_end(handle)


def follow_changes(table: NativeTable, keys: bool) -> None:
    """From now on the table can be saved while it is trained; with `keys`, also just what has changed."""
    check(library.core().mxrec_table_follow_changes(table.name.encode(), ctypes.c_int32(keys)))


def moment(table: NativeTable) -> Optional[int]:
    """Now, to ask later for what has changed since; None if the table does not follow its changes."""
    now = ctypes.c_int64()
    check(library.core().mxrec_table_moment(table.name.encode(), ctypes.byref(now)))
    return None if now.value == _NO_MOMENT else now.value


def knows_since(table: NativeTable, moment: int) -> bool:
    """Whether a snapshot can hold just what has changed since then."""
    known = ctypes.c_int32()
    check(library.core().mxrec_table_knows_since(table.name.encode(), ctypes.c_int64(moment), ctypes.byref(known)))
    return bool(known.value)


class Reader:
    """The files of a table in `directory`, all opened, and kept until `close`: what is verified is what is loaded,
    whatever becomes of the directory meanwhile.

    `expected` are the files as they were written, or nothing if that is not known; of others none is opened.
    `rows_only`: keys and embeddings, without slots and counts. Raises ValueError if one is missing.
    """

    def __init__(
        self,
        table: NativeTable,
        directory: str,
        expected: Mapping[str, FileFacts],
        is_delta: bool = False,
        rows_only: bool = False,
    ):
        files = (_File * max(1, len(expected)))()
        for file, (name, facts) in zip(files, expected.items()):
            file.name, file.bytes, file.crc32c = name.encode(), facts.bytes, facts.crc32c
        self._handle = ctypes.c_void_p()
        check(
            library.core().mxrec_reader_open(
                table.name.encode(),
                os.fsencode(directory),
                ctypes.c_int32(is_delta),
                ctypes.c_int32(rows_only),
                files,
                ctypes.c_int32(len(expected)),
                ctypes.byref(self._handle),
            )
        )

    def verify(self, contents: bool = True) -> int:
        """Returns the number of rows. Raises unless the files can be loaded into the table: ValueError if one is
        damaged or cut, or holds rows of another dim; MemoryError if there are more rows than the table may hold.
        Without `contents`, as far as sizes tell. Touches nothing."""
        rows = ctypes.c_int64()
        check(library.core().mxrec_reader_verify(self._handle, ctypes.c_int32(contents), ctypes.byref(rows)))
        return rows.value

    def load(self) -> int:
        """Replaces the table's rows by those of the files, or adds those of a delta to them. Returns their number.
        Unless the contents were verified before, it raises what `verify` would; then the table is as it was, or empty.
        """
        rows = ctypes.c_int64()
        check(library.core().mxrec_reader_load(self._handle, ctypes.byref(rows)))
        return rows.value

    def close(self) -> None:
        """Closes the files. Repeating it changes nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        library.core().mxrec_reader_close(handle)


def crc32c(data, crc: int = 0) -> int:
    """The checksum of A + `data`, bytes or an array of them, where `crc` is that of A."""
    function = library.core().mxrec_crc32c
    function.restype = ctypes.c_uint32
    block = np.frombuffer(data, np.uint8)
    return function(ctypes.c_uint32(crc), ctypes.c_void_p(block.ctypes.data), ctypes.c_int64(block.size))
