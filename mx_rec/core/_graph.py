"""What mx_rec knows about each TensorFlow graph: its tables and the lookups built so far."""

import dataclasses
import weakref
from typing import Dict, Tuple


@dataclasses.dataclass
class GraphState:
    """Tensors are kept by name: names are unique in a graph."""

    tables: Dict[str, object] = dataclasses.field(default_factory=dict)
    # (plan, is_train) -> table -> (rows [U, dim], handles [U])
    commits: Dict[Tuple[str, bool], Dict[str, tuple]] = dataclasses.field(default_factory=dict)
    # (plan, is_train, feature) -> embeddings
    expansions: Dict[Tuple[str, bool, int], object] = dataclasses.field(default_factory=dict)
    # handles tensor -> table
    handles: Dict[str, object] = dataclasses.field(default_factory=dict)
    lookup_names: Dict[str, int] = dataclasses.field(default_factory=dict)
    wants_modification: bool = False


_states: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()


def state(graph=None) -> GraphState:
    """The state of `graph`, by default the default graph; inside tf.cond and the like, of the graph around it."""
    if graph is None:
        import tensorflow as tf

        graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    if graph not in _states:
        _states[graph] = GraphState()
    return _states[graph]


def forget_all() -> None:
    """Forgets every graph; their tables are gone."""
    _states.clear()
