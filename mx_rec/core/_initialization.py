"""Notices sessions that initialize their variables, but go on with the rows that an earlier training left in tables.

Tables belong to the process and outlive graphs and sessions. In cross-validation, say, that makes the second fold begin
with what the first has learned. Steps cost nothing: only a session that begins with such rows is watched, and only
until it runs a lookup.
"""

import weakref

import tensorflow as tf

from mx_rec.core import _graph
from mx_rec.util.log import logger


def facts_of(table) -> tuple:
    """Others whenever the rows of the table have changed."""
    facts = table.native.facts()
    return facts.rows, facts.mutations, facts.inserted, facts.erased


def watch(session) -> None:
    """Call when a session was made."""
    state = _graph.state(session.graph)
    is_first, state.has_session = not state.has_session, True
    tables = []
    for table in state.tables.values():
        if not table.is_trained_on:
            continue
        facts = facts_of(table)
        # What changed since the graph joined the table, or was put there by a warm start, is there on purpose.
        is_left = facts == table.joined if is_first else facts != table.warm_started
        if facts[0] > 0 and is_left:
            tables.append((table, facts))
    if tables:
        session._mx_rec_watch = _Watch(session, tables)
        session.run = session._mx_rec_watch.run


def settle(session) -> None:
    """Call when a checkpoint was restored: then the variables are not as they were initialized."""
    found = getattr(session, "_mx_rec_watch", None)
    if found is not None:
        found.is_initialized = False


class _Watch:
    """Stands in for the `run` of a session until it runs a lookup."""

    def __init__(self, session, tables):
        self._session = weakref.ref(session)  # a cycle would keep it from being closed
        self._tables = tables
        self._initializers = {table.variable.initializer.name for table, _ in tables}
        self.is_initialized = False

    def run(self, *arguments, **keywords):
        session = self._session()
        fetches = _ops_of(session.graph, arguments[0] if arguments else keywords.get("fetches"))
        if any(_is_below_groups(op, self._initializers) for op in fetches):
            self.is_initialized = True
        elif _reads_tables(fetches):
            if self.is_initialized:
                self._warn()
            del session.run, session._mx_rec_watch
        return type(session).run(session, *arguments, **keywords)

    def _warn(self):
        for table, facts in self._tables:
            if facts_of(table) == facts:
                name = table.table_name
                logger.warning(
                    "table '%s' goes on with %d rows of an earlier training, though the variables of its graph were "
                    "initialized anew; to begin with empty tables, call mx_rec.reset_tables('%s') first",
                    name,
                    facts[0],
                    name,
                )


def _ops_of(graph, fetches):
    # Not by tf.nest: it sorts the keys of dicts, and those of a monitored session are hooks.
    if isinstance(fetches, dict):
        fetches = fetches.values()
    elif not isinstance(fetches, (list, tuple)):
        try:
            element = graph.as_graph_element(fetches)
        except (TypeError, ValueError, KeyError):
            return []  # TensorFlow says what is wrong with it, or it is a structure of its own, such as a SparseTensor
        return [element if isinstance(element, tf.Operation) else element.op]
    return [op for fetch in fetches for op in _ops_of(graph, fetch)]


def _is_below_groups(op, names):
    """Whether an op, or one that it groups, has one of the names."""
    if op.name in names:
        return True
    return op.type == "NoOp" and any(_is_below_groups(one, names) for one in op.control_inputs)


def _reads_tables(ops):
    """Whether one of the ops needs a lookup."""
    seen, stack = set(), list(ops)
    while stack:
        op = stack.pop()
        if op.type == "MxrecLookup":
            return True
        if op.name not in seen:
            seen.add(op.name)
            stack.extend(op.control_inputs)
            stack.extend(tensor.op for tensor in op.inputs)
    return False
