"""A damaged checkpoint and the empty tables of a new process, which are filled while their files are verified, one
after another, before the dense part: if anything is wrong, they are empty again."""

import os
import shutil

import pytest
import tensorflow as tf

from tests.shared import model
from tests.shared.small_checkpoint import DENSE, FILES, Trained

# The manifest has what these hold.
UNREAD = {"table_2_threshold/slice.data"} | {
    f"{column}/slice.attribute" for column in ("table_2_threshold", "history_record", "last_step")
}
READ = [file for file in FILES if file.split("/", 2)[2] not in UNREAD]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(a checkpoint, its state)"""
    with model.process():
        trained = Trained()
        for _ in range(2):
            trained.session.run(trained.step)
        return trained.save(tmp_path_factory.mktemp("fresh")), trained.state()


@pytest.fixture
def fresh(saved):  # after `saved`, whose process must have ended
    """A model as after the start of a process, with an empty table of each kind."""
    with model.process():
        yield Trained()


@pytest.mark.parametrize("file", [*READ, *DENSE, "sparse-model-1/manifest.json"])
def test_tables_are_as_they_were(file, saved, fresh, tmp_path):
    path, state = saved
    shutil.copytree(os.path.dirname(path), tmp_path / "copy")
    target, copy = tmp_path / "copy" / file, str(tmp_path / "copy" / "model-1")
    good = target.read_bytes()
    at = len(good) // 2
    before = fresh.state()
    assert [table.size() for table in fresh.tables.values()] == [0, 0]
    for bad in (good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :], good[:-1]):
        target.write_bytes(bad)
        with pytest.raises((ValueError, tf.errors.OpError)) as error:
            fresh.saver.restore(fresh.session, copy)
        assert file.replace(".data-00000-of-00001", "") in str(error.value)
        assert fresh.state() == before
    target.write_bytes(good)
    fresh.saver.restore(fresh.session, copy)
    assert fresh.state() == state
