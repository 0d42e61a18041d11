"""Training by address: the rows and the addresses of a step's lookups, taken from their collections."""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.constants import constants
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.graph import modify_graph_and_start_emb_cache
from mx_rec.optimizers import (
    gradient_descent_by_addr,
    lazy_adam,
    lazy_adam_by_addr,
)
from tests.shared import model
from tests.shared.optimizer_cases import ADAM_SLOTS, START, Case, adagrad_rule, adam_rule, descent_rule
from tests.shared.optimizers import FACTORIES

v1 = tf.compat.v1
DIM = model.DIM


def collections():
    """(rows, addresses) of the default graph's training lookups."""
    return v1.get_collection("ASCEND_SPARSE_LOOKUP_LOCAL_EMB"), v1.get_collection("ASCEND_SPARSE_LOOKUP_ID_OFFSET")


def descent(rate=1.0):
    return gradient_descent_by_addr.create_hash_optimizer_by_addr(rate, weight_decay=0.0)


def run(*fetches, feed=None):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(fetches, feed)


def row(table, key):
    values, found = table.native.read([key])
    assert found.all()
    return values[0]


# ---- The collections ----


def test_every_training_lookup_puts_its_pair_into_the_collections(expansion):
    with model.process(use_dynamic_expansion=expansion):
        tables = [model.table(name) for name in ("t", "u")]
        sparse_lookup(tables[0], tf.constant([1, 2], tf.int64))
        sparse_lookup(tables[1], tf.constant([[3, 4], [5, 3]], tf.int64))
        sparse_lookup(tables[0], tf.constant([9], tf.int64), is_train=False)
        sparse_lookup(tables[0], tf.constant([6], tf.int64))
        rows, addresses = collections()
        assert rows == v1.get_collection(constants.ASCEND_SPARSE_LOOKUP_LOCAL_EMB)
        assert addresses == v1.get_collection(constants.ASCEND_SPARSE_LOOKUP_ID_OFFSET)
        assert [(tensor.dtype, tensor.shape.as_list()) for tensor in rows] == [(tf.float32, [None, DIM])] * 3
        assert [(tensor.dtype, tensor.shape.as_list()) for tensor in addresses] == [(tf.int64, [None])] * 3
        rows, addresses = run(rows, addresses)
        assert [len(found) for found in rows] == [len(found) for found in addresses] == [2, 3, 1]  # different ids


def test_evaluation_alone_leaves_the_collections_empty(started):
    table = model.table("t")
    batch, specs = model.one_batch({"t": np.arange(3)}, is_training=False)
    sparse_lookup(table, specs["t"], batch=batch, is_train=False)
    sparse_lookup(table, batch["t"], is_train=False)
    assert collections() == ([], [])


def test_lookups_of_a_table_in_one_prepared_batch_share_a_pair(started):
    tables = {name: model.table(name) for name in ("t", "u")}
    specs = [FeatureSpec("x", table_name="t"), FeatureSpec("y", table_name="u"), FeatureSpec("z", table_name="t")]
    dataset = tf.data.Dataset.from_tensors({"x": [1, 2], "y": [1], "z": [2, 3]}).map(get_asc_insert_func(specs))
    batch = v1.data.make_one_shot_iterator(dataset).get_next()
    sizes = []
    for spec in specs:
        sparse_lookup(tables[spec.table_name], spec, batch=batch)
        sparse_lookup(tables[spec.table_name], spec, batch=batch)
        sizes.append([len(collection) for collection in collections()])
    assert sizes == [[1, 1], [2, 2], [2, 2]]


def test_rows_and_addresses_go_together(started):
    tables = [model.table(name) for name in ("t", "u")]
    ids = np.random.RandomState(0).randint(0, 400, (2, 1000))
    for scale, (table, its_ids) in enumerate(zip(tables, ids), 1):
        table.native.write(np.arange(500), np.full((500, 1, DIM), scale) + np.arange(500.0)[:, None, None])
        sparse_lookup(table, tf.constant(its_ids, tf.int64))
    # The gradient of a row is the row itself: nothing is left of it.
    run(descent().apply_gradients(zip(*collections())))
    for scale, (table, its_ids) in enumerate(zip(tables, ids), 1):
        keys, values = model.dump(table)
        expected = np.where(np.isin(keys, its_ids), 0, scale + keys)
        np.testing.assert_array_equal(values[:, 0], expected[:, None].repeat(DIM, 1))


