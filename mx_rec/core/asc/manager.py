"""start_asc_pipeline: the moment between building the graph and running it."""

from mx_rec import _config
from mx_rec._log import logger


def start_asc_pipeline() -> None:
    """Announces that the graph is built. Idempotent.

    Batches are prepared inside the dataset, so no thread starts here. The call checks that there is something to train,
    fuses sums and concatenations of embeddings into their lookups, and logs the tables; to be fused, the graph must not
    have been run by a session. RuntimeError if no table exists.
    """
    _config.current()
    from mx_rec._tables import graphs

    state = graphs.state()
    tables = state.tables
    if not tables:
        raise RuntimeError(
            f"there is no table in this graph: call create_table before start_asc_pipeline{graphs.elsewhere()}"
        )
    if state.is_started:
        return
    state.is_started = True
    _complete_lookups()
    _fuse_lookups(state)
    for table in tables.values():
        if table.admission_filter_bytes and table.native.tracking is None:
            logger.warning(
                "table '%s': `admission_filter_bytes` has no effect without an `access_threshold`", table.table_name
            )
        limit = table.native_limit
        logger.info(
            "table '%s': dim %d, %s rows%s, %d lookups",
            table.table_name,
            table.embedding_size,
            f"at most {limit:,}" if limit else "unlimited",
            f", {table.tier.memory_rows:,} of them in memory" if table.tier else "",
            table.lookup_count,
        )


def _complete_lookups():
    """Gives lookups of tensors what they could not know when they were built: timestamps, and each other."""
    import tensorflow as tf

    from mx_rec._lowering import merging, timestamps
    from mx_rec._sessions import watching

    graph = tf.compat.v1.get_default_graph()
    if graph.finalized:
        return
    timestamps.bind(graph)
    if not watching.is_running(graph):
        merging.merge_in_step(graph)


def _fuse_lookups(state):
    import tensorflow as tf

    from mx_rec._lowering import fusing, reports
    from mx_rec._sessions import watching

    graph = tf.compat.v1.get_default_graph()
    if graph.finalized or watching.is_running(graph):
        return
    if state.replacements is None:  # graph modification has a report already
        reports.remember(reports.Report())
    fused = fusing.fuse(graph)
    reports.last_report().fused.extend(fused)
    for one in fused:
        logger.info("%s", one)
