"""Looks at what a session runs, until it first runs a lookup: what a graph lacks is told when it is needed.

Later runs cost nothing: the session has its own `run` back by then.
"""

import weakref

import tensorflow as tf

from mx_rec._ops.lookup import LookupOp
from mx_rec._tables import graphs
from mx_rec._tf.walking import ancestors


def watch(session, begin) -> None:
    """Calls `observer(ops, is_lookup)` for each observer in `begin(session)` before every run of `session` up to the
    first that needs a lookup. `ops` are the fetched ones. If an observer raises an error, the run fails, and the next
    is looked at, too. `begin` is called when the session's graph has a table: now, or before the first run from then.
    """
    session.run = _Watch(session, begin).run


class _Watch:
    """Stands in for the `run` of a session until it runs a lookup."""

    def __init__(self, session, begin):
        self._session = weakref.ref(session)  # a cycle would keep it from being closed
        self._begin = begin
        self._observers = None  # it has not begun
        self._seen = set()  # names of ops that need no lookup
        self._begins(session)

    def _begins(self, session):
        """Whether there is something to observe, now or already."""
        if self._observers is None and graphs.state(session.graph).tables:
            self._observers = self._begin(session)
        return self._observers is not None

    def run(self, *arguments, **keywords):
        session = self._session()
        if not self._begins(session):
            graphs.state(session.graph).early_runners.add(session)
            return type(session).run(session, *arguments, **keywords)
        ops = ops_of(session.graph, arguments[0] if arguments else keywords.get("fetches"))
        is_lookup = self._reads_tables(ops)
        for observer in self._observers:
            observer(ops, is_lookup)
        graphs.state(session.graph).runners.add(session)
        if is_lookup:
            del session.run
        return type(session).run(session, *arguments, **keywords)

    def _reads_tables(self, ops):
        """Whether one of the ops needs a lookup."""
        seen = set()
        for op in ancestors(ops, lambda op: op.name in self._seen, with_control=True):
            if LookupOp.of(op) is not None:
                return True
            seen.add(op.name)
        self._seen |= seen
        return False


def ops_of(graph, fetches) -> list:
    """The ops that a run of these fetches is asked for."""
    # Not by tf.nest: it sorts the keys of dicts, and those of a monitored session are hooks.
    if isinstance(fetches, dict):
        fetches = fetches.values()
    elif not isinstance(fetches, (list, tuple)):
        try:
            element = graph.as_graph_element(fetches)
        except (TypeError, ValueError, KeyError):
            return []  # TensorFlow says what is wrong with it, or it is a structure of its own, such as a SparseTensor
        return [element if isinstance(element, tf.Operation) else element.op]
    return [op for fetch in fetches for op in ops_of(graph, fetch)]
