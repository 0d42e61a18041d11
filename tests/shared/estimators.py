"""The model of model.py as an Estimator, and a program that runs it step by step: in one process, or in several."""

import functools
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import tensorflow as tf

import tf_adapter
from mx_rec.constants.constants import ASCEND_TIMESTAMP
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import sparse_lookup
from mx_rec.core.feature_process import EvictHook
from mx_rec.graph.modifier import GraphModifierHook
from mx_rec.optimizers import lazy_adam, lazy_adam_by_addr
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model
from tests.shared.paths import ROOT

v1 = tf.compat.v1
ModeKeys = tf.estimator.ModeKeys

# FeatureSpecs with nothing besides, FeatureSpecs with a hook, and graph modification.
MODES = ("bare", "spec", "modified")
ADMISSION = {"access_threshold": 2, "eviction_threshold": 40, "faae_coefficient": 1}


def timed(data):
    """`data` with a timestamp for each sample; a batch takes as many seconds as it has samples."""
    return {**data, "time": np.arange(1, len(data["single"]) + 1)}


class Job:
    """An Estimator over `directory`.

    mode: one of MODES. admission: thresholds of both tables, or None; the data are then those of `timed`. config, kind,
    warm_start_from: the Estimator's RunConfig, class, and argument.
    """

    def __init__(
        self,
        directory,
        mode="bare",
        admission=None,
        config=None,
        kind=tf_adapter.NPUEstimator,
        warm_start_from=None,
        rename=None,
        seed=3,
        dim=model.DIM,
        default=None,
        by_address=False,
    ):
        self.directory, self.mode, self._admission, self._seed, self._dim = directory, mode, admission, seed, dim
        self._default = default  # serving_default_value
        self._by_address = by_address
        self._names = {name: (rename or {}).get(name, name) for name in model.TABLES}
        self.specs = {
            name: FeatureSpec(name, table_name=self._names[table], **(admission or {}))
            for name, table in model.TABLE_OF.items()
        }
        self._timestamp = FeatureSpec("time", is_timestamp=True)
        if config is None:
            config = tf_adapter.NPURunConfig(save_checkpoints_steps=5, log_step_count_steps=None)
        self.estimator = kind(
            model_fn=self.model_fn, model_dir=str(directory), config=config, warm_start_from=warm_start_from
        )
        self.tables = {}

    @property
    def is_modified(self):
        return self.mode == "modified"

    def hooks(self, *others):
        own = {"bare": [], "spec": [GraphModifierHook(modify_graph=False)], "modified": [GraphModifierHook()]}
        return [*own[self.mode], *others]

    def insert(self, is_train):
        specs = list(self.specs.values()) + ([self._timestamp] if self._admission else [])
        return get_asc_insert_func(specs, is_training=is_train)

    def input_fn(self, data, is_train, repeat=1):
        def function():
            dataset = tf.data.Dataset.from_tensor_slices(data).batch(model.BATCH).repeat(repeat)
            if not self.is_modified:
                dataset = dataset.map(self.insert(is_train))
            return dataset.prefetch(3)

        return function

    def model_fn(self, features, labels, mode):
        del labels
        is_train = mode == ModeKeys.TRAIN
        initializer = v1.truncated_normal_initializer(stddev=0.3, seed=self._seed)
        weight = v1.get_variable("weight", initializer=np.linspace(0.5, 1.5, self._dim, dtype=np.float32))
        self.tables = {name: model.table(self._names[name], initializer, self._dim) for name in model.TABLES}
        options = {"is_train": is_train, "batch": features}
        if self._default is not None:
            options["serving_default_value"] = tf.constant(self._default)
        if self.is_modified:
            options.update(modify_graph=True, access_and_evict_config=self._admission)
            if self._admission and is_train:
                v1.add_to_collection(ASCEND_TIMESTAMP, features["time"])
        embeddings = {
            name: sparse_lookup(
                self.tables[model.TABLE_OF[name]], features[name] if self.is_modified else spec, **options
            )
            for name, spec in self.specs.items()
        }
        if not is_train:
            e = (embeddings["single"] + tf.reduce_sum(embeddings["multi"], 1) + embeddings["other"]) * weight
        if mode == ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"e": e})
        loss = model.loss(embeddings, features["target"], weight)
        if mode == ModeKeys.EVAL:
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"mean": v1.metrics.mean(e)})
        dense, sparse = get_dense_and_sparse_variable()
        optimizer = lazy_adam.create_hash_optimizer(0.01)
        if self._by_address:
            sparse = v1.get_collection("ASCEND_SPARSE_LOOKUP_LOCAL_EMB")
            optimizer = lazy_adam_by_addr.create_hash_optimizer_by_address(0.01)
        gradients = tf.gradients(loss, dense + sparse)
        if self._by_address:
            sparse = v1.get_collection("ASCEND_SPARSE_LOOKUP_ID_OFFSET")
        updates = [
            v1.train.AdamOptimizer(0.01).apply_gradients(zip(gradients[: len(dense)], dense)),
            optimizer.apply_gradients(zip(gradients[len(dense) :], sparse)),
        ]
        with tf.control_dependencies(updates):
            train_op = v1.train.get_global_step().assign_add(1, read_value=False)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def train(self, data, steps=None, hooks=(), **options):
        return self.estimator.train(self.input_fn(data, True, None), steps=steps, hooks=self.hooks(*hooks), **options)

    def evaluate(self, data, **options):
        return self.estimator.evaluate(self.input_fn(data, False), hooks=self.hooks(), **options)

    def predict(self, data, **options):
        """The predictions, [rows, dim]."""
        found = self.estimator.predict(self.input_fn(data, False), hooks=self.hooks(), **options)
        return np.stack([one["e"] for one in found])

    def receiver_fn(self, is_plain=False):
        """The serving_input_fn of an export; in FeatureSpec mode with an insert function, unless it `is_plain`."""
        ids = {
            name: v1.placeholder(tf.int64, [None, 3] if name == "multi" else [None], name=name)
            for name in model.TABLE_OF
        }
        features = dict(ids) if self.is_modified or is_plain else self.insert(False)(dict(ids))
        return tf.estimator.export.ServingInputReceiver(features, ids)

    def export(self, directory, is_plain=False, **options):
        """Where the exported model is."""
        receiver_fn = functools.partial(self.receiver_fn, is_plain)
        return self.estimator.export_saved_model(str(directory), receiver_fn, **options).decode()

    def train_and_evaluate(self, data, max_steps, evaluation, exporters=None):
        return tf.estimator.train_and_evaluate(
            self.estimator,
            tf.estimator.TrainSpec(self.input_fn(data, True, None), max_steps=max_steps, hooks=self.hooks()),
            tf.estimator.EvalSpec(
                self.input_fn(evaluation, False),
                steps=None,
                hooks=self.hooks(),
                start_delay_secs=0,
                throttle_secs=0,
                exporters=exporters,
            ),
        )

    def rows(self):
        return {name: model.dump(table) for name, table in self.tables.items()}

    def weight(self):
        return self.estimator.get_variable_value("weight")

    def reference(self, data, rows=None):
        """What the model must predict, by NumPy, out of `rows` and the latest checkpoint's weight."""
        return predict(self.rows() if rows is None else rows, self.weight(), data, self._default)


