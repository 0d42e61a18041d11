"""What saves leave behind that were interrupted: finding the newest whole state of a checkpoint, and tidying up."""

import dataclasses
import os
import threading
from typing import NamedTuple, Optional

from mx_rec._log import logger
from mx_rec._process import Part, part
from mx_rec.checkpoint import _files, _layout, _manifest, _owner
from mx_rec.transaction import _lock
from mx_rec.transaction._pair import Pair


class _Settling(Part):
    """One thread at a time tidies up."""

    lasts = True

    def __init__(self):
        self.lock = threading.Lock()


class Location(NamedTuple):
    """Where the two halves of a checkpoint are to be read."""

    dense: str  # prefix of the dense part
    sparse: str  # directory of the tables
    pair: Optional[Pair] = None  # they lie in


def locate(prefix: str) -> Location:
    """Where checkpoint `prefix` is to be read: under its own names, unless a save of it was interrupted, or is at work,
    with its pair (_pair.py) complete. Then both halves are in there, and what has the final names may be of two saves.
    """
    base, parent = _layout.base(prefix), os.path.dirname(prefix)
    visible = Location(prefix, _layout.of(prefix))
    hidden = [one for one in _layout.list_hidden(parent) if os.path.basename(one.prefix) == os.path.basename(base)]
    pairs = [Pair(base, one.owner) for one in hidden if (one.half, one.kind) == ("sparse", "tmp")]
    complete = {pair: manifest for pair in pairs if (manifest := pair.read()) is not None}
    if not complete:
        return visible

    # A pair that was left on another machine may be older than what has the final names now. So pairs say what they
    # replace, and the newest is the end of the chain. Between two renames tables have the name of those being removed.
    olds = [one.path for one in hidden if (one.half, one.kind) == ("sparse", "old")]
    tables = [visible.sparse] if os.path.isdir(visible.sparse) else olds
    current, newest = {_manifest.identity(path) for path in tables} or {None}, None
    while following := [pair for pair in complete if complete[pair].replaces.manifest_crc32c in current]:
        newest = following[-1]
        current = {_manifest.identity(newest.sparse)}
        last = complete.pop(newest)
    # Whoever saved dense variables alone under this name has replaced the checkpoint, too.
    if newest is None or _layout.dense_crc32c(base) not in (
        None,
        last.replaces.dense_index_crc32c,
        last.dense_index_crc32c,
    ):
        return visible
    return Location(os.path.join(newest.dense, os.path.basename(prefix)), newest.sparse, newest)


@dataclasses.dataclass(frozen=True)
class Leftovers:
    """Hidden things in a directory of checkpoints that nobody works on any more, and what becomes of them."""

    install: list[Pair]  # complete, and newer than the checkpoint of that name
    withdraw: list[Pair]  # complete, but there was never a checkpoint of that name that anybody was told of
    remove: list[_layout.Hidden]  # the rest
    busy: list[_layout.Hidden]  # what a process may be at work on, which stays

    def settle(self, name: Optional[str] = None) -> None:
        """Installs, withdraws and removes. Logs what fails and leaves it for the next time; raises an OSError if it
        concerns the checkpoint `name`."""
        failed = set()
        for verb, pairs in ((Pair.install, self.install), (Pair.withdraw, self.withdraw)):
            for pair in pairs:
                try:
                    verb(pair)
                except OSError as error:
                    if os.path.basename(pair.prefix) == name:
                        raise
                    failed.add(pair.prefix)
                    logger.warning("cannot tidy up after the interrupted save of '%s': %s", pair.prefix, error)
        for one in self.remove:
            if one.prefix not in failed:
                _files.remove(one.path)


def survey(parent: str, is_locked: bool, name: Optional[str] = None, other_hosts: bool = False) -> Leftovers:
    """The leftovers in the directory `parent`. `is_locked`: this process has its lock, so none of this machine but this
    one is at work there. A pair of the checkpoint `name` in there, or of one that another rank has saved with it, is
    installed in any case; `other_hosts`: what was made on other machines is taken for left over, too."""

    def is_busy(one):
        if one.owner == _owner.name():  # or of a process before us that had the same number
            return _owner.is_at_work(one.prefix)
        # On a disk that machines share, locks may be those of each machine.
        return not (other_hosts if one.host != _owner.host() else is_locked)

    hidden = [one for one in _layout.list_hidden(parent) if not _files.is_being_removed(one.path)]
    busy = [one for one in hidden if is_busy(one)]
    # Of a checkpoint that a process is at work on, nothing is touched: it may build on what another one left.
    busy_prefixes = {one.prefix for one in busy}
    dead = [one for one in hidden if one.prefix not in busy_prefixes]
    install, withdraw, remove = [], [], []
    for one in dead:
        pair = Pair(one.prefix, one.owner)
        if one.kind != "tmp" or one.half == "state" or locate(one.prefix).pair != pair:
            remove.append(one)
        elif one.half == "sparse":
            is_named = name is not None and os.path.abspath(os.path.join(parent, name)) in map(
                os.path.abspath, pair.prefixes()
            )
            (install if is_named or pair.has_predecessor() else withdraw).append(pair)
    # Tables before the dense part that belongs to them: half a pair must not be taken for a whole one.
    return Leftovers(install, withdraw, sorted(remove, key=lambda one: one.half == "dense"), busy)


def settle(prefix: str) -> None:
    """Tidies up in the directory of `prefix` after saves of this machine's processes that ended, in preparation of a
    save of `prefix`, for which the directory was locked. What this process works on, and what other machines made,
    stays."""
    parent, name = os.path.split(prefix)
    with part(_Settling).lock:
        survey(parent, _lock.is_held(parent), name).settle(name)
