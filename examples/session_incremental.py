"""Checkpoints that hold what has changed, written while training goes on, in one tf.Session script.

python examples/session_incremental.py

Trains 200 steps and saves every 20: every fifth checkpoint holds all rows, the others what has changed since the one
before. Then, as another run of the script would, it goes back to one of them.
"""

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.saver import wait
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

tf.compat.v1.disable_eager_execution()

STEPS, BATCH_SIZE, SAVE_STEPS = 200, 256, 20
ITEMS = 20_000


def build():
    """(table, loss, training op), in the default graph."""
    rng = np.random.default_rng(0)
    items = (rng.zipf(1.2, (STEPS * BATCH_SIZE, 4)) % ITEMS).astype(np.int64)
    label = (np.sum(items % 3, axis=1) > 3).astype(np.float32)
    spec = FeatureSpec("item", table_name="item_table")
    dataset = tf.data.Dataset.from_tensor_slices({"item": items, "label": label}).batch(BATCH_SIZE).repeat()
    dataset = dataset.map(get_asc_insert_func(tgt_key_specs=[spec])).prefetch(4)
    batch = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
    table = create_table(
        key_dtype=tf.int64,
        dim=8,
        name="item_table",
        emb_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.05),
        device_vocabulary_size=ITEMS,
    )
    hidden = tf.reduce_sum(sparse_lookup(table, spec, batch=batch), axis=1)
    weights = tf.compat.v1.get_variable("weights", [8, 1])
    logits = tf.squeeze(tf.matmul(hidden, weights), axis=1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=batch["label"], logits=logits))
    dense, sparse = get_dense_and_sparse_variable()
    train_dense = tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, var_list=dense)
    train_sparse = create_hash_optimizer(0.01).apply_gradients(zip(tf.gradients(loss, sparse), sparse))
    return table, loss, tf.group(train_dense, train_sparse)


def train():
    init(is_async_checkpoint=True)
    table, loss, train_op = build()
    saver = tf.compat.v1.train.Saver(max_to_keep=100)
    start_asc_pipeline()
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        for step in range(1, STEPS + 1):
            _, value = session.run([train_op, loss])
            if step % SAVE_STEPS == 0:
                is_delta = step % (5 * SAVE_STEPS) != SAVE_STEPS  # 20, 120: all rows
                # Returns at once: the next step may begin while the checkpoint is written.
                saver.save(
                    session,
                    "saved-model/model",
                    global_step=step,
                    is_incremental_checkpoint=True,
                    save_delta=is_delta,
                )
                kind = "what has changed" if is_delta else "all rows"
                print(f"step {step}: loss {value:.4f}, {table.stats()['rows']:,} rows, saving {kind}")
        wait()  # until the last one is in its place; a failure would be told here
    terminate_config_initializer()


def restore(step):
    tf.compat.v1.reset_default_graph()
    init(restore_model_version=step)  # whatever the latest is
    table, loss, _ = build()
    saver = tf.compat.v1.train.Saver()
    start_asc_pipeline()
    with tf.compat.v1.Session() as session:
        saver.restore(session, tf.train.latest_checkpoint("saved-model"))
        print(f"restored step {step}: loss {session.run(loss):.4f}, {table.stats()['rows']:,} rows")
    terminate_config_initializer()


if __name__ == "__main__":
    train()
    restore(160)
