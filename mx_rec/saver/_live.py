"""Which checkpoint the tables of the process hold: a restore of what is there already loads nothing.

An Estimator restores whenever it trains, evaluates or predicts. In one process that is mostly the checkpoint that it
has just saved. A script that calls `restore` itself always gets what is in the files.
"""

from mx_rec._native import table as native_table
from mx_rec.saver import _training

# Table -> (its entry in a manifest, its state when it held just that).
_held: dict[str, tuple] = {}


def note(table, entry) -> None:
    """Tells that `table` was saved as, or loaded from, what `entry` describes; None: it has no entry."""
    if entry is None:
        _held.pop(table.table_name, None)
    else:
        _held[table.table_name] = (entry, _state(table.native))


def holds(table, entry, graph) -> bool:
    """Whether a restore into `graph` need not load what `entry` describes, because that would change nothing. The entry
    has a checksum of every file, so the same entry means the same rows, wherever they lie."""
    # Sessions that restore by themselves finalize the graph first; exporters in the middle of a training do not.
    may_skip = graph.finalized or _training.is_beside(graph)
    return may_skip and entry is not None and _held.get(table.table_name) == (entry, _state(table.native))


def _state(native):
    # With the slots and the tracking: a table that was loaded without a place for them holds less than the checkpoint.
    facts = native.facts()
    return native_table.generation(), facts.changes, facts.inserted, facts.erased, native.slots, native.tracking
