"""Padding keys in pooled lookups count for nothing: not in sums, means or gradients, and they get no row."""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec import serving  # noqa: F401  registers the ops
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.graph import last_report
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.optimizers import gradient_descent
from mx_rec.util.initialize import get_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model

v1 = tf.compat.v1
DIM, RATE = model.DIM, 0.5
PADDING = [0, -7]
# A bag of padding alone, one without padding, and mixed ones.
IDS = np.array([[0, -7, 0, 0], [1, 2, 3, 4], [5, 0, 5, -7], [0, 0, 0, 6], [1, 0, 8, 9]], np.int64)
KEYS = np.setdiff1d(IDS, PADDING)
SIZES = (~np.isin(IDS, PADDING)).sum(axis=1)
DIVISORS = {"sum": np.ones(len(IDS)), "mean": np.maximum(SIZES, 1), "sqrtn": np.sqrt(np.maximum(SIZES, 1))}
MODES = ["spec", "tensor", "unknown_length", "modified"]


def padded(name="t", **options):
    return model.table(name, padding_keys=PADDING, padding_keys_mask=True, padding_keys_len=len(PADDING), **options)


def rows_of(table):
    return dict(zip(KEYS.tolist(), table.native.read(KEYS)[0][:, 0]))


def pooled(rows, combiner, default=None):
    """The reference: `rows` by key; what others give is `default`, or zeros."""
    missing = np.zeros(DIM) if default is None else default
    sums = [np.sum([rows.get(i, missing) for i in bag if i not in PADDING] or [np.zeros(DIM)], axis=0) for bag in IDS]
    return np.array(sums) / DIVISORS[combiner][:, None]


def trained(rows, combiner, weights):
    """The reference after a step on sum(weights * pooled)."""
    after = {key: row.astype(np.float64) for key, row in rows.items()}
    for bag, divisor, weight in zip(IDS, DIVISORS[combiner], weights):
        for key in bag:
            if key in after:
                after[key] = after[key] - RATE * weight / divisor
    return after


class Source:
    """The ids in the graph, as each mode has them, and a session for it."""

    def __init__(self, mode, is_training=True):
        self.mode, self.is_training = mode, is_training
        dataset = tf.data.Dataset.from_tensors({"ids": IDS}).repeat()
        self.spec = FeatureSpec("ids", table_name="t") if mode == "spec" else None
        if mode == "spec":
            dataset = dataset.map(get_asc_insert_func(tgt_key_specs=[self.spec], is_training=is_training))
        self.iterator = v1.data.make_initializable_iterator(dataset)
        self.batch = self.iterator.get_next()

    def lookup(self, table, **how):
        if self.mode == "spec":
            return sparse_lookup(table, self.spec, batch=self.batch, **how)
        ids = self.batch["ids"]
        if self.mode == "unknown_length":
            ids = v1.placeholder_with_default(ids, [None, None])
        return sparse_lookup(table, ids, modify_graph=self.mode == "modified", **how)

    def session(self):
        if self.mode == "modified":
            modify_graph_and_start_emb_cache()
        else:
            start_asc_pipeline()
        session = v1.Session()
        initializer = get_initializer(self.is_training) if self.mode == "modified" else self.iterator.initializer
        session.run([initializer, v1.global_variables_initializer()])
        return session


def step_on(loss):
    _, sparse = get_dense_and_sparse_variable()
    optimizer = gradient_descent.create_hash_optimizer(RATE)
    return optimizer.apply_gradients(zip(tf.gradients(loss, sparse), sparse))


def weights_like(count):
    return np.random.default_rng(3).normal(size=(count, DIM)).astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("combiner", DIVISORS)
@pytest.mark.parametrize("default", [None, 3.0], ids=["zeros", "default"])
def test_training(mode, combiner, default, started):
    table = padded(initializer=v1.truncated_normal_initializer())
    source = Source(mode)
    given = {} if default is None else {"serving_default_value": tf.fill([DIM], default)}
    embeddings = source.lookup(table, combiner=combiner, **given)
    weights = weights_like(len(IDS))
    train = step_on(tf.reduce_sum(weights * embeddings))
    with source.session() as session:
        first = session.run(embeddings)
        before = rows_of(table)
        np.testing.assert_allclose(first, pooled(before, combiner), rtol=1e-5, atol=1e-6)
        session.run(train)
        after = trained(before, combiner, weights)
        for key, row in rows_of(table).items():
            np.testing.assert_allclose(row, after[key], rtol=1e-5, atol=1e-6)
    assert table.size() == len(KEYS), "padding has no row"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("combiner", DIVISORS)
