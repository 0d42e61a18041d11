"""Whoever reads a checkpoint beside a process that saves gets the state of one save, or an error and nothing changed.

RESTORES=1000 pytest tests/checkpoint/torn_reads_test.py    reads more often
"""

import os

import numpy as np
import pytest
import tensorflow as tf

from mx_rec import saver as mx_saver
from mx_rec.__main__ import main
from tests.checkpoint import torn_reads
from tests.checkpoint.torn_reads import KINDS, Counter, assert_one_save, latest, saver_beside
from tests.shared import model

v1 = tf.compat.v1
RESTORES = int(os.environ.get("RESTORES", 100))  # of all kinds together, into filled tables and into empty ones
pytestmark = pytest.mark.slow


def restores(counter, session, directory, kind, times):
    """Restores `times` times; how many of them succeeded."""
    succeeded = 0
    for _ in range(times):
        before = counter.state(session)
        try:
            counter.saver.restore(session, latest(directory, kind))
        except (ValueError, OSError, tf.errors.OpError) as error:
            # With names of their own, checkpoints go that a reader has just been told of.
            assert KINDS[kind][0], error
            assert counter.state(session) == before, error
        else:
            succeeded += 1
            assert_one_save(counter.state(session))
    return succeeded


@pytest.mark.parametrize("kind", KINDS)
def test_a_restore_beside_a_saver_gives_one_save(kind, tmp_path):
    times = max(1, RESTORES // len(KINDS) // 2)
    with saver_beside(tmp_path, kind):
        succeeded = 0
        for _ in range(times):  # into empty tables, which are filled while their files are verified
            with model.process(), v1.Session() as session:
                counter = Counter()
                session.run(v1.global_variables_initializer())
                succeeded += restores(counter, session, tmp_path, kind, 1)
        with model.process(), v1.Session() as session:
            counter = Counter()
            session.run(v1.global_variables_initializer())
            session.run(counter.step)
            succeeded += restores(counter, session, tmp_path, kind, times)
    assert succeeded >= times


@pytest.mark.parametrize("kind", ["one_name", "rotating_deltas_async"])
def test_a_warm_start_beside_a_saver_gives_one_save(kind, tmp_path):
    succeeded = 0
    with saver_beside(tmp_path, kind):
        for _ in range(max(1, RESTORES // 20)):
            with model.process(), v1.Session() as session:
                counter = Counter()
                try:
                    mx_saver.warm_start(latest(tmp_path, kind))
                except (ValueError, OSError):
                    assert KINDS[kind][0]
                    continue
                session.run(v1.global_variables_initializer())
                assert_one_save(counter.state(session))
                succeeded += 1
    assert succeeded > 0


def test_a_model_that_is_loaded_beside_an_exporter_is_one_export(tmp_path):
    import mx_rec.serving  # noqa: F401 - registers the ops

    succeeded = 0
    with saver_beside(tmp_path, "export"):
        for _ in range(max(1, RESTORES // 4)):  # also models that this process has loaded before
            with tf.Graph().as_default(), v1.Session() as session:
                try:
                    loaded = v1.saved_model.load(session, ["serve"], str(tmp_path / "model"))
                except (ValueError, OSError, RuntimeError, tf.errors.OpError):
                    continue  # another one took its place meanwhile
                signature = loaded.signature_def["serving_default"]
                fetches = {name: output.name for name, output in signature.outputs.items()}
                found = session.run(fetches, {signature.inputs["keys"].name: np.arange(torn_reads.ROWS)})
                assert_one_save({name: np.unique(values).tolist() for name, values in found.items()})
                succeeded += 1
    assert succeeded > 0


@pytest.mark.parametrize("kind", ["one_name", "rotating_deltas_async"])
def test_tools_beside_a_saver_read_one_save(kind, tmp_path, capsys):
    directory, out = tmp_path / "checkpoints", tmp_path / "out"
    directory.mkdir()
    succeeded = 0
    with saver_beside(directory, kind):
        for _ in range(max(1, RESTORES // 20)):
            path = latest(directory, kind)
            for command in (["export", path, str(out)], ["inspect", path], ["diff", path, path]):
                status = main(command)
                printed = capsys.readouterr()
                if status != 0:
                    # One name may be two saves when it is read twice; checkpoints go that we were told of.
                    assert command[0] == "diff" or KINDS[kind][0], printed
                    assert "Traceback" not in printed.err
                    continue
                succeeded += 1
                if command[0] == "export":
                    files = [np.load(out / f"{name}.embedding.npy") for name in torn_reads.TABLES]
                    assert_one_save({str(n): np.unique(file).tolist() for n, file in enumerate(files)})
                    assert all(len(file) == torn_reads.ROWS for file in files)
                elif command[0] == "inspect":
                    assert "damaged" not in printed.out
    assert succeeded > 0
