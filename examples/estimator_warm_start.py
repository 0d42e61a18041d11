"""Warm start: a new model begins with tables and variables of older ones, taken from several checkpoints.

Ids are plain tensors here, and graph modification prepares them ahead of the step: GraphModifierHook in every mode.

    python examples/estimator_warm_start.py
"""

import logging
import os

import numpy as np
import tensorflow as tf

from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph.modifier import GraphModifierHook
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable
from tf_adapter import NPUEstimator, NPURunConfig

logging.basicConfig(level=logging.INFO)
logging.getLogger("tensorflow").setLevel(logging.ERROR)

BATCH_SIZE, DIM, STEPS = 64, 8, 100


def input_fn(seed):
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 100, (2, STEPS * BATCH_SIZE))
    data = {"user": user, "item": item, "label": ((user + item) % 2).astype(np.float32)}
    return tf.data.Dataset.from_tensor_slices(data).batch(BATCH_SIZE).repeat()


def model_fn(features, labels, mode):
    del labels
    is_train = mode == tf.estimator.ModeKeys.TRAIN
    embeddings = []
    for name in ("user", "item"):
        table = create_table(
            key_dtype=tf.int64,
            dim=DIM,
            name=f"{name}_table",
            emb_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.1),
            device_vocabulary_size=10_000,
        )
        embeddings.append(sparse_lookup(table, features[name], is_train=is_train, modify_graph=True, batch=features))
    inputs = tf.concat(embeddings, axis=-1)
    hidden = tf.nn.relu(inputs @ tf.compat.v1.get_variable("mlp_layer_w", [2 * DIM, 16]))
    logits = tf.squeeze(hidden @ tf.compat.v1.get_variable("output", [16, 1]), axis=1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=features["label"], logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss)
    dense, sparse = get_dense_and_sparse_variable()
    dense_op = tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, var_list=dense)
    with tf.control_dependencies([dense_op]):
        train_op = create_hash_optimizer(0.01).apply_gradients(
            zip(tf.gradients(loss, sparse), sparse), global_step=tf.compat.v1.train.get_global_step()
        )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def make_estimator(model_dir, warm_start_from=None):
    config = NPURunConfig(save_checkpoints_steps=STEPS)
    return NPUEstimator(model_fn=model_fn, model_dir=model_dir, config=config, warm_start_from=warm_start_from)


def main():
    init()
    # Three models, each of which goes on from what the one before has learned.
    for number in (1, 2, 3):
        if not os.path.exists(f"./warm_start_{number}/checkpoint"):
            before = f"./warm_start_{number - 1}" if number > 1 else None
            make_estimator(f"./warm_start_{number}", before).train(
                lambda seed=number: input_fn(seed), steps=STEPS, hooks=[GraphModifierHook()]
            )

    # Everything from the first; then both tables from the second, and one dense variable from the third in their place.
    settings = tf.estimator.WarmStartSettings(
        ckpt_to_initialize_from=["./warm_start_1", "./warm_start_2", "./warm_start_3"],
        vars_to_warm_start=[".*", ["user_table", "item_table"], "mlp_layer_w"],
        var_name_to_vocab_info=None,
        var_name_to_prev_var_name=[{}, {}, {}],
    )
    cold, warm = make_estimator("./cold"), make_estimator("./warm", settings)
    losses = {}
    for name, estimator in (("cold", cold), ("warm", warm)):
        estimator.train(lambda: input_fn(4), steps=5, hooks=[GraphModifierHook()])
        losses[name] = estimator.evaluate(lambda: input_fn(5), steps=20, hooks=[GraphModifierHook()])["loss"]
    logging.info("loss after 5 steps: %.3f from scratch, %.3f after a warm start", losses["cold"], losses["warm"])
    terminate_config_initializer()


if __name__ == "__main__":
    main()
