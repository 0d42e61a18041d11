"""Gradients of the ops: what connects `tf.gradients` to the tables."""

import functools

from mx_rec._ops import library
from mx_rec._tf import static_shape


@functools.cache
def register() -> None:
    """Registers the gradients, once per process."""
    import tensorflow as tf

    tf.RegisterGradient("MxrecLookup")(_lookup)
    tf.RegisterGradient("MxrecEmbeddings")(_embeddings)
    tf.RegisterGradient("MxrecJoined")(_joined)
    for op in (
        "Prepare",
        "Group",
        "Fold",
        "HasRow",
        "Padding",
        "Touched",
        "Update",
        "FoldUpdate",
        "SetThreshold",
        "Timestamp",
    ):
        tf.no_gradient(f"Mxrec{op}")


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
        gradient = tf.convert_to_tensor(gradient)
        handles = reached(op.outputs[tables + t], gradient)
        slices.append(tf.IndexedSlices(gradient, handles, tf.constant([0, dims[t]], tf.int32)))
    return [None, *slices]


def folds_of(gradient):
    """The fold ops whose sum `gradient` is, or nothing if it is something else."""
    op = gradient.op
    folds = [op] if op.type == "MxrecFold" else [source.op for source in op.inputs] if op.type == "AddN" else []
    return folds if all(fold.type == "MxrecFold" for fold in folds) else []


def parts_of(handles, gradient):
    """[(handles, gradient)] of the lookups that a table's gradient was put together from, one after another."""
    if handles.op.type != "ConcatV2" or gradient.op.type != "ConcatV2":
        return [(handles, gradient)]
    if len(handles.op.inputs) != len(gradient.op.inputs):
        return [(handles, gradient)]
    return list(zip(handles.op.inputs, gradient.op.inputs))[:-1]  # the last input is the axis


def origin_of(handles):
    """The handles of the lookup that `handles` are some of."""
    return handles.op.inputs[0] if handles.op.type == "MxrecTouched" else handles


def reached(handles, gradient):
    """The handles of a commit, less those of keys that `gradient`, the gradient of its rows, did not reach.

    A key may be in the batch only through features that do not feed the loss. Its row of `gradient` is zeros, but an
    update with zeros would still move it: momentum goes on, weights decay.
    """
    op = handles.op
    t = handles.value_index - len(op.get_attr("dims"))
    folds = folds_of(gradient)
    if not folds:
        return handles  # not for us to say
    features = sorted({fold.get_attr("feature") for fold in folds})
    if len(features) == op.get_attr("features")[t]:
        return handles
    return library.ops().mxrec_touched(
        handles=handles, plan=op.inputs[0], table=op.get_attr("table_in_plan")[t], features=features, name="touched"
    )


def _is_filler(gradient, output):
    """Whether TensorFlow made up zeros because the loss does not depend on this output.

    Such a table must get no gradient at all: optimizers with momentum would move its rows otherwise.
    """
    op = getattr(gradient, "op", None)
    return op is not None and op.type == "ZerosLike" and op.inputs[0] is output


def fold(gradient, rows, plan, table, feature, is_pooled):
    """The gradient of `rows`, out of that of what a lookup of a feature gave."""
    return library.ops().mxrec_fold(
        gradient=gradient,
        plan=plan,
        table=table,
        feature=feature,
        pooled=is_pooled,
        dim=static_shape.size(rows.shape, 1),
        name="fold",
    )


def _embeddings(op, gradient):
    import tensorflow as tf

    _, rows, plan = op.inputs
    attributes = [op.get_attr(name) for name in ("table", "feature", "pooled")]
    return [None, fold(tf.convert_to_tensor(gradient), rows, plan, *attributes), None]


def _joined(op, gradient):
    import tensorflow as tf

    _, *rows, plan = op.inputs
    parts = tf.split(tf.convert_to_tensor(gradient), [static_shape.size(tensor.shape, 1) for tensor in rows], axis=-1)
    attributes = zip(*(op.get_attr(name) for name in ("tables", "features", "pooled")))
    folds = [
        fold(part, its_rows, plan, table, feature, bool(pooled))
        for part, its_rows, (table, feature, pooled) in zip(parts, rows, attributes)
    ]
    return [None, *folds, None]
