"""Every optimizer against its formula in NumPy and, where TensorFlow has the same one, against TensorFlow's own.

One training run serves all comparisons: 50 steps over Zipf-distributed ids with duplicates inside and across features,
half of the rows written before, the others made by training.
"""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.embedding import sparse_lookup
from mx_rec.optimizers import (
    gradient_descent,
)
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model
from tests.shared.formulas import assert_close, every_key, first_rows, train_numpy
from tests.shared.optimizer_cases import ADAGRAD, CASES, FTRL, LAZY_ADAM, ONE_OF_EACH, PLAIN, START, each
from tests.shared.optimizers import FACTORIES
from tests.shared.paths import ROOT

v1 = tf.compat.v1

STEPS = 50
LOCAL_EMB = "ASCEND_SPARSE_LOOKUP_LOCAL_EMB"
ID_OFFSET = "ASCEND_SPARSE_LOOKUP_ID_OFFSET"


# ---- The three ways of training. Each returns {table: {key: row [1 + slots, dim]}}. ----


def write(tables, rows, slots):
    for name, table in tables.items():
        values = [np.stack([w, *(np.full(model.DIM, initial) for _, initial in slots)]) for w in rows[name].values()]
        table.native.write(list(rows[name]), values)


def train(case, data, rates=None, by_address=False, steps=STEPS, **settings):
    """With our optimizer; `rates` are fed step by step, else case.rate is a constant."""
    with model.process(**settings), v1.Session() as session:
        built = model.build(data, initializer=v1.constant_initializer(START))
        rate = case.rate if rates is None else v1.placeholder(tf.float32, [])
        if by_address:
            targets, sources = v1.get_collection(ID_OFFSET), v1.get_collection(LOCAL_EMB)
        else:
            targets = sources = get_dense_and_sparse_variable()[1]
        step = case.create(rate).apply_gradients(zip(tf.gradients(built.loss, sources), targets))
        write(built.tables, first_rows(every_key(data)), case.slots)
        session.run([v1.global_variables_initializer(), built.iterator.initializer])
        for i in range(steps):
            session.run(step, {} if rates is None else {rate: rates[i]})
        for table in built.tables.values():
            assert table.native.slots == tuple(name for name, _ in case.slots)
        return {name: dict(zip(keys.tolist(), rows)) for name, (keys, rows) in built.rows().items()}


def train_tensorflow(case, data, steps=STEPS):
    """With TensorFlow's optimizer, on a dense variable [number of keys, dim] per table."""
    keys = np.unique(every_key(data))
    number = {key: i for i, key in enumerate(keys)}
    indices = {
        name: np.vectorize(number.get)(array) if name in model.TABLE_OF else array for name, array in data.items()
    }
    with tf.Graph().as_default(), v1.Session() as session:
        iterator = v1.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(indices).batch(model.BATCH))
        batch = iterator.get_next()
        variables = {}
        for name, rows in first_rows(every_key(data)).items():
            start = np.full((len(keys), model.DIM), START, np.float32)
            for key, w in rows.items():
                start[number[key]] = w
            variables[name] = v1.get_variable(name, initializer=start)
        embeddings = {
            feature: tf.nn.embedding_lookup(variables[table], batch[feature])
            for feature, table in model.TABLE_OF.items()
        }
        optimizer = case.tensorflow(case.rate)
        step = optimizer.minimize(model.loss(embeddings, batch["target"]), var_list=list(variables.values()))
        session.run([v1.global_variables_initializer(), iterator.initializer])
        for _ in range(steps):
            session.run(step)
        result = {}
        for name, variable in variables.items():
            parts = [variable, *(optimizer.get_slot(variable, slot) for slot in case.tensorflow_slots)]
            result[name] = dict(zip(keys.tolist(), np.stack(session.run(parts), 1)))
        return result


# ---- The arithmetic ----


def test_the_list_has_every_optimizer_of_the_package():
    modules = (ROOT / "mx_rec" / "optimizers").glob("*.py")
    factories = re.compile(r"^def create_hash_optimizer\w*\(", re.MULTILINE)
    assert {path.stem for path in modules if factories.search(path.read_text())} == set(FACTORIES)


