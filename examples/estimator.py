"""An Estimator with two sparse tables: trains and evaluates, predicts, exports, and serves what it exported.

Started again, it goes on from its last checkpoint.

    python examples/estimator.py
"""

import json
import logging
import subprocess
import sys

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph.modifier import GraphModifierHook
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable
from tf_adapter import NPUEstimator, NPURunConfig, npu_hooks_append

logging.basicConfig(level=logging.INFO)
logging.getLogger("tensorflow").setLevel(logging.ERROR)

BATCH_SIZE, DIM = 64, 8
TRAIN_STEPS, SAVE_STEPS, EVAL_STEPS = 200, 100, 10
SPECS = [FeatureSpec("user", table_name="user_table"), FeatureSpec("items", table_name="item_table")]


def make_data(seed):
    """Generated clicks: a user clicks on items of his own parity."""
    rng = np.random.default_rng(seed)
    count = TRAIN_STEPS * BATCH_SIZE
    user, items = rng.integers(0, 200, count), rng.integers(0, 50, (count, 2)) * 2 + rng.integers(0, 2, (count, 1))
    return {"user": user, "items": items, "label": ((user + items[:, 0]) % 2 == 0).astype(np.float32)}


def input_fn(is_training):
    dataset = tf.data.Dataset.from_tensor_slices(make_data(0 if is_training else 1)).batch(BATCH_SIZE)
    if is_training:
        dataset = dataset.repeat()
    return dataset.map(get_asc_insert_func(tgt_key_specs=SPECS, is_training=is_training)).prefetch(2)


def serving_input_fn():
    """Requests have the ids; they are prepared as a batch is."""
    ids = {
        "user": tf.compat.v1.placeholder(tf.int64, [None], name="user"),
        "items": tf.compat.v1.placeholder(tf.int64, [None, 2], name="items"),
    }
    features = get_asc_insert_func(tgt_key_specs=SPECS, is_training=False)(dict(ids))
    return tf.estimator.export.ServingInputReceiver(features, ids)


def model_fn(features, labels, mode, params):
    """The tables are created here: an Estimator builds a graph for each mode, and all of them share the rows."""
    del labels
    is_train = mode == tf.estimator.ModeKeys.TRAIN
    embeddings = []
    for spec in SPECS:
        table = create_table(
            key_dtype=tf.int64,
            dim=DIM,
            name=spec.table_name,
            emb_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.1),
            device_vocabulary_size=10_000,
        )
        embedding = sparse_lookup(table, spec, is_train=is_train, name=table.table_name + "_lookup", batch=features)
        embeddings.append(embedding if spec.given_name == "user" else tf.reduce_sum(embedding, axis=1))
    inputs = tf.concat(embeddings, axis=-1)
    hidden = tf.nn.relu(inputs @ tf.compat.v1.get_variable("hidden", [2 * DIM, 16]))
    logits = tf.squeeze(hidden @ tf.compat.v1.get_variable("output", [16, 1]), axis=1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"click": tf.sigmoid(logits)})
    label = features["label"]
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        auc = tf.compat.v1.metrics.auc(label, tf.sigmoid(logits))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"auc": auc})
    dense, sparse = get_dense_and_sparse_variable()
    dense_op = tf.compat.v1.train.AdamOptimizer(params["learning_rate"]).minimize(loss, var_list=dense)
    with tf.control_dependencies([dense_op]):
        train_op = create_hash_optimizer(params["learning_rate"]).apply_gradients(
            zip(tf.gradients(loss, sparse), sparse), global_step=tf.compat.v1.train.get_global_step()
        )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    init(max_steps=TRAIN_STEPS, train_steps=SAVE_STEPS, eval_steps=EVAL_STEPS, save_steps=SAVE_STEPS)
    config = NPURunConfig(
        model_dir="./estimator-model", save_checkpoints_steps=SAVE_STEPS, keep_checkpoint_max=3, precision_mode="any"
    )
    est = NPUEstimator(model_fn=model_fn, params={"learning_rate": 0.01}, config=config)
    start = 0 if est.latest_checkpoint() is None else int(est.get_variable_value("global_step"))
    # Without the hook the pipeline starts by itself; with modify_graph=True in the lookups, GraphModifierHook() it is.
    hooks = npu_hooks_append([GraphModifierHook(modify_graph=False)])
    metrics, _ = tf.estimator.train_and_evaluate(
        est,
        tf.estimator.TrainSpec(lambda: input_fn(True), max_steps=start + TRAIN_STEPS, hooks=hooks),
        tf.estimator.EvalSpec(lambda: input_fn(False), steps=EVAL_STEPS, throttle_secs=0),
    )
    logging.info("from step %d to %d: AUC %.3f", start, metrics["global_step"], metrics["auc"])
    clicks = [found["click"] for found, _ in zip(est.predict(lambda: input_fn(False)), range(5))]
    exported = est.export_saved_model("./estimator-export", serving_input_fn).decode()
    terminate_config_initializer()

    # Another process, which knows nothing of this script, gives the same answers.
    data = make_data(1)
    request = {name: data[name][:5].tolist() for name in ("user", "items")}
    script = f"""
import json, sys
import mx_rec.serving  # registers the ops
import tensorflow as tf
serve = tf.saved_model.load({exported!r}).signatures["serving_default"]
request = {{name: tf.constant(ids, tf.int64) for name, ids in json.load(sys.stdin).items()}}
print(json.dumps(serve(**request)["click"].numpy().tolist()))
"""
    served = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(request), capture_output=True, text=True, check=True
    )
    np.testing.assert_allclose(json.loads(served.stdout), clicks, rtol=1e-6)
    logging.info("predicted and served: %s", np.round(clicks, 3).tolist())


if __name__ == "__main__":
    main()
