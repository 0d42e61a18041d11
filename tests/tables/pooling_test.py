"""Pooled lookups: the numbers of the unpooled lookup reduced by TensorFlow, forward and backward."""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import sparse_lookup
from mx_rec.optimizers import gradient_descent, lazy_adam
from tests.shared import model

v1 = tf.compat.v1

DIM = model.DIM
REDUCE = {
    "sum": lambda x: tf.reduce_sum(x, axis=-2),
    "mean": lambda x: tf.reduce_mean(x, axis=-2),
    "sqrtn": lambda x: tf.reduce_sum(x, axis=-2) / tf.sqrt(tf.cast(tf.shape(x)[-2], tf.float32)),
}


def filled(name, keys):
    table = model.table(name)
    keys = np.unique(keys)
    rows = np.random.default_rng(keys.size).normal(size=(keys.size, 1, DIM)).astype(np.float32)
    table.native.write(keys, rows)
    return table


def batch_of(ids, specs, is_training=True):
    dataset = tf.data.Dataset.from_tensors({spec.index_key: ids for spec in specs}).repeat()
    dataset = dataset.map(get_asc_insert_func(tgt_key_specs=specs, is_training=is_training))
    return v1.data.make_one_shot_iterator(dataset).get_next()


def lookups(ids, combiner, prepared, is_train=True):
    """(table, what the lookup pools, what TensorFlow pools) on tables with the same rows."""
    results = []
    for name in ("ours", "theirs"):
        table = filled(name, ids)
        how = {"combiner": combiner} if name == "ours" else {}
        if prepared:
            spec = FeatureSpec(name, table_name=name)
            found = sparse_lookup(table, spec, batch=batch_of(ids, [spec]), is_train=is_train, **how)
        else:
            found = sparse_lookup(table, tf.constant(ids), is_train=is_train, **how)
        results.append((table, found if how else REDUCE[combiner](found)))
    return results


def rows_of(table, keys):
    """Embeddings and slots, [n, 1 + slots, DIM]."""
    return table.native.read(np.asarray(keys))[0]


def same(combiner, ours, theirs):
    if combiner == "sum":
        np.testing.assert_array_equal(ours, theirs)
    else:  # TensorFlow turns a division by a constant into a multiplication where it sees one
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def run(*fetches):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(fetches)


IDS = {
    "one row": np.array([5, 6, 5, 7], np.int64),
    "two axes": np.random.default_rng(1).zipf(1.3, (40, 7)) % 50,
    "three axes": np.random.default_rng(2).integers(-9, 9, (3, 5, 4)),
    "bags of one": np.arange(6, dtype=np.int64)[:, None],
}


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("combiner", REDUCE)
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_pools_like_tensorflow(ids, combiner, prepared, started):
    (_, ours), (_, theirs) = lookups(ids, combiner, prepared)
    assert ours.shape == theirs.shape == ids.shape[:-1] + (DIM,)
    same(combiner, *run(ours, theirs))


@pytest.mark.parametrize("create", [gradient_descent.create_hash_optimizer, lazy_adam.create_hash_optimizer])
@pytest.mark.parametrize("combiner", REDUCE)
def test_trains_the_same_rows_as_unpooled_lookups(combiner, create, started):
    ids = IDS["two axes"]
    results = lookups(ids, combiner, prepared=True)
    target = np.random.default_rng(3).normal(size=(*ids.shape[:-1], DIM)).astype(np.float32)
    updates = []
    for table, pooled in results:
        gradient = tf.gradients(pooled, [table.variable], grad_ys=pooled - target)[0]
        updates.append(create(0.1).apply_gradients([(gradient, table.variable)]))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(updates)
    same(combiner, *(rows_of(table, np.unique(ids)) for table, _ in results))


def test_an_empty_bag_is_zeros(started):
    ids = np.zeros((3, 0), np.int64)
    table = model.table("user")
    np.testing.assert_array_equal(run(sparse_lookup(table, tf.constant(ids), combiner="sum"))[0], np.zeros((3, DIM)))


def test_ids_without_a_row_count_as_zeros_or_as_the_default(started):
    table = filled("user", [1, 2])
    ids = tf.constant([[1, 99], [99, 98]], tf.int64)
    row = rows_of(table, [1])[0, 0]
    plain = sparse_lookup(table, ids, is_train=False, combiner="sum")
    default = sparse_lookup(table, ids, is_train=False, combiner="mean", serving_default_value=tf.fill([DIM], 4.0))
    plain, default = run(plain, default)
    np.testing.assert_array_equal(plain, [row, np.zeros(DIM)])
    np.testing.assert_array_equal(default, [(row + 4) / 2, np.full(DIM, 4.0)])


