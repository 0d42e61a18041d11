"""What comes into the core from a graph, or does not come, such as memory, ends in a TensorFlow error: never in a
crash, and never in a table that is changed by half.

MXREC_FUZZ_CASES=5000 runs more cases of plans and attributes.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers import gradient_descent
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared.paths import ROOT

v1 = tf.compat.v1
pytestmark = pytest.mark.border


def run(program, *arguments):
    command = [sys.executable, "-m", f"tests.errors.{program}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-4000:]
    assert "survived" in done.stdout


@pytest.mark.parametrize("kind, cases", [("plans", 200), ("attributes", 200), ("shapes", 5)])
def test_forged_plans_attributes_and_shapes_are_clean_errors(kind, cases):
    more = os.environ.get("MXREC_FUZZ_CASES", str(cases)) if kind != "shapes" else str(cases)
    run("raw_ops_fuzz", kind, more, "1")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space are Linux's")
def test_a_step_without_memory_changes_nothing_and_can_be_repeated():
    run("address_space_sweep", "16")


def test_a_step_that_does_not_fit_one_table_trains_no_other():
    init()
    with tf.Graph().as_default():
        ids = v1.placeholder(tf.int64, [None])
        tables = [
            create_table(
                key_dtype=tf.int64,
                dim=4,
                name=name,
                emb_initializer=tf.ones_initializer(),
                device_vocabulary_size=size,
            )
            for name, size in [("roomy", 1000), ("small", 8)]
        ]
        # Neither gradient depends on the other table, so without one commit for both, the roomy table is trained.
        loss = sum(tf.reduce_sum(sparse_lookup(table, ids)) for table in tables)
        _, sparse = get_dense_and_sparse_variable()
        optimizer = gradient_descent.create_hash_optimizer(learning_rate=0.5)
        train = optimizer.apply_gradients(zip(tf.gradients(loss, sparse), sparse))
        start_asc_pipeline()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train, {ids: np.arange(6)})
            for _ in range(10):
                with pytest.raises(tf.errors.ResourceExhaustedError, match="'small' is full"):
                    session.run(train, {ids: np.arange(20)})
            assert [table.size() for table in tables] == [6, 6]
            for table in tables:
                assert (table.native.read(np.arange(6))[0] == 0.5).all()
    terminate_config_initializer()


def test_lookups_of_different_training_ops_stay_apart():
    init()
    with tf.Graph().as_default():
        ids = v1.placeholder(tf.int64, [None])
        one = tf.ones_initializer()
        tables = [
            create_table(key_dtype=tf.int64, dim=4, name=name, emb_initializer=one, device_vocabulary_size=100)
            for name in ["first", "second"]
        ]
        trains = []
        for table in tables:
            loss = tf.reduce_sum(sparse_lookup(table, ids))
            sparse = [s for s in get_dense_and_sparse_variable()[1] if s.name.startswith(table.table_name)]
            optimizer = gradient_descent.create_hash_optimizer(learning_rate=0.5)
            trains.append(optimizer.apply_gradients(zip(tf.gradients(loss, sparse), sparse)))
        start_asc_pipeline()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(trains[0], {ids: [1, 2]})
            assert [table.size() for table in tables] == [2, 0]
    terminate_config_initializer()
