"""The variables of a model, dense and sparse."""

from typing import Any


def get_dense_and_sparse_variable() -> tuple[list[Any], list[Any]]:
    """Returns (dense variables, sparse variables) of the default graph.

    Dense: TensorFlow's trainable variables. Sparse: one anchor variable per table, which stands for the table in
    `tf.gradients` and in the sparse optimizer's `apply_gradients`.
    """
    import tensorflow as tf

    from mx_rec import _process
    from mx_rec._tables import graphs

    _process.config()
    graphs.tables_here("get_dense_and_sparse_variable")
    graph = tf.compat.v1.get_default_graph()
    return (
        graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES),
        graph.get_collection(_process.process.hashtable_collection),
    )
