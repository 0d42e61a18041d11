"""Sums and concatenations of embeddings that become a part of their lookups: faster, with the same bits."""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.graph import last_report
from mx_rec.optimizers import lazy_adam
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model

v1 = tf.compat.v1
pytestmark = pytest.mark.border


def train(combine, shapes, is_fused, dim=8, steps=12, is_static=False, finish=None):
    """(losses, rows) of a training whose loss depends on combine(embeddings by table)."""
    with model.process():
        tables = {name: model.table(name, v1.random_normal_initializer(), dim) for name in shapes}
        random = np.random.RandomState(7)
        data = {name: random.randint(0, 40, (steps, *shape)) for name, shape in shapes.items()}
        batch, specs = model.one_batch_each(data)
        if is_static:
            for name, shape in shapes.items():
                batch[name].set_shape(shape)
        found = {name: sparse_lookup(tables[name], specs[name], batch=batch) for name in shapes}
        combined = combine(found)
        target = np.random.RandomState(8).normal(size=combined.shape[-1:]).astype(np.float32)
        loss = tf.reduce_sum(tf.square(combined - target))
        _, sparse = get_dense_and_sparse_variable()
        gradients = tf.gradients(loss, sparse)
        if finish is not None:
            gradients = finish(gradients)
        step = lazy_adam.create_hash_optimizer(0.05).apply_gradients(zip(gradients, sparse))
        if is_fused:
            start_asc_pipeline()
        fused = [(one.kind, one.lookups) for one in last_report().fused] if is_fused else []
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            values = [session.run([loss, combined, step])[:2] for _ in range(steps)]
        return values, {name: model.dump(table) for name, table in tables.items()}, fused


def compare(combine, shapes, fused, **options):
    expected, rows, _ = train(combine, shapes, False, **options)
    values, fused_rows, kinds = train(combine, shapes, True, **options)
    assert kinds == fused
    for (loss, combined), (expected_loss, expected_combined) in zip(values, expected):
        assert loss == expected_loss
        np.testing.assert_array_equal(combined, expected_combined)
    model.assert_same_rows(fused_rows, rows)


static_or_not = pytest.mark.parametrize("is_static", [True, False], ids=["static", "dynamic"])


@static_or_not
@pytest.mark.parametrize(
    ("shape", "dim"), [((6, 3), 8), ((6, 15), 5), ((6, 16), 8), ((6, 50), 16), ((2, 3, 21), 8), ((5, 1), 3)]
)
def test_a_sum_is_pooled(shape, dim, is_static):
    compare(lambda found: tf.reduce_sum(found["t"], axis=-2), {"t": shape}, [("Sum", 1)], dim=dim, is_static=is_static)


@static_or_not
def test_a_mean_of_four_is_pooled(is_static):
    compare(lambda found: tf.reduce_mean(found["t"], axis=1), {"t": (6, 4)}, [("Mean", 1)], is_static=is_static)


@static_or_not
@pytest.mark.parametrize("count", [2, 20])  # TensorFlow cuts the gradient of more than 16 in another way
def test_a_concatenation_is_written_at_once(count, is_static):
    shapes = {f"t{i}": (9,) for i in range(count)}
    compare(lambda found: tf.concat(list(found.values()), -1), shapes, [("ConcatV2", count)], is_static=is_static)


@static_or_not
def test_sums_may_be_concatenated_in_any_order(is_static):
    def combine(found):
        return tf.concat([tf.reduce_sum(found["c"], 1), found["a"], tf.reduce_sum(found["b"], 1)], axis=1)

    shapes = {"a": (6,), "b": (6, 4), "c": (6, 20)}
    compare(combine, shapes, [("Sum", 1), ("Sum", 1), ("ConcatV2", 3)], is_static=is_static)


@pytest.mark.parametrize(
    ("combine", "shape", "dim"),
    [
        (lambda e: tf.reduce_sum(e, axis=1, keepdims=True), (6, 3), 8),
        (lambda e: tf.reduce_sum(e, axis=0), (6, 3), 8),
        (lambda e: tf.reduce_sum(e, axis=[0, 1]), (6, 3), 8),
        (lambda e: tf.reduce_sum(e, axis=-1), (6, 3), 8),
        (lambda e: tf.reduce_sum(e, axis=1), (6, 16), 5),  # TensorFlow has two orders there
        (lambda e: tf.reduce_mean(e, axis=1), (6, 3), 8),  # a division that is not exact
        (lambda e: tf.reduce_sum(e, axis=1) + tf.reduce_max(e, axis=1), (6, 3), 8),
        (lambda e: tf.reduce_sum(e, axis=1) * tf.cast(tf.shape(e)[1], tf.float32), (6, 3), 8),
        (lambda e: tf.concat([e, e], axis=1), (6,), 8),
        (lambda e: tf.concat([e, tf.ones([6, 3])], axis=1), (6,), 8),
        (lambda e: tf.concat([e, 2 * e], axis=0), (6,), 8),
    ],
)
def test_what_is_not_quite_the_pattern_is_left_alone(combine, shape, dim):
    compare(lambda found: combine(found["t"]), {"t": shape}, [], dim=dim)


