"""The public API under TensorFlow 1's behaviour, in processes of their own: it cannot be taken back in one."""

import subprocess
import sys

import pytest

from tests.shared.paths import ROOT

PUBLIC_API = (
    "mx_rec/saver/saver_test.py",
    "tests/graph/default_graph_test.py",
    "tests/graph/fusing_test.py",
    "tests/graph/graph_hooks_test.py",
    "tests/graph/graph_modification_test.py",
    "tests/graph/meta_graph_test.py",
    "tests/scripts/older_scripts_test.py",
    "tests/sessions/monitored_session_test.py",
    "tests/tables/admission_test.py",
    "tests/tables/by_address_test.py",
    "tests/tables/disk_tier_test.py",
    "tests/tables/eviction_test.py",
    "tests/tables/lookup_test.py",
    "tests/tables/pooled_padding_test.py",
    "tests/tables/pooling_test.py",
    "tests/tables/reset_test.py",
    "tests/tables/row_access_test.py",
    "tests/tables/static_shape_test.py",
)


def test_a_script_with_reference_variables_trains_pooled_and_timed_lookups():
    script = """
import tensorflow as tf
tf.compat.v1.disable_v2_behavior()
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph import modify_graph_and_start_emb_cache
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import get_initializer, init
v1 = tf.compat.v1
init()
table = create_table(tf.int64, tf.TensorShape([144]), "t", v1.constant_initializer(0.5), device_vocabulary_size=100)
data = {"ids": [[1, 2, 3, 4]] * 8, "time": [[7]] * 8}
dataset = tf.data.Dataset.from_tensor_slices(data).batch(4, drop_remainder=True)
batch = v1.data.make_initializable_iterator(dataset).get_next()
v1.add_to_collection("ASCEND_TIMESTAMP", tf.cast(tf.reduce_max(batch["time"]), tf.int64))
ids = tf.cast(batch["ids"], tf.int64)
parts = [sparse_lookup(table, ids, combiner=c, dim=tf.TensorShape([144]), modify_graph=True) for c in ("mean", "sqrtn")]
parts.append(tf.reduce_mean(sparse_lookup(table, ids, modify_graph=True), axis=1))
weight = v1.get_variable("w", [432, 1])
loss = tf.reduce_sum(tf.matmul(tf.concat(parts, 1), weight) ** 2)
dense = v1.train.AdamOptimizer(0.1).minimize(loss, var_list=[weight])
step = tf.group(dense, create_hash_optimizer(0.1).minimize(loss))
modify_graph_and_start_emb_cache()
with v1.Session() as session:
    session.run([v1.global_variables_initializer(), get_initializer(True)])
    session.run([step, loss])
assert table.size() == 4 and table.embedding_size == 144
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_all_tests_of_the_public_api_pass():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "tests.scripts.v1_behavior",
        *(str(ROOT / name) for name in PUBLIC_API),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
