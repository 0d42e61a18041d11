"""When the samples of a batch happened: the timestamps that eviction goes by."""

from mx_rec._ops.prepare import PrepareOp
from mx_rec._tables import graphs, trackings
from mx_rec._tf import static_shape
from mx_rec._tf.editing import replace_input
from mx_rec.constants.constants import ASCEND_TIMESTAMP


def checked(tensor, who):
    """Returns `tensor` as int64; ValueError unless it can hold one time for a batch, or one for each sample."""
    import tensorflow as tf

    if not tf.is_tensor(tensor) or isinstance(tensor, (tf.SparseTensor, tf.RaggedTensor)):
        raise ValueError(f"{who}: the timestamp must be a dense Tensor, got {type(tensor).__name__}")
    if tensor.dtype not in (tf.int64, tf.int32):
        raise ValueError(f"{who}: the timestamp must be int64 seconds, got {tensor.dtype.name}; cast it first")
    is_column = tensor.shape.rank == 2 and static_shape.size(tensor.shape, 1) in (None, 1)
    if tensor.shape.rank not in (None, 0, 1) and not is_column:
        raise ValueError(
            f"{who}: the timestamp must be a scalar, or hold one number for each sample, got shape {tensor.shape}"
        )
    tensor = tf.cast(tensor, tf.int64)
    # A lookup without a timestamp has a placeholder with a default in its place.
    return tf.identity(tensor) if tensor.op.type == "PlaceholderWithDefault" else tensor


def known_or_empty():
    """Returns the timestamp of the collection ASCEND_TIMESTAMP if there is just one, else an empty tensor that `bind`
    replaces.

    The latter is a placeholder because its shape must not be known for that.
    """
    import tensorflow as tf

    given = _given(graphs.outermost(tf.compat.v1.get_default_graph()))
    if len(given) == 1:
        return checked(given[0], f"collection {ASCEND_TIMESTAMP}")
    return tf.compat.v1.placeholder_with_default(tf.constant([], tf.int64), None, name="no_timestamp")


def bind(graph) -> None:
    """Gives the training lookups of `graph` that were built before their timestamp was known their timestamp.

    Where the collection holds several, a lookup gets the one that comes from the same batch. ValueError if that leaves
    a doubt, or if a table that evicts by time has none; RuntimeError if a session has run the lookup without it.
    """
    for lookup in graphs.state(graph).tensor_lookups:
        if not lookup.is_train or lookup.times:
            continue
        found = _matching(lookup, graph) if lookup.plan.graph is graph else None
        if found is not None:
            if graphs.is_running(graph):
                raise RuntimeError(
                    f"lookup '{lookup.name}' gets its timestamp when the pipeline is started, but a session has run "
                    f"the graph before: add the timestamp to the collection {ASCEND_TIMESTAMP} before the lookup is "
                    "built, or start the pipeline before the session's first run"
                )
            (empty,) = PrepareOp(lookup.plan.op).times
            replace_input(lookup.plan.op, empty, checked(found, f"collection {ASCEND_TIMESTAMP}"))
        elif trackings.evicts_by_time(lookup.table):
            raise ValueError(
                f"lookup '{lookup.name}': table '{lookup.table.table_name}' has an `eviction_threshold`, but its batch "
                f'has no timestamp: tf.compat.v1.add_to_collection("{ASCEND_TIMESTAMP}", timestamp)'
            )


def _matching(lookup, graph):
    """Returns the timestamp of the collection that belongs to the batch of `lookup`, or None."""
    from mx_rec._lowering.finding import sources_of

    found = _given(graph)
    if len(found) > 1:
        sources = sources_of(lookup.ids.op)
        found = [timestamp for timestamp in found if sources & sources_of(timestamp.op)]
    if len(found) > 1:
        raise ValueError(
            f"lookup '{lookup.name}' in table '{lookup.table.table_name}': a batch has one timestamp, but the "
            f"collection {ASCEND_TIMESTAMP} holds {', '.join(timestamp.name for timestamp in found)}"
        )
    return found[0] if found else None


def _given(graph):
    return list({timestamp.name: timestamp for timestamp in graph.get_collection(ASCEND_TIMESTAMP)}.values())
