"""Tables through the stock Saver: round trips, layout, rotation, and what a restore refuses."""

import json
import os
import re
import shutil
import stat

import numpy as np
import pytest
import tensorflow as tf

from mx_rec._native import file_facts
from mx_rec._native import table as native_table
from mx_rec._process import process
from mx_rec._tables import anchors
from mx_rec._tf import patches
from mx_rec.saver import _loading, _restoring, saver
from mx_rec.saver._lenient import Allowed, allowed, lenient
from tests.shared.checkpoint_files import sparse_names, tree
from tests.shared.eager import eager_mode
from tests.shared.saver_model import Model, add_table, content, fill, native

v1 = tf.compat.v1
pytestmark = [pytest.mark.border, pytest.mark.usefixtures("installed")]


def warnings(log):
    return [text for level, text in log if level == "WARNING"]


# ---- Round trips.


def test_a_fresh_session_gets_back_what_was_saved(tmp_path, log):
    model = Model()
    model.set(5.0, keys=[1, 0, -1, 2**63 - 1, -(2**63)])
    before = {name: content(anchor) for name, anchor in model.anchors.items()}
    s = model.saver()
    path = s.save(model.session, str(tmp_path / "model"), global_step=7)
    assert path == str(tmp_path / "model-7")
    assert v1.train.latest_checkpoint(str(tmp_path)) == path
    assert saver.last_sparse_dir() == str(tmp_path / "sparse-model-7")
    level, line = log[-1]
    assert level == "INFO"
    assert re.match(r"saved 2 tables, 10 rows, 0\.0 MB in \d+\.\d s: .*/sparse-model-7$", line)

    for anchor in model.anchors.values():
        native(anchor).clear()
        fill(anchor, [99], 0.0)
    with v1.Session(graph=model.graph) as session:
        s.restore(session, path)
        assert session.run(model.dense).tolist() == [5.0, 5.0]
        with model.graph.as_default():
            assert session.run(v1.report_uninitialized_variables()).size == 0
    assert {name: content(anchor) for name, anchor in model.anchors.items()} == before
    assert log[-1][1].startswith("restored 2 tables, 10 rows in ")
    assert not warnings(log)


def test_the_layout_is_the_documented_one(tmp_path):
    model = Model(tables=("user",), dim=3)
    model.set(1.0, keys=[10, 20])
    umask = os.umask(0o022)
    try:
        model.saver().save(model.session, str(tmp_path / "model"), global_step=7)
    finally:
        os.umask(umask)
    columns = ["key", "embedding", "LazyAdam_momentum", "LazyAdam_velocity"]
    sparse = tmp_path / "sparse-model-7"
    expected = ["manifest.json"] + [f"user/{c}/slice.{kind}" for c in columns for kind in ("data", "attribute")]
    assert tree(sparse) == sorted(expected)
    assert sorted(name for name in os.listdir(tmp_path) if not name.startswith("model-7.data")) == [
        ".mx_rec-lock",
        "checkpoint",
        "model-7.index",
        "model-7.meta",
        "sparse-model-7",
    ]

    keys = np.fromfile(sparse / "user/key/slice.data", np.int64)
    assert sorted(keys) == [10, 20]
    assert np.fromfile(sparse / "user/key/slice.attribute", np.int64).tolist() == [2, 8]
    values = native(model.anchors["user"]).read(keys)[0]
    for i, column in enumerate(columns[1:]):
        assert np.fromfile(sparse / f"user/{column}/slice.attribute", np.int64).tolist() == [2, 3, 4]
        data = np.fromfile(sparse / f"user/{column}/slice.data", np.float32).reshape(2, 3)
        np.testing.assert_array_equal(data, values[:, i])

    for path, _, files in os.walk(sparse):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o750, path
        for name in files:
            assert stat.S_IMODE(os.stat(os.path.join(path, name)).st_mode) == 0o640, name


def test_the_manifest_tells_what_is_there(tmp_path):
    model = Model(tables=("user",), dim=3)
    model.set(1.0)
    model.saver().save(model.session, str(tmp_path / "model"), global_step=7)
    with open(tmp_path / "sparse-model-7" / "manifest.json") as file:
        manifest = json.load(file)
    assert manifest["format"] == 1 and manifest["step"] == 7 and manifest["mx_rec"]
    entry = manifest["tables"]["user"]
    assert {key: entry[key] for key in ("dim", "rows", "key_dtype", "slots", "optimizer")} == {
        "dim": 3,
        "rows": 3,
        "key_dtype": "int64",
        "slots": ["LazyAdam_momentum", "LazyAdam_velocity"],
        "optimizer": "LazyAdam",
    }
    data = (tmp_path / "sparse-model-7/user/key/slice.data").read_bytes()
    assert entry["files"]["key/slice.data"] == {"bytes": 24, "crc32c": f"{file_facts.crc32c(data):08x}"}
    assert len(entry["files"]) == 8


