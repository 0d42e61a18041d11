"""The whole call sequence of FeatureSpec mode in one tf.Session script: train, evaluate, save, resume.

Run it twice: the second run finds the step-0 checkpoint and restores it.

    python examples/session_feature_spec.py
"""

import logging
import os

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.optimizers.lazy_adam_by_addr import create_hash_optimizer_by_address
from mx_rec.util.communication.hccl_ops import get_rank_id
from mx_rec.util.initialize import get_use_dynamic_expansion, init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

tf.compat.v1.disable_eager_execution()
logging.basicConfig(level=logging.INFO)

BATCH_SIZE = 64
TRAIN_STEPS, EVAL_STEPS, SAVE_STEPS, MAX_STEPS = 20, 5, 30, 100


def make_batches(feature_specs, is_training, batches):
    """A dataset of click samples; ids may be any 64-bit number."""
    rng = np.random.default_rng(0 if is_training else 1)
    count = batches * BATCH_SIZE
    users = rng.zipf(1.3, (count, 1)) * 7919
    items = rng.zipf(1.3, (count, 3)) * -104729
    data = {
        "user_ids": users,
        "item_ids": items,
        "label_0": ((users[:, 0] + items[:, 0]) % 2).astype(np.float32),
        "label_1": (items[:, 0] % 3 == 0).astype(np.float32),
    }
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH_SIZE)
    insert_fn = get_asc_insert_func(tgt_key_specs=feature_specs, is_training=is_training, dump_graph=False)
    dataset = dataset.map(insert_fn).prefetch(100)
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    return iterator.get_next(), iterator


class MyModel:
    """Two small towers over the pooled embeddings."""

    def __init__(self, embeddings, labels):
        features = tf.concat(embeddings, axis=1)
        self.loss_list = []
        with tf.compat.v1.variable_scope("my_model", reuse=tf.compat.v1.AUTO_REUSE):
            for i, label in enumerate(labels):
                weights = tf.compat.v1.get_variable(f"weights_{i}", [features.shape[1], 1])
                logits = tf.squeeze(tf.matmul(features, weights), axis=1)
                loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits)
                self.loss_list.append(tf.reduce_mean(loss))


def build_graph(tables, feature_specs, is_train, batches):
    batch, iterator = make_batches(feature_specs, is_train, batches)
    embeddings = []
    for table, spec in zip(tables, feature_specs):
        embedding = sparse_lookup(
            table,
            spec,
            BATCH_SIZE * 3,
            is_train=is_train,
            name=table.table_name + "_lookup",
            modify_graph=False,
            batch=batch,
        )
        embeddings.append(tf.reduce_sum(embedding, axis=1, keepdims=False))
    return iterator, MyModel(embeddings, [batch["label_0"], batch["label_1"]])


def get_dense_and_sparse_optimizer(learning_rate):
    dense_optimizer = tf.compat.v1.train.AdamOptimizer(learning_rate=learning_rate)
    if get_use_dynamic_expansion():
        return dense_optimizer, create_hash_optimizer_by_address(learning_rate=learning_rate)
    return dense_optimizer, create_hash_optimizer(learning_rate=learning_rate)


def make_feature_specs():
    return [FeatureSpec("user_ids", table_name="user_table"), FeatureSpec("item_ids", table_name="item_table")]


def main():
    rank_id = get_rank_id()
    init(
        max_steps=MAX_STEPS,
        train_steps=TRAIN_STEPS,
        eval_steps=EVAL_STEPS,
        save_steps=SAVE_STEPS,
        use_dynamic=True,
        use_dynamic_expansion=False,
    )
    dense_optimizer, sparse_optimizer = get_dense_and_sparse_optimizer(0.01)
    tables = [
        create_table(
            key_dtype=tf.int64,
            dim=tf.TensorShape([8]),
            name=name,
            emb_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.05),
            device_vocabulary_size=100_000,
            host_vocabulary_size=0,
        )
        for name in ("user_table", "item_table")
    ]
    train_iterator, train_model = build_graph(tables, make_feature_specs(), is_train=True, batches=MAX_STEPS)
    eval_iterator, eval_model = build_graph(tables, make_feature_specs(), is_train=False, batches=EVAL_STEPS)
    dense_variables, sparse_variables = get_dense_and_sparse_variable()

    train_ops = []
    for loss in train_model.loss_list:
        train_ops.append(dense_optimizer.apply_gradients(dense_optimizer.compute_gradients(loss, dense_variables)))
    total_loss = tf.add_n(train_model.loss_list)
    sparse_grads = tf.gradients(total_loss, sparse_variables)
    train_ops.append(sparse_optimizer.apply_gradients(zip(sparse_grads, sparse_variables)))

    saver = tf.compat.v1.train.Saver()
    start_asc_pipeline()
    with tf.compat.v1.Session() as sess:
        sess.run(train_iterator.initializer)
        sess.run(tf.compat.v1.global_variables_initializer())

        def evaluate():
            sess.run(eval_iterator.initializer)
            losses = [sess.run(eval_model.loss_list) for _ in range(EVAL_STEPS)]
            logging.info("evaluation: losses %s", np.mean(losses, axis=0))

        if os.path.exists(f"./saved-model/sparse-model-{rank_id}-0"):
            saver.restore(sess, f"./saved-model/model-{rank_id}-0")
            logging.info("restored step 0")
        else:
            saver.save(sess, f"./saved-model/model-{rank_id}", global_step=0)

        step = 0
        for i in range(1, MAX_STEPS + 100):
            try:
                sess.run([train_ops, train_model.loss_list])
            except tf.errors.OutOfRangeError:
                logging.info("Encounter the end of Sequence for training.")
                break
            step = i
            if i % TRAIN_STEPS == 0:
                evaluate()
            if i % SAVE_STEPS == 0:
                saver.save(sess, f"./saved-model/model-{rank_id}", global_step=i)
        saver.save(sess, f"./saved-model/model-{rank_id}", global_step=step)
        for table in tables:
            logging.info("table %s: %d of %d rows", table.table_name, table.size(), table.capacity())
    terminate_config_initializer()
    logging.info("Demo done!")


if __name__ == "__main__":
    main()
