"""Notices sessions that initialize their variables, but go on with the rows that an earlier training left in tables.

Tables belong to the process and outlive graphs and sessions. In cross-validation, say, that makes the second fold begin
with what the first has learned. Steps cost nothing: a session is watched until it runs a lookup
(_sessions/watching.py).
"""

from mx_rec._log import logger
from mx_rec._tables import graphs
from mx_rec._tf.notes import Note

_BEGINNING = Note("beginning")


def observer(session):
    """Call when a session of a graph with tables was made, or its graph gets them: what shall see its runs
    (_sessions/watching.py)."""
    state = graphs.state(session.graph)
    is_first, state.has_session = not state.has_session, True
    tables = []
    for table in state.tables.values():
        if not table.is_trained_on:
            continue
        facts = table.content()
        # What changed since the graph joined the table, or was put there by a warm start, is there on purpose.
        is_left = facts == table.joined if is_first else facts != table.warm_started
        if facts[0] > 0 and is_left:
            tables.append((table, facts))
    found = _Beginning(tables)
    _BEGINNING.set(session, found)
    return found


def settle(session) -> None:
    """Call when a checkpoint was restored: then the variables are not as they were initialized."""
    found = _BEGINNING.of(session)
    if found is not None:
        found.is_initialized = False


class _Beginning:
    """Whose rows a session begins with: `tables`, each with its facts, hold some of an earlier training."""

    def __init__(self, tables):
        self._tables = tables
        self._initializers = {table.variable.initializer.name for table, _ in tables}
        self.is_initialized = False

    def __call__(self, ops, is_lookup):
        if any(_is_below_groups(op, self._initializers) for op in ops):
            self.is_initialized = True
        elif is_lookup and self.is_initialized:
            self._warn()

    def _warn(self):
        for table, facts in self._tables:
            if table.content() == facts:
                name = table.table_name
                logger.warning(
                    "table '%s' goes on with %d rows of an earlier training, though the variables of its graph were "
                    "initialized anew; to begin with empty tables, call mx_rec.reset_tables('%s') first",
                    name,
                    facts[0],
                    name,
                )


def _is_below_groups(op, names):
    """Whether an op, or one that it groups, has one of the names."""
    if op.name in names:
        return True
    return op.type == "NoOp" and any(_is_below_groups(one, names) for one in op.control_inputs)
