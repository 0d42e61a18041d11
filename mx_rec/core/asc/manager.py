"""start_asc_pipeline: the moment between building the graph and running it."""

from mx_rec import _process


def start_asc_pipeline() -> None:
    """Announces that the graph is built. Idempotent.

    Batches are prepared inside the dataset, so no thread starts here. The call checks that there is something to train,
    fuses sums and concatenations of embeddings into their lookups, and logs the tables; to be fused, the graph must not
    have been run by a session. RuntimeError if no table exists.
    """
    _process.config()
    import tensorflow as tf

    from mx_rec._lowering import lowering

    lowering.lower(tf.compat.v1.get_default_graph(), moves=False)
