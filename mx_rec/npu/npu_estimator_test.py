"""NPUEstimator and NPURunConfig: what ported scripts pass, and what they get."""

import subprocess
import sys

import pytest
import tensorflow as tf

from mx_rec.npu import DumpConfig, NPUEstimator, NPURunConfig, npu_hooks_append

v1 = tf.compat.v1


def model_fn(features, mode):
    weight = v1.get_variable("w", initializer=1.0)
    loss = tf.reduce_mean((features["x"] * weight - 1.0) ** 2)
    step = v1.train.get_global_step()
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensors({"x": tf.fill([4], 2.0)}).repeat()


def test_the_keywords_that_ported_scripts_pass_are_accepted():
    config = NPURunConfig(
        iterations_per_loop=10,
        precision_mode="allow_mix_precision",
        enable_data_pre_proc=True,
        mix_compile_mode=False,
        op_precision_mode="op.ini",
        op_select_implmode="high_performance",
        op_compiler_cache_mode="enable",
        op_compiler_cache_dir="cache",
        HCCL_algorithm="level0:ring",
        deterministic=1,
        dump_config=DumpConfig(enable_dump=True, dump_path="/tmp", dump_step="0|5", dump_mode="all"),
        distribute=None,
        model_dir="somewhere",
        save_checkpoints_steps=7,
        keep_checkpoint_max=3,
        session_config=v1.ConfigProto(),
    )
    assert isinstance(config, tf.estimator.RunConfig)
    assert (config.model_dir, config.save_checkpoints_steps, config.keep_checkpoint_max) == ("somewhere", 7, 3)
    assert config.replace(model_dir="elsewhere").iterations_per_loop == 10


def test_without_a_word_about_saving_it_saves_every_100_steps():
    assert NPURunConfig().save_checkpoints_steps == 100
    assert NPURunConfig(save_checkpoints_secs=60).save_checkpoints_steps is None


def test_bad_keywords_are_refused():
    with pytest.raises(TypeError, match="`save_checkpoint_steps`; did you mean `save_checkpoints_steps`"):
        NPURunConfig(save_checkpoint_steps=5)
    with pytest.raises(ValueError, match="`iterations_per_loop` must be in .* got 0"):
        NPURunConfig(iterations_per_loop=0)
    with pytest.raises(ValueError, match="`dump_config` must be a DumpConfig"):
        NPURunConfig(dump_config={"enable_dump": True})


def test_steps_must_be_a_multiple_of_iterations_per_loop(tmp_path):
    estimator = NPUEstimator(model_fn, config=NPURunConfig(iterations_per_loop=4, model_dir=str(tmp_path)))
    assert isinstance(estimator, tf.estimator.Estimator)
    with pytest.raises(ValueError, match="`steps` must be a multiple of iterations_per_loop=4, got 6; pass 8"):
        estimator.train(input_fn, steps=6)
    spec = tf.estimator.TrainSpec(input_fn, max_steps=10)
    with pytest.raises(ValueError, match="`max_steps` must be a multiple of iterations_per_loop=4, got 10; pass 12"):
        tf.estimator.train_and_evaluate(estimator, spec, tf.estimator.EvalSpec(input_fn, steps=1))
    estimator.train(input_fn, steps=8)
    assert estimator.get_variable_value("global_step") == 8


def test_the_vendor_s_start_file_and_hooks_are_taken(tmp_path):
    estimator = NPUEstimator(model_fn=model_fn, model_dir=str(tmp_path), params=None, job_start_file="jobs.json")
    hook = v1.train.StopAtStepHook(num_steps=3)
    estimator.train(input_fn, hooks=npu_hooks_append(hooks_list=[hook]))
    assert estimator.get_variable_value("global_step") == 3
    assert npu_hooks_append() == []


def test_tf_estimator_is_there_after_the_import():
    script = """
import tensorflow as tf
from mx_rec.npu import NPUEstimator
assert issubclass(NPUEstimator, tf.estimator.Estimator)
assert tf.compat.v1.estimator.Estimator
settings = tf.estimator.WarmStartSettings(ckpt_to_initialize_from="./warm_start", vars_to_warm_start="user_table")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