def test_rows_are_copied_only_for_scripts_that_look_at_them(started):
    table = model.table("t")
    table.native.write([3, 4], np.arange(2.0 * DIM).reshape(2, 1, DIM))
    batch, specs = model.one_batch({"t": np.array([3, 4, 3])})
    sparse_lookup(table, specs["t"], batch=batch)
    commit = next(op for op in v1.get_default_graph().get_operations() if op.type == "MxrecLookup")
    tf.data.Dataset.range(3).map(lambda x: x + 1)  # TensorFlow copies all collections into the function's graph
    v1.train.export_meta_graph()
    assert list(commit.get_attr("with_rows")) == [0]
    (rows,), _ = collections()
    assert list(commit.get_attr("with_rows")) == [1]
    (values,) = run(rows)
    assert sorted(map(tuple, values)) == sorted(map(tuple, np.arange(2.0 * DIM).reshape(2, DIM)))


# ---- The arithmetic ----


# With gradients of about 0.001, an accumulator that starts so low shows what is added to it.
LOW = 1e-6
CASES = [
    Case("lazy_adam_by_addr", FACTORIES["lazy_adam_by_addr"], 0.01, adam_rule(), ADAM_SLOTS),
    Case(
        "adagrad_by_addr",
        lambda rate: FACTORIES["adagrad_by_addr"](rate, initial_accumulator_value=LOW),
        0.01,
        adagrad_rule(1e-7),
        (("Adagrad_accumulator", LOW),),
    ),
    # A rate at which the decay of 1e-4 that nobody asked for is larger than the gradients.
    Case("descent_by_addr", FACTORIES["gradient_descent_by_addr"], 10.0, descent_rule(1e-4)),
    Case("lazy_adam", FACTORIES["lazy_adam"], 0.01, adam_rule(), ADAM_SLOTS),
    Case(
        "adagrad",
        lambda rate: FACTORIES["adagrad"](rate, initial_accumulator_value=LOW),
        0.01,
        adagrad_rule(0.0),
        (("Adagrad_accumulator", LOW),),
    ),
    Case("descent", FACTORIES["gradient_descent"], 10.0, descent_rule(0.0)),
]


@pytest.mark.parametrize("by", ["address", "rows"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_follows_its_formula(case, by, expansion):
    random = np.random.RandomState(3)
    steps = 12
    ids = {"x": random.randint(0, 9, (steps, 6)), "y": random.randint(5, 12, (steps, 4, 2))}  # some in both
    factors = {name: random.normal(scale=1e-3, size=array.shape).astype(np.float32) for name, array in ids.items()}
    with model.process(use_dynamic_expansion=expansion), v1.Session() as session:
        table = model.table("t")
        fed = {name: v1.placeholder(tf.int64, array.shape[1:]) for name, array in ids.items()}
        scale = {name: v1.placeholder(tf.float32, array.shape[1:]) for name, array in ids.items()}
        loss = sum(tf.reduce_sum(sparse_lookup(table, fed[name]) * scale[name][..., None]) for name in ids)
        rows, addresses = collections()
        pairs = zip(tf.gradients(loss, rows), addresses if by == "address" else rows)
        step = case.create(case.rate).apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        for i in range(steps):
            session.run(step, {**{fed[n]: ids[n][i] for n in ids}, **{scale[n]: factors[n][i] for n in ids}})
        actual = {key: row(table, key) for key in table.native.keys()}
    expected = {}
    for i in range(steps):
        sums = {}
        for name in ids:
            for key, factor in zip(ids[name][i].flat, factors[name][i].flat):
                sums[key] = sums.get(key, 0.0) + float(factor)
        for key, g in sums.items():
            case.rule(
                expected.setdefault(key, np.array([START, *(initial for _, initial in case.slots)])),
                g,
                case.rate,
                i + 1,
            )
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_allclose(actual[key][0], values[0], rtol=2e-6)
        # In float32 1 - 0.999 is off by 1.3e-5 of itself, and gradients of both signs cancel.
        np.testing.assert_allclose(actual[key], values[:, None].repeat(DIM, 1), rtol=2e-4, atol=1e-9)


def test_the_address_optimizers_train_the_bits_of_the_plain_ones(expansion):
    def outcome(by_address):
        with model.process(use_dynamic_expansion=expansion), v1.Session() as session:
            built = model.build(model.batches(20), initializer=v1.random_normal_initializer(seed=1))
            if by_address:
                sources, targets = collections()
                optimizer = lazy_adam_by_addr.create_hash_optimizer_by_address(0.1)
            else:
                sources = targets = [table.variable for table in built.tables.values()]
                optimizer = lazy_adam.create_hash_optimizer(0.1)
            step = optimizer.apply_gradients(zip(tf.gradients(built.loss, sources), targets))
            start_asc_pipeline()  # the sum is fused into the lookup
            session.run([v1.global_variables_initializer(), built.iterator.initializer])
            for _ in range(20):
                session.run(step)
            return built.rows()

    model.assert_same_rows(outcome(by_address=True), outcome(by_address=False))


def test_a_moved_lookup_is_trained_by_the_address_it_had_before(started):
    dataset = tf.data.Dataset.from_tensors({"x": np.arange(2)})
    iterator = v1.data.make_initializable_iterator(dataset)
    batch = iterator.get_next()
    table = model.table("t")
    loss = tf.reduce_sum(sparse_lookup(table, batch["x"] % 3, modify_graph=True))
    loss += 2 * tf.reduce_sum(sparse_lookup(table, batch["x"] + 100, modify_graph=True))
    rows, addresses = collections()
    step = descent().apply_gradients(zip(tf.gradients(loss, rows), addresses))
    modify_graph_and_start_emb_cache()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), iterator.initializer])
        session.run([step, *rows, *addresses])
    keys, values = model.dump(table)
    assert keys.tolist() == [0, 1, 100, 101]
    np.testing.assert_array_equal(values[:, 0, 0], START - np.array([1, 1, 2, 2]))


