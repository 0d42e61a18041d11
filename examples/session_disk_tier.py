"""A table with more rows than memory may hold: the others wait on disk, in one tf.Session script.

python examples/session_disk_tier.py
"""

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

tf.compat.v1.disable_eager_execution()

STEPS, BATCH_SIZE = 200, 256
ITEMS, IN_MEMORY = 20_000, 2_000


def make_batch(spec):
    """Items as a shop sells them: few of them often, most of them rarely."""
    rng = np.random.default_rng(0)
    items = (rng.zipf(1.2, (STEPS * BATCH_SIZE, 4)) % ITEMS).astype(np.int64)
    label = (np.sum(items % 3, axis=1) > 3).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices({"item": items, "label": label}).batch(BATCH_SIZE)
    # Prepared ahead, so that rows are read from disk before their step begins.
    dataset = dataset.map(get_asc_insert_func(tgt_key_specs=[spec])).prefetch(4)
    return tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()


def main():
    init()
    spec = FeatureSpec("item", table_name="item_table")
    batch = make_batch(spec)
    table = create_table(
        key_dtype=tf.int64,
        dim=8,
        name="item_table",
        emb_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.05),
        device_vocabulary_size=IN_MEMORY // 2,
        host_vocabulary_size=IN_MEMORY // 2,
        ssd_vocabulary_size=ITEMS,
        ssd_data_path=["."],
    )
    hidden = tf.reduce_sum(sparse_lookup(table, spec, batch=batch), axis=1)
    weights = tf.compat.v1.get_variable("weights", [8, 1])
    logits = tf.squeeze(tf.matmul(hidden, weights), axis=1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=batch["label"], logits=logits))

    dense, sparse = get_dense_and_sparse_variable()
    train_dense = tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, var_list=dense)
    train_sparse = create_hash_optimizer(0.01).apply_gradients(zip(tf.gradients(loss, sparse), sparse))

    start_asc_pipeline()
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        for step in range(1, STEPS + 1):
            _, _, value = session.run([train_dense, train_sparse, loss])
            if step % 50 == 0:
                stats = table.stats()
                print(
                    f"step {step}: loss {value:.4f}, {stats['rows_in_memory']:,} rows in memory, "
                    f"{stats['rows_on_disk']:,} on disk, hit rate {stats['hit_rate']:.3f}"
                )
    terminate_config_initializer()


if __name__ == "__main__":
    main()