def test_empty_tables_are_saved_and_restored(tmp_path):
    model = Model()
    s = model.saver()
    path = s.save(model.session, str(tmp_path / "model-0"), global_step=0)
    assert path == str(tmp_path / "model-0-0") and (tmp_path / "sparse-model-0-0").is_dir()
    model.set(1.0)
    s.restore(model.session, path)
    assert content(model.anchors["user"]) == {}


def test_the_dense_file_holds_no_anchor(tmp_path):
    model = Model()
    path = model.saver().save(model.session, str(tmp_path / "model"))
    assert [name for name, _ in tf.train.list_variables(path)] == ["dense"]
    assert (tmp_path / "sparse-model").is_dir()


# ---- What a Saver covers.


def test_a_var_list_without_anchors_touches_no_table(tmp_path):
    model = Model()
    model.set(1.0)
    s = model.saver([model.dense])
    path = s.save(model.session, str(tmp_path / "model"))
    assert sparse_names(tmp_path) == []
    model.set(2.0)
    s.restore(model.session, path)
    assert model.get() == (1.0, [2.0, 2.0])


@pytest.mark.parametrize("form", [list, tuple, lambda variables: {f"my_{v.op.name}": v for v in variables}])
def test_a_var_list_covers_the_tables_it_names(tmp_path, form):
    model = Model()
    model.set(1.0)
    s = model.saver(form([model.dense, model.anchors["item"]]))
    path = s.save(model.session, str(tmp_path / "model"))
    assert os.listdir(tmp_path / "sparse-model") != [] and not (tmp_path / "sparse-model/user").exists()
    model.set(2.0)
    s.restore(model.session, path)
    assert model.get() == (1.0, [2.0, 1.0])


def test_a_saver_of_tables_only_is_a_full_saver(tmp_path):
    model = Model(tables=("user",))
    model.set(1.0)
    s = model.saver([model.anchors["user"]], max_to_keep=1)
    s.save(model.session, str(tmp_path / "model"), global_step=1)
    path = s.save(model.session, str(tmp_path / "model"), global_step=2)
    assert v1.train.latest_checkpoint(str(tmp_path)) == path
    assert sparse_names(tmp_path) == ["sparse-model-2"]
    model.set(2.0)
    s.restore(model.session, path)
    assert model.get() == (2.0, [1.0])
    # It reads the tables of any checkpoint, whatever dense variables that has.
    model.set(3.0)
    full = model.saver().save(model.session, str(tmp_path / "full"))
    model.set(4.0)
    s.restore(model.session, full)
    assert model.get() == (4.0, [3.0])
    with pytest.raises(ValueError, match="save_path when it is None"):
        s.restore(model.session, None)


def test_a_graph_of_tables_only_can_be_saved(tmp_path):
    model = Model(tables=("user",), dense=False)
    fill(model.anchors["user"], [1], 1.0)
    for allow_empty in (True, False):
        s = model.saver(allow_empty=allow_empty)
        path = s.save(model.session, str(tmp_path / "model"))
        native(model.anchors["user"]).clear()
        s.restore(model.session, path)
        assert list(content(model.anchors["user"])) == [1]


def test_tables_that_are_not_to_be_saved_are_not(tmp_path):
    model = Model(tables=("user",), is_save=False)
    model.set(1.0)
    s = model.saver()
    path = s.save(model.session, str(tmp_path / "model"))
    assert sparse_names(tmp_path) == []
    assert [name for name, _ in tf.train.list_variables(path)] == ["dense"]
    with v1.Session(graph=model.graph) as session:
        s.restore(session, path)
        session.run(model.anchors["user"].read_value())  # initialised, though in no file


def test_a_deferred_saver_covers_the_tables_of_the_time_it_is_built(tmp_path):
    with tf.Graph().as_default() as graph:
        s = v1.train.Saver(defer_build=True, sharded=True)
        v1.get_variable("dense", [2], use_resource=True)
        add_table("user")
        s.build()
        s.build()
        with v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            path = s.save(session, str(tmp_path / "model"), global_step=3)
            s.restore(session, path)
    assert (tmp_path / "sparse-model-3/user").is_dir()


