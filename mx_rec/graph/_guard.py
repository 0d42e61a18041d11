"""What is checked when a session is made: that its graph was modified where lookups ask for it, that something trains
its tables, and whose rows it begins with."""

from tensorflow.python.client import session as tf_session

from mx_rec._patch import Patch
from mx_rec.core import _graph, _initialization
from mx_rec.graph import _untrained
from mx_rec.graph._find import reads_dataset


def _init(self, target="", graph=None, config=None):
    state = _graph.state(graph)
    # Ids that come from no dataset, as in a graph that is exported, could not move anyway.
    forgotten = [] if state.replacements is not None else [one for one in state.to_move if reads_dataset(one.ids.op)]
    if forgotten:
        self._session = None  # its destructor looks for it
        raise RuntimeError(
            f"lookup '{forgotten[0].name}' has modify_graph=True, but the graph has not been modified: call "
            "modify_graph_and_start_emb_cache() before the session is made, or add GraphModifierHook() to the hooks of "
            "a monitored session or Estimator"
        )
    PATCHES[0].stock(self, target, graph, config)
    if state.tables:
        _untrained.warn(self.graph)
        _initialization.watch(self)


PATCHES = [Patch(lambda: tf_session.BaseSession, "__init__", _init)]
