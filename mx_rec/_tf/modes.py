"""The modes of TensorFlow in which there can be no tables. Each is an error that names it, instead of rows that nobody
trains."""

_REMEDY = (
    "tables live in a graph that a session runs: call tf.compat.v1.disable_eager_execution() at the start of the "
    "script, or build the model inside `with tf.Graph().as_default():`"
)


def check_graph(what: str) -> None:
    """Raises RuntimeError unless `what`, a call, builds a graph for a session."""
    import tensorflow as tf

    if not tf.compat.v1.executing_eagerly_outside_functions():
        return
    if tf.executing_eagerly():
        mode = "in eager mode"
    elif tf.compat.v1.get_default_graph().name.endswith(("keras_graph", "scratch_graph")):  # where Keras traces layers
        mode = "in a Keras model in eager mode"
    else:
        mode = f"in the tf.function '{tf.compat.v1.get_default_graph().name}' in eager mode"
    raise RuntimeError(f"{what} was called {mode}; {_REMEDY}")


def check_no_tape(table_name: str) -> None:
    """Raises RuntimeError inside a tf.GradientTape: it does not follow a table, and its gradient would be None."""
    from tensorflow.python.eager import record

    if record.could_possibly_record():
        raise RuntimeError(
            f"table '{table_name}' is looked up for training inside a tf.GradientTape, which gives no gradients of "
            "tables; use tf.gradients, the sparse optimizer's minimize(loss), or sparse_lookup(..., is_grad=False)"
        )
