"""Feature admission and eviction in a MonitoredTrainingSession.

An id gets its row when it occurs for the third time, and loses it after six hours of the log without it.

    python examples/monitored_admission.py
    tensorboard --logdir monitored-admission
"""

import numpy as np
import tensorflow as tf

from mx_rec.core import EvictHook, TableStatsHook
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph.modifier import GraphModifierHook
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

tf.compat.v1.disable_eager_execution()

STEPS, BATCH_SIZE = 300, 256
HOUR = 3600


def make_dataset(feature_specs):
    """A click log: most ids are rare, new ones keep coming, and each batch knows when it was written."""
    rng = np.random.default_rng(0)
    ids = rng.zipf(1.2, (STEPS, BATCH_SIZE)) % 100_000 + 200 * np.arange(STEPS)[:, np.newaxis]
    data = {
        "item": ids,
        "timestamp": 1_700_000_000 + 600 * np.arange(STEPS),  # a batch every ten minutes
        "label": (ids % 3 == 0).astype(np.float32),
    }
    dataset = tf.data.Dataset.from_tensor_slices(data)
    return dataset.map(get_asc_insert_func(tgt_key_specs=feature_specs)).prefetch(10)


def main():
    init(max_steps=STEPS)
    specs = [
        FeatureSpec("item", table_name="item_table", access_threshold=3, eviction_threshold=6 * HOUR),
        FeatureSpec("timestamp", is_timestamp=True),
    ]
    batch = tf.compat.v1.data.make_one_shot_iterator(make_dataset(specs)).get_next()
    table = create_table(
        key_dtype=tf.int64,
        dim=8,
        name="item_table",
        emb_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.05),
        device_vocabulary_size=100_000,
    )
    embedding = sparse_lookup(table, specs[0], batch=batch)  # zeros for ids that have no row yet
    weights = tf.compat.v1.get_variable("weights", [8, 1])
    logits = tf.squeeze(tf.matmul(embedding, weights), axis=1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=batch["label"], logits=logits))

    global_step = tf.compat.v1.train.get_or_create_global_step()
    dense, sparse = get_dense_and_sparse_variable()
    train = tf.group(
        tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, global_step, var_list=dense),
        create_hash_optimizer(0.01).apply_gradients(zip(tf.gradients(loss, sparse), sparse)),
    )
    hooks = [
        GraphModifierHook(modify_graph=False),  # starts the pipeline
        EvictHook(evict_enable=True, evict_time_interval=24 * HOUR, evict_step_interval=50),
        TableStatsHook(every_n_steps=100, output_dir="monitored-admission"),
    ]
    with tf.compat.v1.train.MonitoredTrainingSession(checkpoint_dir="monitored-admission", hooks=hooks) as session:
        for _ in range(STEPS):
            session.run(train)
    stats = table.stats()
    print(
        f"{stats['seen']:,} ids seen: {stats['refused']:,} never got a row, {stats['evicted']:,} lost theirs, "
        f"{stats['rows']:,} have one now"
    )
    terminate_config_initializer()


if __name__ == "__main__":
    main()
