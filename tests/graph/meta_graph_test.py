"""MetaGraphs with tables: a graph that another process imports, restores and trains on."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from mx_rec._tables import meta_graph
from mx_rec.core.embedding import sparse_lookup
from mx_rec.optimizers import adagrad, lazy_adam
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model

v1 = tf.compat.v1
pytestmark = pytest.mark.border

INITIALIZERS = {
    "native": lambda: v1.truncated_normal_initializer(stddev=0.3, seed=3),
    "pool": lambda: lambda shape, dtype: np.random.RandomState(5).normal(size=shape).astype(np.float32),
}


def build(initializer, **options):
    """A graph that trains table "t" on fed ids; its ops have names."""
    ids = v1.placeholder(tf.int64, [None], name="ids")
    table = model.table("t", initializer(), dim=4, **options)
    embeddings = sparse_lookup(table, ids)
    weight = v1.get_variable("weight", initializer=np.ones(4, np.float32))
    loss = tf.identity(tf.reduce_sum(tf.square(embeddings * weight)), name="loss")
    dense, sparse = get_dense_and_sparse_variable()
    gradients = tf.gradients(loss, dense + sparse)
    tf.group(
        v1.train.AdamOptimizer(0.01).apply_gradients(zip(gradients[:1], dense)),
        lazy_adam.create_hash_optimizer(0.1).apply_gradients(zip(gradients[1:], sparse)),
        name="train",
    )
    tf.identity(sparse_lookup(table, ids, is_train=False), name="read")
    return v1.train.Saver()


def train(session, batches):
    return [session.run(["loss:0", "train"], {"ids:0": batch})[0] for batch in batches]


FIRST = [[1, 2, 3], [3, 4, 5]]
LATER = [[5, 6, 7], [1, 8, -9]]

CONTINUE = """
import json, sys
import numpy as np
import tensorflow as tf
from mx_rec.util.initialize import init, terminate_config_initializer
init(**json.loads(sys.argv[2]))
v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    saver = v1.train.import_meta_graph(sys.argv[1] + ".meta")
    saver.restore(session, sys.argv[1])
    losses = [float(session.run(["loss:0", "train"], {"ids:0": ids})[0]) for ids in json.loads(sys.argv[3])]
    rows = session.run("read:0", {"ids:0": [1, 5, 8, -9, 77]})
    path = saver.save(session, sys.argv[1] + "-again")
