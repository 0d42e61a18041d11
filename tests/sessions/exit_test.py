"""A process whose input pipeline has not ended ends: quietly, and without waiting for it for ever."""

import subprocess
import sys

import pytest

from tests.shared.paths import ROOT

pytestmark = pytest.mark.border

SCRIPT = """
import atexit, sys, threading, time
import numpy as np

# Registered first, so it runs last: a session that is deleted when the interpreter is as good as gone.
sessions = []
atexit.register(lambda: [session.__del__() for session in sessions])

import tensorflow as tf

from tests.shared import model
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import sparse_lookup
from mx_rec._sessions import ending
from mx_rec.graph import modify_graph_and_start_emb_cache
from mx_rec.util.initialize import init, terminate_config_initializer

v1 = tf.compat.v1
v1.disable_eager_execution()
init()
ending._SECONDS = 2.0
mode, is_blocking = {mode!r}, {is_blocking!r}
is_ahead = threading.Event()


def generate():
    for number in range(10**9):
        if number > 5:
            is_ahead.set()
            threading.Event().wait(None if is_blocking else 0.01)
        yield {{"ids": np.arange(number, number + 64)}}


dataset = tf.data.Dataset.from_generator(generate, output_signature={{"ids": tf.TensorSpec([64], tf.int64)}})
spec = FeatureSpec("ids", table_name="t")
if mode == "spec":
    dataset = dataset.map(get_asc_insert_func([spec], is_training=True))
iterator = v1.data.make_initializable_iterator(dataset.prefetch(1000))
batch = iterator.get_next()
options = {{"batch": batch}} if mode == "spec" else {{"modify_graph": True}}
value = tf.reduce_sum(sparse_lookup(model.table("t"), spec if mode == "spec" else batch["ids"], **options))
if mode == "modified":
    modify_graph_and_start_emb_cache()
session = v1.Session()
sessions.append(session)
session.run([iterator.initializer, v1.global_variables_initializer()])
session.run(value)
is_ahead.wait()
terminate_config_initializer()
time.sleep(0.2)
print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("mode", "is_blocking"),
    [("spec", False), ("modified", False), ("spec", True)],
    ids=["spec", "modified", "blocking"],
)
def test_a_process_ends_although_its_pipeline_goes_on(mode, is_blocking):
    script = SCRIPT.format(mode=mode, is_blocking=is_blocking)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == "done\n"
    assert "no table" not in done.stderr and "OP_REQUIRES" not in done.stderr
    assert ("a function of its dataset does not return" in done.stderr) == is_blocking
