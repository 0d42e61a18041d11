"""Monitored sessions start the pipeline of their graph: scripts need not call `start_asc_pipeline`, nor add a hook."""

from tensorflow.python.training import monitored_session

from mx_rec._tables import graphs
from mx_rec._tf.patch import Patch
from mx_rec.core.asc.manager import start_asc_pipeline


def _finalize(self):
    # All hooks have had their say, and from here on the graph cannot change.
    import tensorflow as tf

    state = graphs.state()
    is_forgotten = state.to_move and state.replacements is None  # _guard.py says so
    if state.tables and not is_forgotten and not tf.compat.v1.get_default_graph().finalized:
        start_asc_pipeline()
    return PATCHES[0].stock(self)


PATCHES = [Patch(lambda: monitored_session.Scaffold, "finalize", _finalize)]
