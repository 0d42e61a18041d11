"""Estimators and monitored sessions of several ranks in one directory: python -m tests.ranks.estimators FOLDER."""

import pathlib
import sys
import time

import numpy as np
import tensorflow as tf

from mx_rec._tf.estimator import estimator
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.distributed import distributed_optimizer
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph.modifier import GraphModifierHook
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import get_rank_id, get_rank_size
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.ranks.sessions import agreed, everyone, run
from tests.shared import model

v1 = tf.compat.v1
RANK, SIZE = get_rank_id(), get_rank_size()
DIM = 4
SPEC = FeatureSpec("ids", table_name="table")


def input_fn(batches, is_train, seed=0):
    """Batches of 8 examples, other ones on each rank."""

    def make():
        random = np.random.RandomState(100 * seed + RANK)
        data = {"ids": random.randint(0, 50, (batches * 8, 2)), "label": random.rand(batches * 8).astype(np.float32)}
        dataset = tf.data.Dataset.from_tensor_slices({"ids": data["ids"].astype(np.int64), "label": data["label"]})
        insert = get_asc_insert_func([SPEC], is_training=is_train)
        return dataset.batch(8).map(insert).prefetch(2)

    return make


def model_fn(features, labels, mode):
    del labels
    is_train = mode == estimator.ModeKeys.TRAIN
    table = create_table(tf.int64, DIM, "table", v1.truncated_normal_initializer(seed=4), device_vocabulary_size=1000)
    rows = sparse_lookup(table, SPEC, is_train=is_train, batch=features)
    weights = v1.get_variable("weights", [DIM, 1], initializer=v1.random_normal_initializer())
    loss = tf.reduce_mean((tf.squeeze(tf.reduce_sum(rows, 1) @ weights, 1) - features["label"]) ** 2)
    if not is_train:
        metrics = {"mean_loss": v1.metrics.mean(loss), "batches": v1.metrics.mean(tf.constant(1.0))}
        return estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    v1.summary.scalar("loss_of_rank", loss)
    dense, sparse = get_dense_and_sparse_variable()
    optimizer = distributed_optimizer(v1.train.GradientDescentOptimizer(0.1))
    dense_op = optimizer.minimize(loss, var_list=dense)
    with tf.control_dependencies([dense_op]):
        step = create_hash_optimizer(0.01).apply_gradients(
            zip(tf.gradients(loss, sparse), sparse), global_step=v1.train.get_global_step()
        )
    return estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def make(folder, **config):
    run_config = estimator.RunConfig(model_dir=str(folder), save_summary_steps=2, log_step_count_steps=5, **config)
    return estimator.Estimator(model_fn, config=run_config)


def events_of(folder):
    return sorted(str(path.parent.relative_to(folder)) for path in pathlib.Path(folder).rglob("events.out*"))


def an_estimator_trains_evaluates_and_goes_on(folder):
    with model.process():
        one = make(folder, save_checkpoints_steps=4)
        one.train(input_fn(10, True), max_steps=6)
        assert agreed(one.latest_checkpoint()) == str(folder / "model.ckpt-6")
        agreed(one.get_variable_value("weights").tolist())
        metrics = one.evaluate(input_fn(3, False, seed=1), steps=3)
        assert metrics["global_step"] == 6
        one.train(input_fn(10, True, seed=2), max_steps=9)
        assert agreed(int(one.get_variable_value("global_step"))) == 9
    with model.process():  # as another process would find it
        again = make(folder, save_checkpoints_steps=4)
        assert agreed(float(np.mean(everyone(float(again.evaluate(input_fn(3, False, seed=1))["mean_loss"])))))
        again.train(input_fn(10, True, seed=3), max_steps=12)
        assert agreed(again.latest_checkpoint()) == str(folder / "model.ckpt-12")
    everyone("written")
    assert set(events_of(folder)) == {".", "eval"}, events_of(folder)
    assert len(events_of(folder)) <= 6  # of one rank: three trainings, and evaluations
    sizes = everyone(len(list(folder.rglob("slice*.data"))))
    assert sizes[0] > 0


def evaluation_of_uneven_data(folder):
    with model.process():
        one = make(folder, save_checkpoints_steps=100)
        one.train(input_fn(4 + RANK, True))  # the shortest ends it for all
        assert agreed(int(one.get_variable_value("global_step"))) == 4
        metrics = one.evaluate(input_fn(2 + 2 * RANK, False))
        assert metrics["batches"] == 1.0


def train_and_evaluate(folder):
    with model.process():
        one = make(folder, save_checkpoints_secs=1)

        class Slow(v1.train.SessionRunHook):
            def after_run(self, run_context, run_values):
                time.sleep(0.02 * (RANK + 1))

        train = estimator.TrainSpec(input_fn(60, True), max_steps=60, hooks=[Slow()])
        evaluate = estimator.EvalSpec(input_fn(2, False), steps=2, throttle_secs=1, start_delay_secs=0)
        result, _ = estimator.train_and_evaluate(one, train, evaluate)
        assert agreed(int(result["global_step"])) == 60
        agreed(sorted(path.name for path in folder.glob("model.ckpt-*.index")))


def a_monitored_session_saves_what_rank_0_says(folder):
    """As scripts for other libraries have it: only the first rank has a directory, and is chief."""
    for last in (5, 8):
        with model.process():
            step = v1.train.get_or_create_global_step()
            features = v1.data.make_one_shot_iterator(input_fn(20, True)()).get_next()
            spec = model_fn(features, None, estimator.ModeKeys.TRAIN)
            keywords = {"save_checkpoint_steps": 3, "checkpoint_dir": str(folder)} if RANK == 0 else {}
            hooks = [v1.train.StopAtStepHook(last_step=last), GraphModifierHook(modify_graph=False)]
            with v1.train.MonitoredTrainingSession(is_chief=RANK == 0, hooks=hooks, **keywords) as session:
                assert agreed(int(session.run(step))) == (0 if last == 5 else 5)
                while not session.should_stop():
                    session.run(spec.train_op)
        everyone("saved")
        assert tf.train.latest_checkpoint(str(folder)) == str(folder / f"model.ckpt-{last}")


CASES = (
    *(an_estimator_trains_evaluates_and_goes_on, evaluation_of_uneven_data, train_and_evaluate),
    a_monitored_session_saves_what_rank_0_says,
)


if __name__ == "__main__":
    run(CASES, *sys.argv[1:])
