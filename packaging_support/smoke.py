"""A tiny training with an installed wheel: it learns, saves and restores, and there are Estimators. Run it in a
directory of its own, by the interpreter of the environment to test."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MXREC_LOG_LEVEL", "WARNING")

import numpy as np
import tensorflow as tf

import mx_rec
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

v1 = tf.compat.v1
STEPS, BATCH = 60, 64


def check(is_right, what):
    if not is_right:
        sys.exit(f"smoke test: {what}")


def main():
    check(mx_rec.__file__.startswith(sys.prefix), f"mx_rec is not the installed one, but {mx_rec.__file__}")
    v1.disable_eager_execution()
    init()
    rng = np.random.default_rng(0)
    ids = rng.integers(-(2**62), 2**62, 200)[rng.integers(0, 200, (STEPS * BATCH, 3))]
    spec = FeatureSpec("ids", table_name="table")
    data = {"ids": ids, "label": (ids[:, 0] > 0).astype(np.float32)}
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH).map(get_asc_insert_func([spec])).prefetch(2)
    iterator = v1.data.make_initializable_iterator(dataset)
    batch = iterator.get_next()
    table = create_table(tf.int64, 8, "table", v1.truncated_normal_initializer(stddev=0.1), device_vocabulary_size=1000)
    embeddings = sparse_lookup(table, spec, batch=batch)
    weights = v1.get_variable("weights", [24, 1], initializer=v1.glorot_uniform_initializer(seed=1))
    logits = tf.squeeze(tf.reshape(embeddings, [-1, 24]) @ weights, axis=1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=batch["label"], logits=logits))
    dense, sparse = get_dense_and_sparse_variable()
    train = [
        v1.train.AdamOptimizer(0.05).minimize(loss, var_list=dense),
        create_hash_optimizer(0.05).apply_gradients(zip(tf.gradients(loss, sparse), sparse)),
    ]
    saver = v1.train.Saver()
    start_asc_pipeline()
    with v1.Session() as session:
        session.run([iterator.initializer, v1.global_variables_initializer()])
        losses = [session.run([loss, train])[0] for _ in range(STEPS)]
        check(losses[-1] < 0.5 * losses[0], f"the loss only went from {losses[0]:.3f} to {losses[-1]:.3f}")
        saver.save(session, "./model", global_step=STEPS)
        saver.restore(session, f"./model-{STEPS}")
    check(table.size() == 200, f"the table has {table.size()} rows, not 200")
    terminate_config_initializer()

    from tf_adapter import NPUEstimator

    check(issubclass(NPUEstimator, tf.estimator.Estimator), "there are no Estimators")
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"mx_rec {mx_rec.version()}, TensorFlow {tf.__version__}, Python {python}: the loss went", end=" ")
    print(f"from {losses[0]:.3f} to {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