@pytest.mark.parametrize("default", [None, 3.0], ids=["zeros", "default"])
@pytest.mark.parametrize("has_rows", [True, False], ids=["padding with rows", "padding without"])
def test_evaluation(mode, combiner, default, has_rows, started):
    table = padded()
    known = KEYS[::2]
    keys = [*known, *PADDING] if has_rows else known
    table.native.write(np.array(keys), np.random.default_rng(1).normal(size=(len(keys), 1, DIM)).astype(np.float32))
    source = Source(mode, is_training=False)
    given = {} if default is None else {"serving_default_value": tf.fill([DIM], default)}
    embeddings = source.lookup(table, combiner=combiner, is_train=False, **given)
    with source.session() as session:
        rows = {key: row for key, row in rows_of(table).items() if key in known}
        expected = pooled(rows, combiner, None if default is None else np.full(DIM, default))
        np.testing.assert_allclose(session.run(embeddings), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_sum_that_the_script_makes_has_the_rows_of_padding(mode, started):
    table = padded(initializer=tf.ones_initializer())
    source = Source(mode)
    total = tf.reduce_sum(source.lookup(table), axis=-2)
    train = step_on(tf.reduce_sum(total))
    with source.session() as session:
        np.testing.assert_array_equal(session.run(total), np.full((len(IDS), DIM), IDS.shape[1]))
        session.run(train)
        assert (table.native.read(np.array(PADDING))[0] == 1.0).all(), "never updated"
    assert table.size() == len(KEYS) + len(PADDING)


@pytest.mark.parametrize("first", ["pooled", "each"])
@pytest.mark.parametrize("mode", MODES)
def test_both_views_of_one_table(mode, first, started):
    table = padded(initializer=tf.ones_initializer())
    source = Source(mode)
    views = {}
    for view in ["pooled", "each"] if first == "pooled" else ["each", "pooled"]:
        views[view] = source.lookup(table, **({"combiner": "sum"} if view == "pooled" else {}))
    train = step_on(tf.reduce_sum(views["pooled"]) + tf.reduce_sum(views["each"]))
    with source.session() as session:
        session.run(train)
        rows = rows_of(table)
        seen = session.run(views)
        np.testing.assert_allclose(seen["pooled"], pooled(rows, "sum"), rtol=1e-5)
        np.testing.assert_array_equal(seen["each"][np.isin(IDS, PADDING)], 1.0)


def test_concatenations_are_fused(started):
    tables = [padded(name, initializer=v1.truncated_normal_initializer()) for name in ("t", "u")]
    specs = [FeatureSpec("ids", table_name=table.table_name) for table in tables]
    dataset = tf.data.Dataset.from_tensors({"ids": IDS}).repeat().map(get_asc_insert_func(tgt_key_specs=specs))
    batch = v1.data.make_one_shot_iterator(dataset).get_next()
    both = tf.concat(
        [sparse_lookup(table, spec, batch=batch, combiner="sum") for table, spec in zip(tables, specs)], -1
    )
    weights = np.concatenate([weights_like(len(IDS))] * 2, axis=1)
    train = step_on(tf.reduce_sum(both * weights))
    start_asc_pipeline()
    assert [(fused.kind, fused.lookups) for fused in last_report().fused] == [("ConcatV2", 2)]
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        first = session.run(both)
        before = [rows_of(table) for table in tables]
        np.testing.assert_allclose(
            first, np.concatenate([pooled(rows, "sum") for rows in before], 1), rtol=1e-5, atol=1e-6
        )
        session.run(train)
        for table, rows in zip(tables, before):
            after = trained(rows, "sum", weights[:, :DIM])
            for key, row in rows_of(table).items():
                np.testing.assert_allclose(row, after[key], rtol=1e-5, atol=1e-6)


def test_padding_is_not_counted(started):
    table = padded(initializer=tf.ones_initializer())
    ids = v1.placeholder(tf.int64, [None, 4])
    train = step_on(
        tf.reduce_sum(sparse_lookup(table, ids, combiner="mean", access_and_evict_config={"access_threshold": 2}))
    )
    start_asc_pipeline()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train, {ids: IDS})
    assert table.size() == len(KEYS)
    stats = table.stats()
    assert stats["candidates"] == 0 and stats["seen"] == len(KEYS)


@pytest.mark.parametrize("combiner", DIVISORS)
def test_an_exported_model(combiner, started, tmp_path):
    table = padded()
    keys = np.array([*KEYS, *PADDING])
    table.native.write(keys, np.random.default_rng(1).normal(size=(len(keys), 1, DIM)).astype(np.float32))
    ids = v1.placeholder(tf.int64, [None, 4])
    embeddings = sparse_lookup(table, ids, combiner=combiner, is_train=False)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(tmp_path / "exported"), {"ids": ids}, {"e": embeddings})
    expected = pooled(rows_of(table), combiner)
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, ["serve"], str(tmp_path / "exported"))
        signature = loaded.signature_def["serving_default"]
        seen = session.run(signature.outputs["e"].name, {signature.inputs["ids"].name: IDS})
    np.testing.assert_allclose(seen, expected, rtol=1e-5, atol=1e-6)