def test_a_saver_from_a_description_covers_all_tables_of_the_graph(tmp_path):
    model = Model()
    model.set(1.0)
    definition = model.saver().as_saver_def()
    with model.graph.as_default():
        s = v1.train.Saver.from_proto(definition)
    path = s.save(model.session, str(tmp_path / "model"))
    assert sorted(os.listdir(tmp_path / "sparse-model")) == ["item", "manifest.json", "user"]
    model.set(2.0)
    s.restore(model.session, path)
    assert model.get() == (1.0, [1.0, 1.0])


def test_an_imported_meta_graph_restores_its_dense_part(tmp_path):
    model = Model()
    model.set(1.0)
    path = model.saver().save(model.session, str(tmp_path / "model"))
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        v1.train.import_meta_graph(path + ".meta").restore(session, path)
        (dense,) = v1.trainable_variables()
        assert session.run(dense).tolist() == [1.0, 1.0]


def test_a_monitored_session_saves_and_resumes(tmp_path):
    def run(steps):
        with tf.Graph().as_default():
            step = v1.train.get_or_create_global_step()
            anchor = add_table("user")
            increment = step.assign_add(1)
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path),
                save_checkpoint_steps=2,
                save_summaries_steps=None,
                log_step_count_steps=None,
            ) as session:
                first = session.run(step)
                for i in range(steps):
                    fill(anchor, [first + i], 1.0)
                    session.run(increment)  # and a save by its hook
            return first, sorted(content(anchor))

    assert run(4) == (0, [0, 1, 2, 3])
    assert (tmp_path / "sparse-model.ckpt-4").is_dir()
    native_table.clear_all()
    assert run(1) == (4, [0, 1, 2, 3, 4])


# ---- Names, folders, rotation.


def test_the_prefix_follows_tensorflow(tmp_path):
    model = Model()
    with model.graph.as_default():
        step = tf.constant(12, name="the_step", dtype=tf.int64)
    s = model.saver(pad_step_number=True)
    assert s.save(model.session, str(tmp_path / "padded"), global_step=3).endswith("padded-00000003")
    s = model.saver()
    assert s.save(model.session, str(tmp_path / "number"), global_step=np.int64(4)).endswith("number-4")
    assert s.save(model.session, str(tmp_path / "tensor"), global_step=step).endswith("tensor-12")
    assert s.save(model.session, str(tmp_path / "name"), global_step="the_step:0").endswith("name-12")
    assert sparse_names(tmp_path) == [
        "sparse-name-12",
        "sparse-number-4",
        "sparse-padded-00000003",
        "sparse-tensor-12",
    ]


def test_relative_paths_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = Model()
    s = model.saver()
    for prefix in ("here", "./saved-model/model-0"):  # the second folder does not exist
        s.restore(model.session, s.save(model.session, prefix, global_step=0))
    assert sparse_names(".") == ["sparse-here-0"]
    assert sparse_names("saved-model") == ["sparse-model-0-0"]


def test_a_folder_that_cannot_be_made_is_tensorflows_error(tmp_path):
    model = Model()
    with pytest.raises(ValueError, match="Parent directory of .* doesn't exist, can't save"):
        model.saver().save(model.session, str(tmp_path / "a/b/model"))


def test_only_local_directories_are_accepted():
    model = Model()
    with pytest.raises(ValueError, match="local directories only, got 'hdfs://host/model'"):
        model.saver().save(model.session, "hdfs://host/model")


def test_tables_leave_with_their_checkpoint(tmp_path):
    model = Model()
    s = model.saver(max_to_keep=2)
    for step in range(5):
        s.save(model.session, str(tmp_path / "model"), global_step=step)
    assert sparse_names(tmp_path) == ["sparse-model-3", "sparse-model-4"]
    assert [os.path.basename(path) for path in s.last_checkpoints] == ["model-3", "model-4"]


def test_tables_stay_with_a_checkpoint_that_is_kept_for_good(tmp_path):
    model = Model()
    s = model.saver(max_to_keep=1, keep_checkpoint_every_n_hours=1e-9)
    for step in range(3):
        s.save(model.session, str(tmp_path / "model"), global_step=step)
    assert sparse_names(tmp_path) == ["sparse-model-0", "sparse-model-1", "sparse-model-2"]


