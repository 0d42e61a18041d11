"""The library of TensorFlow ops (native/tf), loaded on first use."""

import functools

from mx_rec._native import library

_WITHOUT_GRADIENT = "Prepare Group Fold HasRow Padding Touched Update FoldUpdate SetThreshold Timestamp".split()


@functools.cache
def ops():
    """Returns the module of ops, with their gradients registered. ImportError in a TensorFlow it was not built for."""
    import tensorflow as tf

    from mx_rec._ops import collectives, embeddings, lookup

    library.check_version(tf.__version__)
    library.core().mxrec_keep_freed_memory()
    # It links to the core, which has been loaded from our own path.
    module = tf.load_op_library(library.path("_mxrec_ops.so"))
    for kind in (lookup.LookupOp, embeddings.EmbeddingsOp, embeddings.JoinedOp):
        tf.RegisterGradient(kind.TYPE)(kind.gradient)
    for name, gradient in collectives.GRADIENTS.items():
        tf.RegisterGradient(name)(gradient)
    for name in _WITHOUT_GRADIENT:
        tf.no_gradient(f"Mxrec{name}")
    return module
