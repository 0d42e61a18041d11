"""A training of a few steps whose checkpoints are kept as files, and the same training in NumPy.

    python golden_training.py write D     trains, and saves D/model-3 and what has changed since, D/model-6
    python golden_training.py resave P D  restores the checkpoint P and saves all of it as D/again

Table "plain" has rows and slots of LazyAdam alone. Table "counted" has an admission threshold of 2 and an eviction
threshold of 100 seconds: some of its keys are refused, and some are evicted between the two checkpoints. Uses public
names alone, so that it runs with any version.
"""

import contextlib
import dataclasses
import json
import os
import sys

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.core.feature_process import evict
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer

v1 = tf.compat.v1

DIM, RATE, BETA1, BETA2, EPSILON, INITIAL = 2, 0.01, 0.9, 0.999, 1e-8, 0.25
ACCESS, EVICTION = 2, 100
WHOLE, DELTA = 3, 6  # the steps that are saved
IDS = np.array([[1, 2, 3, 2], [2, -4, 5, 3], [1, 6, -4, 7], [2, 8, 5, 9], [9, 2, 10, -4], [11, 2, 8, 12]], np.int64)
TIMES = 1_600_000_000 + np.array([0, 10, 20, 70, 115, 125], np.int64)
GRADIENTS = (np.arange(IDS.size * DIM, dtype=np.float32).reshape(*IDS.shape, DIM) % 7 - 3) / 8
COLUMNS = {"embedding": "embedding", "momentum": "LazyAdam_momentum", "velocity": "LazyAdam_velocity"}


@dataclasses.dataclass
class Training:
    """The training in TensorFlow, before its first step."""

    session: object
    step: object
    dense: object
    saver: object


@contextlib.contextmanager
def trained():
    """A Training in a graph of its own, with tables in their initial state."""
    init(is_incremental_checkpoint=True, save_checkpoint_due_time=1000, save_delta_checkpoints_secs=1000)
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            yield _build(session)
    finally:
        terminate_config_initializer()


def _build(session):
    initializer = v1.constant_initializer(INITIAL)
    thresholds = {"plain": {}, "counted": {"access_threshold": ACCESS, "eviction_threshold": EVICTION}}
    tables = [create_table(tf.int64, DIM, name, initializer, device_vocabulary_size=100) for name in thresholds]
    specs = [FeatureSpec(name, index_key="ids", **options) for name, options in thresholds.items()]
    insert = get_asc_insert_func([*specs, FeatureSpec("time", is_timestamp=True)])
    data = {"ids": IDS, "time": TIMES, "gradient": GRADIENTS}
    batch = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(data).map(insert)).get_next()
    rows = [sparse_lookup(table, spec, batch=batch) for table, spec in zip(tables, specs)]
    gradients = tf.gradients([tf.reduce_sum(one * batch["gradient"]) for one in rows], [t.variable for t in tables])
    optimizer = create_hash_optimizer(RATE, BETA1, BETA2, EPSILON)
    update = optimizer.apply_gradients([(g, table.variable) for g, table in zip(gradients, tables)])
    dense = v1.get_variable("dense", initializer=[1.0, 2.0])
    with tf.control_dependencies([update]):
        step = dense.assign_add([0.5, -0.5])
    start_asc_pipeline()
    session.run(v1.global_variables_initializer())
    return Training(session, step, dense, v1.train.Saver())


def write(directory):
    """Trains, and saves both checkpoints."""
    with trained() as training:
        for step in range(1, len(IDS) + 1):
            training.session.run(training.step)
            if step == DELTA - 1:
                evict()
            if step in (WHOLE, DELTA):
                options = {"is_incremental_checkpoint": True, "save_delta": step == DELTA, "write_meta_graph": False}
                training.saver.save(training.session, os.path.join(directory, "model"), global_step=step, **options)


def resave(prefix, directory):
    """Restores a checkpoint and saves all of it as `again`. Returns what `state` says of that."""
    with trained() as training:
        training.saver.restore(training.session, prefix)
        dense = training.session.run(training.dense).tolist()
        training.saver.save(training.session, os.path.join(directory, "again"), write_meta_graph=False)
    return {"dense": dense, **state(os.path.join(directory, "sparse-again"))}


def state(directory):
    """What a directory of tables holds, read by NumPy alone: {table: {key: facts}}, keys as text as JSON has them."""
    return {name: _table(os.path.join(directory, name)) for name in ("plain", "counted")}


def _table(path):
    def read(column, dtype):
        return np.fromfile(os.path.join(path, column, "slice.data"), dtype)

    keys = read("key", np.int64).tolist()
    table = {str(key): {} for key in keys}
    for name, column in COLUMNS.items():
        for key, values in zip(keys, read(column, np.float32).reshape(-1, DIM).tolist()):
            table[str(key)][name] = values
    if os.path.exists(os.path.join(path, "history_record")):
        now, *records = read("history_record", np.int64).tolist()
        for key, count, time in zip(records[::3], records[1::3], records[2::3]):
            table.setdefault(str(key), {}).update(count=count, time=time)
        for key, step in zip(keys, read("last_step", np.int64).tolist()):
            table[str(key)]["step"] = step
        access, eviction, _ = read("table_2_threshold", np.int32).tolist()
        table.update(now=now, access=access, eviction=eviction)
    return table


def simulated():
    """The training in NumPy: {step of the checkpoint: what `resave` says of it}."""
    plain, counted, saved = {}, {}, {}
    for step, (ids, time, gradients) in enumerate(zip(IDS.tolist(), TIMES.tolist(), GRADIENTS), 1):
        for key in set(ids):
            facts = counted.setdefault(key, {"count": 0})
            facts.update(count=facts["count"] + ids.count(key), time=time)
            if facts["count"] >= ACCESS:
                facts.setdefault("embedding", None)
                facts["step"] = step
            plain.setdefault(key, {"embedding": None})
        for table in (plain, counted):
            for key in set(ids):
                if "embedding" in table[key]:
                    _adam(table[key], gradients[[i for i, one in enumerate(ids) if one == key]].sum(0), step)
        if step == DELTA - 1:
            counted = {key: facts for key, facts in counted.items() if facts["time"] > time - EVICTION}
        if step in (WHOLE, DELTA):
            thresholds = {"now": time, "access": ACCESS, "eviction": EVICTION}
            tables = {"plain": _named(plain), "counted": {**_named(counted), **thresholds}}
            saved[step] = {"dense": [1 + 0.5 * step, 2 - 0.5 * step], **tables}
    return saved


def _adam(facts, gradient, step):
    """One step of LazyAdam on a row, made if it is new."""
    w, m, v = (facts.get(name) for name in COLUMNS)
    if w is None:
        w, m, v = np.full(DIM, INITIAL), np.zeros(DIM), np.zeros(DIM)
    m = BETA1 * m + (1 - BETA1) * gradient
    v = BETA2 * v + (1 - BETA2) * gradient**2
    w = w - RATE * np.sqrt(1 - BETA2**step) / (1 - BETA1**step) * m / (np.sqrt(v) + EPSILON)
    facts.update(embedding=w, momentum=m, velocity=v)


def _named(table):
    return {
        str(key): {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in facts.items()}
        for key, facts in sorted(table.items())
    }


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        print(json.dumps(resave(*sys.argv[2:])))
