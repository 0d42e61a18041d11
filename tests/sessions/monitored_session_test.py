"""MonitoredTrainingSession: checkpoints by its own hooks, resuming by its own rules, tables included."""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph.modifier import GraphModifierHook
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

v1 = tf.compat.v1
pytestmark = pytest.mark.border
STEPS = 12


def train(directory, steps):
    """Trains until global step `steps`, resuming what `directory` holds; returns (step, rows with slots by key)."""
    init()
    with tf.Graph().as_default():
        rng = np.random.default_rng(0)
        data = {"ids": rng.integers(-40, 40, (STEPS * 8, 2)), "label": rng.random(STEPS * 8, np.float32)}
        spec = FeatureSpec("ids", table_name="table")
        step = v1.train.get_or_create_global_step()
        dataset = tf.data.Dataset.from_tensor_slices(data).batch(8).repeat()
        dataset = dataset.map(get_asc_insert_func([spec])).prefetch(3)
        batch = v1.data.make_one_shot_iterator(dataset).get_next()
        table = create_table(
            key_dtype=tf.int64,
            dim=4,
            name="table",
            emb_initializer=tf.random_normal_initializer(),
            device_vocabulary_size=1000,
        )
        weights = v1.get_variable("weights", [4, 1], initializer=tf.ones_initializer())
        features = tf.reduce_sum(sparse_lookup(table, spec, batch=batch), axis=1)
        loss = tf.reduce_mean((tf.squeeze(features @ weights, 1) - batch["label"]) ** 2)
        dense, sparse = get_dense_and_sparse_variable()
        dense_op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, var_list=dense)
        with tf.control_dependencies([dense_op]):
            train_op = create_hash_optimizer(0.01).apply_gradients(
                zip(tf.gradients(loss, sparse), sparse), global_step=step
            )
        hooks = [v1.train.StopAtStepHook(last_step=steps), GraphModifierHook(modify_graph=False)]
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=str(directory), save_checkpoint_steps=3, hooks=hooks, log_step_count_steps=None
        ) as session:
            first = session.run(step)
            while not session.should_stop():
                session.run(train_op)
        keys = np.sort(table.native.keys())
        rows = dict(zip(keys.tolist(), table.native.read(keys)[0]))
    terminate_config_initializer()
    return first, rows


@pytest.fixture(autouse=True)
def ended():
    yield
    from mx_rec._process import process

    if process.config is not None:
        terminate_config_initializer()


def test_saves_the_tables_beside_its_own_checkpoints(tmp_path):
    train(tmp_path, 6)
    latest = tf.train.latest_checkpoint(str(tmp_path))
    assert latest == str(tmp_path / "model.ckpt-6")
    assert (tmp_path / "sparse-model.ckpt-6" / "table" / "key" / "slice.data").stat().st_size > 0
    assert [name for name, _ in tf.train.list_variables(latest) if name == "table"] == []


def test_resumes_with_the_rows_and_slots_it_had(tmp_path):
    _, before = train(tmp_path, 6)
    first, after = train(tmp_path, 6)  # nothing left to do: what was restored is what was saved
    assert first == 6
    assert before.keys() == after.keys()
    for key, row in before.items():
        np.testing.assert_array_equal(row, after[key])
