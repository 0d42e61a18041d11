"""One save of tables and dense variables, from the instant it shows to the end of its writing."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping
from typing import Callable, Optional

import tensorflow as tf

from mx_rec import _ranks
from mx_rec._log import logger
from mx_rec._native import snapshot as native_snapshot
from mx_rec.checkpoint import _layout, _manifest
from mx_rec.saver import _live, _shares, _tip
from mx_rec.transaction._transaction import Transaction


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be saved, and how."""

    role: _shares.Role
    step: Optional[int]
    tables: list
    parent: Optional[_tip.Tip]  # a delta of this one; None: all rows
    starts_chain: bool  # deltas may build on it
    while_training: bool  # steps may run while it is written


class Saving:
    """A save whose instant has passed: steps may run before `finish`, if the request allows it.

    Made between two steps, by all ranks at the same one; each of its methods is called by all of them, and what it
    raises on one, it raises on all. `write_dense(prefix)` writes the dense variables under that prefix and returns
    TensorFlow's name for what it wrote.
    """

    def __init__(self, request: Request, write_dense: Callable[[str], str]):
        self._request = request
        self._started = time.monotonic()
        self._snapshots: dict[str, native_snapshot.Snapshot] = {}
        self._transaction: Optional[Transaction] = None  # of ranks that have none: another one writes what they would
        try:
            self._sparse = self._begin()
            written = _ranks.together("save/instant", lambda: self._take_instant(write_dense))
        except BaseException:
            self._end(failed=True)
            raise
        role = request.role
        # TensorFlow's old format adds the number of shards.
        name = os.path.basename(written[0 if role.is_common else role.rank])
        self.path = os.path.join(os.path.dirname(role.prefix), name)
        self.directory = _layout.target(role.prefix, request.parent is not None)

    def finish(self) -> None:
        """Returns when the checkpoint is in its place, and lasts. Any thread may call it."""
        request = self._request
        parent = None if request.parent is None else request.parent.parent
        try:
            entries = self._write()
            self._commit(entries, parent)
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
            _tip.set_current(
                _tip.Tip(self.directory, identity, moments, (*before, self.directory), request.role.is_common)
            )
        self._log(entries)

    def _begin(self):
        """Returns the directory for the tables."""
        role = self._request.role

        def prepare():
            if role.leads_directory:
                Transaction.prepare(role.prefix)

        def begin():
            if role.has_transaction:
                self._transaction = Transaction.begin(role.prefix, is_prepared=True)
                return self._transaction.sparse
            return None

        _ranks.together("save/lock", prepare)
        directories = _ranks.together("save/begin", begin)
        return directories[0 if role.is_common else role.rank]

    def _take_instant(self, write_dense):
        if not os.path.isdir(self._sparse):
            raise FileNotFoundError(
                f"rank {self._request.role.rank} does not see '{self._sparse}', which rank 0 has made: ranks on "
                "several machines need a directory that all of them share, or a path for each rank (with get_rank_id())"
            )
        self._take_snapshots()
        return None if self._transaction is None else write_dense(self._transaction.dense_prefix)

    def _take_snapshots(self):
        request = self._request
        self._entries: dict[str, _manifest.TableEntry] = {}
        self._states: dict[str, tuple] = {}
        base = _tip.current()
        for table in request.tables:
            name = table.table_name
            _layout.table_directory(self._sparse, name)  # raises for a name that no directory can have
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

    def _write(self):
        """Returns the entries of all tables, which the ranks have written then."""
        role, is_delta = self._request.role, self._request.parent is not None
        if not role.is_common or _ranks.size() == 1:
            written = _ranks.together("save/files", self._write_alone)[role.rank]
            return {
                name: dataclasses.replace(self._entries[name], rows=rows, files=files)
                for name, (rows, files) in written.items()
            }

        def count():
            return {name: (snapshot.numbers(), snapshot.table_rows) for name, snapshot in self._snapshots.items()}

        counted = _ranks.together("save/numbers", count)
        numbers = {name: [its[name][0] for its in counted] for name in self._snapshots}
        written = _ranks.together("save/files", lambda: self._write_share(numbers))
        entries = {}
        for table in self._request.tables:
            name = table.table_name
            parts = [its[name] for its in (written[:1] if table.is_dp else written)]
            table_rows = [its[name][1] for its in counted][: len(parts)]
            entries[name] = dataclasses.replace(
                self._entries[name],
                rows=sum(rows for rows, _ in parts),
                files=_shares.put_together([files for _, files in parts]),
                tracking=self._tracking_of_all(name, numbers[name]),
                table_rows=sum(table_rows) if is_delta else None,
            )
        return entries

    def _write_alone(self):
        return {table.table_name: self._write_table(table.table_name, None) for table in self._request.tables}

    def _write_share(self, numbers):
        rank, written = self._request.role.rank, {}
        for table in self._request.tables:
            name = table.table_name
            if not table.is_dp:
                written[name] = self._write_table(name, _shares.place(numbers[name], rank))
            elif rank == 0:
                written[name] = self._write_table(name, None)
        return written

    def _write_table(self, name, share):
        written = self._snapshots[name].write(_layout.table_directory(self._sparse, name), share)
        self._snapshots[name].close()  # what was kept for it goes at once
        return written

    def _tracking_of_all(self, name, numbers):
        tracking = self._entries[name].tracking
        return None if tracking is None else dataclasses.replace(tracking, now=max(its.now for its in numbers))

    def _commit(self, entries, parent):
        request, role = self._request, self._request.role
        if role.is_common:
            commit = self._transaction and (lambda: self._transaction.commit(request.step, entries, parent))
            _ranks.together("save/commit", commit or (lambda: None))
            return
        whole = [table.table_name for table in request.tables if table.is_dp]
        share = role.share(_shares.token(), whole, parent is not None)

        def complete(is_turn):
            if is_turn:
                self._transaction.complete(request.step, entries, parent, share)

        _ranks.together("save/complete", lambda: complete(role.rank > 0))
        _ranks.together("save/decide", lambda: complete(role.rank == 0))
        _ranks.together("save/install", self._transaction.install)

    def _end(self, failed):
        for snapshot in self._snapshots.values():
            snapshot.close()
        if not failed:
            return
        if self._request.role.is_common:
            # Others may be writing to the directory that goes now; its absence would hide from them what has failed.
            with contextlib.suppress(Exception):
                _ranks.together("save/end", lambda: None)
        if self._transaction is not None:
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
