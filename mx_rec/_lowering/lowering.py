"""Lowering a graph: from the lookups that a script wrote to the ops that a step runs, stage after stage, once."""

from mx_rec._log import logger
from mx_rec._lowering import fusing, merging, moving, reports, timestamps
from mx_rec._tables import graphs


def lower(graph, moves: bool) -> None:
    """Makes of the lookups of `graph` what a step runs; with `moves`, those with modify_graph=True join their datasets.

    What was done is not done again, and a graph that is finalized, or that a session has run, stays as it is.
    RuntimeError without a table, or with nothing to move; ValueError naming the lookup that cannot be meant.
    """
    state = graphs.state(graph)
    moves = moves and state.replacements is None
    if moves:
        moving.check(state)
    elif not state.tables:
        raise RuntimeError(
            f"there is no table in this graph: call create_table before start_asc_pipeline{graphs.elsewhere()}"
        )
    elif state.is_started:
        return
    if not graph.finalized:
        timestamps.bind(graph)
    if moves:
        moving.move(graph)
    if state.is_started:
        return
    state.is_started = True
    if not graph.finalized and not graphs.is_running(graph):
        merging.merge_in_step(graph)
        _fuse(graph, state)
    _tell(state)


def _fuse(graph, state):
    if state.replacements is None:  # graph modification has a report already
        reports.remember(reports.Report())
    fused = fusing.fuse(graph)
    reports.last_report().fused.extend(fused)
    for one in fused:
        logger.info("%s", one)


def _tell(state):
    for table in state.tables.values():
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
