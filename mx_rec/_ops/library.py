"""The library of TensorFlow ops (native/tf), loaded on first use."""

import functools

from mx_rec._native import library


@functools.cache
def ops():
    """Returns the module of ops, with their gradients registered. ImportError in a TensorFlow it was not built for."""
    import tensorflow as tf

    library.check_version(tf.__version__)
    library.core().mxrec_keep_freed_memory()
    # It links to the core, which has been loaded from our own path.
    module = tf.load_op_library(library.path("_mxrec_ops.so"))
    for kind in _kinds():
        if kind.gradient is None:
            tf.no_gradient(kind.TYPE)
        else:
            tf.RegisterGradient(kind.TYPE)(kind.gradient)
    return module


def _kinds():
    from mx_rec._ops import control, embeddings, fold, fold_update, joined, lookup, prepare, touched, update

    yield from (prepare.PrepareOp, prepare.GroupOp, lookup.LookupOp, touched.TouchedOp)
    yield from (embeddings.EmbeddingsOp, embeddings.HasRowOp, embeddings.PaddingOp, joined.JoinedOp, fold.FoldOp)
    yield from (update.UpdateOp, fold_update.FoldUpdateOp, control.SetThresholdOp, control.TimestampOp)
