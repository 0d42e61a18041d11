"""One save of tables and dense variables, from the instant it shows to the end of its writing."""

import dataclasses
import os
import time
from collections.abc import Mapping
from typing import Callable, Optional

import tensorflow as tf

from mx_rec._log import logger
from mx_rec._native import snapshot as native_snapshot
from mx_rec.checkpoint import _layout, _manifest
from mx_rec.saver import _live, _tip
from mx_rec.transaction._transaction import Transaction


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be saved, and how."""

    prefix: str
    step: Optional[int]
    tables: list
    parent: Optional[_tip.Tip]  # a delta of this one; None: all rows
    starts_chain: bool  # deltas may build on it
    while_training: bool  # steps may run while it is written


class Saving:
    """A save whose instant has passed: steps may run before `finish`, if the request allows it.

    Made between two steps. `write_dense(prefix)` writes the dense variables under that prefix and returns TensorFlow's
    name for what it wrote.
    """

    def __init__(self, request: Request, write_dense: Callable[[str], str]):
        self._request = request
        self._started = time.monotonic()
        self._snapshots: dict[str, native_snapshot.Snapshot] = {}
        self._transaction = Transaction.begin(request.prefix)
        try:
            self._take_snapshots()
            written = write_dense(self._transaction.dense_prefix)
        except BaseException:
            self._end(failed=True)
            raise
        # TensorFlow's old format adds the number of shards.
        self.path = os.path.join(os.path.dirname(request.prefix), os.path.basename(written))
        self.directory = _layout.target(request.prefix, request.parent is not None)

    def finish(self) -> None:
        """Returns when the checkpoint is in its place, and lasts. Any thread may call it."""
        request, entries = self._request, {}
        try:
            for table in request.tables:
                entries[table.table_name] = self._write(table.table_name)
            parent = None if request.parent is None else request.parent.parent
            self._transaction.commit(request.step, entries, parent)
        except BaseException:
            self._end(failed=True)
            raise
        for name, entry in entries.items():
            _live.note(name, _live.token_of(entry, parent), self._states[name])
        moments = {name: snapshot.moment for name, snapshot in self._snapshots.items()}
        self._end(failed=False)
        if request.starts_chain or request.parent is not None:
            before = () if request.parent is None else request.parent.chain
            identity = _manifest.identity(self.directory)
            _tip.set_current(_tip.Tip(self.directory, identity, moments, (*before, self.directory)))
        self._log(entries)

    def _take_snapshots(self):
        request = self._request
        self._entries: dict[str, _manifest.TableEntry] = {}
        self._states: dict[str, tuple] = {}
        base = _tip.current()
        for table in request.tables:
            name = table.table_name
            _layout.table_directory(self._transaction.sparse, name)  # raises for a name that no directory can have
            if request.while_training or request.starts_chain or request.parent is not None:
                native_snapshot.follow_changes(table.native, keys=request.starts_chain or request.parent is not None)
            known = None if base is None else base.moments.get(name)
            since = None if request.parent is None else request.parent.moments[name]
            snapshot = self._snapshots[name] = native_snapshot.Snapshot(table.native, since, known)
            self._states[name] = _live.state_of(table)
            self._entries[name] = _manifest.TableEntry(
                dim=table.native.dim,
                rows=0,
                key_dtype=tf.as_dtype(table.key_dtype).name,
                slots=table.native.slots,
                optimizer=table.optimizer_name,
                files={},
                tracking=table.native.tracking,
                table_rows=None if request.parent is None else snapshot.table_rows,
            )

    def _write(self, name):
        rows, files = self._snapshots[name].write(_layout.table_directory(self._transaction.sparse, name))
        self._snapshots[name].close()  # what was kept for it goes at once
        return dataclasses.replace(self._entries[name], rows=rows, files=files)

    def _end(self, failed):
        for snapshot in self._snapshots.values():
            snapshot.close()
        if failed:
            self._transaction.abort()

    def _log(self, entries: Mapping[str, _manifest.TableEntry]):
        logger.info(
            "saved %d tables, %d rows%s, %.1f MB in %.1f s: %s",
            len(entries),
            sum(entry.rows for entry in entries.values()),
            "" if self._request.parent is None else " that changed",
            sum(file.bytes for entry in entries.values() for file in entry.files.values()) / 1e6,
            time.monotonic() - self._started,
            self.directory,
        )


def explained(error: OSError, prefix: str) -> OSError:
    """Returns an error of the operating system in words that say which checkpoint it concerns."""
    where = f" ('{error.filename}')" if error.filename else ""
    what = (
        f"checkpoint '{prefix}' could not be saved: {error.strerror or error}{where}; no earlier checkpoint is harmed; "
        "see to it that its directory can be written to and has space, then save again"
    )
    return OSError(error.errno, what) if error.errno is not None else OSError(what)
