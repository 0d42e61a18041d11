"""Training by address in one tf.Session script: tables that grow without limit, LazyAdam on the rows of a step, a save,
and a restart that goes on from it.

Run it twice: the second run restores the last step of the first.

    python examples/session_by_address.py
"""

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers.lazy_adam_by_addr import create_hash_optimizer_by_address
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

tf.compat.v1.disable_eager_execution()

STEPS, BATCH_SIZE = 60, 128
DIRECTORY = "./by-address-model"


def make_batch(feature_specs, first_step):
    """Clicks; new ids keep coming, and nobody knows how many there will be."""
    rng = np.random.default_rng(first_step)
    count = STEPS * BATCH_SIZE
    known = 200 + 10 * first_step + np.arange(count)[:, np.newaxis] // 10  # ids there are by then
    users = (rng.random((count, 1)) ** 3 * known).astype(np.int64)
    items = (rng.random((count, 4)) ** 3 * known).astype(np.int64)
    label = (users[:, 0] % 3 + np.sum(items % 2, axis=1) > 2).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices({"user": users, "item": items, "label": label}).batch(BATCH_SIZE)
    dataset = dataset.map(get_asc_insert_func(tgt_key_specs=feature_specs)).prefetch(4)
    return tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()


def build_loss(tables, feature_specs, batch):
    pooled = [
        tf.reduce_sum(sparse_lookup(table, spec, batch=batch), axis=1) for table, spec in zip(tables, feature_specs)
    ]
    hidden = tf.concat(pooled, axis=1)
    weights = tf.compat.v1.get_variable("weights", [hidden.shape[1], 1])
    logits = tf.squeeze(tf.matmul(hidden, weights), axis=1)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=batch["label"], logits=logits))


def main():
    init(use_dynamic_expansion=True)
    latest = tf.train.latest_checkpoint(DIRECTORY)
    first_step = int(latest.rpartition("-")[2]) if latest else 0
    specs = [FeatureSpec("user", table_name="user_table"), FeatureSpec("item", table_name="item_table")]
    batch = make_batch(specs, first_step)
    tables = [
        create_table(
            key_dtype=tf.int64,
            dim=8,
            name=name,
            emb_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.05),
        )
        for name in ("user_table", "item_table")
    ]
    loss = build_loss(tables, specs, batch)

    dense, _ = get_dense_and_sparse_variable()
    global_step = tf.compat.v1.train.get_or_create_global_step()
    train_dense = tf.compat.v1.train.AdamOptimizer(0.05).minimize(loss, global_step, var_list=dense)
    rows = tf.compat.v1.get_collection("ASCEND_SPARSE_LOOKUP_LOCAL_EMB")
    addresses = tf.compat.v1.get_collection("ASCEND_SPARSE_LOOKUP_ID_OFFSET")
    gradients = tf.gradients(loss, rows)
    train_sparse = create_hash_optimizer_by_address(learning_rate=0.05).apply_gradients(zip(gradients, addresses))

    saver = tf.compat.v1.train.Saver()
    start_asc_pipeline()
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        if latest:
            saver.restore(session, latest)
            print(f"restored step {first_step}: " + describe(tables))
        for _ in range(STEPS):
            _, _, value = session.run([train_dense, train_sparse, loss])
        step = session.run(global_step)
        saver.save(session, f"{DIRECTORY}/model", global_step=step)
        print(f"step {step}: loss {value:.4f}, " + describe(tables))
    terminate_config_initializer()


def describe(tables):
    return ", ".join(f"{table.table_name} {table.size():,} rows" for table in tables)


if __name__ == "__main__":
    main()
