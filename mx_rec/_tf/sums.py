"""Sums and concatenations in a graph, and what tf.gradients makes of a sum."""

import tensorflow as tf


def reduction_of(op):
    """Returns (result, tensor, axis) of a Sum or Mean; axis is None unless it is one, known, and not kept."""
    tensor, axes = op.inputs
    axes = tf.get_static_value(axes)
    is_one = axes is not None and axes.size == 1 and not op.get_attr("keep_dims")
    return op.outputs[0], tensor, int(axes.reshape(-1)[0]) if is_one else None


def concatenation_of(op):
    """Returns (result, tensors, axis) of a ConcatV2; axis is None if it is not known."""
    *tensors, axis = op.inputs
    axis = tf.get_static_value(axis)
    return op.outputs[0], tensors, None if axis is None else int(axis)


def spread_to(tensor):
    """Returns (gradient, op) if `tensor` is the gradient of the terms of a sum along the axis before the last, or of a
    mean: the gradient of the sum, and the last of the ops that spread it over the terms. None if it is something
    else."""
    op = tensor.op
    spread = op.inputs[0].op if op.type == "RealDiv" else op
    if spread.type not in ("BroadcastTo", "Tile") or spread.inputs[0].op.type != "Reshape":
        return None
    reshape = spread.inputs[0].op
    gradient, shape = reshape.inputs[0], tf.get_static_value(reshape.inputs[1])
    is_known = shape[-2] == 1 if shape is not None else reshape.inputs[1].op.type == "DynamicStitch"
    rank = tensor.shape.rank
    if not is_known or rank is None or gradient.shape.rank != rank - 1:
        return None
    return gradient, op
