"""Graph modification. In this version: the hook that FeatureSpec mode uses, and errors that say what to do instead."""

import tensorflow as tf

from mx_rec import _check
from mx_rec.core.asc.manager import start_asc_pipeline

_MISSING = (
    "automatic graph modification is not available in this version: look ids up with modify_graph=False (a Tensor is "
    "then looked up in the step, a FeatureSpec in the dataset) and call start_asc_pipeline()"
)


def modify_graph_and_start_emb_cache(full_graph=None, dump_graph=False) -> None:
    """Would move the ids' sub-graph into the dataset; raises NotImplementedError in this version."""
    del full_graph
    _check.boolean("dump_graph", dump_graph)
    raise NotImplementedError(_MISSING)


class GraphModifierHook(tf.compat.v1.train.SessionRunHook):
    """Starts the pipeline for FeatureSpec mode (`modify_graph=False`) when a monitored session begins."""

    def __init__(self, dump_graph=False, modify_graph=True):
        _check.boolean("dump_graph", dump_graph)
        if _check.boolean("modify_graph", modify_graph):
            raise NotImplementedError(_MISSING)

    def begin(self):
        start_asc_pipeline()
