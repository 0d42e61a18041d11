"""Chains of checkpoints on disk: harmed links, rotation, and restores of chosen steps."""

import os
import shutil

import pytest
import tensorflow as tf

from mx_rec._native import table as native_table
from mx_rec._process import process
from mx_rec._tf import patches
from mx_rec.util.initialize import init, terminate_config_initializer
from tests.shared.checkpoint_files import kinds
from tests.shared.saver_model import Model, assert_restores, contents, fill, native, save

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
CHAIN = ("sparse-model-1", "delta-sparse-model-2", "delta-sparse-model-3")


@pytest.fixture
def chain(tmp_path):
    """(directory with the checkpoints of CHAIN, another model with rows of its own, what was saved at step 2)."""
    model, saved = Model(), None
    model.set(1.0)
    for step in (1, 2, 3):
        fill(model.anchors["user"], [step, 10 + step], 5.0 + step)
        fill(model.anchors["item"], [step], 5.0 + step)
        native(model.anchors["user"]).erase([10 + step - 1])
        native(model.anchors["item"]).erase([99, step - 1])
        save(model, tmp_path, step)
        saved = contents(model) if step == 2 else saved
    assert kinds(tmp_path) == sorted(CHAIN)
    other = Model()
    other.set(77.0, keys=range(40))
    return tmp_path, other, saved


def assert_refused(directory, model, *words, error=ValueError):
    """A restore of step 3 fails with all `words`, and changes nothing."""
    before, dense = contents(model), model.get()
    with pytest.raises(error) as failure:
        model.saver().restore(model.session, str(directory / "model-3"))
    for word in words:
        assert word in str(failure.value)
    assert (contents(model), model.get()) == (before, dense)


# ---- Harmed links.


@pytest.mark.parametrize("link", CHAIN)
def test_every_harmed_file_of_every_link_is_named(link, chain):
    directory, model, _ = chain
    files = sorted(path for path in (directory / link).rglob("slice.*") if path.stat().st_size)
    assert len(files) > 10
    for path in files:
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        assert_refused(directory, model, f"'{path}' is damaged")
        path.write_bytes(good[:-1])
        assert_refused(directory, model, f"'{path}' is cut off")
        path.unlink()
        assert_refused(directory, model, str(path), "missing")
        path.write_bytes(good)
    model.saver().restore(model.session, str(directory / "model-3"))


@pytest.mark.parametrize("link", CHAIN)
def test_a_harmed_manifest_is_named(link, chain):
    directory, model, _ = chain
    path = directory / link / "manifest.json"
    good = path.read_bytes()
    for at in range(0, len(good), 97):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert_refused(directory, model, str(directory / link))
    path.unlink()
    if link != CHAIN[-1]:
        assert_refused(directory, model, f"'{directory / link}', but that has been replaced or damaged", "missing")


@pytest.mark.parametrize("link", CHAIN[:-1])
def test_a_missing_link_is_named(link, chain):
    directory, model, _ = chain
    shutil.rmtree(directory / link)
    assert_refused(directory, model, f"holds what has changed since '{directory / link}', which is missing")


@pytest.mark.parametrize("link", CHAIN[:-1])
def test_a_replaced_link_is_named(link, chain):
    """By a checkpoint that is whole, and would do by its looks."""
    directory, model, _ = chain
    model.saver().save(model.session, str(directory / "other"), global_step=1)
    shutil.rmtree(directory / link)
    os.rename(directory / "sparse-other-1", directory / link)
    assert_refused(directory, model, f"since '{directory / link}', but that has been replaced or damaged")


def test_a_step_before_the_harm_restores(chain):
    directory, _, expected = chain
    shutil.rmtree(directory / CHAIN[2])
    assert_restores(directory / "model-2", expected=expected)


def test_rows_that_only_the_chain_has_too_many_of(tmp_path):
    """Each link alone would fit."""
    model = Model(("user",), max_rows=1000)
    model.set(1.0, keys=range(60))
    save(model, tmp_path, 1)
    fill(model.anchors["user"], list(range(100, 160)), 2.0)
    save(model, tmp_path, 3)
    expected = contents(model)
    native_table.clear_all()
    other = Model(("user",), max_rows=100)
    other.set(7.0)
    assert_refused(tmp_path, other, "may hold 100 rows", "it has 120", "device_vocabulary_size", error=MemoryError)
    native_table.clear_all()
    other = Model(("user",), max_rows=120)
    other.saver().restore(other.session, str(tmp_path / "model-3"))
    assert contents(other) == expected


# ---- Rotation.


def state(directory):
    """(steps with a dense part, names of tables without "sparse-model-")."""
    dense = sorted(int(path.stem.split("-")[1]) for path in directory.glob("model-*.index"))
    return dense, sorted(name.replace("sparse-model-", "") for name in kinds(directory))


