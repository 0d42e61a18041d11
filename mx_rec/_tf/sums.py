"""Sums and concatenations in a graph, and what tf.gradients makes of a sum."""

import tensorflow as tf


def reduction_of(op):
    """(tensor, axes as a tensor) of a Sum, Mean or the like."""
    tensor, axes = op.inputs
    return tensor, axes


def keeps_axes(op) -> bool:
    """Whether a Sum or Mean leaves axes of size 1."""
    return op.get_attr("keep_dims")


def result_of(op):
    """What an op of one output gives."""
    (result,) = op.outputs
    return result


def concatenation_of(op):
    """(tensors, axis as a tensor) of a ConcatV2."""
    *parts, axis = op.inputs
    return parts, axis


def spread_to(tensor):
    """(gradient, op) if `tensor` is the gradient of the terms of a sum along the axis before the last, or of a mean:
    the gradient of the sum, and the last of the ops that spread it over the terms. None if it is something else."""
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
