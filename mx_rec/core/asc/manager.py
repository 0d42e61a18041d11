"""start_asc_pipeline: the moment between building the graph and running it."""

from mx_rec import _config
from mx_rec.util.log import logger


def start_asc_pipeline() -> None:
    """Announces that the graph is built. Idempotent.

    Batches are prepared inside the dataset, so no thread starts here; the call checks that there is something to train
    and logs the tables. RuntimeError if no table exists.
    """
    _config.current()
    from mx_rec.core import _graph

    tables = _graph.state().tables
    if not tables:
        raise RuntimeError("there is no table in this graph: call create_table before start_asc_pipeline")
    if _config.process.pipeline_started:
        return
    _config.process.pipeline_started = True
    for table in tables.values():
        limit = table.native_limit
        logger.info(
            "table '%s': dim %d, %s rows, %d lookups",
            table.table_name,
            table.embedding_size,
            f"at most {limit:,}" if limit else "unlimited",
            table.lookup_count,
        )
