"""A checkpoint in which any one byte was changed, or any one file cut: a restore names the file and changes nothing, or
the byte did not matter and what comes back is what was saved."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tests.shared import model
from tests.shared.small_checkpoint import DENSE, FILES, Trained

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """(model, checkpoint, its state, another checkpoint, its state): the other one is in memory when a test begins."""
    directory = tmp_path_factory.mktemp("damage")
    with model.process():
        trained = Trained()
        for _ in range(2):
            trained.session.run(trained.step)
        saved = trained.save(directory / "one"), trained.state()
        assert trained.tables["a"].stats()["candidates"] > 0 < trained.tables["a"].size()
        for _ in range(3):
            trained.session.run(trained.step)
        other = trained.save(directory / "other"), trained.state()
        assert saved[1] != other[1]
        yield trained, *saved, *other
        trained.session.close()


def flips(content):
    """`content` with one bit of one byte changed, for every byte: its last bit, which makes other digits of digits, and
    another one."""
    others = np.random.RandomState(1).randint(1, 8, len(content))
    for at, other in enumerate(others):
        for bit in (0, other):
            yield f"bit {bit} of byte {at}", content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def cuts(content):
    """`content` cut at every length."""
    for length in range(len(content)):
        yield f"cut at {length}", content[:length]


def test_these_are_all_files(scene):
    directory = pathlib.Path(scene[1]).parent
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert found == {*FILES, *DENSE, "sparse-model-1/manifest.json", "model-1.meta", "checkpoint", ".mx_rec-lock"}


@pytest.mark.parametrize("harm", [flips, cuts])
@pytest.mark.parametrize("files", [["sparse-model-1/manifest.json"], FILES, DENSE], ids=["manifest", "tables", "dense"])
def test_damage_is_told_or_does_not_matter(files, harm, scene):
    trained, path, saved, other_path, other = scene
    trained.saver.restore(trained.session, other_path)
    refused = 0
    for file in files:
        target = os.path.join(os.path.dirname(path), file)
        with open(target, "rb") as stream:
            good = stream.read()
        assert good, f"{file} is to be harmed"
        try:
            for what, bad in harm(good):
                with open(target, "wb") as stream:
                    stream.write(bad)
                try:
                    trained.saver.restore(trained.session, path)
                except (ValueError, tf.errors.OpError) as error:
                    refused += 1
                    # TensorFlow names the data files by their prefix.
                    name = path if file == DENSE[1] else target
                    assert name in str(error), f"{file}, {what}: {error}"
                    assert trained.state() == other, f"{file}, {what}: refused, but something has changed"
                else:
                    assert trained.state() == saved, f"{file}, {what}: restored other data"
                    trained.saver.restore(trained.session, other_path)
        finally:
            with open(target, "wb") as stream:
                stream.write(good)
    assert refused > 0
    trained.saver.restore(trained.session, path)
    assert trained.state() == saved
