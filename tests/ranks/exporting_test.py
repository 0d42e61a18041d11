"""What several ranks export, one process serves: one model, with the rows of all of them."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.ranks import mpi
from tests.shared.paths import ROOT

pytestmark = [pytest.mark.slow, mpi.needed]

SERVE = """
import sys
import mx_rec.serving
import numpy as np
import tensorflow as tf

served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
print(served(ids=tf.constant(np.arange(160)))["rows"].numpy().tolist())
"""
IMPORT = """
import sys
import numpy as np
import tensorflow as tf
import mx_rec
from mx_rec.util.initialize import init

v1 = tf.compat.v1
v1.disable_eager_execution()
init()
saver = v1.train.import_meta_graph(sys.argv[1] + ".meta")
with v1.Session() as session:
    saver.restore(session, sys.argv[1])
    print(session.run("served:0", {"ids:0": np.arange(160)}).tolist())
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    mpi.run("tests.ranks.exporting", 2, folder)
    return folder


def answer(script, path):
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout.splitlines()[-1]), np.float32)


def expected(folder, number):
    """The rows of both ranks, times the dense variable."""
    answer = np.zeros((160, 4), np.float32)
    for rank in range(2):
        held = np.load(folder / f"served{number}-rows-{rank}.npz")
        assert len(held["keys"]) > 5
        answer[held["keys"]] = 2 * held["rows"]
    return answer


@pytest.mark.parametrize("number", [0, 1])
def test_a_model_has_the_rows_of_all_ranks(exported, number):
    np.testing.assert_array_equal(answer(SERVE, exported / f"served{number}"), expected(exported, number))


def test_an_estimator_s_model_has_the_rows_of_all_ranks(exported):
    (path,) = (exported / "exported").iterdir()
    rows = answer(SERVE, path)
    held = set(np.flatnonzero(np.abs(rows).sum(1) > 0).tolist())
    assert held == set(range(34))


def test_a_meta_graph_of_several_ranks_is_imported_by_one(exported):
    np.testing.assert_array_equal(answer(IMPORT, exported / "checkpoint" / "model-7"), expected(exported, 1))