def test_without_state_nothing_is_recorded_or_removed(tmp_path):
    model = Model()
    s = model.saver(max_to_keep=1)
    for step in range(2):
        s.save(model.session, str(tmp_path / "model"), global_step=step, write_state=False)
    assert sparse_names(tmp_path) == ["sparse-model-0", "sparse-model-1"]
    assert not (tmp_path / "checkpoint").exists() and s.last_checkpoints == []


def test_a_checkpoint_of_the_same_name_is_replaced(tmp_path, log):
    model = Model()
    s = model.saver()
    for value in (1.0, 2.0):
        model.set(value)
        path = s.save(model.session, str(tmp_path / "model"), global_step=1)
    model.set(3.0)
    s.restore(model.session, path)
    assert model.get() == (2.0, [2.0, 2.0])
    assert sparse_names(tmp_path) == ["sparse-model-1"] and not warnings(log)


@pytest.mark.parametrize("name", ["..", "manifest.json"])
def test_a_table_name_that_is_no_directory_name_is_refused(tmp_path, name):
    model = Model(tables=("user",))
    anchors.table_of(model.anchors["user"]).table_name = name
    with pytest.raises(ValueError, match="must serve as a directory"):
        model.saver().save(model.session, str(tmp_path / "model"))
    assert sparse_names(tmp_path) == []


# ---- Damage.


@pytest.fixture
def saved(tmp_path):
    """(model, saver, path, sparse directory) after a save of value 1, with value 2 in memory."""
    model = Model()
    model.set(1.0)
    s = model.saver()
    path = s.save(model.session, str(tmp_path / "model"), global_step=1)
    model.set(2.0)
    return model, s, path, tmp_path / "sparse-model-1"


def assert_refused(saved, error, match):
    model, s, path, _ = saved
    with pytest.raises(error, match=match):
        s.restore(model.session, path)
    assert model.get() == (2.0, [2.0, 2.0])  # neither half was touched


def test_missing_tables_are_told(saved):
    shutil.rmtree(saved[3])
    for error in (FileNotFoundError, FileExistsError, _restoring.SparseDirectoryNotFoundError):
        assert_refused(saved, error, r"directory '.*/sparse-model-1' does not exist; copy it")


def test_a_wrong_prefix_is_tensorflows_error(saved):
    model, s, path, _ = saved
    for wrong in (path + "0", None):
        with pytest.raises(ValueError, match="not a valid checkpoint|when it is None"):
            s.restore(model.session, wrong)
    assert model.get() == (2.0, [2.0, 2.0])


@pytest.mark.parametrize("file", ["key/slice.data", "embedding/slice.attribute", "LazyAdam_velocity/slice.data"])
@pytest.mark.parametrize("with_manifest", [True, False])
def test_a_cut_file_is_named_with_its_end(saved, file, with_manifest):
    if not with_manifest:
        os.remove(saved[3] / "manifest.json")
    path = saved[3] / "item" / file
    os.truncate(path, 7)
    assert_refused(saved, ValueError, rf"'{re.escape(str(path))}' is cut off: it ends at offset 7, expected \d+ bytes")


def test_a_changed_file_is_named(saved):
    path = saved[3] / "user/embedding/slice.data"
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    assert_refused(saved, ValueError, rf"'{re.escape(str(path))}' is damaged: the CRC32C .* is 0x\w+, expected 0x\w+")


def test_a_missing_file_is_named(saved):
    path = saved[3] / "user/LazyAdam_momentum/slice.data"
    os.remove(path)
    assert_refused(saved, ValueError, rf"'{re.escape(str(path))}' is missing")
    shutil.rmtree(path.parent)
    assert_refused(saved, ValueError, rf"'{re.escape(str(path))}' is missing")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "step": 1, "tables": {"user": {}}}'])
def test_a_damaged_manifest_is_named(saved, text):
    (saved[3] / "manifest.json").write_text(text)
    assert_refused(saved, ValueError, r"manifest.json' is damaged")


def test_a_newer_format_is_refused(saved):
    (saved[3] / "manifest.json").write_text('{"format": 3, "mx_rec": "9.9"}')
    assert_refused(saved, ValueError, r"format 3, this version of mx_rec reads up to 2; .* \(9\.9\)")


def test_a_table_that_the_checkpoint_lacks_is_named(saved):
    model, _, path, _ = saved
    with model.graph.as_default():
        add_table("query")
    with pytest.raises(ValueError, match=r"table 'query' is not in it, only \['item', 'user'\]"):
        model.saver().restore(model.session, path)
    assert model.get() == (2.0, [2.0, 2.0])
    with lenient(missing_tables=True):
        model.saver().restore(model.session, path)
    assert model.get() == (1.0, [1.0, 1.0])