terminate_config_initializer()
print(json.dumps({"losses": losses, "rows": rows.tolist(), "path": path}))
"""


def in_another_process(path, settings):
    command = [sys.executable, "-c", CONTINUE, path, json.dumps(settings), json.dumps(LATER)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


KINDS = {
    "plain": {},
    "padded": {"padding_keys": [1], "padding_keys_mask": True, "padding_keys_len": 1},
    "disk": {"rows": 1, "host_vocabulary_size": 9, "ssd_vocabulary_size": 90},
}


@pytest.mark.parametrize(
    "kind, initializer, expansion", [("plain", "native", True), ("padded", "pool", False), ("disk", "native", False)]
)
def test_another_process_goes_on_with_the_same_bits(tmp_path, kind, initializer, expansion):
    options = dict(KINDS[kind])
    if kind == "disk":
        options["ssd_data_path"] = [str(tmp_path)]
    settings = {"use_dynamic_expansion": expansion}
    with model.process(**settings), v1.Session() as session:
        saver = build(INITIALIZERS[initializer], **options)
        session.run(v1.global_variables_initializer())
        train(session, FIRST)
        path = saver.save(session, str(tmp_path / "model"))
        expected = train(session, LATER)
        rows = session.run("read:0", {"ids:0": [1, 5, 8, -9, 77]})
    found = in_another_process(path, settings)
    np.testing.assert_array_equal(np.float32(found["losses"]), expected)
    np.testing.assert_array_equal(np.float32(found["rows"]), rows)
    # What was imported is exported again, and the process that wrote it first can read it.
    with model.process(**settings), v1.Session() as session:
        v1.train.import_meta_graph(found["path"] + ".meta").restore(session, found["path"])
        np.testing.assert_array_equal(session.run("read:0", {"ids:0": [1, 5, 8, -9, 77]}), rows)


def test_prepared_batches_thresholds_and_the_started_pipeline_come_along(tmp_path):
    from mx_rec.core.asc.manager import start_asc_pipeline

    data = model.batches(4)
    path = str(tmp_path / "graph.meta")
    with model.process():
        built = model.build(data)
        tf.identity(built.loss, name="loss")
        sparse_lookup(built.tables["own"], [1], access_and_evict_config={"access_threshold": 2})
        lazy_adam.create_hash_optimizer(0.1).minimize(built.loss)
        start_asc_pipeline()
        initializer = built.iterator.initializer.name
        v1.train.export_meta_graph(path)
    with model.process() as graph, v1.Session() as session:
        v1.train.import_meta_graph(path)
        tables = meta_graph.graphs.state(graph).tables
        assert sorted(tables) == ["own", "shared"]
        assert tables["own"].native.tracking.access_threshold == 2 and tables["shared"].native.tracking is None
        assert tables["shared"].native.slots == ("LazyAdam_momentum", "LazyAdam_velocity")
        assert tables["shared"].is_trained_on and tables["shared"].lookup_count == 2
        start_asc_pipeline()
        session.run([v1.global_variables_initializer(), initializer])
        for _ in range(4):
            session.run("loss:0")
        assert tables["shared"].size() > 0


def test_an_imported_graph_can_be_trained_by_an_optimizer_that_is_added_to_it(tmp_path):
    path = str(tmp_path / "graph.meta")
    with model.process():
        table = model.table("t", dim=4)
        tf.identity(tf.reduce_sum(sparse_lookup(table, [1, 2])), name="loss")
        v1.train.export_meta_graph(path)
    with model.process() as graph:
        v1.train.import_meta_graph(path, import_scope="inner")
        table = meta_graph.graphs.state(graph).tables["t"]
        (anchor,) = get_dense_and_sparse_variable()[1]
        assert anchor is table.variable
        train_op = adagrad.create_hash_optimizer(0.1).minimize(graph.get_tensor_by_name("inner/loss:0"))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train_op)
        assert (table.read([1, 2])[0] < 0.25).all()


def test_a_table_of_the_process_is_joined_or_told_apart(tmp_path):
    path = str(tmp_path / "graph.meta")
    with model.process():
        model.table("t", dim=4).assign([1], np.ones([1, 4]))
        v1.train.export_meta_graph(path)
        with tf.Graph().as_default() as graph:
            v1.train.import_meta_graph(path)
            assert meta_graph.graphs.state(graph).tables["t"].size() == 1
    with model.process():
        model.table("t", dim=4, rows=7)
        with tf.Graph().as_default(), pytest.raises(ValueError, match="'t'"):
            v1.train.import_meta_graph(path)


def test_a_meta_graph_of_a_later_version_is_refused(tmp_path):
    with model.process():
        model.table("t")
        exported = v1.train.export_meta_graph()
    texts = exported.collection_def[meta_graph.COLLECTION].bytes_list.value
    texts[0] = texts[0].replace(b'"version": 1', b'"version": 2')
    with model.process(), pytest.raises(ValueError, match="describes its tables in version 2, this mx_rec knows 1"):
        v1.train.import_meta_graph(exported)


def test_graphs_without_tables_are_exported_and_imported_as_ever(started, tmp_path):
    tf.constant(1, name="one")
    exported = v1.train.export_meta_graph(str(tmp_path / "graph.meta"))
    assert meta_graph.COLLECTION not in exported.collection_def
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(str(tmp_path / "graph.meta"))
        assert graph.get_tensor_by_name("one:0").dtype == tf.int32
