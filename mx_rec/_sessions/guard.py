"""What is checked when a session first runs a lookup: that its graph was modified where lookups ask for it, that
something trains its tables, and whose rows it begins with."""

import tensorflow as tf

from mx_rec import _ranks
from mx_rec._lowering.finding import reads_dataset
from mx_rec._sessions import agreement, beginnings, ending, untrained, watching
from mx_rec._tables import graphs
from mx_rec._tf.patch import Patch
from mx_rec._tf.sessions import BaseSession, give_up


def _init(self, target="", graph=None, config=None):
    given = tf.compat.v1.get_default_graph() if graph is None else graph
    # As for a monitored session: nobody can modify it any more.
    if getattr(given, "finalized", False) and graphs.state(given).tables:
        try:
            _check_modified(given)
        except RuntimeError:
            give_up(self)
            raise
    PATCHES[0].stock(self, target, graph, config)
    watching.watch(self, _begin)  # tables may come later


def _begin(session):
    ending.remember(session)
    among_ranks = [agreement.observer(session)] if _ranks.are_several() else []
    return [_Checks(session.graph), beginnings.observer(session), *among_ranks]


class _Checks:
    """What a graph must have been given before its lookups run (_sessions/watching.py)."""

    def __init__(self, graph):
        self._graph = graph

    def __call__(self, ops, is_lookup):
        if is_lookup:
            _check_modified(self._graph)
            untrained.warn(self._graph)


def _check_modified(graph):
    """RuntimeError if a lookup asks for graph modification, and nobody did it."""
    state = graphs.state(graph)
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


PATCHES = [Patch(lambda: BaseSession, "__init__", _init, "what a graph lacks is told when it runs")]