@each(CASES)
def test_follows_its_formula(case, expansion):
    data = model.batches(STEPS)
    by_address = "by_addr" in case.label
    actual = train(case, data, by_address=by_address, use_dynamic_expansion=expansion)
    expected = train_numpy(case, data, STEPS)
    assert {name: set(rows) for name, rows in actual.items()} == {name: set(rows) for name, rows in expected.items()}
    assert_close(actual, expected)


@each([case for case in CASES if case.tensorflow is not None])
def test_trains_as_tensorflow_trains_a_dense_variable(case, expansion):
    data = model.batches(STEPS, seed=1)
    actual = train(case, data, use_dynamic_expansion=expansion)
    assert_close(actual, train_tensorflow(case, data))


def test_lazy_adam_is_adam_where_every_batch_holds_every_key(expansion):
    data = model.batches(STEPS, seed=2, keys=model.vocabulary(20))
    for name in ("single", "other"):  # the one brings a table all keys, `multi` adds duplicates
        data[name].reshape(STEPS, model.BATCH)[:, :20] = model.vocabulary(20)
    reference = dataclasses.replace(LAZY_ADAM, tensorflow=v1.train.AdamOptimizer, tensorflow_slots=("m", "v"))
    actual = train(LAZY_ADAM, data, use_dynamic_expansion=expansion)
    assert_close(actual, train_tensorflow(reference, data))


@pytest.mark.parametrize("by_address", [False, True], ids=["by_variable", "by_address"])
@each(ONE_OF_EACH)
def test_sums_the_gradients_of_a_row_over_all_lookups_of_a_step_before_the_rule(case, by_address, started):
    table = model.table("t")
    ids = [tf.constant([7, 8, 7], tf.int64), tf.constant([[8], [9]], tf.int64)]
    factors = [np.array([1.0, 2.0, 4.0]), np.array([[8.0], [16.0]])]
    loss = sum(tf.reduce_sum(sparse_lookup(table, i) * f[..., None].astype(np.float32)) for i, f in zip(ids, factors))
    if by_address:  # a pair for each lookup
        pairs = zip(tf.gradients(loss, v1.get_collection(LOCAL_EMB)), v1.get_collection(ID_OFFSET))
    else:
        pairs = zip(tf.gradients(loss, [table.variable]), [table.variable])
    step = case.create(case.rate).apply_gradients(pairs)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(step)
        session.run(step)
    for key, g in ((7, 1.0 + 4.0), (8, 2.0 + 8.0), (9, 16.0)):
        row = np.stack([np.full(model.DIM, START), *(np.full(model.DIM, initial) for _, initial in case.slots)])
        for t in (1, 2):
            case.rule(row, np.full(model.DIM, g), case.rate, t)
        # In float32, as in TensorFlow's Adam, 1 - 0.999 is off by 1.3e-5 of itself.
        np.testing.assert_allclose(table.native.read([key])[0][0], row, rtol=2e-5)


# ---- The learning rate ----


@each(ONE_OF_EACH)
def test_a_fed_learning_rate_holds_for_its_step(case):
    data = model.batches(6)
    rates = [case.rate * factor for factor in (1.0, 0.5, 2.0, 0.0 if case is not FTRL else 1.0, 0.1, 1.0)]
    assert_close(train(case, data, rates, steps=6), train_numpy(case, data, 6, rates))


def schedule_of_a_variable():
    rate = v1.get_variable("rate", initializer=0.5, trainable=False)
    return rate, rate.assign(rate * 0.5)


def schedule_of_a_tensor():
    step = v1.train.get_or_create_global_step()
    return v1.train.exponential_decay(0.5, step, 1, 0.5), step.assign_add(1)


def schedule_of_a_callable():
    step = v1.train.get_or_create_global_step()
    return lambda: v1.train.exponential_decay(0.5, step, 1, 0.5), step.assign_add(1)


@pytest.mark.parametrize("schedule", [schedule_of_a_variable, schedule_of_a_tensor, schedule_of_a_callable])
def test_a_schedule_is_read_at_every_step(schedule, started):
    rate, advance = schedule()
    table = model.table("t")
    loss = tf.reduce_sum(sparse_lookup(table, tf.constant([3], tf.int64)))
    optimizer = gradient_descent.create_hash_optimizer(rate)
    step = optimizer.apply_gradients(optimizer.compute_gradients(loss, [table.variable]))
    expected = np.float32(START)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for i in range(5):
            session.run(step)
            session.run(advance)
            expected -= np.float32(0.5 * 0.5**i)
            np.testing.assert_allclose(table.native.read([3])[0][0, 0], expected, atol=1e-6)


