"""Which checkpoint the tables of the process hold: a restore of what is there already loads nothing.

An Estimator restores whenever it trains, evaluates or predicts. In one process that is mostly the checkpoint that it
has just saved. A script that calls `restore` itself always gets what is in the files.
"""

from typing import Optional

from mx_rec import _ranks
from mx_rec._native import table as native_table
from mx_rec._process import Part, part
from mx_rec.checkpoint import _chain, _manifest
from mx_rec.saver import _parked


class _Held(Part):
    """What the tables of the process last held of a checkpoint."""

    def __init__(self):
        self.of_table: dict[str, tuple] = {}  # name -> (the token of a checkpoint, the table's state when it held that)

    def forget(self, table):
        self.of_table.pop(table, None)


def token(link: _chain.Link, name: str) -> Optional[tuple]:
    """Returns what tells the content of a table in a checkpoint from all others, wherever that lies: its entry has a
    checksum of every file, and a delta's parent has one of the manifest before. None without a manifest, or if it is
    that of another rank, or of another number of them."""
    if link.manifest is None:
        return None
    share = link.manifest.share
    if share is not None and (share.rank, len(share.directories)) != (_ranks.rank(), _ranks.size()):
        return None
    return token_of(link.manifest.tables[name], link.manifest.parent)


def token_of(entry: _manifest.TableEntry, parent: Optional[_manifest.Parent]) -> tuple:
    return entry, parent


def note(name: str, token: Optional[tuple], state: tuple) -> None:
    """Remembers that a table, when it was in `state`, held what a checkpoint of that token holds; None forgets it."""
    if token is None:
        part(_Held).forget(name)
    else:
        part(_Held).of_table[name] = (token, state)


def holds(table, token: Optional[tuple], graph) -> bool:
    """Tells whether a restore into `graph` need not load what the token names, because that would change nothing."""
    # Sessions that restore by themselves finalize the graph first; exporters in the middle of a training do not.
    may_skip = graph.finalized or _parked.is_beside(graph)
    return may_skip and token is not None and part(_Held).of_table.get(table.table_name) == (token, state_of(table))


def state_of(table) -> tuple:
    """Returns a value that is another one whenever the table has changed."""
    # With the slots and the tracking: a table that was loaded without a place for them holds less than the checkpoint.
    native = table.native
    facts = native.facts()
    return native_table.generation(), facts.mutations, facts.inserted, facts.erased, native.slots, native.tracking