def test_leniency_is_a_name_of_the_package():
    from mx_rec import saver as package

    assert package.lenient is lenient


def test_leniency_ends_with_its_block_and_takes_flags_only():
    with pytest.raises(ValueError, match="missing_tables"):
        with lenient(missing_tables=1):
            pass
    with lenient(other_dense_part=True):
        with lenient(unused_tables=True):
            assert allowed().unused_tables and not allowed().other_dense_part
        assert allowed().other_dense_part
    assert allowed() == Allowed()


@pytest.mark.parametrize("with_manifest", [True, False])
def test_another_dim_is_told_with_both_values(saved, with_manifest):
    if not with_manifest:
        os.remove(saved[3] / "manifest.json")
    native_table.clear_all()
    model = Model(dim=6)
    with pytest.raises(ValueError, match="table 'user' has dim 4 .*, 6 in the model"):
        model.saver().restore(model.session, saved[2])


def test_more_rows_than_a_table_may_hold_are_refused(saved):
    native_table.clear_all()
    model = Model(max_rows=2)
    model.set(2.0, keys=[1])
    with pytest.raises(MemoryError, match="table 'user' may hold 2 rows .* has 3"):
        model.saver().restore(model.session, saved[2])
    assert model.get() == (2.0, [2.0, 2.0])


def test_tables_that_are_not_covered_are_listed(saved, log):
    model, _, path, _ = saved
    model.saver([model.dense, model.anchors["user"]]).restore(model.session, path)
    assert model.get() == (1.0, [1.0, 2.0])
    (warning,) = warnings(log)
    assert "tables ['item'] are not restored" in warning


def test_tables_that_the_model_lacks_are_an_error_unless_allowed(saved, log):
    native_table.clear_all()
    model = Model(tables=("user",))
    model.set(2.0)
    with pytest.raises(ValueError, match=r"tables \['item'\] are not restored.*lenient\(unused_tables=True\)"):
        model.saver().restore(model.session, saved[2])
    assert model.get() == (2.0, [2.0])
    with lenient(unused_tables=True):
        model.saver().restore(model.session, saved[2])
    assert model.get() == (1.0, [1.0])
    assert "tables ['item'] are not restored" in warnings(log)[0]


def test_slots_of_another_optimizer_are_an_error_unless_allowed(saved, log):
    native_table.clear_all()
    model = Model(slots=(("Adagrad_accumulator", 0.5),), optimizer="Adagrad")
    model.set(2.0)
    with pytest.raises(ValueError, match=r"saved by optimizer LazyAdam.*lenient\(other_optimizer=True\)"):
        model.saver().restore(model.session, saved[2])
    assert model.get() == (2.0, [2.0, 2.0])
    with lenient(other_optimizer=True):
        model.saver().restore(model.session, saved[2])
    values = native(model.anchors["user"]).read([1])[0]
    assert values[0, 0, 0] == 1.0 and (values[0, 1] == 0.5).all()
    assert len(warnings(log)) == 2
    assert "['Adagrad_accumulator'] of the model would start fresh" in warnings(log)[0]


def test_a_model_without_an_optimizer_takes_the_embeddings(saved, log):
    native_table.clear_all()
    model = Model(slots=(), optimizer=None)
    model.saver().restore(model.session, saved[2])
    assert model.get() == (1.0, [1.0, 1.0]) and not warnings(log)


def test_a_checkpoint_of_the_original_loads_with_a_warning(saved, log):
    model, s, path, directory = saved
    os.remove(directory / "manifest.json")
    os.makedirs(directory / "user/table_2_threshold")  # one of the original's own
    s.restore(model.session, path)
    assert model.get() == (1.0, [1.0, 1.0])
    (warning,) = warnings(log)
    assert "has no manifest.json" in warning


@pytest.mark.parametrize("name", ["user", "item"])
@pytest.mark.parametrize("numbers", [[-7, -1, 1], [3, 60], []])
def test_bad_thresholds_of_the_original_are_told_before_a_table_is_touched(saved, name, numbers):
    directory = saved[3]
    os.remove(directory / "manifest.json")
    os.makedirs(directory / name / "table_2_threshold")
    np.array(numbers, np.int32).tofile(directory / name / "table_2_threshold/slice.data")
    assert_refused(saved, ValueError, f"{name}/table_2_threshold/slice.data' is damaged: expected 3 int32")


