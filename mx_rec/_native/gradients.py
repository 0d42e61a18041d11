"""Gradients of the ops: what connects `tf.gradients` to the tables."""

import functools


@functools.cache
def register() -> None:
    """Registers the gradients, once per process."""
    import tensorflow as tf

    tf.RegisterGradient("MxrecLookup")(_lookup)
    tf.RegisterGradient("MxrecExpand")(_expand)
    for op in ("MxrecPrepare", "MxrecFold", "MxrecHasRow", "MxrecUpdate"):
        tf.no_gradient(op)


def _lookup(op, *gradients):
    """For each anchor variable the gradient of its table's rows, as slices that the row handles index."""
    import tensorflow as tf

    dims = op.get_attr("dims")
    tables = len(dims)
    slices = []
    for t in range(tables):
        gradient = gradients[t]
        if gradient is None or _is_filler(gradient, op.outputs[t]):
            slices.append(None)
            continue
        slices.append(
            tf.IndexedSlices(
                tf.convert_to_tensor(gradient), op.outputs[tables + t], tf.constant([0, dims[t]], tf.int32)
            )
        )
    return [None, *slices]


def _is_filler(gradient, output):
    """Whether TensorFlow made up zeros because the loss does not depend on this output.

    Such a table must get no gradient at all: optimizers with momentum would move its rows otherwise.
    """
    op = getattr(gradient, "op", None)
    return op is not None and op.type == "ZerosLike" and op.inputs[0] is output


def _expand(op, gradient):
    import tensorflow as tf

    from mx_rec._native import library

    rows = library.ops().mxrec_fold(
        gradient=tf.convert_to_tensor(gradient),
        plan=op.inputs[1],
        table=op.get_attr("table"),
        feature=op.get_attr("feature"),
        dim=op.inputs[0].shape[1],
        name="fold",
    )
    return [rows, None]
