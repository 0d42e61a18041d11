"""What is checked when a session first runs a lookup: that its graph was modified where lookups ask for it, that
something trains its tables, and whose rows it begins with."""

import tensorflow as tf
from tensorflow.python.client import session as tf_session

from mx_rec._patch import Patch
from mx_rec.core import _graph, _initialization, _watch
from mx_rec.graph import _ending, _untrained
from mx_rec.graph._find import reads_dataset


def _init(self, target="", graph=None, config=None):
    given = tf.compat.v1.get_default_graph() if graph is None else graph
    # As for a monitored session: nobody can modify it any more.
    if getattr(given, "finalized", False) and _graph.state(given).tables:
        try:
            _check_modified(given)
        except RuntimeError:
            self._session = None  # its destructor looks for it
            raise
    PATCHES[0].stock(self, target, graph, config)
    _watch.watch(self, _begin)  # tables may come later


def _begin(session):
    _ending.remember(session)
    return [_Checks(session.graph), _initialization.observer(session)]


class _Checks:
    """What a graph must have been given before its lookups run (core/_watch.py)."""

    def __init__(self, graph):
        self._graph = graph

    def __call__(self, ops, is_lookup):
        if is_lookup:
            _check_modified(self._graph)
            _untrained.warn(self._graph)


def _check_modified(graph):
    """RuntimeError if a lookup asks for graph modification, and nobody did it."""
    state = _graph.state(graph)
    if state.replacements is not None:
        return
    # Ids that come from no dataset, as in a graph that is exported, could not move anyway.
    forgotten = [one for one in state.to_move if reads_dataset(one.ids.op)]
    if forgotten:
        raise RuntimeError(
            f"lookup '{forgotten[0].name}' has modify_graph=True, but the graph has not been modified: call "
            "modify_graph_and_start_emb_cache() before a session runs it, or add GraphModifierHook() to the hooks of a "
            "monitored session or Estimator"
        )


PATCHES = [Patch(lambda: tf_session.BaseSession, "__init__", _init)]
