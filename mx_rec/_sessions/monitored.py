"""Monitored sessions start the pipeline of their graph: scripts need not call `start_asc_pipeline`, nor add a hook."""

import tensorflow as tf

from mx_rec._lowering import lowering
from mx_rec._tables import graphs
from mx_rec._tf.patch import Patch


def _finalize(self):
    # All hooks have had their say, and from here on the graph cannot change.
    graph = tf.compat.v1.get_default_graph()
    state = graphs.state(graph)
    is_forgotten = state.to_move and state.replacements is None  # guard.py says so
    if state.tables and not is_forgotten and not graph.finalized:
        lowering.lower(graph, moves=False)
    return PATCHES[0].stock(self)


PATCHES = [Patch(lambda: tf.compat.v1.train.Scaffold, "finalize", _finalize, "the pipeline starts by itself")]
