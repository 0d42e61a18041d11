"""Estimators: tables in model_fn, trained, evaluated and predicted with, in one process or in several."""

import itertools
import os
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

import tf_adapter
from mx_rec._native import reader
from mx_rec._sessions import shared_clock
from mx_rec.core.feature_process import EvictHook
from mx_rec.graph.modifier import GraphModifierHook
from mx_rec.util.initialize import init, terminate_config_initializer
from tests.shared import estimators, model
from tests.shared.estimators import MODES, Job, data_of, evaluation_data, perform
from tests.shared.training import STEPS, trained

pytestmark = pytest.mark.border

v1 = tf.compat.v1

every_mode = pytest.mark.parametrize("mode", MODES)
# Names in the test ids, values of Job's `admission`.
ADMISSIONS = {"all_keys": None, "admission": estimators.ADMISSION}
every_admission = pytest.mark.parametrize("admission", ADMISSIONS.values(), ids=ADMISSIONS.keys())


@pytest.fixture(autouse=True)
def running():
    with model.process():
        yield


@pytest.fixture
def loads(monkeypatch):
    """The directories that tables are loaded from."""
    found, load = [], reader.Reader.load

    class Recorded(reader.Reader):
        def __init__(self, table, directory, *arguments):
            super().__init__(table, directory, *arguments)
            self.directory = directory

        def load(self):
            found.append(self.directory)
            return load(self)

    monkeypatch.setattr(reader, "Reader", Recorded)
    return found


# ---- The same bits, however a model is trained.


def monitored(directory, data):
    """Rows and weight after training in a MonitoredTrainingSession."""
    job = Job(directory / "unused")
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        batch = v1.data.make_one_shot_iterator(job.input_fn(data, True)()).get_next()
        spec = job.model_fn(batch, None, tf.estimator.ModeKeys.TRAIN)
        weight = v1.global_variables("weight")[0]
        hooks = [v1.train.StopAtStepHook(last_step=STEPS)]
        with v1.train.MonitoredTrainingSession(checkpoint_dir=str(directory), hooks=hooks) as session:
            while not session.should_stop():
                session.run(spec.train_op)
        values = tf.train.load_variable(str(directory), weight.op.name)
    return job.rows(), values


@every_mode
def test_session_monitored_session_and_estimator_train_the_same_rows(mode, tmp_path):
    data = model.batches(STEPS)
    job = Job(tmp_path / "estimator", mode)
    job.train(data, STEPS)
    rows, weight = job.rows(), job.weight()
    model.terminate_config_initializer()

    expected = trained(data)
    model.assert_same_rows(rows, expected.rows)
    np.testing.assert_array_equal(weight, expected.weight)
    model.init()
    rows, weight = monitored(tmp_path / "monitored", data)
    model.assert_same_rows(rows, expected.rows)
    np.testing.assert_array_equal(weight, expected.weight)


@pytest.mark.parametrize("mode", ["bare", "modified"])
def test_training_by_address_in_growing_tables_gives_the_same_rows(mode, tmp_path):
    plain = Job(tmp_path / "plain", mode)
    plain.train(data_of(), 7)
    rows = plain.rows()
    model.terminate_config_initializer()
    model.init(use_dynamic_expansion=True)
    job = Job(tmp_path / "by_address", mode, by_address=True)
    job.train(data_of(), 5)
    job.evaluate(evaluation_data())
    job.train({name: values[5 * model.BATCH :] for name, values in data_of().items()}, 2)
    model.assert_same_rows(job.rows(), rows)


def test_the_stock_estimator_works_just_as_well(tmp_path):
    stock = Job(
        tmp_path / "stock", kind=tf.estimator.Estimator, config=tf.estimator.RunConfig(save_checkpoints_steps=5)
    )
    stock.train(data_of(), 7)
    rows, metrics = stock.rows(), stock.evaluate(evaluation_data())
    ours = Job(tmp_path / "ours")
    ours.train(data_of(), 7)
    model.assert_same_rows(ours.rows(), rows)
    assert ours.evaluate(evaluation_data()) == metrics


# ---- Train, evaluate, predict, train again, train and evaluate: one process or five.


