"""Which checkpoint the tables of the process hold: a restore of what is there already loads nothing.

An Estimator restores whenever it trains, evaluates or predicts. In one process that is mostly the checkpoint that it
has just saved. A script that calls `restore` itself always gets what is in the files.
"""

from typing import Optional

from mx_rec._native import table as native_table
from mx_rec.checkpoint import _chain, _manifest
from mx_rec.saver import _parked

# Table -> (the token of a checkpoint, its state when it held just that).
_held: dict[str, tuple] = {}


def token(link: _chain.Link, name: str) -> Optional[tuple]:
    """What tells the content of a table in a checkpoint from all others, wherever that lies: its entry has a checksum
    of every file, and a delta's parent one of the manifest that has the next. None without a manifest."""
    return None if link.manifest is None else token_of(link.manifest.tables[name], link.manifest.parent)


def token_of(entry: _manifest.TableEntry, parent: Optional[_manifest.Parent]) -> tuple:
    return entry, parent


def note(name: str, token: Optional[tuple], state: tuple) -> None:
    """Remembers the state in which a table held what the token names, and nothing else."""
    if token is None:
        _held.pop(name, None)
    else:
        _held[name] = (token, state)


def holds(table, token: Optional[tuple], graph) -> bool:
    """Whether a restore into `graph` need not load what the token names, because that would change nothing."""
    # Sessions that restore by themselves finalize the graph first; exporters in the middle of a training do not.
    may_skip = graph.finalized or _parked.is_beside(graph)
    return may_skip and token is not None and _held.get(table.table_name) == (token, state_of(table))


def state_of(table) -> tuple:
    """Another one whenever the table has changed."""
    # With the slots and the tracking: a table that was loaded without a place for them holds less than the checkpoint.
    native = table.native
    facts = native.facts()
    return native_table.generation(), facts.mutations, facts.inserted, facts.erased, native.slots, native.tracking
