"""Deltas through the stock Saver: what they hold, and when a checkpoint holds all rows instead."""

import json
import os
import resource
import shutil

import numpy as np
import pytest
import tensorflow as tf

from mx_rec._tf import patches
from mx_rec.checkpoint import _owner
from mx_rec.saver import lenient, saver
from mx_rec.util.initialize import init, terminate_config_initializer
from tests.shared.checkpoint_files import crc32c, hidden_names, kinds, rows_of
from tests.shared.saver_model import Model, add_table, assert_restores, content, contents, fill, native, save

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
WORD, ROW = 8, 3 * 4 * 4  # bytes of a key, and of the row and two slots of a table of saver_model.py


@pytest.fixture
def incremental():
    """init with incremental checkpoints, for the length of a test."""
    init(is_incremental_checkpoint=True, save_checkpoint_due_time=1000, save_delta_checkpoints_secs=1000)
    patches.install()
    yield
    terminate_config_initializer()


def reasons(log):
    return [text.partition("not what has changed: ")[2] for _, text in log if "not what has changed" in text]


# ---- What a delta is.


def test_names_and_parents(tmp_path):
    model = Model()
    model.set(1.0)
    assert save(model, tmp_path, 10, delta=False) == str(tmp_path / "model-10")
    for step in (20, 30):
        fill(model.anchors["user"], [step], 5.0)
        assert save(model, tmp_path, step) == str(tmp_path / f"model-{step}")
        assert v1.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model-{step}")
        assert saver.last_sparse_dir() == str(tmp_path / f"delta-sparse-model-{step}")
    chain = ["sparse-model-10", "delta-sparse-model-20", "delta-sparse-model-30"]
    assert kinds(tmp_path) == sorted(chain)
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in chain]
    assert "parent" not in manifests[0] and "table_rows" not in manifests[0]["tables"]["user"]
    for parent, manifest, rows in zip(chain, manifests[1:], (4, 5)):
        crc = crc32c((tmp_path / parent / "manifest.json").read_bytes())
        assert manifest["parent"] == {"directory": parent, "manifest_crc32c": f"{crc:08x}"}
        assert manifest["tables"]["user"]["rows"] == 1
        assert manifest["tables"]["user"]["table_rows"] == rows
        assert (manifest["tables"]["item"]["rows"], manifest["tables"]["item"]["table_rows"]) == (0, 3)
        assert "deleted/slice.data" in manifest["tables"]["user"]["files"]


def test_without_the_flags_every_checkpoint_holds_all_rows(tmp_path):
    model = Model()
    model.set(1.0)
    s = model.saver()
    for step in (10, 20):
        s.save(model.session, str(tmp_path / "model"), global_step=step)
    assert kinds(tmp_path) == ["sparse-model-10", "sparse-model-20"]
    assert not (tmp_path / "sparse-model-20/user/deleted").exists()


@pytest.mark.parametrize("flag", ["is_incremental_checkpoint", "save_delta"])
@pytest.mark.parametrize("bad", [1, None, "True"])
def test_flags_are_checked(flag, bad, tmp_path):
    model = Model()
    with pytest.raises(ValueError, match=f"`{flag}` must"):
        model.saver().save(model.session, str(tmp_path / "model"), **{flag: bad})


@pytest.mark.parametrize("seed", range(5))
def test_a_delta_holds_the_rows_that_changed_and_the_keys_that_went(seed, tmp_path):
    """Against dicts that note what was written and erased."""
    random = np.random.RandomState(seed)
    model = Model()
    model.set(0.0, keys=range(50))
    save(model, tmp_path, 0, delta=False)
    states = {0: contents(model)}
    for step in range(1, 6):
        changed, gone = {name: set() for name in model.anchors}, {name: set() for name in model.anchors}
        for _ in range(random.randint(0, 6)):
            for name, anchor in model.anchors.items():
                keys = random.choice(80, random.randint(1, 9), replace=False).tolist()
                if random.rand() < 0.5:
                    fill(anchor, keys, float(random.randint(1000)))
                    changed[name] |= set(keys)
                else:
                    gone[name] |= set(keys) & set(content(anchor))
                    native(anchor).erase(keys)
                    changed[name] -= set(keys)
        save(model, tmp_path, step)
        states[step] = contents(model)
        for name in model.anchors:
            rows, deleted = rows_of(tmp_path / f"delta-sparse-model-{step}", name)
            assert rows == {key: states[step][name][key] for key in changed[name]}
            assert set(deleted) == gone[name]
    for step, state in states.items():
        assert_restores(tmp_path / f"model-{step}", expected=state)