@pytest.mark.slow
@pytest.mark.parametrize("mode, admission", [("bare", None), ("modified", estimators.ADMISSION)])
def test_one_process_or_several_give_the_same_results(mode, admission, tmp_path):
    program = ["train", "evaluate", "predict", "train", "train_and_evaluate"]
    together = [perform(job, action) for job in [Job(tmp_path / "one", mode, admission)] for action in program]
    (tmp_path / "several").mkdir()
    apart = [
        estimators.run_in_process(tmp_path / "several", mode, admission is not None, [action])[0] for action in program
    ]
    for position, action in enumerate(program):
        if action.startswith("train"):
            model.assert_same_rows(together[position][-2], apart[position][-2])
            np.testing.assert_array_equal(together[position][-1], apart[position][-1])
    assert together[1] == apart[1] and together[1]["global_step"] == 7
    np.testing.assert_array_equal(together[2], apart[2])
    assert together[4][0] == apart[4][0] and together[4][0]["global_step"] == 25


@every_mode
def test_predictions_are_those_of_the_rows(mode, tmp_path):
    job = Job(tmp_path, mode)
    job.train(data_of(), 7)
    before = job.rows()
    np.testing.assert_allclose(job.predict(evaluation_data()), job.reference(evaluation_data()), rtol=1e-5, atol=1e-6)
    mean = job.reference(evaluation_data()).mean()
    np.testing.assert_allclose(job.evaluate(evaluation_data())["mean"], mean, rtol=1e-4)
    model.assert_same_rows(job.rows(), before)


# ---- Which rows an evaluation sees, and what training goes on with.


def test_checkpoints_that_the_tables_hold_are_not_loaded_again(tmp_path, loads):
    job = Job(tmp_path)
    for action in ("train", "evaluate", "predict", "train_and_evaluate"):
        perform(job, action)
    # Eviction may end after the last save of a training; nothing else changes rows between two restores.
    assert all(path.startswith(str(tmp_path / "sparse-model.ckpt-7")) for path in loads)
    del loads[:]
    job.train(data_of(), 3)
    job.evaluate(evaluation_data())
    assert loads == []


@every_mode
@every_admission
def test_an_older_checkpoint_is_evaluated_with_its_own_rows(mode, admission, tmp_path):
    job = Job(tmp_path / "disturbed", mode, admission)
    job.train(data_of(), 5)
    old_rows, old_metrics = job.rows(), job.evaluate(evaluation_data())
    old_weight = job.weight()
    job.train(data_of(), 5)
    older = str(tmp_path / "disturbed" / "model.ckpt-5")
    assert job.evaluate(evaluation_data(), checkpoint_path=older) == old_metrics
    np.testing.assert_allclose(
        job.predict(evaluation_data(), checkpoint_path=older),
        estimators.predict(old_rows, old_weight, evaluation_data()),
        rtol=1e-5,
        atol=1e-6,
    )
    job.train(data_of(1), 5)
    rows = job.rows()
    undisturbed = Job(tmp_path / "undisturbed", mode, admission)
    for data in (data_of(), data_of(), data_of(1)):
        undisturbed.train(data, 5)
    model.assert_same_rows(rows, undisturbed.rows())


class EvaluateOlder(v1.train.CheckpointSaverListener):
    """Evaluates another checkpoint than the one just saved, in the middle of training."""

    def __init__(self, job, path):
        self.job, self.path, self.metrics = job, path, []

    def after_save(self, session, global_step_value):
        if os.path.exists(self.path + ".index"):
            self.metrics.append(self.job.evaluate(evaluation_data(), checkpoint_path=self.path))


@every_mode
@every_admission
def test_training_goes_on_with_its_own_rows_after_an_evaluation_of_others_in_between(mode, admission, tmp_path):
    expected = Job(tmp_path / "undisturbed", mode, admission)
    expected.train(data_of(), 5)
    metrics = expected.evaluate(evaluation_data())
    expected.train(data_of(1), 12)
    rows, weight = expected.rows(), expected.weight()

    job = Job(tmp_path / "disturbed", mode, admission)
    job.train(data_of(), 5)
    listener = EvaluateOlder(job, str(tmp_path / "disturbed" / "model.ckpt-5"))
    job.train(data_of(1), 12, saving_listeners=[listener])
    assert listener.metrics == [metrics] * 4  # after steps 5, 10, 15 and 17
    np.testing.assert_array_equal(job.weight(), weight)
    job.evaluate(evaluation_data())  # what was saved last is there
    model.assert_same_rows(job.rows(), rows)
    assert not [name for name in os.listdir(tmp_path / "disturbed") if "mx_rec-training" in name]