@pytest.mark.parametrize("order", [("sum", None), (None, "sum")])
def test_a_feature_may_be_looked_up_both_ways(order, started):
    ids = IDS["two axes"]
    table = filled("user", ids)
    spec = FeatureSpec("user", table_name="user")
    batch = batch_of(ids, [spec])
    found = {how: sparse_lookup(table, spec, batch=batch, combiner=how) for how in order}
    loss = tf.reduce_sum(found["sum"]) + tf.reduce_sum(found[None])
    before = rows_of(table, np.unique(ids))
    gradient = tf.gradients(loss, [table.variable])[0]
    update = gradient_descent.create_hash_optimizer(1.0).apply_gradients([(gradient, table.variable)])
    each, pooled, _ = run(found[None], found["sum"], update)
    np.testing.assert_allclose(each.sum(axis=1), pooled, rtol=1e-5)
    keys, counts = np.unique(ids, return_counts=True)
    np.testing.assert_allclose(before - rows_of(table, keys), np.ones_like(before) * 2 * counts[:, None, None],
                               rtol=1e-5)  # fmt: skip


def test_pooled_and_unpooled_features_share_one_commit(started):
    ids = IDS["two axes"]
    tables = [filled(name, ids) for name in ("user", "item")]
    specs = [FeatureSpec(table.table_name, table_name=table.table_name) for table in tables]
    batch = batch_of(ids, specs)
    sparse_lookup(tables[0], specs[0], batch=batch, combiner="sum")
    sparse_lookup(tables[1], specs[1], batch=batch)
    assert [op.type for op in v1.get_default_graph().get_operations()].count("MxrecLookup") == 1


def test_bags_of_unknown_size_pool_too(started):
    ids = v1.placeholder(tf.int64, [None, None])
    table = filled("user", np.arange(50))
    fetches = [sparse_lookup(table, ids, combiner=combiner) for combiner in REDUCE]
    each = sparse_lookup(table, ids)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for shape in ((4, 3), (2, 8)):
            feed = {ids: np.random.default_rng(9).integers(0, 50, shape)}
            values, rows = session.run([fetches, each], feed)
            np.testing.assert_allclose(values[0], rows.sum(axis=1), rtol=1e-5)
            np.testing.assert_allclose(values[1], rows.mean(axis=1), rtol=1e-5)
            np.testing.assert_allclose(values[2], rows.sum(axis=1) / np.sqrt(shape[1]), rtol=1e-5)


def test_bad_combiners_are_refused(started):
    table = model.table("user")
    with pytest.raises(ValueError, match="combiner.*max"):
        sparse_lookup(table, tf.constant([[1]], tf.int64), combiner="max")
    with pytest.raises(ValueError, match="'user'.*scalar"):
        sparse_lookup(table, tf.constant(1, tf.int64), combiner="sum")


# ---- Gradients that are columns of a wider tensor.


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("count", [2, 20])  # TensorFlow differentiates a concat of more than 16 in another way
def test_concatenated_features_train_the_same_bits_as_separate_ones(count, is_static, started):
    rng = np.random.default_rng(4)
    ids = rng.integers(0, 30, (count, 64))
    target = rng.normal(size=(64, count * DIM)).astype(np.float32)
    results = []
    for way in ("concat", "stack"):
        tables = [filled(f"{way}{t}", np.arange(30)) for t in range(count)]
        shape = [64] if is_static else [None]
        features = [sparse_lookup(table, v1.placeholder_with_default(x, shape)) for table, x in zip(tables, ids)]
        if way == "concat":
            joined = tf.concat(features, axis=1)
        else:
            joined = tf.reshape(tf.stack(features, axis=1), [-1, count * DIM])
        loss = tf.reduce_sum(tf.square(joined - target))
        variables = [table.variable for table in tables]
        update = lazy_adam.create_hash_optimizer(0.1).apply_gradients(zip(tf.gradients(loss, variables), variables))
        results.append((tables, update))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run([update for _, update in results])
    for ours, theirs in zip(*(tables for tables, _ in results)):
        np.testing.assert_array_equal(rows_of(ours, np.arange(30)), rows_of(theirs, np.arange(30)))
    updates = [op for op in v1.get_default_graph().get_operations() if op.type == "MxrecFoldUpdate"]
    assert any(column > 0 for op in updates for column in op.get_attr("columns"))


def test_features_concatenated_along_other_axes_train_right(started):
    tables = [filled(name, np.arange(9)) for name in ("user", "item")]
    features = [sparse_lookup(table, tf.range(9, dtype=tf.int64)) for table in tables]
    loss = tf.reduce_sum(tf.concat(features, axis=0) * np.arange(18, dtype=np.float32)[:, None])
    variables = [table.variable for table in tables]
    before = [rows_of(table, np.arange(9)) for table in tables]
    run(gradient_descent.create_hash_optimizer(1.0).apply_gradients(zip(tf.gradients(loss, variables), variables)))
    for number, table in enumerate(tables):
        moved = before[number] - rows_of(table, np.arange(9))
        expected = np.repeat(np.arange(9 * number, 9 * number + 9.0)[:, None], DIM, axis=1)[:, None]
        np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-5)