def test_the_size_is_that_of_what_changed(tmp_path):
    model = Model(("user",))
    model.set(1.0, keys=range(20000))
    save(model, tmp_path, 1, delta=False)
    fill(model.anchors["user"], list(range(100, 400)), 7.0)
    native(model.anchors["user"]).erase(range(50))
    save(model, tmp_path, 2)

    def size(name):
        return sum(path.stat().st_size for path in (tmp_path / name / "user").rglob("slice.data"))

    assert size("sparse-model-1") == 20000 * (WORD + ROW)
    assert size("delta-sparse-model-2") == 300 * (WORD + ROW) + 50 * WORD


def test_nothing_changed_is_a_delta_of_nothing(tmp_path):
    model = Model()
    model.set(3.0)
    save(model, tmp_path, 1, delta=False)
    save(model, tmp_path, 2)
    assert rows_of(tmp_path / "delta-sparse-model-2") == ({}, [])
    assert_restores(tmp_path / "model-2", expected=contents(model))


@pytest.mark.slow
def test_more_saves_than_interval_numbers(tmp_path):
    """Marks are bytes: after 254 saves they begin anew, and one checkpoint holds all rows."""
    model = Model(("user",))
    model.set(0.0, keys=range(10))
    states = {}
    for step in range(300):
        fill(model.anchors["user"], [step % 7, 100 + step], float(step))
        if step % 5 == 0:
            native(model.anchors["user"]).erase([100 + step - 3])
        save(model, tmp_path, step)
        states[step] = contents(model)
    whole = [name for name in kinds(tmp_path) if not name.startswith("delta-")]
    assert "sparse-model-0" in whole and 1 < len(whole) < 5
    for step in {0, 1, 17, 252, 253, 254, 255, 256, 257, 299}:
        assert_restores(tmp_path / f"model-{step}", ("user",), expected=states[step])


# ---- When a checkpoint holds all rows, though a delta was asked for.


def test_the_first_has_nothing_to_build_on(tmp_path, log):
    model = Model()
    model.set(1.0)
    save(model, tmp_path, 1)
    assert reasons(log) == ["there is no checkpoint of these tables yet that it could build on"]
    fill(model.anchors["user"], [9], 9.0)
    save(model, tmp_path, 2)
    assert kinds(tmp_path) == ["delta-sparse-model-2", "sparse-model-1"]
    assert_restores(tmp_path / "model-2", expected=contents(model))


def test_another_directory(tmp_path, log):
    model = Model()
    model.set(1.0)
    save(model, tmp_path / "a", 1)
    fill(model.anchors["user"], [9], 9.0)
    save(model, tmp_path / "b", 2)
    assert kinds(tmp_path / "b") == ["sparse-model-2"]
    assert reasons(log)[-1] == f"the last one was saved to another directory, '{tmp_path / 'a'}'"
    fill(model.anchors["user"], [8], 8.0)
    save(model, tmp_path / "b", 3)
    assert kinds(tmp_path / "b") == ["delta-sparse-model-3", "sparse-model-2"]
    assert_restores(tmp_path / "b/model-3", expected=contents(model))


def test_the_same_directory_by_other_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = Model()
    model.set(1.0)
    save(model, tmp_path, 1)
    fill(model.anchors["user"], [9], 9.0)
    model.kept.save(model.session, "model", global_step=2, save_delta=True)
    assert kinds(tmp_path) == ["delta-sparse-model-2", "sparse-model-1"]
    fill(model.anchors["user"], [10], 9.0)
    model.kept.save(model.session, "model", global_step=1, save_delta=True)  # over what it would build on
    assert kinds(tmp_path) == ["delta-sparse-model-2", "sparse-model-1"]
    assert_restores(tmp_path / "model-1", expected=contents(model))


def test_two_savers_in_two_directories_by_turns(tmp_path):
    """One remembers for both; each checkpoint restores, whichever kind it is."""
    model, states = Model(), {}
    model.set(0.0)
    savers = {name: model.saver(max_to_keep=100) for name in ("a", "b")}
    for step in range(12):
        fill(model.anchors["user"], [step, step + 1], float(step))
        name = "aab"[step % 3]
        path = str(tmp_path / name / "model")
        states[savers[name].save(model.session, path, step, save_delta=True)] = contents(model)
    assert any(name.startswith("delta-") for name in kinds(tmp_path / "a"))
    for path, state in states.items():
        assert_restores(path, expected=state)


