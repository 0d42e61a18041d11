"""Whatever form a Saver gives the dense part: with tables its files are those that TensorFlow writes without them."""

import os
import re

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saver_pb2

from mx_rec.transaction import _lock
from tests.shared.saver_model import Model

v1 = tf.compat.v1
pytestmark = [pytest.mark.border, pytest.mark.usefixtures("installed")]
FORMS = {
    "usual": ({}, {}),
    "sharded": ({"sharded": True}, {}),
    "old format": ({"write_version": saver_pb2.SaverDef.V1}, {}),
    "old format, sharded": ({"write_version": saver_pb2.SaverDef.V1, "sharded": True}, {}),
    "padded": ({"pad_step_number": True}, {}),
    "relative paths": ({"save_relative_paths": True}, {}),
    "other suffix": ({}, {"meta_graph_suffix": "graph"}),
    "no graph": ({}, {"write_meta_graph": False}),
    "debug info": ({}, {"save_debug_info": True}),
    "stripped": ({}, {"strip_default_attrs": True}),
    "other list": ({}, {"latest_filename": "my_list"}),
    "no list": ({}, {"write_state": False}),
}


def dense_names(directory):
    return sorted(name for name in os.listdir(directory) if "sparse-" not in name and name != _lock.NAME)


@pytest.mark.parametrize("form", FORMS)
def test_the_files_are_tensorflows_own(form, tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "stock").mkdir()
    options, save_options = FORMS[form]
    model = Model()
    ours = model.saver(max_to_keep=2, **options)
    stock = model.saver([model.dense], max_to_keep=2, **options)
    returned = {}
    for s, directory in ((ours, tmp_path / "ours"), (stock, tmp_path / "stock")):
        for step, value in ((1, 1.0), (2, 2.0), (3, 3.0), (3, 4.0)):  # the last one over an earlier one
            model.set(value)
            path = s.save(model.session, str(directory / "model"), global_step=step, **save_options)
        returned[s] = os.path.relpath(path, directory)
        latest = tf.train.latest_checkpoint(str(directory), save_options.get("latest_filename"))
        assert latest == (path if save_options.get("write_state", True) else None)
    assert returned[ours] == returned[stock]
    assert dense_names(tmp_path / "ours") == dense_names(tmp_path / "stock")
    for name in dense_names(tmp_path / "ours"):
        if re.fullmatch("checkpoint|my_list", name):  # but for the paths, the same text
            texts = [(tmp_path / kind / name).read_text().replace(f"/{kind}/", "//") for kind in ("ours", "stock")]
            assert re.sub(r"timestamps?: .*", "", texts[0]) == re.sub(r"timestamps?: .*", "", texts[1])
    path = str(tmp_path / "ours" / returned[ours])
    model.set(9.0)
    ours.restore(model.session, path)
    assert model.get() == (4.0, [4.0, 4.0])
    tables = sorted(name for name in os.listdir(tmp_path / "ours") if "sparse-" in name)
    steps = (1, 2, 3) if form == "no list" else (2, 3)
    assert tables == [f"sparse-model-{step:08d}" if form == "padded" else f"sparse-model-{step}" for step in steps]


def test_a_new_saver_goes_on_with_the_list_of_an_earlier_one(tmp_path):
    model = Model()
    first = model.saver(max_to_keep=3)
    for step in (1, 2, 3):
        first.save(model.session, str(tmp_path / "model"), global_step=step)
    second = model.saver(max_to_keep=3)
    second.recover_last_checkpoints(tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths)
    for step in (4, 5):
        second.save(model.session, str(tmp_path / "model"), global_step=step)
    assert {name for name in os.listdir(tmp_path) if name.endswith(".index")} == {f"model-{i}.index" for i in (3, 4, 5)}
    assert {name for name in os.listdir(tmp_path) if "sparse-" in name} == {f"sparse-model-{i}" for i in (3, 4, 5)}


def test_an_exported_graph_restores_what_was_saved_over_its_checkpoint(tmp_path):
    model = Model()
    s = model.saver()
    graph = str(tmp_path / "exported.meta")
    with model.graph.as_default():
        s.export_meta_graph(graph)
    for value in (1.0, 2.0):
        model.set(value)
        path = s.save(model.session, str(tmp_path / "model"), global_step=1)
    for description in (graph, path + ".meta"):
        with tf.Graph().as_default() as imported, v1.Session(graph=imported) as session:
            v1.train.import_meta_graph(description).restore(session, path)
            (dense,) = v1.trainable_variables()
            assert session.run(dense).tolist() == [2.0, 2.0]