@each(ONE_OF_EACH)
def test_the_learning_rate_is_an_attribute_read_when_applied(case, started):
    # Scripts replace it between creation and use: `_lr` of LazyAdam, `_learning_rate` of the others.
    attribute = "_lr" if case is LAZY_ADAM else "_learning_rate"
    rate = v1.placeholder_with_default(case.rate, [])
    optimizer = case.create(rate)
    assert getattr(optimizer, attribute) is rate
    setattr(optimizer, attribute, tf.constant(2 * case.rate))
    table = model.table("t")
    loss = tf.reduce_sum(sparse_lookup(table, tf.constant([3], tf.int64)))
    step = optimizer.apply_gradients(zip(tf.gradients(loss, [table.variable]), [table.variable]))
    row = np.stack([np.full(model.DIM, START), *(np.full(model.DIM, initial) for _, initial in case.slots)])
    case.rule(row, np.ones(model.DIM), 2 * case.rate, 1)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(step)
    np.testing.assert_allclose(table.native.read([3])[0][0], row, atol=1e-6)


# ---- The forms of apply_gradients ----


def by_variables(optimizer, loss, dense, sparse):
    return optimizer.apply_gradients(zip(tf.gradients(loss, sparse), sparse))


def by_compute_gradients(optimizer, loss, dense, sparse):
    pairs = optimizer.compute_gradients(loss, var_list=dense + sparse)
    assert [variable.name for _, variable in pairs] == [variable.name for variable in dense + sparse]
    return optimizer.apply_gradients(pairs[len(dense) :])


def by_minimize(optimizer, loss, dense, sparse):
    return optimizer.minimize(loss, var_list=sparse)


def by_collections(optimizer, loss, dense, sparse):
    rows, addresses = v1.get_collection(LOCAL_EMB), v1.get_collection(ID_OFFSET)
    assert len(rows) == len(addresses) == len(sparse)
    return optimizer.apply_gradients(zip(tf.gradients(loss, rows), addresses))


def by_literal_lists(optimizer, loss, dense, sparse):
    return optimizer.apply_gradients([tf.gradients(loss, v1.get_collection(LOCAL_EMB)), v1.get_collection(ID_OFFSET)])


def by_literal_tensors(optimizer, loss, dense, sparse):
    steps = [
        optimizer.apply_gradients([gradient, addresses])
        for gradient, addresses in zip(tf.gradients(loss, v1.get_collection(LOCAL_EMB)), v1.get_collection(ID_OFFSET))
    ]
    return tf.group(*steps)


def with_nothing_for_a_table(optimizer, loss, dense, sparse):
    idle = model.table("idle")
    variables = [idle.variable, *sparse]
    gradients = tf.gradients(loss, variables)
    assert gradients[0] is None
    return optimizer.apply_gradients(zip(gradients, variables))


@pytest.mark.parametrize(
    "form",
    [
        by_variables,
        by_compute_gradients,
        by_minimize,
        by_collections,
        by_literal_lists,
        by_literal_tensors,
        with_nothing_for_a_table,
    ],
)
def test_every_form_of_apply_gradients_trains_the_same(form, expansion):
    data = model.batches(5)
    with model.process(use_dynamic_expansion=expansion), v1.Session() as session:
        weight = v1.get_variable("weight", initializer=np.ones(model.DIM, np.float32))
        built = model.build(data, initializer=v1.constant_initializer(START), weight=weight)
        dense, sparse = get_dense_and_sparse_variable()
        assert dense == [weight]
        step = form(gradient_descent.create_hash_optimizer(0.1), built.loss, dense, sparse)
        write(built.tables, first_rows(every_key(data)), ())
        session.run([v1.global_variables_initializer(), built.iterator.initializer])
        for _ in range(5):
            session.run(step)
        actual = {name: dict(zip(keys.tolist(), rows)) for name, (keys, rows) in built.rows().items()}
    assert_close(actual, train_numpy(PLAIN, data, 5))