def test_files_are_loaded_through_the_handles_that_were_verified(saved, monkeypatch):
    """Both halves are replaced by other ones, under the same names, between verification and loading."""
    model, s, path, directory = saved
    load = _loading.TableLoad.load

    def replaced_first(*arguments):
        if directory.exists():
            for half in tmp_files(directory.parent):
                half.rename(half.parent / f"before-{half.name}")
        return load(*arguments)

    monkeypatch.setattr(_loading.TableLoad, "load", replaced_first)
    s.restore(model.session, path)
    assert model.get() == (1.0, [1.0, 1.0])
    native_table.clear_all()  # and so does a restore into empty tables
    for half in directory.parent.glob("before-*"):
        half.rename(half.parent / half.name.removeprefix("before-"))
    fresh = Model()
    fresh.saver().restore(fresh.session, path)
    assert fresh.get() == (1.0, [1.0, 1.0])
    assert not directory.exists()


def tmp_files(parent):
    """What belongs to checkpoint model-1 in there."""
    return [one for one in parent.iterdir() if "model-1" in one.name and not one.name.startswith("before-")]


def test_errors_and_the_log_name_the_checkpoint_and_not_the_links_to_its_files(saved, caplog):
    model, _, path, _ = saved
    with model.graph.as_default():
        other = v1.get_variable("other", [2], use_resource=True)
    s = model.saver([other, *model.anchors.values()])
    with caplog.at_level("INFO", logger="tensorflow"), pytest.raises(tf.errors.NotFoundError) as failure:
        s.restore(model.session, path)
    assert "other not found in checkpoint" in failure.value.message
    assert "mx_rec-restore" not in failure.value.message + caplog.text
    assert f"Restoring parameters from {path}" in caplog.text


def test_tables_beside_a_foreign_dense_part_are_an_error_unless_allowed(saved, log):
    model, s, path, _ = saved
    model.saver([model.dense]).save(model.session, path)
    model.set(3.0)
    with pytest.raises(ValueError, match=r"written by another save.*lenient\(other_dense_part=True\)"):
        s.restore(model.session, path)
    assert model.get() == (3.0, [3.0, 3.0])
    with lenient(other_dense_part=True):
        s.restore(model.session, path)
    assert model.get() == (2.0, [1.0, 1.0])
    assert "written by another save" in warnings(log)[0]


# ---- Coming and going.


def test_uninstall_puts_tensorflows_methods_back():
    ours = [getattr(v1.train.Saver, name) for name in ("_build", "save", "restore")]
    patches.install()  # again: changes nothing
    assert [getattr(v1.train.Saver, name) for name in ("_build", "save", "restore")] == ours
    for _ in range(2):
        patches.uninstall()
    for name in ("_build", "save", "restore"):
        method = getattr(v1.train.Saver, name)
        assert method not in ours and method.__module__ == v1.train.Saver.__module__
    patches.install()
    assert [getattr(v1.train.Saver, name) for name in ("_build", "save", "restore")] == ours


def test_without_tables_everything_is_stock(tmp_path):
    def run(directory):
        with tf.Graph().as_default():
            with pytest.raises(ValueError, match="No variables to save"):
                v1.train.Saver()
            dense = v1.get_variable("dense", [2], use_resource=True, initializer=v1.ones_initializer())
            s = v1.train.Saver(max_to_keep=2)
            assert s._var_list == [dense]
            with v1.Session() as session:
                session.run(dense.initializer)
                for step in range(3):
                    path = s.save(session, os.path.join(directory, "model"), global_step=step)
                session.run(dense.assign([0.0, 0.0]))
                s.restore(session, path)
                assert session.run(dense).tolist() == [1.0, 1.0]
                with pytest.raises(TypeError, match="must be a Session"):
                    s.save(None, path)
        return tree(directory)

    (tmp_path / "ours").mkdir()
    (tmp_path / "stock").mkdir()
    ours = run(str(tmp_path / "ours"))
    process.end()
    assert run(str(tmp_path / "stock")) == ours


def test_eager_savers_are_stock(tmp_path):
    with eager_mode():
        variable = tf.Variable([1.0], name="v")
        s = v1.train.Saver([variable])
        path = s.save(None, str(tmp_path / "model"))
        variable.assign([0.0])
        s.restore(None, path)
        assert variable.numpy().tolist() == [1.0]
