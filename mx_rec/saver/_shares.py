"""How the ranks save and restore together: all into one checkpoint, whose files they write together, or each into one
of its own, where the script's paths hold the rank. Without other ranks a process saves alone, in the same way.

A save into one checkpoint takes its place when rank 0 gives it that. Checkpoints of each rank count as complete from
the instant in which that of rank 0 is, which is the last one (transaction/_pair.py).
"""

import dataclasses
import os
import zlib
from collections.abc import Mapping
from typing import NamedTuple, Optional

from mx_rec import _ranks
from mx_rec._log import logger
from mx_rec._native.file_facts import FileFacts, joined
from mx_rec._native.snapshot import Numbers, Share
from mx_rec.checkpoint import _chain, _layout, _manifest
from mx_rec.transaction import _recovery


@dataclasses.dataclass(frozen=True)
class Role:
    """What this rank does in a save."""

    rank: int
    prefixes: tuple[str, ...]  # of the ranks' checkpoints; one, if it is common to all

    @property
    def is_common(self) -> bool:
        return len(self.prefixes) == 1

    @property
    def prefix(self) -> str:
        """Of the checkpoint that this rank writes to."""
        return self.prefixes[0 if self.is_common else self.rank]

    @property
    def has_transaction(self) -> bool:
        """Whether this rank writes a dense part and a manifest."""
        return self.rank == 0 or not self.is_common

    @property
    def leads_directory(self) -> bool:
        """Whether this rank alone locks the directory, tidies up in it, and writes TensorFlow's list of checkpoints."""
        folders = [os.path.realpath(os.path.dirname(prefix)) for prefix in self.prefixes]
        return self.has_transaction and folders.index(folders[0 if self.is_common else self.rank]) == self.rank

    def share(self, save: int, whole: list[str], is_delta: bool) -> _manifest.Share:
        """What the manifest of a checkpoint of this rank's own says of the other ranks'."""
        here = os.path.dirname(self.prefix)
        targets = (_layout.target(prefix, is_delta) for prefix in self.prefixes)
        return _manifest.Share(self.rank, save, tuple(os.path.relpath(path, here) for path in targets), tuple(whole))


def agree(
    meeting: _ranks.Meeting,
    prefix: str,
    step: Optional[int],
    tables: list[str],
    reason: Optional[str],
    is_export: bool,
) -> tuple[Role, Optional[str]]:
    """Returns this rank's role in a save that all ranks have come to, in `meeting`, and why it is not a delta; None: it
    is one. `reason`: the same, as far as this rank knows. `is_export`: it is that of a model, of which there is one,
    rank 0's. RuntimeError unless all save the same tables at the same step."""
    told = meeting.meet(lambda: (os.path.abspath(prefix), step, tables, reason))
    for rank, (_, its_step, its_tables, _) in enumerate(told):
        if (its_step, its_tables) != (step, tables):
            raise RuntimeError(
                f"rank {rank} saves tables {its_tables} at step {its_step}, rank {_ranks.rank()} tables {tables} at "
                f"step {step}: all ranks must save together, the same model at the same step"
            )
    reason = next((its for *_, its in told if its is not None), None)
    paths = [path for path, *_ in told]
    if is_export:
        return Role(_ranks.rank(), (prefix if _ranks.rank() == 0 else paths[0],)), reason
    if len(set(paths)) not in (1, len(paths)):
        raise ValueError(
            f"the ranks save to {sorted(set(paths))}: either all must give one path, or each one of its own (with its "
            "get_rank_id())"
        )
    is_common = len(set(paths)) == 1
    rank = _ranks.rank()
    # This rank's own as the script has written it: paths in TensorFlow's list may be relative.
    prefixes = (prefix,) if is_common else (*paths[:rank], prefix, *paths[rank + 1 :])
    return Role(rank, prefixes), reason


def token() -> int:
    """Returns a number that is the same on all ranks, and another one each time."""
    return _ranks.together("save/token", lambda: zlib.crc32(os.urandom(16)))[0]


def place(numbers: list[Numbers], rank: int) -> Share:
    """Where a rank's rows go, whose snapshot holds numbers[rank]."""
    return Share(sum(numbers[:rank], Numbers()), sum(numbers, Numbers()), rank == 0)


def put_together(written: list[Mapping[str, FileFacts]]) -> dict[str, FileFacts]:
    """What each rank has written of the files of a table, as one."""
    files = dict(written[0])
    for parts in written[1:]:
        for name, facts in parts.items():
            files[name] = joined(files[name], facts)
    return files


class _Found(NamedTuple):
    """What lies under the prefix that a rank was given."""

    prefix: str
    is_there: bool = False
    rank: Optional[int] = None  # that has saved it, as its share of
    save: Optional[int] = None
    prefixes: tuple[str, ...] = ()  # of all ranks' shares


def find(prefix: str) -> str:
    """Returns the prefix that this rank restores, of those that the ranks were given: its own; or its share of the save
    that rank 0 was given, if its own is of another one. That happens if ranks died before they could put the last save
    into a list of their own, or if the last save was of fewer ranks, and an earlier one has left a share of its name. A
    rank that has no share in it gets rank 0's."""
    if _ranks.size() == 1:
        return prefix
    told = _ranks.together("restore", lambda: _look(prefix))
    rank = _ranks.rank()
    own, first = told[rank], next((one for one in told if one.is_there), told[rank])
    if own.is_there and (own.save, own.rank) == (first.save, None if first.save is None else rank):
        return prefix
    found = first.prefixes[rank] if rank < len(first.prefixes) else first.prefix
    if own.is_there and own.prefix not in (found, first.prefix):
        logger.warning("'%s' is of another save than '%s': '%s' is restored", own.prefix, first.prefix, found)
    return found


def _look(prefix):
    path = os.path.abspath(prefix) if _layout.is_local(prefix) else prefix
    directory = _recovery.locate(path).sparse if _layout.is_local(prefix) else ""
    if not os.path.isdir(directory):
        return _Found(path)
    try:
        manifest = _manifest.read(directory)
    except (OSError, ValueError):
        manifest = None  # the restore says so
    share = None if manifest is None else manifest.share
    if share is None:
        return _Found(path, True)
    return _Found(path, True, share.rank, share.save, tuple(_chain.prefixes_of_shares(directory, share)))


def check_same(link: _chain.Link, identity: Optional[int], meeting: _ranks.Meeting) -> None:
    """Meets all ranks. Raises ValueError unless they restore the same save; `identity`: of the manifest of `link`,
    the last of a chain."""
    share = None if link.manifest is None else link.manifest.share
    told = meeting.meet(lambda: (identity if share is None else share.save, link.directory))
    for rank, (its, directory) in enumerate(told):
        if its != told[0][0]:
            raise ValueError(
                f"rank 0 restores '{told[0][1]}', rank {rank} '{directory}', which is of another save: all ranks must "
                "restore the same checkpoint"
            )
