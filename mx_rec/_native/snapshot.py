"""Saving a table (native/table/snapshot.h, native/checkpoint/writer.h)."""

import ctypes
import os
from typing import NamedTuple, Optional

from mx_rec._native import library
from mx_rec._native.c_api import CheckpointFile
from mx_rec._native.file_facts import FileFacts, from_c
from mx_rec._native.table import NativeTable

_NO_MOMENT = -1  # native/table/changes.h
_FILES = 14  # besides those of slots (native/capi/checkpoint_capi.h)


class Numbers(NamedTuple):
    """What a snapshot holds, or those of several ranks together."""

    rows: int = 0
    refused: int = 0
    filter_cells: int = 0
    deleted: int = 0
    now: int = 0  # the latest of the tables' clocks

    def __add__(self, other):
        sums = (mine + theirs for mine, theirs in zip(self[:-1], other[:-1]))
        return Numbers(*sums, max(self.now, other.now))


class Share(NamedTuple):
    """Which part of the files that several ranks write together is this rank's."""

    before: Numbers  # what the ranks before this one hold
    all: Numbers
    is_first: bool  # whose rank also writes what is written once


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
        moment = _NO_MOMENT if moment is None else moment
        library.core().mxrec_snapshot_take(table.encoded, moment, since is None, self._handle, facts)
        self.moment: Optional[int] = None if facts[0] == _NO_MOMENT else facts[0]
        self.table_rows = facts[1]

    def numbers(self) -> Numbers:
        """Counts what it holds."""
        counted = (ctypes.c_int64 * len(Numbers()))()
        library.core().mxrec_snapshot_count(self._handle, counted)
        return Numbers(*counted)

    def write(self, directory: str, share: Optional[Share] = None) -> tuple[int, dict[str, FileFacts]]:
        """Writes it into the new directory `directory`, synced, once. Returns (rows, files by relative name); with a
        `share`, its own rows, and of the files what it has written of them, and the directory may be there."""
        files = (CheckpointFile * (_FILES + 2 * self._slots))()
        rows, count = ctypes.c_int64(), ctypes.c_int32()
        path, before, all_ranks = os.fsencode(directory), None, None
        if share is not None:
            before, all_ranks = ((ctypes.c_int64 * len(part))(*part) for part in (share.before, share.all))
        is_first = share is None or share.is_first
        library.core().mxrec_snapshot_write(
            self._handle, path, before, all_ranks, is_first, rows, files, len(files), count
        )
        return rows.value, from_c(files[: count.value])

    def close(self) -> None:
        """Lets go of what was kept. Repeating it changes nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        library.core().mxrec_snapshot_end(handle)


def follow_changes(table: NativeTable, keys: bool) -> None:
    """Lets the table be saved while it is trained, from now on; with `keys`, also just what has changed."""
    library.core().mxrec_table_follow_changes(table.encoded, keys)


def moment(table: NativeTable) -> Optional[int]:
    """Returns the present moment, to ask later what has changed since; None if changes are not followed."""
    now = ctypes.c_int64()
    library.core().mxrec_table_moment(table.encoded, now)
    return None if now.value == _NO_MOMENT else now.value


def knows_since(table: NativeTable, moment: int) -> bool:
    """Tells whether a snapshot can hold just what has changed since then."""
    known = ctypes.c_int32()
    library.core().mxrec_table_knows_since(table.encoded, moment, known)
    return bool(known.value)