def test_gradients_may_be_clipped_by_their_global_norm(started):
    table = model.table("t")
    other = model.table("u")
    loss = tf.reduce_sum(3.0 * sparse_lookup(table, tf.constant([1, 2, 1], tf.int64))) + tf.reduce_sum(
        sparse_lookup(other, tf.constant([5], tf.int64))
    )
    variables = [table.variable, other.variable]
    gradients, norm = tf.clip_by_global_norm(tf.gradients(loss, variables), 0.5)
    step = gradient_descent.create_hash_optimizer(1.0).apply_gradients(zip(gradients, variables))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        _, norm = session.run([step, norm])
    # A table's gradient has one row per distinct key: key 1 comes twice.
    expected = np.sqrt(model.DIM * (6.0**2 + 3.0**2 + 1.0**2))
    np.testing.assert_allclose(norm, expected, rtol=1e-6)
    for of, key, g in ((table, 1, 6.0), (table, 2, 3.0), (other, 5, 1.0)):
        np.testing.assert_allclose(of.native.read([key])[0][0, 0], START - g * 0.5 / expected, rtol=1e-6)


def test_global_step_counts_the_steps(started):
    table = model.table("t")
    step = v1.train.get_or_create_global_step()
    loss = tf.reduce_sum(sparse_lookup(table, tf.constant([1], tf.int64)))
    gradients = zip(tf.gradients(loss, [table.variable]), [table.variable])
    apply = gradient_descent.create_hash_optimizer(1.0).apply_gradients(gradients, global_step=step)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for i in range(1, 4):
            session.run(apply)
            assert session.run(step) == i
            np.testing.assert_allclose(table.native.read([1])[0][0, 0], START - i)


def test_a_row_is_trained_only_when_its_addresses_lead_to_one(started):
    # Evaluation gives no row to an unknown key; a gradient for it goes nowhere, and to nobody else.
    table = model.table("t")
    table.native.write([1], np.full((1, 1, model.DIM), 2.0))
    rows = sparse_lookup(table, tf.constant([1, 99], tf.int64), is_train=False)
    step = gradient_descent.create_hash_optimizer(1.0).apply_gradients(
        zip(tf.gradients(tf.reduce_sum(rows), [table.variable]), [table.variable])
    )
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(step)
    keys, values = model.dump(table)
    assert keys.tolist() == [1]
    np.testing.assert_array_equal(values[0, 0], 1.0)


# ---- What apply_gradients refuses ----


@pytest.fixture
def lookup(started):
    """(table, gradient of its rows, addresses)."""
    table = model.table("t")
    loss = tf.reduce_sum(sparse_lookup(table, tf.constant([1, 2], tf.int64)))
    (rows,), (addresses,) = v1.get_collection(LOCAL_EMB), v1.get_collection(ID_OFFSET)
    return table, tf.gradients(loss, rows)[0], addresses


@each(ONE_OF_EACH)
def test_refuses_a_step_without_any_gradient(case, lookup):
    table, _, addresses = lookup
    with pytest.raises(ValueError, match="no gradient"):
        case.create(0.1).apply_gradients([(None, table.variable), (None, addresses)])


def test_refuses_an_empty_list(lookup):
    with pytest.raises(ValueError, match="empty"):
        PLAIN.create(0.1).apply_gradients([])


@each(ONE_OF_EACH)
def test_refuses_a_dense_gradient_for_a_table(case, lookup):
    table, gradient, _ = lookup
    with pytest.raises(NotImplementedError, match="'t'.*IndexedSlices"):
        case.create(0.1).apply_gradients([(gradient, table.variable)])


def test_refuses_dense_variables(lookup):
    weight = v1.get_variable("weight", [3])
    with pytest.raises(ValueError, match="TensorFlow optimizer"):
        PLAIN.create(0.1).apply_gradients([(tf.ones([3]), weight)])


def test_refuses_a_second_optimizer_with_other_slots_on_one_table(lookup):
    _, gradient, addresses = lookup
    LAZY_ADAM.create(0.1).apply_gradients([(gradient, addresses)])
    with pytest.raises(RuntimeError, match="LazyAdam_momentum.*Adagrad_accumulator"):
        ADAGRAD.create(0.1).apply_gradients([(gradient, addresses)])


@pytest.mark.parametrize("rate", [1, True, -0.1, 10.5, float("nan"), "0.1"])
@each(ONE_OF_EACH)
def test_refuses_learning_rates_that_are_no_float_from_0_to_10(case, rate):
    with pytest.raises(ValueError, match="learning_rate"):
        case.create(rate)
