"""Collections of a graph that tell when a script looks into them."""

import sys


def watch(graph, name, on_look) -> None:
    """Makes `name`, unless it exists, a collection that calls `on_look` with each of its elements when a script
    iterates over it, as `get_collection` does, or indexes it. TensorFlow, which copies all collections into every
    function graph and MetaGraph, and mx_rec are no scripts.
    """
    if name not in graph.collections:
        graph._collections[name] = _Watched(on_look)


class _Watched(list):
    def __init__(self, on_look):
        super().__init__()
        self._on_look = on_look

    def _tell(self):
        for element in super().__iter__():
            self._on_look(element)

    def __iter__(self):
        if _is_look():
            self._tell()
        return super().__iter__()

    def __getitem__(self, index):
        if _is_look():
            self._tell()
        return super().__getitem__(index)


def _is_look() -> bool:
    """Tells whether the caller of the caller, not counting Graph.get_collection and its like, is a script."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "tensorflow.python.framework.ops":
        frame = frame.f_back
    return frame is None or not frame.f_globals.get("__name__", "").startswith(("tensorflow.", "mx_rec."))
