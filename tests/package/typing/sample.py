"""A user's program: it must pass `mypy --strict`, with no stubs of TensorFlow."""

import numpy as np
import tensorflow as tf

import mx_rec
from mx_rec.core import EvictHook, EvictPolicy, TableStatsHook, evict
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import BaseSparseEmbedding, create_table, sparse_lookup
from mx_rec.graph import (
    ACGPushOpsToDatasetHook,
    GraphModifierHook,
    do_merge_lookup,
    last_report,
    modify_graph_and_start_emb_cache,
)
from mx_rec.npu import NPUEstimator, NPURunConfig, npu_hooks_append
from mx_rec.optimizers import adagrad, ftrl, gradient_descent, lazy_adam, lazy_adam_by_addr, momentum
from mx_rec.saver import lenient, rows_only, wait, warm_start
from mx_rec.util.initialize import (
    ConfigInitializer,
    get_initializer,
    get_target_batch,
    init,
    terminate_config_initializer,
)
from mx_rec.util.log import logger
from mx_rec.util.variable import get_dense_and_sparse_variable


def make_table(name: str) -> BaseSparseEmbedding:
    table = create_table(
        key_dtype=tf.int64,
        dim=16,
        name=name,
        emb_initializer=tf.compat.v1.truncated_normal_initializer(),
        device_vocabulary_size=1_000_000,
        padding_keys=[0],
        padding_keys_mask=True,
        padding_keys_len=1,
    )
    table.assign(np.arange(10), np.zeros((10, 16), np.float32))
    rows, found = table.read([1, 2, 3])
    logger.info("%s: %d of %s, norm %f", table.table_name, int(found.sum()), rows.shape, float(np.abs(rows).max()))
    return table


def train(dataset: tf.data.Dataset, directory: str) -> float:
    init(max_steps=1000, train_steps=100, use_dynamic_expansion=True, nonfinite_gradients="skip")
    spec = FeatureSpec("user", table_name="user", access_threshold=3, eviction_threshold=86400)
    insert = get_asc_insert_func(tgt_key_specs=[spec], is_training=True)
    batch = tf.compat.v1.data.make_initializable_iterator(dataset.map(insert)).get_next()
    table = make_table("user")
    embedding = sparse_lookup(table, spec, batch=batch, combiner="mean")
    both = sparse_lookup(table, [spec, spec], batch=batch)
    assert isinstance(both, list)
    fixed = sparse_lookup(table, np.array([1, 2]), is_train=False) + sparse_lookup(table, [3, 4], is_train=False)
    loss = tf.reduce_sum(embedding) + tf.reduce_sum(fixed) + tf.add_n(both)
    dense, sparse = get_dense_and_sparse_variable()
    step = lazy_adam.create_hash_optimizer(0.001).apply_gradients(zip(tf.gradients(loss, sparse), sparse))
    start_asc_pipeline()
    warm_start("./last-week", rows_only=True)
    hooks = [TableStatsHook(100, directory), EvictHook(True, 3600, policy=EvictPolicy("count", below=2.0))]
    with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session, lenient(missing_tables=True), rows_only():
        session.run([step, dense])
    freed: int = evict(by="step", older_than=1000, tables=[table, "item"])["user"]
    wait()
    mx_rec.reset_tables("user")
    rate: float = table.stats()["rows"] / max(1, freed)
    names: set[str] = ConfigInitializer.get_instance().sparse_embed_config.table_name_set
    terminate_config_initializer()
    return rate + len(names)


def modified(ids: tf.Tensor) -> None:
    embedding = sparse_lookup(
        make_table("item"), ids, modify_graph=True, access_and_evict_config={"access_threshold": 2}
    )
    for optimizer in (
        adagrad.create_hash_optimizer(0.1),
        ftrl.create_hash_optimizer(0.1, l1_regularization_strength=0.01),
        gradient_descent.create_hash_optimizer(tf.constant(0.1)),
        lazy_adam_by_addr.create_hash_optimizer_by_address(),
        momentum.create_hash_optimizer(0.1, use_nesterov=True),
    ):
        optimizer.minimize(tf.reduce_sum(embedding))
    modify_graph_and_start_emb_cache(dump_graph=True)
    print(len(last_report().moved), get_initializer(True), get_target_batch(is_training=True), GraphModifierHook())
    do_merge_lookup()


def estimate(model_dir: str) -> None:
    config = NPURunConfig(model_dir=model_dir, save_checkpoints_steps=100, precision_mode="allow_mix_precision")
    estimator = NPUEstimator(lambda features, labels, mode: None, config=config, params={"rate": 0.1})
    hooks = npu_hooks_append([ACGPushOpsToDatasetHook(dump_graph=False)])
    estimator.train(lambda: None, hooks=hooks, max_steps=1000).evaluate(lambda: None, steps=10)
