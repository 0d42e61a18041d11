"""One save of a checkpoint, as a transaction: either it takes the place of what was there, or nothing has happened.

transaction = Transaction.begin("D/model-7")
try:
    write_dense(transaction.dense_prefix)
    entries = write_tables(transaction.sparse)
    transaction.commit(7, entries)
except BaseException:
    transaction.abort()
    raise
"""

import os
from collections.abc import Mapping
from typing import Optional

from mx_rec._log import logger
from mx_rec.checkpoint import _layout, _manifest, _owner
from mx_rec.transaction import _lock, _recovery
from mx_rec.transaction._pair import Pair


class Transaction:
    """A save under way. Ends with `commit`, or with `abort`, which any exception before or in `commit` calls for.

    Uses files alone, so `commit` may run in another thread than the save began in; the caller sees to it that no two
    threads use the object at once.
    """

    def __init__(self, pair: Pair, replaces: _manifest.Replaced):
        self._pair, self._replaces = pair, replaces
        self._is_installing = False
        self._has_predecessor = False
        self._may_be_decided = False  # by another rank

    @classmethod
    def begin(cls, prefix: str, is_prepared: bool = False) -> "Transaction":
        """Begins a save of checkpoint `prefix`, whose directory exists: prepares it, unless that has been done, and
        makes the hidden directories to write to. RuntimeError while another thread saves the same checkpoint."""
        if not is_prepared:
            cls.prepare(prefix)
        _owner.begin(prefix)
        try:
            # With what a restore would find, which another machine may have left hidden.
            replaces = _manifest.Replaced(
                _manifest.identity(_recovery.locate(prefix).sparse), _layout.dense_crc32c(prefix)
            )
            pair = Pair(prefix, _owner.name())
            transaction = cls(pair, replaces)
            try:
                pair.make()
            except BaseException:
                pair.remove()
                raise
        except BaseException:
            _owner.end(prefix)
            raise
        return transaction

    @staticmethod
    def prepare(prefix: str) -> None:
        """Locks the directory of `prefix` and tidies up after interrupted saves in there. RuntimeError if another
        process saves into it."""
        _lock.acquire(os.path.dirname(prefix))
        _recovery.settle(prefix)

    @property
    def sparse(self) -> str:
        """The directory for the tables."""
        return self._pair.sparse

    @property
    def dense_prefix(self) -> str:
        """The prefix for the dense part."""
        return self._pair.dense_prefix

    def commit(
        self,
        step: Optional[int],
        tables: Mapping[str, _manifest.TableEntry],
        parent: Optional[_manifest.Parent] = None,
    ) -> None:
        """Returns when the checkpoint is in its place, and lasts. `tables` are on the disk; with a `parent`, they are
        what has changed since that."""
        self.complete(step, tables, parent)
        self.install()

    def complete(
        self,
        step: Optional[int],
        tables: Mapping[str, _manifest.TableEntry],
        parent: Optional[_manifest.Parent] = None,
        share: Optional[_manifest.Share] = None,
    ) -> None:
        """The first half of `commit`: returns when all is on the disk, under hidden names that a restore reads."""
        dense = _layout.dense_crc32c(self.dense_prefix)
        self._pair.complete(_manifest.Manifest(step, dense, tables, self._replaces, parent, share))
        self._may_be_decided = share is not None
        self._has_predecessor = self._pair.has_predecessor()

    def install(self) -> None:
        """The second half of `commit`: gives the checkpoint its place."""
        self._is_installing = True
        self._pair.install()
        _owner.end(self._pair.prefix)

    def abort(self) -> None:
        """Removes what was written. After files of an earlier checkpoint have been replaced, it leaves the new
        checkpoint, which counts from then on, though a part of it is hidden. So it does with a rank's share that is
        complete: it may count already, and no other rank's would without it. Failures are only logged."""
        try:
            if self._may_be_decided:
                if self._pair.read() is not None:
                    self._warn("when it was complete on all ranks")
            elif not self._is_installing:
                self._pair.remove()
            elif not self._has_predecessor:
                self._pair.withdraw()
            elif self._pair.read() is not None:
                self._warn("after it had replaced files of the earlier checkpoint")
        except OSError as error:
            logger.warning("cannot tidy up after the failed save of '%s': %s", self._pair.prefix, error)
        finally:
            _owner.end(self._pair.prefix)

    def _warn(self, when):
        logger.warning(
            "the save of '%s' failed %s; the new one is complete in '%s' and '%s', where a restore finds it, and the "
            "next save puts it in its place",
            self._pair.prefix,
            when,
            self._pair.sparse,
            self._pair.dense,
        )
