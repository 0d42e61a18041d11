"""Trains, saves and restores on several ranks: python -m tests.ranks.saving FOLDER save|restore FROM.

`save` trains every case for STEPS steps, saves it to FOLDER/<case>/, trains as long again and writes what this rank
held after each: FOLDER/<case>-<size>-<rank>-{half,end}.npz. `restore` does the same from what FROM ranks have saved, as
FOLDER/<case>-<from>to<size>-<rank>-{half,end}.npz.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf

import mx_rec.saver
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.util.communication import hccl_ops
from mx_rec.util.initialize import get_rank_id, get_rank_size
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.ranks.training import mine
from tests.shared import model
from tests.shared.optimizers import OPTIMIZERS

v1 = tf.compat.v1

STEPS, BATCH, DIM = 12, 24, 6
INCREMENTAL = {"is_incremental_checkpoint": True, "save_checkpoint_due_time": 1000, "save_delta_checkpoints_secs": 1000}
CASES = {
    "common": {},
    "own": {"has_own_path": True},
    "expanding": {"settings": {"use_dynamic_expansion": True}, "table": {"rows": 1}},
    "tracked": {"thresholds": {"access_threshold": 3, "eviction_threshold": 1000}},
    "own_tracked": {"thresholds": {"access_threshold": 3, "eviction_threshold": 1000}, "has_own_path": True},
    "disk": {"table": {"rows": 64, "host_vocabulary_size": 64, "ssd_vocabulary_size": 100_000}},
    "replicated": {"table": {"is_dp": True}},
    "own_replicated": {"table": {"is_dp": True}, "has_own_path": True},
    "deltas": {"settings": INCREMENTAL, "has_deltas": True},
    "own_deltas": {"settings": INCREMENTAL, "has_deltas": True, "has_own_path": True},
    "async": {"settings": {"is_async_checkpoint": True}},
    "adagrad": {"optimizer": "adagrad"},
}


class Trainee:
    """One case's model, in the middle of its data from step `first` on."""

    def __init__(self, folder, first, optimizer="lazy_adam", table=None, thresholds=None):
        table = {"rows": 1000, **(table or {})}
        if "ssd_vocabulary_size" in table:
            table["ssd_data_path"] = [str(folder)]
        data = model.batches(2 * STEPS, batch=BATCH, dim=DIM)
        data = {name: array.reshape(2 * STEPS, BATCH, *array.shape[1:])[first:] for name, array in data.items()}
        dataset = tf.data.Dataset.from_tensor_slices({**mine(data, 1), "time": np.arange(first, 2 * STEPS) + 10_000})
        specs = {
            name: FeatureSpec(name, table_name=model.TABLE_OF[name], **thresholds or {}) for name in model.TABLE_OF
        }
        stamps = [FeatureSpec("time", is_timestamp=True)] if thresholds else []
        batch = v1.data.make_one_shot_iterator(
            dataset.map(get_asc_insert_func([*specs.values(), *stamps])).prefetch(3)
        ).get_next()
        initializer = v1.truncated_normal_initializer(stddev=0.3, seed=3)
        self.tables = {name: model.table(name, initializer, DIM, **table) for name in model.TABLES}
        embeddings = {
            name: sparse_lookup(self.tables[model.TABLE_OF[name]], spec, batch=batch) for name, spec in specs.items()
        }
        self.weight = v1.get_variable("weight", initializer=np.linspace(0.5, 1.5, DIM, dtype=np.float32))
        loss = model.loss(embeddings, batch["target"], self.weight) / get_rank_size()
        dense, sparse = get_dense_and_sparse_variable()
        gradients = tf.gradients(loss, dense + sparse)
        summed = hccl_ops.allreduce(gradients[0])
        self.step = tf.group(
            v1.train.AdamOptimizer(0.01).apply_gradients([(summed, self.weight)]),
            OPTIMIZERS[optimizer]().apply_gradients(zip(gradients[1:], sparse)),
        )
        self.saver = v1.train.Saver()
        start_asc_pipeline()
        self.session = v1.Session()
        self.session.run(v1.global_variables_initializer())

    def train(self, steps):
        for _ in range(steps):
            self.session.run(self.step)

    def write(self, path):
        """Writes what this rank holds, and what it knows of all keys."""
        arrays = {"weight": self.session.run(self.weight)}
        for name, table in self.tables.items():
            keys, values = model.dump(table)
            arrays.update({f"{name}/keys": keys, f"{name}/values": values})
            if table.native.tracking is not None:
                arrays[f"{name}/now"] = np.int64(table.native.tracking.now)
                known = np.stack(table.native.history(model.vocabulary(150)))
                arrays[f"{name}/known"] = known
        np.savez(path, **arrays)


def path_of(folder, name, has_own_path):
    return str(folder / name / ("model" + (f"-{get_rank_id()}" if has_own_path else "")))


def save(folder, name, settings=None, has_own_path=False, has_deltas=False, **options):
    (folder / name).mkdir(exist_ok=True)
    result = f"{folder}/{name}-{get_rank_size()}-{get_rank_id()}"
    with model.process(**(settings or {})):
        trainee = Trainee(folder, 0, **options)
        path = path_of(folder, name, has_own_path)
        trainee.train(STEPS // 2)
        trainee.saver.save(trainee.session, path, STEPS // 2)
        trainee.train(STEPS - STEPS // 2)
        trainee.saver.save(trainee.session, path, STEPS, save_delta=has_deltas)
        trainee.write(f"{result}-half.npz")
        trainee.train(STEPS)
        mx_rec.saver.wait()
        trainee.write(f"{result}-end.npz")


def restore(folder, name, saved_by, settings=None, has_own_path=False, has_deltas=False, **options):
    del has_deltas
    result = f"{folder}/{name}-{saved_by}to{get_rank_size()}-{get_rank_id()}"
    with model.process(**(settings or {})):
        trainee = Trainee(folder, STEPS, **options)
        trainee.saver.restore(trainee.session, f"{path_of(folder, name, has_own_path)}-{STEPS}")
        trainee.write(f"{result}-half.npz")
        trainee.train(STEPS)
        trainee.write(f"{result}-end.npz")


def main(folder, action, *saved_by):
    folder = pathlib.Path(folder)
    for name, case in CASES.items():
        save(folder, name, **case) if action == "save" else restore(folder, name, *saved_by, **case)


if __name__ == "__main__":
    main(*sys.argv[1:])
