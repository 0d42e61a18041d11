"""MxrecAllReduce, MxrecAllGather, MxrecBroadcast and MxrecAllToAll: what the ranks do with tensors together.

The gradients are those of the sum of all ranks' losses, as gradients that are summed over the ranks expect.
"""

import tensorflow as tf

from mx_rec._ops import library
from mx_rec._ops.ranked import among_ranks
from mx_rec._ranks import facts

_INEXACT = {tf.float16: tf.float32, tf.bfloat16: tf.float32, tf.int8: tf.int32, tf.uint8: tf.int32, tf.int16: tf.int32}


def all_reduce(tensors, reduction) -> list:
    """The sum, mean, prod, max or min of each tensor over the ranks; tensors of one type share their messages."""
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    reduced = [None] * len(tensors)
    for kind in sorted({tensor.dtype.base_dtype for tensor in tensors}, key=lambda dtype: dtype.name):
        numbers = [i for i, tensor in enumerate(tensors) if tensor.dtype.base_dtype == kind]
        exact = _INEXACT.get(kind, kind)
        values = [tf.cast(tensors[i], exact) for i in numbers]
        out = library.ops().mxrec_all_reduce(values=values, reduction=reduction, name="all_reduce")
        among_ranks(out[0].op)
        for i, value in zip(numbers, out):
            reduced[i] = tf.cast(value, kind)
    return reduced


def all_gather(tensor):
    """The tensors of all ranks, one after another along the first axis."""
    gathered, _ = library.ops().mxrec_all_gather(value=tf.convert_to_tensor(tensor), name="all_gather")
    among_ranks(gathered.op)
    return gathered


def broadcast(tensors, root) -> list:
    """The tensors of rank `root`."""
    out = library.ops().mxrec_broadcast(values=tensors, root=root, name="broadcast")
    among_ranks(out[0].op)
    return list(out)


def all_to_all(tensor):
    """Deals the rows of a tensor out to the ranks, and gives what they deal to this one."""
    dealt = library.ops().mxrec_all_to_all(value=tf.convert_to_tensor(tensor), name="all_to_all")
    among_ranks(dealt.op)
    return dealt


def reduce_scatter(tensor, reduction, rank, size):
    """Rank number `rank`'s part, of `size`, of a reduced tensor."""
    tensor = tf.convert_to_tensor(tensor)
    rows = tf.shape(tensor)[0]
    with tf.control_dependencies(
        [tf.debugging.assert_equal(rows % size, 0, f"the first axis must be a multiple of the number of ranks, {size}")]
    ):
        each = rows // size
    return all_reduce([tensor], reduction)[0][rank * each : (rank + 1) * each]


def _all_reduce_gradient(op, *gradients):
    reduction = op.get_attr("reduction").decode()
    if reduction in ("sum", "mean"):
        return all_reduce(gradients, reduction)
    if reduction == "prod":
        raise LookupError("the product over the ranks has no gradient: reduce the logarithms' sum instead")
    # The ranks that hold the extreme value share its gradient, as those elements do that tie within one tensor.
    summed = all_reduce(gradients, "sum")
    chosen = [tf.cast(tf.equal(value, out), value.dtype) for value, out in zip(op.inputs, op.outputs)]
    ties = all_reduce(chosen, "sum")
    return [gradient * mine / tied for gradient, mine, tied in zip(summed, chosen, ties)]


def _all_gather_gradient(op, gradient, _):
    rank = facts().rank
    lengths = op.outputs[1]
    begin = tf.reduce_sum(lengths[:rank])
    mine = all_reduce([gradient], "sum")[0][begin : begin + lengths[rank]]
    return tf.reshape(mine, tf.shape(op.inputs[0]))


def _broadcast_gradient(op, *gradients):
    summed = all_reduce(gradients, "sum")
    if facts().rank == op.get_attr("root"):
        return summed
    with tf.control_dependencies(summed):  # which would be pruned here, and the root would wait for it
        return [tf.zeros_like(gradient) for gradient in summed]


def _all_to_all_gradient(op, gradient):
    return all_to_all(gradient)


GRADIENTS = {
    "MxrecAllReduce": _all_reduce_gradient,
    "MxrecAllGather": _all_gather_gradient,
    "MxrecBroadcast": _broadcast_gradient,
    "MxrecAllToAll": _all_to_all_gradient,
}