def test_tables_stay_while_a_kept_delta_builds_on_them(tmp_path):
    model = Model()
    model.set(0.0)
    s, states = model.saver(max_to_keep=2), {}
    for step, is_delta, expected in (
        (1, False, ([1], ["1"])),
        (2, True, ([1, 2], ["1", "delta-2"])),
        (3, True, ([2, 3], ["1", "delta-2", "delta-3"])),
        (4, True, ([3, 4], ["1", "delta-2", "delta-3", "delta-4"])),
        (5, False, ([4, 5], ["1", "5", "delta-2", "delta-3", "delta-4"])),
        (6, True, ([5, 6], ["5", "delta-6"])),
        (7, False, ([6, 7], ["5", "7", "delta-6"])),
        (8, False, ([7, 8], ["7", "8"])),
    ):
        fill(model.anchors["user"], [step, 100 + step], float(step))
        options = {"is_incremental_checkpoint": True, "save_delta": is_delta}
        s.save(model.session, str(tmp_path / "model"), step, **options)
        assert state(tmp_path) == (expected[0], sorted(expected[1]))
        assert v1.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model-{step}")
        states[step] = contents(model)
        for kept in expected[0]:
            assert_restores(tmp_path / f"model-{kept}", expected=states[kept])


def test_a_saver_of_another_process_rotates_the_chain_too(tmp_path):
    model, states = Model(), {}
    model.set(0.0)
    for step in (1, 2, 3):
        fill(model.anchors["user"], [step], float(step))
        save(model, tmp_path, step)
        states[step] = contents(model)
    other = Model()
    s = other.saver(max_to_keep=2)
    s.recover_last_checkpoints([str(tmp_path / f"model-{step}") for step in (1, 2, 3)])
    s.restore(other.session, str(tmp_path / "model-3"))
    # TensorFlow removes one checkpoint with each save.
    for step, dense, tables in (
        (4, [2, 3, 4], ["1", "4", "delta-2", "delta-3"]),
        (5, [3, 4, 5], ["1", "4", "5", "delta-2", "delta-3"]),
        (6, [4, 5, 6], ["4", "5", "6"]),
    ):
        s.save(other.session, str(tmp_path / "model"), step)
        assert state(tmp_path) == (dense, tables)
        if 3 in dense:
            assert_restores(tmp_path / "model-3", expected=states[3])


def test_a_checkpoint_that_is_kept_for_good_keeps_what_it_builds_on(tmp_path):
    model, states = Model(), {}
    model.set(0.0)
    s = model.saver(max_to_keep=1, keep_checkpoint_every_n_hours=1.0)
    for step in (1, 2, 3, 4, 5):
        fill(model.anchors["user"], [step], float(step))
        # By TensorFlow's clock, checkpoint 2 is the first after an hour; it is judged when 3 takes its place.
        s._next_checkpoint_time = 0.0 if step == 3 else float("inf")
        save_delta = step < 4
        options = {"is_incremental_checkpoint": True, "save_delta": save_delta}
        s.save(model.session, str(tmp_path / "model"), step, **options)
        states[step] = contents(model)
    assert state(tmp_path) == ([2, 5], ["1", "5", "delta-2"])
    for step in (2, 5):
        assert_restores(tmp_path / f"model-{step}", expected=states[step])


# ---- init(restore_model_version=...)


@pytest.fixture
def versions(tmp_path):
    """{step: contents} of the checkpoints in tmp_path."""
    model, found = Model(), {}
    model.set(0.0)
    for step in (10, 20, 30):
        fill(model.anchors["user"], [step], float(step))
        save(model, tmp_path, step)
        found[step] = contents(model)
    return found


@pytest.fixture
def version():
    """Calls init with a version, as in another process than that of the saves; ended with the test."""

    def start(number):
        process.end()
        init(restore_model_version=number)
        patches.install()

    yield start
    terminate_config_initializer()


@pytest.mark.parametrize("step", [10, 20, 30, None])
@pytest.mark.parametrize("asked", [10, 30])
def test_the_version_counts_whatever_the_script_restores(step, asked, versions, version, tmp_path):
    version(step)
    assert_restores(tmp_path / f"model-{asked}", expected=versions[asked if step is None else step])


def test_an_unknown_version_is_told_with_those_there_are(versions, version, tmp_path):
    version(25)
    model = Model()
    model.set(7.0)
    before = contents(model)
    with pytest.raises(ValueError) as failure:
        model.saver().restore(model.session, str(tmp_path / "model-30"))
    assert "restore_model_version=25" in str(failure.value) and "[10, 20, 30]" in str(failure.value)
    assert contents(model) == before


def test_what_was_saved_since_is_restored_as_asked(versions, version, tmp_path):
    """Evaluation restores what training has just saved, while training began with an older version."""
    version(10)
    model = Model()
    s = model.saver(max_to_keep=10)
    s.restore(model.session, str(tmp_path / "model-30"))
    assert contents(model) == versions[10]
    fill(model.anchors["user"], [40], 40.0)
    s.save(model.session, str(tmp_path / "model"), 40)
    expected = contents(model)
    fill(model.anchors["user"], [50], 50.0)
    s.restore(model.session, str(tmp_path / "model-40"))
    assert contents(model) == expected