# ---- The forms of apply_gradients. The gradient of every float of table i is i. ----

FORMS = {
    "pairs": lambda gradients, addresses: list(zip(gradients, addresses)),
    "zip": zip,
    "tuple_of_pairs": lambda gradients, addresses: tuple(zip(gradients, addresses)),
    "lists_as_pairs": lambda gradients, addresses: [list(pair) for pair in zip(gradients, addresses)],
    "generator": lambda gradients, addresses: (pair for pair in zip(gradients, addresses)),
    "two_lists": lambda gradients, addresses: [gradients, addresses],
    "two_tuples": lambda gradients, addresses: [tuple(gradients), tuple(addresses)],
    "tuple_of_lists": lambda gradients, addresses: (gradients, addresses),
    "list_and_tuple": lambda gradients, addresses: [gradients, tuple(addresses)],
}


@pytest.mark.parametrize("tables", [1, 2, 3])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_takes_gradients_and_addresses_in_every_form(form, tables, started):
    tables = [model.table(f"t{i}") for i in range(tables)]
    loss = sum(i * tf.reduce_sum(sparse_lookup(table, tf.constant([5], tf.int64))) for i, table in enumerate(tables, 1))
    rows, addresses = collections()
    run(descent().apply_gradients(form(tf.gradients(loss, rows), addresses)))
    for i, table in enumerate(tables, 1):
        np.testing.assert_array_equal(row(table, 5), np.full((1, DIM), START - i))


@pytest.mark.parametrize("sequence", [list, tuple])
def test_takes_one_gradient_and_its_addresses(sequence, started):
    table = model.table("t")
    loss = tf.reduce_sum(sparse_lookup(table, tf.constant([5, 5, 6], tf.int64)))
    (rows,), (addresses,) = collections()
    run(descent().apply_gradients(sequence([tf.gradients(loss, rows)[0], addresses])))
    assert (row(table, 5) == START - 2).all() and (row(table, 6) == START - 1).all()


@pytest.mark.parametrize("form", [FORMS["pairs"], FORMS["two_lists"], FORMS["two_tuples"]])
def test_passes_over_lookups_without_a_gradient(form, started):
    tables = [model.table(name) for name in ("t", "u", "v")]
    found = [sparse_lookup(table, tf.constant([5], tf.int64)) for table in tables]
    rows, addresses = collections()
    gradients = tf.gradients(tf.reduce_sum(found[1]), rows)
    assert [gradient is None for gradient in gradients] == [True, False, True]
    run(descent().apply_gradients(form(gradients, addresses)), found)
    assert [row(table, 5)[0, 0] for table in tables] == [START, START - 1, START]