class TrainAnother(v1.train.CheckpointSaverListener):
    """Trains another model with the same tables, in the middle of training."""

    def __init__(self, directory):
        self.directory, self.rows = directory, []

    def after_save(self, session, global_step_value):
        job = Job(self.directory / str(global_step_value))
        job.train(data_of(2), 3)
        self.rows.append(job.rows())


def test_two_models_that_train_in_turn_keep_their_own_rows(tmp_path):
    expected = Job(tmp_path / "undisturbed")
    expected.train(data_of(), 12)
    rows = expected.rows()
    other = Job(tmp_path / "other")
    other.train(data_of(2), 3)
    others = other.rows()
    listener = TrainAnother(tmp_path / "others")
    job = Job(tmp_path / "disturbed")
    job.train(data_of(), 12, saving_listeners=[listener])
    assert len(listener.rows) == 4
    for found in listener.rows:
        model.assert_same_rows(found, others)
    job.predict(evaluation_data())
    model.assert_same_rows(job.rows(), rows)


@every_admission
def test_deltas_and_saves_while_training_goes_on(admission, tmp_path, monkeypatch):
    expected = Job(tmp_path / "expected", admission=admission)
    expected.train(data_of(), 7)
    expected.train(data_of(), 5)
    rows, metrics = expected.rows(), expected.evaluate(evaluation_data())
    terminate_config_initializer()

    ticks = itertools.count()
    monkeypatch.setattr(shared_clock, "time", types.SimpleNamespace(monotonic=lambda: next(ticks)))
    settings = {"is_async_checkpoint": True, "is_incremental_checkpoint": True}
    settings |= {"save_checkpoint_due_time": 100, "save_delta_checkpoints_secs": 2}
    for steps in (7, 5):  # in one process and then in another
        init(**settings)
        job = Job(tmp_path / "deltas", admission=admission)
        job.train(data_of(), steps)
        trained_rows = job.rows()
        terminate_config_initializer()
    assert len(list((tmp_path / "deltas").glob("delta-sparse-model.ckpt-*"))) >= 3
    init()
    job = Job(tmp_path / "deltas", admission=admission)
    assert job.evaluate(evaluation_data()) == metrics
    model.assert_same_rows(trained_rows, rows)


def test_rows_that_a_killed_training_left_are_removed(tmp_path):
    left, alive = (tmp_path / f".mx_rec-training-{name}" for name in ("abc", "def"))
    (left / "own").mkdir(parents=True)
    alive.mkdir()
    code = f"from mx_rec.transaction import _lock; _lock.acquire({str(alive)!r}); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        Job(tmp_path).train(data_of(), 1)
        assert alive.exists() and not left.exists()
        other.kill()


def test_an_evaluator_hook_without_checkpoints_sees_the_rows_being_trained(tmp_path):
    job = Job(tmp_path)
    other = Job(tmp_path)  # another object, as the hook builds its graph while the first one trains
    hook = tf.estimator.experimental.InMemoryEvaluatorHook(
        other.estimator, other.input_fn(evaluation_data(), False), every_n_iter=3
    )
    job.train(data_of(), 7, hooks=[hook])
    expected = Job(tmp_path / "expected")
    rows = job.rows()
    expected.train(data_of(), 7)
    model.assert_same_rows(expected.rows(), rows)


def test_another_model_dir_starts_with_empty_tables(tmp_path):
    first = Job(tmp_path / "first")
    first.train(data_of(), 7)
    rows = first.rows()
    other = Job(tmp_path / "other")
    other.train(data_of(), 7)
    model.assert_same_rows(other.rows(), rows)
    first.train(data_of(1), 3)  # and the first one finds its own rows again
    assert first.rows()["own"][0].size > rows["own"][0].size
    assert int(first.estimator.get_variable_value("global_step")) == 10


# ---- Checkpoints.


