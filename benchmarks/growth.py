"""Scenario "growth": one table filled with new keys through training steps, then trained again on the same keys.

Reports new rows per second, resident bytes per row, the longest step (growth must not pause training), and the
throughput of the second pass. FeatureSpec mode, LazyAdam, preparation in the dataset as in any script.
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

v1 = tf.compat.v1
v1.disable_eager_execution()


def resident_bytes():
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(rows, dim, batch_size, stride):
    init()
    spec = FeatureSpec("ids", table_name="table")
    batches = rows // batch_size
    dataset = (
        tf.data.Dataset.range(batches)
        .repeat(2)
        .map(lambda i: {"ids": (tf.range(i * batch_size, (i + 1) * batch_size, dtype=tf.int64)) * stride})
        .map(get_asc_insert_func(tgt_key_specs=[spec], is_training=True))
        .prefetch(4)
    )
    iterator = v1.data.make_initializable_iterator(dataset)
    batch = iterator.get_next()
    table = create_table(
        key_dtype=tf.int64,
        dim=dim,
        name="table",
        emb_initializer=v1.truncated_normal_initializer(stddev=0.05),
        device_vocabulary_size=rows,
    )
    embeddings = sparse_lookup(table, spec, batch=batch)
    _, sparse = get_dense_and_sparse_variable()
    gradients = tf.gradients(0.5 * tf.reduce_sum(embeddings**2), sparse)
    train = create_hash_optimizer(0.001).apply_gradients(zip(gradients, sparse))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(iterator.initializer)
        session.run(train)  # first step: start-up costs
        bytes_before, rows_before = resident_bytes(), table.size()
        steps = [_seconds(session, train) for _ in range(batches - 1)]
        grown = table.size() - rows_before
        result = {
            "rows": table.size(),
            "dim": dim,
            "new_rows_per_second": grown / sum(steps),
            "bytes_per_row": (resident_bytes() - bytes_before) / grown,
            "median_step_ms": 1e3 * float(np.median(steps)),
            "longest_step_ms": 1e3 * max(steps),
        }
        again = [_seconds(session, train) for _ in range(batches - 1)]
        result["trained_ids_per_second"] = batch_size * len(again) / sum(again)
    terminate_config_initializer()
    return result


def _seconds(session, op):
    start = time.perf_counter()
    session.run(op)
    return time.perf_counter() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=100_000)
    parser.add_argument("--stride", type=int, default=1_000_003, help="distance between ids; try 1 and 1048576")
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.rows, arguments.dim, arguments.batch_size, arguments.stride)))
