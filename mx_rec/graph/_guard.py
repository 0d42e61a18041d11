"""The guard against sessions of graphs whose modification was forgotten."""

from typing import Optional

from tensorflow.python.client import session as tf_session

_stock: Optional[object] = None


def install() -> None:
    """Makes every session check its graph from now on. Repeating it changes nothing."""
    global _stock
    if _stock is None:
        _stock = tf_session.BaseSession.__init__
        tf_session.BaseSession.__init__ = _init


def uninstall() -> None:
    global _stock
    if _stock is not None:
        tf_session.BaseSession.__init__ = _stock
        _stock = None


def _init(self, target="", graph=None, config=None):
    from mx_rec.core import _graph
    from mx_rec.graph._find import reads_dataset

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
    _stock(self, target, graph, config)