def test_checkpoints_come_and_go_with_their_tables(tmp_path):
    job = Job(tmp_path, config=tf_adapter.NPURunConfig(save_checkpoints_steps=2, keep_checkpoint_max=2))
    job.train(data_of(), 4)
    job.train(data_of(), 4)
    kept = sorted(name for name in os.listdir(tmp_path) if name.startswith("sparse-"))
    assert kept == ["sparse-model.ckpt-6", "sparse-model.ckpt-8"]
    assert job.estimator.latest_checkpoint() == str(tmp_path / "model.ckpt-8")
    for name in ("key", "embedding", "LazyAdam_momentum", "LazyAdam_velocity"):
        assert (tmp_path / "sparse-model.ckpt-8" / "shared" / name / "slice.data").stat().st_size > 0


def test_training_in_parts_is_training_at_once(tmp_path):
    data = data_of()
    whole = Job(tmp_path / "whole")
    whole.train(data, 12)
    rows, weight = whole.rows(), whole.weight()
    parts = Job(tmp_path / "parts")
    cut = {name: values[: 5 * model.BATCH] for name, values in data.items()}
    rest = {name: values[5 * model.BATCH :] for name, values in data.items()}
    parts.train(cut, 5)
    parts.train(rest, 7)
    model.assert_same_rows(parts.rows(), rows)
    np.testing.assert_array_equal(parts.weight(), weight)


# ---- Hooks.


@every_mode
def test_evict_hook_evicts_while_an_estimator_trains(mode, tmp_path):
    data = data_of()
    plain = Job(tmp_path / "plain", mode, estimators.ADMISSION)
    plain.train(data, 20)
    kept = {name: set(keys.tolist()) for name, (keys, _) in plain.rows().items()}
    job = Job(tmp_path / "evicting", mode, estimators.ADMISSION)
    job.train(data, 20, hooks=[EvictHook(evict_enable=True, evict_step_interval=20)])
    window = {name: values[-40:] for name, values in data.items()}
    # Evicted is what occurred neither in the last batch, nor within 40 seconds of it: in the last 40 samples.
    for name, features in (("shared", ("single", "multi")), ("own", ("other",))):
        recent = {key for feature in features for key in window[feature].reshape(-1).tolist()}
        assert set(job.rows()[name][0].tolist()) == kept[name] & recent != kept[name]


def test_modify_graph_without_its_hook_is_refused(tmp_path):
    job = Job(tmp_path, "modified")
    job.hooks = lambda *others: list(others)
    with pytest.raises(RuntimeError, match=r"modify_graph=True.*GraphModifierHook\(\)"):
        job.train(data_of(), 2)


def test_the_hook_that_only_starts_the_pipeline_is_not_needed(tmp_path):
    from mx_rec.graph import last_report

    Job(tmp_path / "bare").train(data_of(), 2)
    bare = [str(one) for one in last_report().fused]
    Job(tmp_path / "spec", "spec").train(data_of(), 2)
    assert bare == [str(one) for one in last_report().fused] and bare


def test_nothing_of_tensorflow_stays_patched(tmp_path):
    def functions():
        return [
            v1.train.Scaffold.finalize,
            v1.estimator.Estimator._train_with_estimator_spec,
            tf.compat.v1.train.warm_start,
            tf.compat.v1.train.Saver.save,
            tf.compat.v1.saved_model.Builder._tag_and_add_meta_graph,
        ]

    before = functions()
    Job(tmp_path).train(data_of(), 2)
    assert all(now is not stock for now, stock in zip(functions(), before))
    model.terminate_config_initializer()
    assert functions() == before
    model.init()  # for the fixture


@pytest.mark.parametrize("hook", [GraphModifierHook, lambda: GraphModifierHook(modify_graph=False)])
def test_a_model_without_tables_is_told_apart(hook, tmp_path):
    def model_fn(features, mode):
        weight = v1.get_variable("w", initializer=1.0)
        loss = tf.reduce_mean((features["x"] * weight - 1.0) ** 2)
        step = v1.train.get_global_step()
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        )

    def input_fn():
        return tf.data.Dataset.from_tensors({"x": tf.ones([4])}).repeat()

    estimator = tf_adapter.NPUEstimator(model_fn, str(tmp_path))
    estimator.train(input_fn, steps=2)
    with pytest.raises(RuntimeError, match="there is no (table|lookup)"):
        estimator.train(input_fn, steps=2, hooks=[hook()])