def test_a_table_that_was_added(tmp_path, log):
    model = Model(("user",))
    model.set(1.0)
    save(model, tmp_path, 1)
    with model.graph.as_default():
        model.anchors["new"] = add_table("new")
        model.session.run(model.anchors["new"].initializer)
    fill(model.anchors["new"], [5], 5.0)
    del model.kept
    save(model, tmp_path, 2)
    assert reasons(log)[-1] == "the last one has other tables, ['user']"
    assert kinds(tmp_path) == ["sparse-model-1", "sparse-model-2"]
    assert_restores(tmp_path / "model-2", ("user", "new"), expected=contents(model))


@pytest.mark.parametrize("victim", ["sparse-model-1", "delta-sparse-model-2"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_link_that_somebody_took_away(victim, how, tmp_path, log):
    model = Model()
    model.set(1.0)
    for step in (1, 2):
        fill(model.anchors["user"], [step], 5.0)
        save(model, tmp_path, step)
    shutil.rmtree(tmp_path / victim)
    if how == "replaced":
        other = tmp_path / "other"
        model.saver().save(model.session, str(other / "model"), global_step=1)
        os.rename(other / "sparse-model-1", tmp_path / victim)
    fill(model.anchors["user"], [9], 9.0)
    save(model, tmp_path, 3)
    assert "sparse-model-3" in kinds(tmp_path)
    assert str(tmp_path / victim) in reasons(log)[-1]
    assert_restores(tmp_path / "model-3", expected=contents(model))


@pytest.mark.parametrize("step", [1, 2, 3])
def test_over_what_it_builds_on(step, tmp_path, log):
    model = Model()
    model.set(1.0)
    for before in (1, 2, 3):
        fill(model.anchors["user"], [before], 5.0)
        save(model, tmp_path, before)
    fill(model.anchors["user"], [step], 9.0)
    save(model, tmp_path, step)
    assert f"sparse-model-{step}" in kinds(tmp_path) and f"delta-sparse-model-{step}" not in kinds(tmp_path)
    assert reasons(log)[-1] == "it would replace a checkpoint that it builds on"
    warnings = [text for level, text in log if level == "WARNING"]
    assert len(warnings) == (step < 3) and all(f"delta-sparse-model-{step + 1}'] build on it" in w for w in warnings)
    assert_restores(tmp_path / f"model-{step}", expected=contents(model))


def test_a_table_that_was_emptied(tmp_path, log):
    model = Model()
    model.set(1.0)
    save(model, tmp_path, 1)
    native(model.anchors["user"]).clear()
    fill(model.anchors["user"], [4], 4.0)
    save(model, tmp_path, 2)
    assert reasons(log)[-1] == "table 'user' no longer knows what has changed since the last one"
    assert_restores(tmp_path / "model-2", expected=contents(model))


def test_checkpoints_of_the_original_are_not_extended(tmp_path, log, incremental):
    model = Model()
    model.set(1.0)
    save(model, tmp_path, 1)
    (tmp_path / "sparse-model-1/manifest.json").unlink()
    model.kept.restore(model.session, str(tmp_path / "model-1"))
    save(model, tmp_path, 2)
    assert kinds(tmp_path) == ["sparse-model-1", "sparse-model-2"]
    assert reasons(log)[-1] == "there is no checkpoint of these tables yet that it could build on"


def test_slots_that_began_anew_are_not_left_out(tmp_path, incremental):
    """Rows that do not change have no such slots in the checkpoint that was restored."""
    model = Model(slots=(), optimizer=None)
    fill(model.anchors["user"], [1, 2], 1.0)
    save(model, tmp_path, 1)
    other = Model()
    with lenient(other_optimizer=True):
        other.saver().restore(other.session, str(tmp_path / "model-1"))
    fill(other.anchors["user"], [2], 2.0)
    save(other, tmp_path, 2)
    assert kinds(tmp_path) == ["sparse-model-1", "sparse-model-2"]
    assert_restores(tmp_path / "model-2", expected=contents(other))


# ---- The other kind under the same name.


def test_all_rows_over_a_delta_of_the_same_name(tmp_path):
    model = Model()
    model.set(1.0)
    save(model, tmp_path, 1)
    fill(model.anchors["user"], [2], 2.0)
    save(model, tmp_path, 2)
    fill(model.anchors["user"], [3], 3.0)
    save(model, tmp_path, 2, delta=False)
    assert kinds(tmp_path) == ["sparse-model-1", "sparse-model-2"]
    assert_restores(tmp_path / "model-2", expected=contents(model))


def test_a_delta_over_all_rows_of_the_same_name(tmp_path):
    model = Model()
    model.set(1.0)
    save(model, tmp_path, 1)
    save(model, tmp_path, 2, delta=False, is_incremental_checkpoint=False)  # nothing shall build on it
    fill(model.anchors["user"], [3], 3.0)
    save(model, tmp_path, 2)
    assert kinds(tmp_path) == ["delta-sparse-model-2", "sparse-model-1"]
    assert_restores(tmp_path / "model-2", expected=contents(model))
    assert hidden_names(tmp_path) == []


# ---- After a failure, and after a restore.


def test_the_delta_after_a_failed_save_makes_up_for_it(tmp_path):
    model = Model(("user",))
    model.set(1.0, keys=range(10))
    save(model, tmp_path, 1)
    fill(model.anchors["user"], list(range(100, 9000)), 2.0)
    native(model.anchors["user"]).erase([1, 2, 3])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        with pytest.raises(OSError, match="model-2' could not be saved|File too large"):
            save(model, tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert kinds(tmp_path) == ["sparse-model-1"] and hidden_names(tmp_path) == []
    assert v1.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model-1")
    native(model.anchors["user"]).erase([4])
    save(model, tmp_path, 3)
    rows, gone = rows_of(tmp_path / "delta-sparse-model-3")
    assert (set(rows), set(gone)) == (set(range(100, 9000)), {1, 2, 3, 4})
    assert_restores(tmp_path / "model-3", ("user",), expected=contents(model))


@pytest.mark.parametrize("is_delta", [True, False])
def test_what_a_killed_save_left_is_not_built_on_under_its_hidden_name(is_delta, tmp_path, incremental):
    """Of a save over a checkpoint of the same name: it is restored from where it lies, and moved by the next save."""
    model = Model()
    for step, value in ((1, 1.0), (2, 2.0)):
        fill(model.anchors["user"], [step], value)
        save(model, tmp_path, step, delta=is_delta)
    expected = contents(model)
    owner = f"{_owner.host()}-{2**22 + 1}"  # above any process's number
    (hidden := tmp_path / f".dense-model-2.tmp-{owner}").mkdir()
    for path in tmp_path.glob("model-2.*"):
        shutil.copy(path, hidden)
    os.rename(tmp_path / f"{'delta-' if is_delta else ''}sparse-model-2", tmp_path / f".sparse-model-2.tmp-{owner}")
    native(model.anchors["user"]).erase([1, 2])
    model.kept.restore(model.session, str(tmp_path / "model-2"))
    assert contents(model) == expected
    fill(model.anchors["user"], [3], 3.0)
    save(model, tmp_path, 3)
    assert hidden_names(tmp_path) == []
    now = contents(model)
    assert_restores(tmp_path / "model-2", expected=expected)
    assert_restores(tmp_path / "model-3", expected=now)


@pytest.mark.parametrize("is_fresh", [True, False])
def test_deltas_go_on_from_a_restored_chain(is_fresh, tmp_path, incremental):
    model = Model()
    model.set(1.0)
    for step in (1, 2, 3):
        fill(model.anchors["user"], [step], 5.0)
        save(model, tmp_path, step)
    then = contents(model)
    if is_fresh:  # as in another process
        terminate_config_initializer()
        init(is_incremental_checkpoint=True, save_checkpoint_due_time=1000, save_delta_checkpoints_secs=1000)
        patches.install()
        model = Model()
    fill(model.anchors["user"], [77], 7.0)  # undone by the restore
    model.saver().restore(model.session, str(tmp_path / "model-2"))
    fill(model.anchors["item"], [9], 9.0)
    native(model.anchors["user"]).erase([2])
    save(model, tmp_path, 4)
    manifest = json.loads((tmp_path / "delta-sparse-model-4/manifest.json").read_text())
    assert manifest["parent"]["directory"] == "delta-sparse-model-2"
    assert rows_of(tmp_path / "delta-sparse-model-4")[1] == [2]
    assert set(rows_of(tmp_path / "delta-sparse-model-4", "item")[0]) == {9}
    assert_restores(tmp_path / "model-4", expected=contents(model))
    assert_restores(tmp_path / "model-3", expected=then)