def test_only_nothing_is_an_error(started):
    sparse_lookup(model.table("t"), tf.constant([5], tf.int64))
    _, (addresses,) = collections()
    for nothing in ([(None, addresses)], [[None], [addresses]], [None, addresses], [(None,), (addresses,)]):
        with pytest.raises(ValueError, match="no gradient for any table.*is_train=True"):
            descent().apply_gradients(nothing)


OPTIMIZERS = {
    "sparse": lazy_adam_by_addr.create_hash_optimizer_by_address,
    "stock": lambda: v1.train.AdamOptimizer(0.1),
}


@pytest.mark.parametrize("create", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize("by", ["address", "rows"])
def test_takes_what_compute_gradients_gives_for_dense_variables_and_rows(create, by, expansion):
    with model.process(use_dynamic_expansion=expansion):
        tables = [model.table(name) for name in ("t", "u")]
        weight = v1.get_variable("weight", initializer=np.full(DIM, 3.0, np.float32))
        loss = sum(tf.reduce_sum(weight * sparse_lookup(table, tf.constant([5, 6, 5], tf.int64))) for table in tables)
        rows, addresses = collections()
        pairs = create().compute_gradients(loss, var_list=[weight, *rows])
        assert [variable for _, variable in pairs] == [weight, *rows]
        sparse = pairs[1:] if by == "rows" else [(gradient, a) for (gradient, _), a in zip(pairs[1:], addresses)]
        dense = v1.train.GradientDescentOptimizer(1.0).apply_gradients(pairs[:1])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run([dense, descent().apply_gradients(sparse)])
            np.testing.assert_array_equal(session.run(weight), 3.0 - 6 * START)
        for table in tables:
            assert (row(table, 5) == START - 6.0).all() and (row(table, 6) == START - 3.0).all()


# ---- Bad input ----


@pytest.fixture
def lookup(expansion):
    """(table with rows for keys 1 and 2, gradient of its rows, addresses)."""
    with model.process(use_dynamic_expansion=expansion):
        table = model.table("t")
        loss = tf.reduce_sum(sparse_lookup(table, tf.constant([1, 2], tf.int64)))
        (rows,), (addresses,) = collections()
        yield table, tf.gradients(loss, rows)[0], addresses


FOREIGN = {
    "float": lambda addresses: tf.cast(addresses, tf.float32),
    "int32": lambda addresses: tf.cast(addresses, tf.int32),
    "copy": tf.identity,
    "invented": lambda addresses: tf.constant([0, 1], tf.int64),
    "matrix": lambda addresses: addresses[:, None],
    "scalar": lambda addresses: addresses[0],
    "part": lambda addresses: addresses[:1],
}


@pytest.mark.parametrize("change", FOREIGN.values(), ids=FOREIGN.keys())
def test_refuses_addresses_that_are_not_in_the_collection(change, lookup):
    _, gradient, addresses = lookup
    foreign = change(addresses)
    message = rf"{foreign.name} \({foreign.dtype.name}\).*ASCEND_SPARSE_LOOKUP_ID_OFFSET"
    for pairs in ([(gradient, foreign)], [gradient, foreign]):
        with pytest.raises(KeyError, match=message):
            descent().apply_gradients(pairs)


def test_refuses_addresses_and_gradients_that_changed_places(lookup):
    _, gradient, addresses = lookup
    with pytest.raises(KeyError, match="float32.*ASCEND_SPARSE_LOOKUP_ID_OFFSET"):
        descent().apply_gradients([(addresses, gradient)])


@pytest.mark.parametrize("target", ["variable", "array"])
def test_refuses_variables_and_arrays_for_addresses(target, lookup):
    _, gradient, _ = lookup
    wrong = np.array([0, 1]) if target == "array" else v1.get_variable("w", [2], tf.int64)
    with pytest.raises(ValueError, match="updates tables only"):
        descent().apply_gradients([(gradient, wrong)])


def test_refuses_the_gradient_of_rows_for_the_table(lookup):
    table, gradient, _ = lookup
    with pytest.raises(NotImplementedError, match="'t'.*IndexedSlices"):
        descent().apply_gradients([(gradient, table.variable)])


UNKNOWN = r"(None|\?)"  # as TensorFlow writes a size, in version 2 and after disable_v2_behavior()
GRADIENTS = {
    "slices": (lambda g, a: tf.IndexedSlices(g, a), RuntimeError, "must be a Tensor, got IndexedSlices"),
    "array": (lambda g, a: np.ones((2, DIM), np.float32), RuntimeError, "must be a Tensor, got ndarray"),
    "number": (lambda g, a: 1.0, RuntimeError, "must be a Tensor, got float"),
    "float64": (lambda g, a: tf.cast(g, tf.float64), ValueError, "10 float32.*got float64"),
    "int64": (lambda g, a: tf.cast(g, tf.int64), ValueError, "10 float32.*got int64"),
    "narrow": (lambda g, a: g[:, :4], ValueError, rf"got float32 of shape \({UNKNOWN}, 4\)"),
    "flat": (lambda g, a: tf.reshape(g, [-1]), ValueError, rf"got float32 of shape \({UNKNOWN},\)"),
    "rank_3": (lambda g, a: g[None], ValueError, rf"got float32 of shape \(1, {UNKNOWN}, 10\)"),
}


@pytest.mark.parametrize("change, error, message", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_refuses_gradients_that_are_not_one_row_for_each_address(change, error, message, lookup):
    _, gradient, addresses = lookup
    with pytest.raises(error, match=f"{addresses.name} {message}" if error is RuntimeError else message):
        descent().apply_gradients([(change(gradient, addresses), addresses)])


@pytest.mark.parametrize("shape", [(3, DIM), (1, DIM), (0, DIM), (DIM, 2), (2 * DIM,), (1, 2, DIM)], ids=str)
def test_a_step_refuses_gradients_of_another_shape(shape, lookup):
    table, _, addresses = lookup
    fed = v1.placeholder(tf.float32, None)  # not known before
    step = descent().apply_gradients([(fed, addresses)])
    got = str(list(shape)).replace(" ", "").replace("[", r"\[")
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"'t': 2 addresses need \[2, 10\] gradients, got {got}"):
        run(step, feed={fed: np.ones(shape)})
    assert (row(table, 1) == START).all()


# Whether the gradient comes straight from the lookup decides which op updates the rows.
WAYS = {"straight": lambda gradient: gradient, "clipped": lambda gradient: tf.clip_by_value(gradient, -1.0, 1.0)}
both_ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


@both_ways
@pytest.mark.parametrize("address", [2**50, -7, -2, 2**32, 2**62, 2**63 - 1, -(2**63), 10**6], ids=str)
def test_a_step_refuses_invented_addresses(address, way, lookup):
    table, gradient, addresses = lookup
    step = descent().apply_gradients([(way(gradient), addresses)])
    good = run(addresses)[0][0]
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"'t': {address} is not the address of a row"):
        run(step, feed={addresses: [good, address]})
    assert (table.native.read([1, 2])[0] == START).all(), "nothing is updated"