def test_concatenations_along_another_axis_are_left_alone():
    compare(lambda found: tf.concat([found["a"], found["b"]], axis=0), {"a": (6,), "b": (4,)}, [])


def test_gradients_that_somebody_looks_at_stay_whole():
    # Clipping needs the gradient of every single row.
    def clip(gradients):
        clipped, _ = tf.clip_by_global_norm(gradients, 0.5)
        return clipped

    shapes = {"a": (6,), "b": (6, 4)}
    expected, rows, _ = train(lambda f: tf.concat([f["a"], tf.reduce_sum(f["b"], 1)], 1), shapes, False, finish=clip)
    values, fused_rows, _ = train(lambda f: tf.concat([f["a"], tf.reduce_sum(f["b"], 1)], 1), shapes, True, finish=clip)
    assert [loss for loss, _ in values] == [loss for loss, _ in expected]
    model.assert_same_rows(fused_rows, rows)


@pytest.fixture
def joined():
    with model.process():
        tables = {name: model.table(name, v1.random_normal_initializer()) for name in "ab"}
        batch, specs = model.one_batch({"a": np.array([1, 2]), "b": np.array([[3, 3], [4, 5]])})
        single = {name: sparse_lookup(tables[name], specs[name], batch=batch) for name in "ab"}
        summed = tf.reduce_sum(single["b"], axis=1)
        whole = tf.concat([single["a"], summed], axis=1)
        yield tables, single, summed, whole


def test_everything_can_still_be_fetched_and_fed(joined):
    tables, single, summed, whole = joined
    double = 2 * whole
    start_asc_pipeline()
    assert len(last_report().fused) == 2
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(single["a"])  # a lookup that trains makes rows, also by itself
        assert sorted(tables["a"].native.keys()) == [1, 2]
        values, a, b, sums, doubled = session.run([whole, single["a"], single["b"], summed, double])
        np.testing.assert_array_equal(a, tables["a"].native.read([1, 2])[0][:, 0])
        np.testing.assert_array_equal(b, tables["b"].native.read([3, 3, 4, 5])[0].reshape(2, 2, model.DIM))
        np.testing.assert_array_equal(sums, b.sum(1))
        np.testing.assert_array_equal(values, np.concatenate([a, sums], 1))
        np.testing.assert_array_equal(doubled, 2 * values)
        fed = np.ones((2, 2 * model.DIM), np.float32)
        np.testing.assert_array_equal(session.run(double, {whole: fed}), 2 * fed)
        session.run(whole.op)


def test_what_runs_before_and_after_still_does(started):
    table, other = model.table("a"), model.table("b")
    batch, specs = model.one_batch({"a": np.array([1, 2]), "b": np.array([[3, 3], [4, 5]])})
    count = v1.get_variable("count", initializer=0)
    first = sparse_lookup(table, specs["a"], batch=batch)
    second = sparse_lookup(other, specs["b"], batch=batch)
    with tf.control_dependencies([count.assign_add(1)]):
        summed = tf.reduce_sum(second, axis=1)
    with tf.control_dependencies([count.assign_add(10)]):
        whole = tf.concat([first, summed], axis=1)
    with tf.control_dependencies([whole]):
        after = tf.identity(count.assign_add(100))
    start_asc_pipeline()
    assert len(last_report().fused) == 2
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(after)
        assert session.run(count) == 111
        assert (table.size(), other.size()) == (2, 3)


@pytest.fixture
def started():
    with model.process():
        yield


def test_gradients_may_be_built_afterwards(joined):
    tables, single, _, whole = joined
    loss = tf.reduce_sum(whole * np.arange(2 * model.DIM, dtype=np.float32))
    start_asc_pipeline()
    _, sparse = get_dense_and_sparse_variable()
    gradients = tf.gradients(loss, sparse)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for table, (values, keys) in zip("ab", session.run([(g.values, g.indices) for g in gradients])):
            first = np.arange(model.DIM) + (model.DIM if table == "b" else 0)
            count = {"a": [1, 1], "b": [2, 1, 1]}[table]
            assert len(keys) == len(count)
            np.testing.assert_array_equal(np.sort(values[:, 1] / first[1]), np.sort(count))
            np.testing.assert_allclose(values / np.maximum(first, 1), np.outer(values[:, 1] / first[1], first > 0))


def test_shapes_that_do_not_fit_are_an_error():
    with model.process():
        tables = [model.table(name) for name in "ab"]
        ids = {"a": v1.placeholder(tf.int64, [None]), "b": v1.placeholder(tf.int64, [None])}
        whole = tf.concat([sparse_lookup(t, i) for t, i in zip(tables, ids.values())], 1)
        start_asc_pipeline()
        assert last_report().fused == []  # lookups in the step have a plan each
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(whole, {ids["a"]: [1, 2], ids["b"]: [1]})
        assert sum(table.size() for table in tables) == 3