def predict(rows, weight, data, default=None):
    """The model's e; ids without a row give `default`, a row, or zeros."""
    tables = {name: dict(zip(keys.tolist(), values[:, 0])) for name, (keys, values) in rows.items()}
    absent = np.zeros(weight.size, np.float32) if default is None else np.asarray(default, np.float32)
    found = {
        name: np.stack([tables[table].get(key, absent) for key in data[name].reshape(-1).tolist()])
        for name, table in model.TABLE_OF.items()
    }
    multi = found["multi"].reshape(*data["multi"].shape, -1).sum(1)
    return (found["single"] + multi + found["other"]) * weight


def data_of(seed=0, steps=20):
    return timed(model.batches(steps, seed))


def evaluation_data():
    """Ids that training data have, and ids that they do not."""
    known = np.unique(data_of()["single"])
    return timed(model.batches(3, seed=9, keys=np.concatenate([np.arange(5000, 5050), known])))


def perform(job, action):
    """One action of a program, and what came of it."""
    if action == "train":
        job.train(data_of(), steps=7, hooks=[EvictHook(evict_enable=True, evict_step_interval=4)])
        return job.rows(), job.weight()
    if action == "evaluate":
        return job.evaluate(evaluation_data())
    if action == "predict":
        return job.predict(evaluation_data())
    metrics, _ = job.train_and_evaluate(data_of(1), 25, evaluation_data())
    return metrics, job.rows(), job.weight()


def run_in_process(directory, mode, admission, actions):
    """The results of the actions, in a process of their own."""
    out = pathlib.Path(directory) / "results.pickle"
    program = [sys.executable, "-m", "tests.shared.estimators"]
    arguments = [str(directory), mode, str(int(admission)), str(out), *actions]
    done = subprocess.run(program + arguments, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return pickle.loads(out.read_bytes())


def main(directory, mode, admission, out, *actions):
    with model.process():
        job = Job(directory, mode, ADMISSION if int(admission) else None)
        results = [perform(job, action) for action in actions]
    pathlib.Path(out).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
