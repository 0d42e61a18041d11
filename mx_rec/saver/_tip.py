"""The checkpoint that the next delta of this process builds on: the last one that tables were saved to, or restored
from, since they began to remember what changes."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Optional

from mx_rec._native import snapshot
from mx_rec._process import Part, part
from mx_rec.checkpoint import _chain, _layout, _manifest


@dataclasses.dataclass(frozen=True)
class Tip:
    """The end of a chain (_chain.py)."""

    directory: str
    identity: int  # of its manifest
    moments: Mapping[str, int]  # when each table was as the chain has it
    chain: Sequence[str]  # directories, from the first to this one
    is_common: bool = True  # to all ranks; else each has its own

    @property
    def parent(self) -> _manifest.Parent:
        return _manifest.Parent(os.path.basename(self.directory), self.identity)


class _Current(Part):
    tip: Optional[Tip] = None

    def forget(self, table):
        """The next checkpoint holds all rows of a table that began anew, and so those of the tables beside it."""
        if self.tip is not None and table in self.tip.moments:
            self.tip = None


def current() -> Optional[Tip]:
    """Returns the tip; None if the next checkpoint must hold all rows."""
    return part(_Current).tip


def set_current(tip: Optional[Tip]) -> None:
    """Makes `tip` what the next delta builds on."""
    part(_Current).tip = tip


def why_not(prefix: str, tables) -> Optional[str]:
    """Returns why the checkpoint `prefix` of `tables` cannot be a delta; None if it can."""
    tip = current()
    if tip is None:
        return "there is no checkpoint of these tables yet that it could build on"
    if os.path.abspath(os.path.dirname(prefix)) != os.path.abspath(os.path.dirname(tip.directory)):
        return f"the last one was saved to another directory, '{os.path.dirname(tip.directory)}'"
    if set(tip.moments) != {table.table_name for table in tables}:
        return f"the last one has other tables, {sorted(tip.moments)}"
    if _manifest.identity(tip.directory) != tip.identity:
        return f"the last one, '{tip.directory}', is no longer there"
    try:
        _chain.links(tip.directory)
    except ValueError as error:
        return str(error)
    # By their names alone, as the directory is the same: it may be written in several ways.
    names = {os.path.basename(_layout.target(prefix, is_delta)) for is_delta in (False, True)}
    if names & {os.path.basename(link) for link in tip.chain}:
        return "it would replace a checkpoint that it builds on"
    for table in tables:
        if not snapshot.knows_since(table.native, tip.moments[table.table_name]):
            return f"table '{table.table_name}' no longer knows what has changed since the last one"
    return None
