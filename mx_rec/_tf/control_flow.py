"""Branches and loops of TensorFlow 1, whose ops stand among those of the graph around them."""


def is_inside(element) -> bool:
    """Whether an op stands in a branch or a loop; of a graph, whether ops go into one now."""
    return element._get_control_flow_context() is not None
