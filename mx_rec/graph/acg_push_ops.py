"""ACGPushOpsToDatasetHook: the older form of LookupSubgraphSlicerHook."""

import tensorflow as tf

from mx_rec import _check
from mx_rec.graph.hooks import LookupSubgraphSlicerHook
from mx_rec.graph.modifier import dump

__all__ = ["ACGPushOpsToDatasetHook"]


class ACGPushOpsToDatasetHook(LookupSubgraphSlicerHook):
    """Moves the splitting of strings and their conversion to numbers from the step into the dataset, where the ids of
    lookups depend on them. `dump_graph` writes the graph before and after to ./export_graph/."""

    def __init__(self, dump_graph: bool = False) -> None:
        super().__init__(["StringSplit", "StringSplitV2", "StringToNumber"])
        self._dump_graph = _check.boolean("dump_graph", dump_graph)

    def begin(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        if self._dump_graph:
            dump(graph, "before_pushing", "old_graph.pbtxt")
        super().begin()
        if self._dump_graph:
            dump(graph, "after_pushing", "new_graph.pbtxt")
