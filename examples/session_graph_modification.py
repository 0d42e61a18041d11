"""Automatic graph modification in a tf.Session script: ids are computed from the batch by ordinary ops.

The script differs from one without mx_rec's preparation in three places, marked with (*).

    python examples/session_graph_modification.py
"""

import logging

import numpy as np
import tensorflow as tf

from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph import last_report
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import get_initializer, init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

tf.compat.v1.disable_eager_execution()
logging.basicConfig(level=logging.INFO)

BATCH_SIZE = 64
TRAIN_STEPS, EVAL_STEPS, MAX_STEPS = 40, 5, 200
CITIES = [f"city-{i}" for i in range(50)]


def make_batch(seed, batches):
    """Raw features, as a log file has them."""
    rng = np.random.default_rng(seed)
    count = batches * BATCH_SIZE
    user, city = rng.zipf(1.3, count), rng.choice(CITIES, count)
    label = (user + np.char.str_len(city)) % 2
    data = {
        "user": user,
        "city": city,
        "items": rng.integers(0, 500, (count, 4)),
        "label": label.astype(np.float32),
    }
    dataset = tf.data.Dataset.from_tensor_slices(data).shuffle(1000, seed=seed).batch(BATCH_SIZE).prefetch(2)
    return tf.compat.v1.data.make_initializable_iterator(dataset).get_next()


def build_model(tables, batch, is_train):
    """(loss, label, prediction). Ids are hashed and crossed here, in the graph."""
    city = tf.strings.to_hash_bucket_fast(batch["city"], 10_000)
    crossed = tf.strings.join([batch["city"], tf.strings.as_string(batch["user"] % 100)], separator="_x_")
    features = {
        "user": batch["user"] * 7919,
        "city": city,
        "cross": tf.strings.to_hash_bucket_fast(crossed, 2**40),
        "item": batch["items"],
    }
    embeddings = []
    for name, ids in features.items():
        embedding = sparse_lookup(tables[name], ids, is_train=is_train, modify_graph=True, batch=batch)  # (*)
        embeddings.append(embedding if name != "item" else tf.reduce_sum(embedding, axis=1))
    inputs = tf.concat(embeddings, axis=-1)
    with tf.compat.v1.variable_scope("model", reuse=tf.compat.v1.AUTO_REUSE):
        hidden = tf.nn.relu(inputs @ tf.compat.v1.get_variable("hidden", [inputs.shape[-1], 16]))
        logits = tf.squeeze(hidden @ tf.compat.v1.get_variable("output", [16, 1]), axis=1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=batch["label"], logits=logits))
    return loss, batch["label"], tf.sigmoid(logits)


def main():
    init(train_steps=TRAIN_STEPS, eval_steps=EVAL_STEPS)
    tables = {
        name: create_table(
            key_dtype=tf.int64,
            dim=8,
            name=name,
            emb_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.05),
            device_vocabulary_size=100_000,
        )
        for name in ("user", "city", "cross", "item")
    }
    loss, _, _ = build_model(tables, make_batch(0, MAX_STEPS), is_train=True)
    eval_loss, eval_label, eval_prediction = build_model(tables, make_batch(1, EVAL_STEPS), is_train=False)
    dense, sparse = get_dense_and_sparse_variable()
    train_ops = [
        tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, var_list=dense),
        create_hash_optimizer(0.01).apply_gradients(zip(tf.gradients(loss, sparse), sparse)),
    ]
    saver = tf.compat.v1.train.Saver()
    modify_graph_and_start_emb_cache()  # (*)
    logging.info("what became of the graph:\n%s", last_report())

    with tf.compat.v1.Session() as sess:
        sess.run(tf.compat.v1.global_variables_initializer())
        sess.run(get_initializer(True))  # (*) iterator.initializer would do as well
        for step in range(1, MAX_STEPS + 100):
            try:
                _, value = sess.run([train_ops, loss])
            except tf.errors.OutOfRangeError:
                logging.info("the training data ended after %d steps", step - 1)
                break
            if step % TRAIN_STEPS == 0:
                sess.run(get_initializer(False))
                results = [sess.run([eval_loss, eval_label, eval_prediction]) for _ in range(EVAL_STEPS)]
                correct = np.mean([(label > 0.5) == (prediction > 0.5) for _, label, prediction in results])
                logging.info(
                    "step %d: loss %.4f; evaluation: loss %.4f, %.0f %% right",
                    step,
                    value,
                    np.mean([result[0] for result in results]),
                    100 * correct,
                )
        saver.save(sess, "./saved-model/model", global_step=MAX_STEPS)
    for name, table in tables.items():
        logging.info("table %s: %d rows", name, table.size())
    terminate_config_initializer()


if __name__ == "__main__":
    main()
