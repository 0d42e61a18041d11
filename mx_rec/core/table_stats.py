"""Tables in the log and in TensorBoard: how many rows they have, whom they refuse, what is evicted, how much memory;
and how the norms of rows and the counts of keys are spread."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from mx_rec import _check, _ranks
from mx_rec._log import logger
from mx_rec._tables import graphs, sparse_table

__all__ = ["TableStatsHook", "histograms_of", "summary_of"]

v1 = tf.compat.v1

SAMPLE = 4096
# Of a table with a disk tier: a row that is not in memory takes a read of some 100 microseconds.
SAMPLE_ON_DISK = 256
_BINS = 30


def summary_of(stats: Mapping[str, Mapping[str, float]]) -> v1.Summary:
    """Returns the numbers of `table.stats()`, by table, as scalars "mx_rec/<table>/<number>" for TensorBoard."""
    return v1.Summary(
        value=[
            v1.Summary.Value(tag=f"mx_rec/{table}/{name}", simple_value=value)
            for table, numbers in stats.items()
            for name, value in numbers.items()
        ]
    )


def histograms_of(tables: Iterable[sparse_table.BaseSparseEmbedding]) -> v1.Summary:
    """Returns histograms for TensorBoard: "mx_rec/<table>/norm", the Euclidean norms of embeddings, and, of a table
    that counts its keys, "mx_rec/<table>/count". They are of a sample of 4096 rows, or 256 of a table with a disk tier,
    which the hashes of the keys choose; so they cost a millisecond or two, whatever the size of the table. An empty
    table has none."""
    values = []
    for table in tables:
        native = table.native
        keys = native.some_keys(SAMPLE if native.tier is None else SAMPLE_ON_DISK)
        if not keys.size:
            continue
        rows = native.read(keys)[0][:, 0].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        norms = norms[np.isfinite(norms)]
        if norms.size:
            values.append(_histogram(f"mx_rec/{table.table_name}/norm", norms, _BINS))
        if native.tracking is not None:
            counts = native.history(keys)[0]
            # Spread over orders of magnitude: 0, 1, 2 to 3, 4 to 7, ...
            edges = np.concatenate([[0], 2.0 ** np.arange(int(counts.max()).bit_length() + 1)])
            values.append(_histogram(f"mx_rec/{table.table_name}/count", counts.astype(np.float64), edges))
    return v1.Summary(value=values)


def _histogram(tag, numbers, bins):
    counts, edges = np.histogram(numbers, bins)
    found = v1.HistogramProto(
        min=numbers.min(),
        max=numbers.max(),
        num=numbers.size,
        sum=numbers.sum(),
        sum_squares=np.square(numbers).sum(),
        bucket_limit=edges[1:],
        bucket=counts,
    )
    return v1.Summary.Value(tag=tag, histo=found)


class TableStatsHook(v1.train.SessionRunHook):
    """Logs the numbers of all tables while a monitored session or an Estimator trains. With several ranks each logs its
    own, and what exchanges with the others have cost it; ranks but the first write to `output_dir`/rank1 and so on.

    Args:
        every_n_steps: how often, in runs of the session.
        output_dir: also write them there, for TensorBoard, with histograms of the norms of rows and the counts of keys
            from a sample of each table (`histograms_of`); for instance the Estimator's model_dir.
    """

    def __init__(self, every_n_steps: int = 100, output_dir: Optional[str] = None) -> None:
        self._every = _check.integer("every_n_steps", every_n_steps, 1, _check.MAX_INT32)
        self._output_dir = None if output_dir is None else _check.text("output_dir", output_dir, 1024)
        self._writer = None
        self._tables = []
        self._global_step = None
        self._runs = 0

    def begin(self) -> None:
        self._tables = list(graphs.tables_here("TableStatsHook").values())
        self._global_step = v1.train.get_global_step()
        if self._output_dir is not None:
            rank = _ranks.facts().rank
            # Shared with TensorFlow's own hooks, which write there too. Other ranks than the first write beside it, for
            # TensorBoard runs of their own.
            self._writer = (
                v1.summary.FileWriterCache.get(self._output_dir)
                if rank == 0
                else v1.summary.FileWriter(os.path.join(self._output_dir, f"rank{rank}"))
            )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        del run_values
        self._runs += 1
        if self._runs % self._every == 0:
            self._tell(run_context.session)

    def end(self, session: Any) -> None:
        if self._runs % self._every != 0:
            self._tell(session)
        if self._writer is not None:
            self._writer.flush()

    def _tell(self, session):
        step = self._runs if self._global_step is None else int(session.run(self._global_step))
        all_stats = {table.table_name: table.stats() for table in self._tables}
        for name, stats in all_stats.items():
            logger.info(
                "step %d, table '%s': %d rows%s, %.1f MB; keys: %d seen, %d admitted, %d refused, %d evicted",
                step,
                name,
                stats["rows"],
                f" of {stats['rows_on_all_ranks']:,} on all ranks" if _ranks.are_several() else "",
                stats["bytes"] / 1e6,
                stats["seen"],
                stats["admitted"],
                stats["refused"],
                stats["evicted"],
            )
            if stats["nonfinite"]:
                logger.warning(
                    "step %d, table '%s': %d gradients of rows were not finite so far", step, name, stats["nonfinite"]
                )
            if "rows_on_disk" in stats:
                logger.info("step %d, table '%s': %s", step, name, sparse_table.tier_text(stats))
        exchange = _ranks.statistics()
        if exchange is not None:
            logger.info("step %d, %s", step, exchange.text())
        if self._writer is not None:
            if exchange is not None:
                numbers = {"megabytes_sent": exchange.bytes / 1e6, "seconds_waited": exchange.wait_microseconds / 1e6}
                self._writer.add_summary(summary_of({"exchange": {"exchanges": exchange.exchanges, **numbers}}), step)
            self._writer.add_summary(summary_of(all_stats), step)
            self._writer.add_summary(histograms_of(self._tables), step)
