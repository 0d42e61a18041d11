"""Exported models: they answer as the trainer did, in a process that knows nothing of it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from mx_rec import serving
from mx_rec.__main__ import main
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.saver import export, warm_start
from tests.shared import estimators, model
from tests.shared.estimators import Job, data_of, evaluation_data

v1 = tf.compat.v1
pytestmark = pytest.mark.border
DEFAULT = np.linspace(-2.0, 2.0, model.DIM, dtype=np.float32)

LOADERS = {
    "v2": """
function = tf.saved_model.load(directory).signatures["serving_default"]
out = function(**{name: tf.constant(values) for name, values in ids.items()})["e"].numpy()
""",
    "v1": """
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    loaded = tf.compat.v1.saved_model.load(session, ["serve"], directory)
    signature = loaded.signature_def["serving_default"]
    feed = {signature.inputs[name].name: values for name, values in ids.items()}
    out = session.run(signature.outputs["e"].name, feed)
""",
}


@pytest.fixture(autouse=True)
def running():
    with model.process():
        yield


def ids():
    return {name: evaluation_data()[name] for name in model.TABLE_OF}


def answer(directory, loader, tmp_path, preamble="import mx_rec.serving"):
    """What the model in `directory` says to `ids()` in a process of its own."""
    np.savez(tmp_path / "ids.npz", **ids())
    script = f"""
{preamble}
import numpy as np
import tensorflow as tf
directory, ids = {str(directory)!r}, dict(np.load({str(tmp_path / "ids.npz")!r}))
{LOADERS[loader]}
np.save({str(tmp_path / "out.npy")!r}, out)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)
    if done.returncode:
        return done.stderr
    return np.load(tmp_path / "out.npy")


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("mode", ["bare", "modified"])
@pytest.mark.parametrize("default", [None, DEFAULT], ids=["zeros", "default"])
def test_a_new_process_gives_the_trainer_s_answers(loader, mode, default, tmp_path):
    job = Job(tmp_path / "model", mode, default=default)
    job.train(data_of(), 7)
    expected = job.predict(evaluation_data())
    assert not np.isin(ids()["single"], job.rows()["shared"][0]).all(), "some ids are unknown"
    directory = job.export(tmp_path / "exported")
    moved = tmp_path / "moved"
    os.rename(directory, moved)  # it finds its tables wherever it is
    np.testing.assert_array_equal(answer(moved, loader, tmp_path), expected)
    np.testing.assert_allclose(expected, job.reference(evaluation_data()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("default", [None, DEFAULT], ids=["zeros", "default"])
def test_feature_specs_are_served_from_plain_tensors_under_their_keys(default, tmp_path):
    job = Job(tmp_path / "model", "spec", default=default)
    job.train(data_of(), 7)
    expected = job.predict(evaluation_data())
    np.testing.assert_array_equal(serve(job.export(tmp_path / "exported", is_plain=True))(), expected)


def test_an_exported_model_holds_keys_and_embeddings_alone(tmp_path):
    job = Job(tmp_path / "model", admission=estimators.ADMISSION)
    job.train(data_of(), 7)
    directory = pathlib.Path(job.export(tmp_path / "exported"))
    sparse = directory / "variables" / "sparse-variables"
    for name, (keys, values) in job.rows().items():
        assert sorted(os.listdir(sparse / name)) == ["embedding", "key"]
        found = np.fromfile(sparse / name / "key" / "slice.data", np.int64)
        order = np.argsort(found)
        np.testing.assert_array_equal(found[order], keys)
        floats = np.fromfile(sparse / name / "embedding" / "slice.data", np.float32).reshape(-1, model.DIM)
        np.testing.assert_array_equal(floats[order], values[:, 0])
    manifest = json.loads((sparse / "manifest.json").read_text())
    assert all(entry["slots"] == [] and entry["tracking"] is None for entry in manifest["tables"].values())


def test_the_trainer_may_load_its_models_and_train_on(tmp_path):
    expected = Job(tmp_path / "expected")
    expected.train(data_of(), 5)
    expected.train(data_of(1), 5)
    rows = expected.rows()

    job = Job(tmp_path / "model")
    job.train(data_of(), 5)
    first = job.predict(evaluation_data())
    one = job.export(tmp_path / "exported")
    serve_one = serve(one)
    np.testing.assert_array_equal(serve_one(), first)
    job.train(data_of(1), 5)
    np.testing.assert_array_equal(serve_one(), first, err_msg="an exported model does not change")
    serve_two = serve(job.export(tmp_path / "exported_later"))
    np.testing.assert_array_equal(serve_two(), job.predict(evaluation_data()))
    np.testing.assert_array_equal(serve_one(), first)
    np.testing.assert_array_equal(serve(one)(), first, err_msg="loaded again")
    model.assert_same_rows(job.rows(), rows)


def serve(directory):
    """A function that gives the answers of an exported model."""

    def function():
        with graph.as_default():
            return session.run(output, feed)

    graph = tf.Graph()
    with graph.as_default():
        session = v1.Session()
        signature = v1.saved_model.load(session, ["serve"], directory).signature_def["serving_default"]
        feed = {signature.inputs[name].name: values for name, values in ids().items()}
        output = signature.outputs["e"].name
    return function


def test_a_model_can_warm_start_from_an_exported_one(tmp_path):
    job = Job(tmp_path / "model")
    job.train(data_of(), 5)
    rows, weight = job.rows(), job.weight()
    directory = job.export(tmp_path / "exported")
    other = Job(tmp_path / "other", warm_start_from=directory)
    predicted = other.predict(evaluation_data())
    np.testing.assert_allclose(predicted, estimators.predict(rows, weight, evaluation_data()), rtol=1e-5, atol=1e-6)


def test_export_takes_the_rows_of_the_checkpoint_that_is_asked_for(tmp_path):
    job = Job(tmp_path / "model")
    job.train(data_of(), 5)
    older = job.predict(evaluation_data())
    job.train(data_of(), 5)
    exported = job.export(tmp_path / "exported", checkpoint_path=str(tmp_path / "model" / "model.ckpt-5"))
    np.testing.assert_array_equal(serve(exported)(), older)


@pytest.mark.parametrize("mode", ["bare", "modified"])
def test_exporters_of_train_and_evaluate_disturb_no_training(mode, tmp_path):
    expected = Job(tmp_path / "expected", mode)
    expected.train(data_of(), max_steps=12)
    rows = expected.rows()
    job = Job(tmp_path / "model", mode)
    exporter = tf.estimator.LatestExporter("latest", job.receiver_fn, exports_to_keep=None)
    job.train_and_evaluate(data_of(), 12, evaluation_data(), exporters=[exporter])
    model.assert_same_rows(job.rows(), rows)
    (*_, last) = sorted(path for path in (tmp_path / "model" / "export" / "latest").iterdir())
    np.testing.assert_array_equal(serve(str(last))(), job.predict(evaluation_data()))


def test_session_scripts_export_by_tensorflow_s_own_functions(tmp_path):
    with tf.Graph().as_default():
        table = model.table("t", v1.constant_initializer(0.0))
        table.native.write([3, 4], np.stack([np.full((1, model.DIM), 3.0), np.full((1, model.DIM), 4.0)]))
        keys = v1.placeholder(tf.int64, [None], name="keys")
        out = tf.identity(sparse_lookup(table, keys, is_train=False))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(tmp_path / "exported"), {"keys": keys}, {"out": out})
            v1.train.Saver().save(session, str(tmp_path / "model"))
    script = f"""
import mx_rec.serving, tensorflow as tf
function = tf.saved_model.load({str(tmp_path / "exported")!r}).signatures["serving_default"]
assert function(keys=tf.constant([4, 5, 3], tf.int64))["out"].numpy()[:, 0].tolist() == [4.0, 0.0, 3.0]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert export() == 1, "an exported model is no checkpoint"


def test_a_graph_is_exported_again_and_again(tmp_path):
    """As a script does every epoch; also a process that has loaded an earlier one tells them apart."""
    first, second, mixed = (tmp_path / name for name in ("first", "second", "mixed"))
    with tf.Graph().as_default():
        table = model.table("t", v1.constant_initializer(0.0))
        keys = v1.placeholder(tf.int64, [None])
        twice = v1.get_variable("twice", initializer=2.0)
        signature = {"keys": keys}, {"out": sparse_lookup(table, keys, is_train=False) * twice}
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for value, directory in ((3.0, first), (4.0, second)):
                table.assign([3], np.full((1, model.DIM), value))
                v1.saved_model.simple_save(session, str(directory), *signature)
    (serve,) = [node for node in nodes(second) if node.op == "MxrecServe"]
    assert len(serve.attr["files"].list.s) == 4, "without what the first export has added"

    def load(directory):
        with tf.Graph().as_default(), v1.Session() as session:
            loaded = v1.saved_model.load(session, ["serve"], str(directory)).signature_def["serving_default"]
            return session.run(loaded.outputs["out"].name, {loaded.inputs["keys"].name: [3]})[0, 0]

    assert (load(first), load(second)) == (6.0, 8.0)
    # What a loader may read while one model takes the place of another.
    shutil.copytree(second, mixed)
    shutil.copy(first / "saved_model.pb", mixed)
    with pytest.raises(tf.errors.InvalidArgumentError, match="replaced by another export while it was loaded"):
        load(mixed)


def nodes(directory):
    saved = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())
    return saved.meta_graphs[0].graph_def.node


def exported(directory):
    """A model of a table with the rows 3 and 4 of threes and fours, times a variable that is 2."""
    with tf.Graph().as_default():
        table = model.table("t", v1.constant_initializer(0.0))
        table.assign([3, 4], np.stack([np.full(model.DIM, 3.0), np.full(model.DIM, 4.0)]))
        keys = v1.placeholder(tf.int64, [None], name="keys")
        twice = v1.get_variable("twice", initializer=2.0)
        out = tf.multiply(sparse_lookup(table, keys, is_train=False), twice, name="out")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(directory), {"keys": keys}, {"out": out})


_SAVE_AGAIN = """
import mx_rec.serving
import tensorflow as tf
loaded = tf.saved_model.load({old!r})
mx_rec.serving.save(loaded, {new!r}, {old!r})
class Wrapper(tf.Module):
    def __init__(self):
        self.inner = loaded
wrapper = Wrapper()
mx_rec.serving.save(wrapper, {outer!r}, {old!r}, signatures=dict(loaded.signatures))
for bad in ({old!r}, {elsewhere!r}):
    try:
        mx_rec.serving.save(loaded, {old!r}, bad)
    except ValueError as error:
        print(error)
"""


@pytest.mark.parametrize("default", [None, DEFAULT], ids=["zeros", "default"])
def test_a_loaded_model_is_saved_again_with_its_tables(default, tmp_path):
    job = Job(tmp_path / "model", "bare", default=default)
    job.train(data_of(), 7)
    expected = job.predict(evaluation_data())
    names = {name: str(tmp_path / name) for name in ("old", "new", "outer", "elsewhere")}
    os.rename(job.export(tmp_path / "exported"), names["old"])
    done = subprocess.run([sys.executable, "-c", _SAVE_AGAIN.format(**names)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "another directory than `loaded_from`" in done.stdout and "there is no '" in done.stdout
    shutil.rmtree(names["old"])
    for name in ("new", "outer"):
        np.testing.assert_array_equal(answer(names[name], "v2", tmp_path), expected)
        assert main(["verify", names[name]]) == 0


def test_a_frozen_graph_answers_in_another_process_once_its_tables_are_loaded(tmp_path):
    exported(tmp_path / "exported")
    with tf.Graph().as_default(), v1.Session() as session:
        v1.saved_model.load(session, ["serve"], str(tmp_path / "exported"))
        frozen = serving.freeze(session, ["out"])
    assert [node.op for node in frozen.node if node.op in ("ReadVariableOp", "AssignVariableOp")] == []
    (tmp_path / "frozen.pb").write_bytes(frozen.SerializeToString())
    script = f"""
import mx_rec.serving, tensorflow as tf
v1 = tf.compat.v1
graph_def = v1.GraphDef.FromString(open({str(tmp_path / "frozen.pb")!r}, "rb").read())
with tf.Graph().as_default(), v1.Session() as session:
    tf.import_graph_def(graph_def, name="inner")
    mx_rec.serving.load_tables(session, {str(tmp_path / "exported")!r})
    assert session.run("inner/out:0", {{"inner/keys:0": [4, 5, 3]}})[:, 0].tolist() == [8.0, 0.0, 6.0]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_only_graphs_of_exported_models_can_be_frozen(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        for call in (lambda: serving.freeze(session, []), lambda: serving.load_tables(session, str(tmp_path))):
            with pytest.raises(ValueError, match="that of one exported model with tables"):
                call()


def test_checkpoint_tools_take_the_directory_of_a_model(tmp_path, tool):
    exported(tmp_path / "exported")
    status, out, _ = tool("inspect", tmp_path / "exported", "--table", "t", "--key", "4", "--json")
    facts = json.loads(out)
    assert status == 0 and facts["tables"]["t"]["rows"] == 2 and facts["dense"] == "fits"
    assert facts["rows"][0]["embedding"] == [4.0] * model.DIM
    assert tool("verify", tmp_path / "exported")[0] == 0
    shutil.rmtree(tmp_path / "exported" / "variables" / "sparse-variables")
    status, _, message = tool("inspect", tmp_path / "exported")
    assert status == 2 and "has no tables" in message


def test_a_damaged_model_does_not_load(tmp_path):
    job = Job(tmp_path / "model")
    job.train(data_of(), 5)
    directory = job.export(tmp_path / "exported")
    file = os.path.join(directory, "variables", "sparse-variables", "own", "embedding", "slice.data")
    with open(file, "r+b") as data:
        data.seek(100)
        data.write(b"\x55\x55")
    message = answer(directory, "v2", tmp_path)
    assert "own/embedding/slice.data" in message
    shutil.rmtree(os.path.join(directory, "variables", "sparse-variables", "own"))
    assert "sparse-variables/own" in answer(directory, "v2", tmp_path)


def test_without_the_ops_tensorflow_says_so(tmp_path):
    job = Job(tmp_path / "model")
    job.train(data_of(), 2)
    assert "Mxrec" in answer(job.export(tmp_path / "exported"), "v2", tmp_path, preamble="import mx_rec")


def test_a_table_that_is_not_saved_cannot_be_exported(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        table = create_table(tf.int64, 4, "t", v1.constant_initializer(0.0), 10, is_save=False)
        keys = v1.placeholder(tf.int64, [None])
        out = sparse_lookup(table, keys, is_train=False)
        session.run(v1.global_variables_initializer())
        with pytest.raises(ValueError, match="table 't' cannot be exported.*is_save=True"):
            v1.saved_model.simple_save(session, str(tmp_path / "exported"), {"keys": keys}, {"out": out})


def test_warm_start_of_tables_alone_from_an_exported_model(tmp_path):
    job = Job(tmp_path / "model")
    job.train(data_of(), 5)
    rows = job.rows()
    directory = job.export(tmp_path / "exported")
    for table in job.tables.values():
        table.native.clear()
    with tf.Graph().as_default():
        model.table("own", v1.truncated_normal_initializer(stddev=0.3, seed=3))
        warm_start(directory, "own")
    np.testing.assert_array_equal(job.rows()["own"][1][:, 0], rows["own"][1][:, 0])