@both_ways
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_step_refuses_another_number_of_addresses(count, way, lookup):
    table, gradient, addresses = lookup
    step = descent().apply_gradients([(way(gradient), addresses)])
    good = run(addresses)[0]
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"'t': .*{count}"):
        run(step, feed={addresses: np.resize(good, count)})
    assert (table.native.read([1, 2])[0] == START).all()


@both_ways
def test_an_address_of_no_row_is_passed_over(way, lookup):
    # What keys without a row have: those of evaluation, those that admission refuses.
    table, gradient, addresses = lookup
    step = descent().apply_gradients([(way(gradient), addresses)])
    good = run(addresses)[0][0]
    run(step, feed={addresses: [good, -1]})
    assert sorted(table.native.read([1, 2])[0][:, 0, 0]) == [START - 1, START]


@pytest.mark.parametrize("pairs", ["triples", "single", "short"])
def test_refuses_what_is_no_list_of_pairs(pairs, lookup):
    _, gradient, addresses = lookup
    entries = {"triples": [(gradient, addresses, 1)], "single": [gradient], "short": [(gradient,)]}[pairs]
    with pytest.raises(ValueError, match="must hold pairs of a gradient and a variable or row addresses"):
        descent().apply_gradients(entries)


def test_refuses_lists_of_different_lengths(lookup):
    _, gradient, addresses = lookup
    for sequence in (list, tuple):
        with pytest.raises(ValueError, match="1 gradients but 2"):
            descent().apply_gradients([sequence([gradient]), sequence([addresses, addresses])])
