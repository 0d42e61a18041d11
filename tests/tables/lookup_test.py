"""Looking up rows: ids of any shape, batches of any structure, and first values as the initializer says."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.core.feature_process import evict
from mx_rec.graph import modify_graph_and_start_emb_cache
from mx_rec.optimizers import gradient_descent, lazy_adam
from tests.shared import model

v1 = tf.compat.v1

DIM = model.DIM
OPTIMIZERS = {
    "gradient_descent": lambda: gradient_descent.create_hash_optimizer(1.0),
    "lazy_adam": lambda: lazy_adam.create_hash_optimizer(0.1),
}


def value_of(key):
    """The row that these tests give to a key: exact in float32, different in every column, and for nearby keys."""
    return np.float32(hash(int(key)) % 100003) + np.arange(DIM, dtype=np.float32) / 16


def values_of(ids):
    ids = np.asarray(ids)
    return np.reshape([value_of(key) for key in ids.reshape(-1)], (*ids.shape, DIM)).astype(np.float32)


def filled(name, keys, **options):
    """A table whose rows are value_of their keys."""
    table = model.table(name, **options)
    keys = np.unique(keys)
    table.native.write(keys, values_of(keys)[:, None])
    return table


def get_next(dataset, is_one_shot=True):
    if is_one_shot:
        return v1.data.make_one_shot_iterator(dataset).get_next()
    iterator = v1.data.make_initializable_iterator(dataset)
    v1.add_to_collection(v1.GraphKeys.LOCAL_INIT_OP, iterator.initializer)
    return iterator.get_next()


def run(fetches, times=1):
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.get_collection(v1.GraphKeys.LOCAL_INIT_OP)])
        for _ in range(times):
            values = session.run(fetches)
        return values


def training_step(create, loss, tables):
    variables = [table.variable for table in tables]
    return create().apply_gradients(zip(tf.gradients(loss, variables), variables))


def count(op_type):
    return sum(op.type == op_type for op in tf.compat.v1.get_default_graph().get_operations())


# ---- Ids ----

SHAPED = {
    "rank_0": np.array(5),
    "rank_1": np.array([5, 6, 5]),
    "rank_2": np.array([[5, 6, 5], [7, 5, -8]]),
    "rank_3": np.arange(24).reshape(2, 3, 4) % 7,
    "rank_2_of_one": np.array([[9]]),
    "no_example": np.zeros((0, 3), np.int64),
    "no_ids_per_example": np.zeros((3, 0), np.int64),
}
every_shape = pytest.mark.parametrize("ids", SHAPED.values(), ids=SHAPED.keys())


@every_shape
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_ids_of_any_rank_and_integer_type_read_their_rows(ids, dtype, started):
    table = filled("t", range(-10, 30))
    batch, specs = model.one_batch({"t": ids.astype(dtype)})
    embeddings = sparse_lookup(table, specs["t"], batch=batch)
    assert embeddings.dtype == tf.float32
    assert embeddings.shape == (*ids.shape, DIM)
    np.testing.assert_array_equal(run(embeddings), values_of(ids))


@every_shape
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_ids_in_the_step_read_the_same_rows(ids, dtype, started):
    table = filled("t", range(-10, 30))
    embeddings = sparse_lookup(table, tf.constant(ids.astype(dtype)))
    assert embeddings.shape == (*ids.shape, DIM)
    np.testing.assert_array_equal(run(embeddings), values_of(ids))


@every_shape
def test_arrays_and_lists_of_ids_are_constants(ids, started):
    table = filled("t", range(-10, 30))
    for given in (ids, ids.astype(np.int16), ids.tolist()):
        if isinstance(given, list) and not given:
            continue  # of no FeatureSpecs
        embeddings = sparse_lookup(table, given)
        assert embeddings.shape == (*ids.shape, DIM)
        np.testing.assert_array_equal(run(embeddings), values_of(ids))


@every_shape
def test_every_position_sends_its_gradient_to_its_row(ids, started):
    table = filled("t", range(-10, 30))
    batch, specs = model.one_batch({"t": ids})
    factors = np.arange(1.0, ids.size + 1, dtype=np.float32).reshape(ids.shape)
    loss = tf.reduce_sum(sparse_lookup(table, specs["t"], batch=batch) * factors[..., None])
    run(training_step(OPTIMIZERS["gradient_descent"], loss, [table]))
    keys, values = model.dump(table)
    for key, row in zip(keys, values[:, 0]):
        np.testing.assert_array_equal(row, value_of(key) - factors[ids == key].sum())


def test_a_table_of_int32_keys_reads_int32_ids(started):
    table = create_table(tf.int32, DIM, "t", v1.constant_initializer(0.5), device_vocabulary_size=100)
    batch, specs = model.one_batch({"t": np.array([-1, 2**31 - 1, -(2**31)], np.int32)})
    np.testing.assert_array_equal(run(sparse_lookup(table, specs["t"], batch=batch)), np.full((3, DIM), 0.5))
    assert sorted(table.native.keys()) == [-(2**31), -1, 2**31 - 1]


def test_the_last_batch_may_be_short(started):
    ids = np.arange(10)
    table = filled("t", ids)
    spec = FeatureSpec("t")
    batch = get_next(tf.data.Dataset.from_tensor_slices({"t": ids}).batch(4).map(get_asc_insert_func(spec)))
    embeddings = sparse_lookup(table, spec, batch=batch)
    assert embeddings.shape.as_list() == [None, DIM]
    seen = []
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                seen.append(session.run(embeddings))
    assert [len(part) for part in seen] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate(seen), values_of(ids))


def test_an_empty_batch_in_training_changes_no_row(started):
    table = filled("t", range(5))
    before = model.dump(table)
    ids = v1.placeholder(tf.int64, [None, None])
    embeddings = sparse_lookup(table, ids)
    step = training_step(OPTIMIZERS["gradient_descent"], tf.reduce_sum(embeddings), [table])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for shape in ((0, 3), (3, 0), (0, 0)):
            assert session.run([embeddings, step], {ids: np.zeros(shape, np.int64)})[0].shape == (*shape, DIM)
    model.assert_same_rows({"t": model.dump(table)}, {"t": before})


@pytest.mark.parametrize("mode", ["spec", "in_step", "modified"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_batches_may_change_their_size_from_step_to_step(rank, mode, started):
    random = np.random.RandomState(rank)
    shapes = [(n, *random.randint(0, 4, rank - 1)) for n in (5, 0, 1, 40, 3, 0, 0, 12)]
    batches = [random.randint(-6, 6, shape) for shape in shapes]
    table = filled("t", range(-6, 6))
    spec = FeatureSpec("t")
    dataset = tf.data.Dataset.from_generator(lambda: batches, tf.int64, [None] * rank).map(lambda ids: {"t": ids})
    if mode == "spec":
        dataset = dataset.map(get_asc_insert_func(spec))
    batch = get_next(dataset, is_one_shot=False)
    ids = spec if mode == "spec" else batch["t"]
    embeddings = sparse_lookup(table, ids, batch=batch, modify_graph=mode == "modified")
    assert embeddings.shape.as_list() == [None] * rank + [DIM]
    step = training_step(OPTIMIZERS["gradient_descent"], tf.reduce_sum(embeddings), [table])
    (modify_graph_and_start_emb_cache if mode == "modified" else start_asc_pipeline)()
    rows = {key: value_of(key) for key in range(-6, 6)}
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.get_collection(v1.GraphKeys.LOCAL_INIT_OP)])
        for keys in batches:
            seen = session.run([embeddings, step])[0]
            expected = np.reshape([rows[key] for key in keys.flat], (*keys.shape, DIM))
            np.testing.assert_array_equal(seen, expected)
            for key in keys.flat:
                rows[key] = rows[key] - 1
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(step)
    keys, values = model.dump(table)
    np.testing.assert_array_equal(values[:, 0], [rows[key] for key in keys])


@pytest.mark.parametrize("drop_remainder", [True, False])
def test_shapes_are_as_static_as_the_ids_are(drop_remainder, started):
    table = model.table("t")
    specs = [FeatureSpec("one", table_name="t"), FeatureSpec("many", table_name="t")]
    data = {"one": np.arange(8), "many": np.arange(24).reshape(8, 3)}
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(4, drop_remainder=drop_remainder)
    batch = get_next(dataset.map(get_asc_insert_func(specs)))
    one, many = (sparse_lookup(table, spec, batch=batch) for spec in specs)
    size = 4 if drop_remainder else None
    assert one.shape.as_list() == [size, DIM]
    assert many.shape.as_list() == [size, 3, DIM]
    assert one.shape.is_fully_defined() == drop_remainder
    if drop_remainder:  # so that a layer of a fixed size can follow
        assert tf.reshape(many, [4, 3 * DIM]).shape.as_list() == [4, 3 * DIM]


def test_shapes_of_tuple_batches_are_static_too(started):
    table = model.table("t")
    spec = FeatureSpec("t", index_key=1)
    dataset = tf.data.Dataset.from_tensor_slices((np.arange(8.0), np.arange(24).reshape(8, 3)))
    batch = get_next(dataset.batch(4, drop_remainder=True).map(get_asc_insert_func(spec)))
    assert sparse_lookup(table, spec, batch=batch).shape.as_list() == [4, 3, DIM]


@pytest.mark.parametrize(
    "keys",
    [
        np.array(model.ODD_KEYS),
        np.arange(-3000, 3000),
        np.arange(6000) * 2**20,
        np.arange(6000) * 2**32 - 2**40,
        np.arange(6000) * -(2**50),
        np.concatenate([2**63 - 1 - np.arange(3000), -(2**63) + np.arange(3000)]),
        model.vocabulary(6000),
    ],
    ids=["odd", "sequential", "steps_of_2^20", "steps_of_2^32", "steps_of_-2^50", "extremes", "any"],
)
def test_every_int64_is_a_key_of_its_own(keys, expansion):
    with model.process(use_dynamic_expansion=expansion), v1.Session() as session:
        table = model.table("t", rows=6000)
        ids = v1.placeholder(tf.int64, [None])
        embeddings = sparse_lookup(table, ids)
        step = training_step(OPTIMIZERS["gradient_descent"], tf.reduce_sum(embeddings * values_of(keys)), [table])
        session.run(v1.global_variables_initializer())
        session.run(step, {ids: keys})
        np.testing.assert_array_equal(session.run(embeddings, {ids: keys}), 0.25 - values_of(keys))
        assert sorted(table.native.keys().tolist()) == sorted(set(keys.tolist()))


# ---- Batches ----


def test_batches_may_be_dicts(started):
    table = filled("t", range(10))
    spec = FeatureSpec("any_name", table_name="t", index_key="key")
    batch = get_next(tf.data.Dataset.from_tensors({"key": [1, 2], "label": [0.5]}).map(get_asc_insert_func(spec)))
    assert set(batch) == {"key", "label", "label_read_emb_key"}
    np.testing.assert_array_equal(run(sparse_lookup(table, spec, batch=batch)), values_of([1, 2]))


def test_batches_may_be_tuples(started):
    tables = [filled("a", range(10)), filled("b", range(10), init_param=2.0)]
    specs = [FeatureSpec("a", index_key=0), FeatureSpec("b", index_key=2)]
    dataset = tf.data.Dataset.from_tensors(([1, 2], [0.5], [[3], [4]]))
    batch = get_next(dataset.map(get_asc_insert_func(specs)))
    assert len(batch) == 4
    a, b = run([sparse_lookup(table, spec, batch=batch) for table, spec in zip(tables, specs)])
    np.testing.assert_array_equal(a, values_of([1, 2]))
    np.testing.assert_array_equal(b, values_of([[3], [4]]))


def test_batches_may_be_a_single_tensor(started):
    table = filled("t", range(10))
    spec = FeatureSpec("t", index_key=0)
    batch = get_next(tf.data.Dataset.from_tensors([1, 2]).map(get_asc_insert_func(spec)))
    np.testing.assert_array_equal(run(sparse_lookup(table, spec, batch=batch)), values_of([1, 2]))


def test_batches_may_be_features_and_label(started):
    tables = [filled("a", range(10)), filled("b", range(10))]
    specs = [FeatureSpec("a"), FeatureSpec("b")]
    dataset = tf.data.Dataset.from_tensors(({"a": [1, 2], "inner": {"b": [[3], [4]]}}, [0.5, 1.0]))
    batch = get_next(dataset.map(get_asc_insert_func(specs)))
    assert set(batch[0]) == {"a", "inner"}
    a, b, label = run([*(sparse_lookup(t, spec, batch=batch) for t, spec in zip(tables, specs)), batch[1]])
    np.testing.assert_array_equal(a, values_of([1, 2]))
    np.testing.assert_array_equal(b, values_of([[3], [4]]))
    np.testing.assert_array_equal(label, [0.5, 1.0])


def test_positions_and_tables_may_be_given_without_specs(started):
    tables = {"a": filled("a", range(10)), "b": filled("b", range(10))}
    insert = get_asc_insert_func(args_index_list=[1, 0], table_names=["a", "b"])
    batch = get_next(tf.data.Dataset.from_tensors(([1, 2], [3, 4])).map(insert))
    values = run({spec.table_name: sparse_lookup(tables[spec.table_name], spec, batch=batch) for spec in insert.specs})
    np.testing.assert_array_equal(values["a"], values_of([3, 4]))
    np.testing.assert_array_equal(values["b"], values_of([1, 2]))


def test_a_batch_may_pass_through_further_maps(started):
    table = filled("t", range(10))
    spec = FeatureSpec("t")
    dataset = tf.data.Dataset.from_tensors({"t": [1, 2], "x": [1.0]}).map(get_asc_insert_func(spec))
    dataset = dataset.map(lambda batch: {**batch, "x": batch["x"] * 2}).prefetch(2)
    np.testing.assert_array_equal(run(sparse_lookup(table, spec, batch=get_next(dataset))), values_of([1, 2]))


def test_a_feature_that_the_batch_lacks_is_skipped(started):
    table = filled("t", range(10))
    specs = [FeatureSpec("absent", table_name="t"), FeatureSpec("present", table_name="t")]
    batch = get_next(tf.data.Dataset.from_tensors({"present": [1, 2]}).map(get_asc_insert_func(specs)))
    np.testing.assert_array_equal(run(sparse_lookup(table, specs[1], batch=batch)), values_of([1, 2]))


def test_one_dataset_may_feed_several_iterators(started):
    table = filled("t", range(10))
    spec = FeatureSpec("t")
    datasets = [
        tf.data.Dataset.from_tensors({"t": ids}).repeat().map(get_asc_insert_func(spec)) for ids in ([1, 2], [3, 4, 5])
    ]
    batches = [get_next(dataset) for dataset in datasets]
    values = run([sparse_lookup(table, spec, batch=batch) for batch in batches])
    np.testing.assert_array_equal(values[0], values_of([1, 2]))
    np.testing.assert_array_equal(values[1], values_of([3, 4, 5]))


# ---- Specs and ops ----


def test_specs_may_share_a_name(started):
    table = filled("t", range(10))
    specs = [FeatureSpec("t"), FeatureSpec("t", index_key="other")]
    assert specs[0].name != specs[1].name
    batch = get_next(tf.data.Dataset.from_tensors({"t": [1, 2], "other": [[3]]}).map(get_asc_insert_func(specs)))
    first, second = run([sparse_lookup(table, spec, batch=batch) for spec in specs])
    np.testing.assert_array_equal(first, values_of([1, 2]))
    np.testing.assert_array_equal(second, values_of([[3]]))


def test_a_list_of_specs_gives_a_list_and_a_list_of_one_a_tensor(started):
    table = filled("t", range(10))
    specs = [FeatureSpec("t"), FeatureSpec("t", index_key="other")]
    batch = get_next(tf.data.Dataset.from_tensors({"t": [1, 2], "other": [[3]]}).map(get_asc_insert_func(specs)))
    single = sparse_lookup(table, specs[:1], batch=batch)
    both = sparse_lookup(table, specs, batch=batch)
    assert isinstance(both, list)
    single, both = run([single, both])
    np.testing.assert_array_equal(single, values_of([1, 2]))
    np.testing.assert_array_equal(both[0], values_of([1, 2]))
    np.testing.assert_array_equal(both[1], values_of([[3]]))


def test_all_lookups_of_an_insert_function_share_one_commit(started):
    features = {name: np.arange(4) for name in ("a", "b", "c")}
    specs = [FeatureSpec(name) for name in features] + [FeatureSpec("again", table_name="a", index_key="b")]
    batch = get_next(tf.data.Dataset.from_tensors(features).map(get_asc_insert_func(specs)))
    tables = {name: filled(name, range(4)) for name in features}
    embeddings = [sparse_lookup(tables[spec.table_name], spec, batch=batch) for spec in specs]
    assert count("MxrecLookup") == 1
    assert count("MxrecPrepare") == 0  # it is in the dataset
    for values in run(embeddings):
        np.testing.assert_array_equal(values, values_of(range(4)))


def test_tables_may_be_created_one_by_one_between_their_lookups(started):
    features = {name: np.arange(4) for name in ("a", "b")}
    batch, specs = model.one_batch(features)
    embeddings = []
    for name in features:
        table = filled(name, range(4))
        embeddings.append(sparse_lookup(table, specs[name], batch=batch))
    for values in run(embeddings):
        np.testing.assert_array_equal(values, values_of(range(4)))


def test_a_repeated_lookup_is_the_same_tensor(started):
    table = model.table("t")
    batch, specs = model.one_batch({"t": np.array([1, 2])})
    first = sparse_lookup(table, specs["t"], batch=batch)
    assert sparse_lookup(table, specs["t"], batch=batch) is first
    assert sparse_lookup(table, [specs["t"]], batch=batch, name="again") is first
    assert sparse_lookup(table, specs["t"], batch=batch, is_train=False) is not first


# ---- Gradients ----


def test_ids_in_the_step_train_the_same_bits_as_prepared_ids(expansion):
    data = {name: array.reshape(20, -1) for name, array in model.batches(20).items() if name in ("single", "multi")}

    def outcome(in_step):
        with model.process(use_dynamic_expansion=expansion), v1.Session() as session:
            specs = {name: FeatureSpec(name) for name in data}
            batch = get_next(tf.data.Dataset.from_tensor_slices(data).map(get_asc_insert_func(list(specs.values()))))
            tables = {name: model.table(name, v1.random_normal_initializer(seed=1)) for name in data}
            embeddings = {
                name: sparse_lookup(table, batch[name] if in_step else specs[name], batch=batch)
                for name, table in tables.items()
            }
            loss = sum(tf.nn.l2_loss(values) for values in embeddings.values())
            step = training_step(OPTIMIZERS["lazy_adam"], loss, tables.values())
            session.run(v1.global_variables_initializer())
            seen = [session.run([embeddings, step])[0] for _ in range(20)]
            return seen, {name: model.dump(table) for name, table in tables.items()}

    seen, rows = outcome(in_step=True)
    expected_seen, expected_rows = outcome(in_step=False)
    for name in data:
        np.testing.assert_array_equal([step[name] for step in seen], [step[name] for step in expected_seen])
    model.assert_same_rows(rows, expected_rows)


def test_gradients_pass_through_gather(started):
    table = filled("t", range(10))
    batch, specs = model.one_batch({"t": np.array([4, 5, 6, 5])})
    embeddings = sparse_lookup(table, specs["t"], batch=batch)
    picked = tf.gather(embeddings, [1, 1, 3, 0])  # its gradient is IndexedSlices
    run(training_step(OPTIMIZERS["gradient_descent"], tf.reduce_sum(picked), [table]))
    for key, g in ((4, 1.0), (5, 3.0), (6, 0.0)):
        np.testing.assert_array_equal(table.native.read([key])[0][0, 0], value_of(key) - g)


def test_a_lookup_without_gradient_gives_none(started):
    tables = [filled("a", range(4)), filled("b", range(4))]
    batch, specs = model.one_batch({"a": np.arange(4), "b": np.arange(4)})
    a = sparse_lookup(tables[0], specs["a"], batch=batch)
    b = sparse_lookup(tables[1], specs["b"], batch=batch, is_grad=False)
    loss = tf.reduce_sum(a * b)
    assert count("MxrecLookup") == 1
    gradients = tf.gradients(loss, [table.variable for table in tables])
    assert isinstance(gradients[0], tf.IndexedSlices)
    assert gradients[1] is None
    assert tf.gradients(tf.reduce_sum(b), [tables[1].variable]) == [None]


def test_a_table_without_gradient_keeps_its_bits_beside_a_trained_one(started):
    # Both were trained, so there is momentum that a step with a gradient of zeros would follow.
    tables = [filled("a", range(5, 9)), filled("b", range(5, 9))]
    batch, specs = model.one_batch({"a": np.arange(5, 9), "b": np.arange(5, 9)})
    embeddings = [sparse_lookup(table, specs[table.table_name], batch=batch) for table in tables]
    both = training_step(OPTIMIZERS["lazy_adam"], tf.reduce_sum(embeddings[0] * embeddings[1]), tables)
    stopped = sparse_lookup(tables[1], specs["b"], batch=batch, is_grad=False)
    only_a = training_step(OPTIMIZERS["lazy_adam"], tf.reduce_sum(embeddings[0] * stopped), tables)
    assert count("MxrecLookup") == 1
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(5):
            session.run(both)
        before = [model.dump(table) for table in tables]
        for _ in range(5):
            session.run(only_a)
    model.assert_same_rows({"b": model.dump(tables[1])}, {"b": before[1]})
    assert (model.dump(tables[0])[1][:, 0] != before[0][1][:, 0]).all()


def test_the_table_gets_the_gradient_of_the_lookups_that_have_one(started):
    table = filled("t", range(10))
    specs = [FeatureSpec("x", table_name="t"), FeatureSpec("y", table_name="t")]
    batch = get_next(tf.data.Dataset.from_tensors({"x": [1, 2], "y": [2, 3]}).map(get_asc_insert_func(specs)))
    x = sparse_lookup(table, specs[0], batch=batch)
    y = sparse_lookup(table, specs[1], batch=batch, is_grad=False)
    run(training_step(OPTIMIZERS["gradient_descent"], tf.reduce_sum(x + y), [table]))
    for key, g in ((1, 1.0), (2, 1.0), (3, 0.0)):
        np.testing.assert_array_equal(table.native.read([key])[0][0, 0], value_of(key) - g)


def test_rows_seen_only_without_gradient_keep_their_bits(started):
    table = filled("t", range(1, 5))
    specs = [FeatureSpec("x", table_name="t"), FeatureSpec("y", table_name="t")]
    batch = get_next(
        tf.data.Dataset.from_tensors({"x": [1, 2], "y": [2, 3, 4]}).repeat().map(get_asc_insert_func(specs))
    )
    x, y = (sparse_lookup(table, spec, batch=batch) for spec in specs)
    stopped = sparse_lookup(table, specs[1], batch=batch, is_grad=False)
    both = training_step(OPTIMIZERS["lazy_adam"], tf.reduce_sum(x) + tf.reduce_sum(y), [table])
    only_x = training_step(OPTIMIZERS["lazy_adam"], tf.reduce_sum(x) + tf.reduce_sum(stopped), [table])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(both)
        before = table.native.read([1, 2, 3, 4])[0]
        session.run(only_x)
    after = table.native.read([1, 2, 3, 4])[0]
    assert (after[:2] != before[:2]).all()
    np.testing.assert_array_equal(after[2:], before[2:])


@pytest.mark.parametrize("create", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_rows_of_padding_keys_are_read_and_never_updated(create, expansion):
    with model.process(use_dynamic_expansion=expansion):
        padding = [0, -1, 77]
        table = model.table("t", padding_keys=padding, padding_keys_mask=True, padding_keys_len=3)
        batch, specs = model.one_batch({"t": np.array([[0, 1, -1], [2, 77, 1]])})
        embeddings = sparse_lookup(table, specs["t"], batch=batch)
        step = training_step(create, tf.reduce_sum(embeddings), [table])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            np.testing.assert_array_equal(session.run([embeddings, step])[0], np.full((2, 3, DIM), 0.25))
            for _ in range(3):
                seen = session.run([embeddings, step])[0]
        is_padding = np.isin([[0, 1, -1], [2, 77, 1]], padding)
        np.testing.assert_array_equal(seen[is_padding], 0.25)
        assert (seen[~is_padding] < 0.25).all()
        keys, values = model.dump(table)
        assert set(padding) < set(keys.tolist())
        np.testing.assert_array_equal(values[np.isin(keys, padding), 0], 0.25)
        np.testing.assert_array_equal(values[np.isin(keys, padding), 1:], 0.0)


# ---- Control flow ----


@pytest.fixture(params=[1, 2], ids=["control_flow_v1", "control_flow_v2"])
def control_flow(request):
    """The two implementations of tf.cond: Switch and Merge in the graph itself, or a function per branch."""
    was_v2 = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if request.param == 2 else v1.disable_control_flow_v2)()
    yield
    (v1.enable_control_flow_v2 if was_v2 else v1.disable_control_flow_v2)()


@pytest.fixture(params=["spec", "tensor"])
def condition(request, control_flow, started):
    """(condition to feed, table, embeddings of keys [1, 2, 1] if it is true, else zeros)."""
    table = filled("t", range(10))
    batch, specs = model.one_batch({"t": np.array([1, 2, 1])})
    is_on = v1.placeholder(tf.bool, [])

    def look():
        if request.param == "spec":
            return sparse_lookup(table, specs["t"], batch=batch)
        return sparse_lookup(table, tf.constant([1, 2, 1], tf.int64))

    return is_on, table, tf.cond(is_on, look, lambda: tf.zeros([3, DIM]))


def test_a_lookup_may_stand_in_a_branch(condition):
    is_on, table, embeddings = condition
    step = training_step(OPTIMIZERS["gradient_descent"], tf.reduce_sum(embeddings), [table])
    expected = {1: value_of(1), 2: value_of(2)}
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for on in (True, False, True):
            seen = session.run([embeddings, step], {is_on: on})[0]
            if on:
                np.testing.assert_array_equal(seen, [expected[1], expected[2], expected[1]])
                expected = {1: expected[1] - 2, 2: expected[2] - 1}
            else:
                np.testing.assert_array_equal(seen, 0.0)
            for key, row in expected.items():
                np.testing.assert_array_equal(table.native.read([key])[0][0, 0], row)


def test_a_branch_that_is_not_taken_inserts_nothing(control_flow, started):
    table = model.table("t")
    is_on = v1.placeholder(tf.bool, [])
    embeddings = tf.cond(
        is_on,
        lambda: sparse_lookup(table, tf.constant([1], tf.int64)),
        lambda: sparse_lookup(table, tf.constant([2], tf.int64)),
    )
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(embeddings, {is_on: False})
        assert table.native.keys().tolist() == [2]
        session.run(embeddings, {is_on: True})
        assert sorted(table.native.keys()) == [1, 2]


def test_lookups_in_branches_may_share_their_name_with_others(control_flow, started):
    table = filled("t", range(10))
    is_on = v1.placeholder(tf.bool, [])

    def lookup(key):
        return sparse_lookup(table, tf.constant([key], tf.int64), name="lookup")

    outside = lookup(1)
    inside = tf.cond(is_on, lambda: lookup(2), lambda: lookup(3))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for on, key in ((True, 2), (False, 3)):
            values = session.run([outside, inside], {is_on: on})
            np.testing.assert_array_equal(values[0], [value_of(1)])
            np.testing.assert_array_equal(values[1], [value_of(key)])


# ---- Modes ----


def test_evaluation_gives_unknown_ids_the_default(started):
    table = filled("t", [1, 3])
    batch, specs = model.one_batch({"t": np.array([[1, 2], [3, 4]])}, is_training=False)
    default = tf.constant(np.arange(DIM), tf.float32)
    embeddings = sparse_lookup(table, specs["t"], is_train=False, batch=batch, serving_default_value=default)
    in_step = sparse_lookup(table, tf.constant([2, 3]), is_train=False, serving_default_value=tf.constant(-1.0))
    assert embeddings.shape.as_list() == [2, 2, DIM]
    values, in_step = run([embeddings, in_step])
    np.testing.assert_array_equal(values, [[value_of(1), np.arange(DIM)], [value_of(3), np.arange(DIM)]])
    np.testing.assert_array_equal(in_step, [np.full(DIM, -1.0), value_of(3)])
    assert sorted(table.native.keys()) == [1, 3]


def test_training_never_needs_the_default(started):
    table = model.table("t")
    batch, specs = model.one_batch({"t": np.array([1, 2])})
    embeddings = sparse_lookup(table, specs["t"], batch=batch, serving_default_value=tf.constant(9.0))
    run(training_step(OPTIMIZERS["gradient_descent"], tf.reduce_sum(embeddings), [table]))
    np.testing.assert_array_equal(table.native.read([1, 2])[0][:, 0], 0.25 - 1.0)


def test_training_and_evaluation_of_one_batch_may_share_a_step(started):
    table = filled("t", [1])
    batch, specs = model.one_batch({"t": np.array([1])})
    train = sparse_lookup(table, specs["t"], batch=batch)
    read = sparse_lookup(table, specs["t"], batch=batch, is_train=False)
    for values in run([train, read]):
        np.testing.assert_array_equal(values, [value_of(1)])


IDS = np.array([[7, 7, 3], [-1, 7, 99]])


@pytest.mark.parametrize("shape", [(2, 3), (6,), (3, 2, 1)])
def test_a_batch_prepared_for_evaluation_is_read_in_every_shape(started, shape):
    ids = IDS.reshape(shape)
    table, other = filled("t", [7, 3, -1]), filled("u", [99])
    batch, specs = model.one_batch({"t": ids, "u": ids}, is_training=False)
    embeddings = [
        sparse_lookup(owner, spec, is_train=False, batch=batch) for owner, spec in zip((table, other), specs.values())
    ]
    summed = sparse_lookup(table, specs["t"], is_train=False, batch=batch, combiner="sum")
    values, others, sums = run([*embeddings, summed])
    np.testing.assert_array_equal(values, np.where((ids == 99)[..., None], 0, values_of(ids)))
    np.testing.assert_array_equal(others, np.where((ids == 99)[..., None], values_of(ids), 0))
    np.testing.assert_array_equal(sums, values.sum(-2))
    assert sorted(table.native.keys()) == [-1, 3, 7]


def test_a_batch_prepared_for_evaluation_can_train_with_a_warning(started, caplog):
    table, other = model.table("t"), model.table("u")
    batch, specs = model.one_batch({"t": IDS, "u": IDS[:, 0]}, is_training=False)
    loss = tf.reduce_sum(sparse_lookup(table, specs["t"], batch=batch))
    loss += tf.reduce_sum(sparse_lookup(other, specs["u"], batch=batch))
    read = sparse_lookup(table, specs["t"], is_train=False, batch=batch)
    assert len([r for r in caplog.records if "is_training=True" in r.getMessage()]) == 1
    step = training_step(OPTIMIZERS["gradient_descent"], loss, [table, other])
    run(step)
    keys, values = model.dump(table)
    assert keys.tolist() == [-1, 3, 7, 99]
    np.testing.assert_array_equal(values[:, 0, 0], 0.25 - np.array([1, 1, 3, 1]))
    np.testing.assert_array_equal(model.dump(other)[1][:, 0, 0], 0.25 - np.array([1, 1]))
    np.testing.assert_array_equal(run(read)[..., 0], 0.25 - np.array([[3, 3, 1], [1, 3, 1]]))


@pytest.mark.parametrize("combiner", [None, "sum"])
def test_gradients_of_an_evaluation_add_up_over_the_positions_of_a_key(started, combiner):
    table = filled("t", [7, 3])
    batch, specs = model.one_batch({"t": IDS}, is_training=False)
    read = sparse_lookup(table, specs["t"], is_train=False, batch=batch, combiner=combiner)
    run(training_step(OPTIMIZERS["gradient_descent"], tf.reduce_sum(read), [table]))
    keys, values = model.dump(table)
    assert keys.tolist() == [3, 7]
    np.testing.assert_array_equal(values[:, 0], values_of([3, 7]) - [[1], [3]])


one_shot_or_not = pytest.mark.parametrize("is_one_shot", [True, False], ids=["one_shot", "initializable"])


@one_shot_or_not
def test_static_shapes_need_a_send_count_and_no_batch(is_one_shot):
    with model.process(use_dynamic=False):
        table = filled("t", range(10))
        spec = FeatureSpec("t")
        dataset = tf.data.Dataset.from_tensor_slices({"t": np.arange(8).reshape(4, 2), "x": np.arange(4.0)})
        dataset = dataset.batch(2, drop_remainder=True).map(get_asc_insert_func(spec)).prefetch(2)
        batch = get_next(dataset, is_one_shot)
        with pytest.raises(ValueError, match="send_count"):
            sparse_lookup(table, spec)
        embeddings = sparse_lookup(table, spec, 16)
        assert embeddings.shape.as_list() == [2, 2, DIM]
        assert table.send_count == 16
        start_asc_pipeline()
        values, x = run([embeddings, batch["x"]])
        np.testing.assert_array_equal(values, values_of([[0, 1], [2, 3]]))
        np.testing.assert_array_equal(x, [0.0, 1.0])


@one_shot_or_not
def test_without_a_batch_train_and_eval_datasets_are_told_apart(is_one_shot):
    with model.process(use_dynamic=False):
        table = filled("t", range(10))
        embeddings = []
        for ids, is_train in (([1, 2], True), ([3, 4], False)):
            spec = FeatureSpec("t")
            insert = get_asc_insert_func(spec, is_training=is_train)
            get_next(tf.data.Dataset.from_tensors({"t": ids}).map(insert), is_one_shot)
            embeddings.append(sparse_lookup(table, spec, 16, is_train=is_train))
        train, evaluation = run(embeddings)
        np.testing.assert_array_equal(train, values_of([1, 2]))
        np.testing.assert_array_equal(evaluation, values_of([3, 4]))


def test_graphs_find_a_table_by_its_name(started):
    table = filled("t", [1, 2])
    step = training_step(
        OPTIMIZERS["gradient_descent"], tf.reduce_sum(sparse_lookup(table, tf.constant([2, 3], tf.int64))), [table]
    )
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(step)
        with tf.Graph().as_default():
            other = model.table("t")
            assert other is not table
            batch, specs = model.one_batch({"t": np.array([1, 2, 3, 4])}, is_training=False)
            embeddings = sparse_lookup(other, specs["t"], is_train=False, batch=batch)
            expected = [value_of(1), value_of(2) - 1, np.full(DIM, 0.25 - 1), np.zeros(DIM)]
            np.testing.assert_array_equal(run(embeddings), expected)
        session.run(step)
        np.testing.assert_array_equal(other.native.read([2])[0][0, 0], value_of(2) - 2)


def test_rows_outlive_the_session(started):
    table = model.table("t")
    embeddings = sparse_lookup(table, tf.constant([5], tf.int64))
    step = training_step(OPTIMIZERS["gradient_descent"], tf.reduce_sum(embeddings), [table])
    for i in range(3):
        # A new session initializes its variables; rows are none.
        np.testing.assert_array_equal(run([embeddings, step])[0], np.full((1, DIM), 0.25 - i))


def test_rows_end_with_the_process_state():
    for _ in range(2):
        with model.process():
            table = model.table("t")
            assert table.size() == 0
            run(sparse_lookup(table, tf.constant([1, 2], tf.int64)))
            assert table.size() == 2


def test_a_limited_table_has_the_capacity_of_its_vocabulary_from_the_start(started):
    table = model.table("t", rows=100)
    tiers = model.table("tiers", rows=100, host_vocabulary_size=20, ssd_vocabulary_size=3)
    assert (table.size(), table.capacity()) == (0, 100)
    assert (tiers.size(), tiers.capacity()) == (0, 123)
    run([sparse_lookup(t, tf.constant([1, 2, 3, 2], tf.int64)) for t in (table, tiers)])
    run(sparse_lookup(table, tf.constant([7, 8], tf.int64), is_train=False))
    assert (table.size(), table.capacity()) == (3, 100)
    assert (tiers.size(), tiers.capacity()) == (3, 123)


def test_an_expanding_table_has_the_capacity_that_it_has_grown_to():
    with model.process(use_dynamic_expansion=True):
        table = model.table("t", rows=100)
        assert (table.size(), table.capacity()) == (0, 0)
        ids = v1.placeholder(tf.int64, [None])
        embeddings = sparse_lookup(table, ids)
        capacity = 0
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for rows in (1, 90, 250, 5000):
                session.run(embeddings, {ids: np.arange(rows)})
                assert table.size() == rows <= table.capacity()
                assert table.capacity() >= capacity
                capacity = table.capacity()
            session.run(embeddings, {ids: np.arange(5000)})  # nothing new
        assert (table.size(), table.capacity()) == (5000, capacity)
        assert evict("norm", below=100.0) == {"t": 5000}
        assert (table.size(), table.capacity()) == (0, capacity), "memory stays with the table"


def test_a_full_table_says_so_and_keeps_its_rows(started):
    table = model.table("t", rows=4)
    ids = v1.placeholder(tf.int64, [None])
    embeddings = sparse_lookup(table, ids)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(embeddings, {ids: [1, 2, 3]})
        with pytest.raises(tf.errors.ResourceExhaustedError, match="'t' is full.*device_vocabulary_size"):
            session.run(embeddings, {ids: [3, 4, 5]})
        assert sorted(table.native.keys()) == [1, 2, 3]
        assert session.run(embeddings, {ids: [4, 4, 1]}).shape == (3, DIM)


# ---- First values ----

SAMPLE_ROWS = 12500  # times 8 floats: 100,000 values


def first_values(initializer, name="t", keys=None, dim=8, rows=SAMPLE_ROWS, **options):
    """What training finds in new rows, in a process of its own."""
    with model.process():
        table = model.table(name, initializer(), dim=dim, rows=rows, **options)
        keys = np.arange(rows) if keys is None else keys
        return run(sparse_lookup(table, tf.constant(keys, tf.int64)))


INITIALIZERS = {
    "v1_zeros": v1.zeros_initializer,
    "v1_ones": v1.ones_initializer,
    "v1_constant": lambda: v1.constant_initializer(-0.75),
    "v1_random_normal": lambda: v1.random_normal_initializer(0.5, 2.0),
    "v1_truncated_normal": lambda: v1.truncated_normal_initializer(-1.0, 0.1),
    "v1_random_uniform": lambda: v1.random_uniform_initializer(-0.2, 0.6),
    "v1_random_uniform_by_default": v1.random_uniform_initializer,
    "v1_uniform_unit_scaling": lambda: v1.uniform_unit_scaling_initializer(1.3),
    "v1_variance_scaling": lambda: v1.variance_scaling_initializer(0.7, mode="fan_out"),
    "v1_variance_scaling_untruncated": lambda: v1.variance_scaling_initializer(
        2.0, mode="fan_avg", distribution="untruncated_normal"
    ),
    "v1_glorot_normal": v1.glorot_normal_initializer,
    "v1_glorot_uniform": v1.glorot_uniform_initializer,
    "v1_he_normal": v1.initializers.he_normal,
    "v1_he_uniform": v1.initializers.he_uniform,
    "v1_lecun_normal": v1.initializers.lecun_normal,
    "v2_zeros": tf.zeros_initializer,
    "v2_ones": tf.ones_initializer,
    "v2_constant": lambda: tf.constant_initializer(3.5),
    "v2_random_normal": lambda: tf.random_normal_initializer(-2.0, 0.3),
    "v2_random_uniform": lambda: tf.random_uniform_initializer(1.0, 1.5),
    "keras_zeros": tf.keras.initializers.Zeros,
    "keras_ones": tf.keras.initializers.Ones,
    "keras_constant": lambda: tf.keras.initializers.Constant(0.125),
    "keras_random_normal": lambda: tf.keras.initializers.RandomNormal(0.0, 0.7),
    "keras_truncated_normal": lambda: tf.keras.initializers.TruncatedNormal(0.1, 0.7),
    "keras_random_uniform": lambda: tf.keras.initializers.RandomUniform(-3.0, -1.0),
    "keras_variance_scaling": lambda: tf.keras.initializers.VarianceScaling(
        1.5, mode="fan_out", distribution="uniform"
    ),
    "keras_glorot_normal": tf.keras.initializers.GlorotNormal,
    "keras_glorot_uniform": tf.keras.initializers.GlorotUniform,
    "keras_he_normal": tf.keras.initializers.HeNormal,
    "keras_he_uniform": tf.keras.initializers.HeUniform,
    "keras_lecun_uniform": tf.keras.initializers.LecunUniform,
}
every_initializer = pytest.mark.parametrize("initializer", INITIALIZERS.values(), ids=INITIALIZERS.keys())


def sampled_by_tensorflow(initializer, shape):
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        return session.run(initializer()(shape, dtype=tf.float32))


@every_initializer
def test_first_values_are_distributed_as_tensorflow_distributes_them(initializer):
    values = first_values(initializer).astype(np.float64)
    expected = sampled_by_tensorflow(initializer, [SAMPLE_ROWS, 8]).astype(np.float64)
    spread = expected.std()
    assert (values.std() > 0) == (spread > 0)
    # The mean of 100,000 draws is off by spread / 316; all bounds are at least five of their deviations away.
    np.testing.assert_allclose(values.mean(), expected.mean(), rtol=1e-6, atol=0.025 * spread)
    np.testing.assert_allclose(values.std(), spread, rtol=0.02)
    levels = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(
        np.quantile(values, levels), np.quantile(expected, levels), rtol=1e-6, atol=0.05 * spread
    )
    np.testing.assert_allclose(values.mean(0), expected.mean(), rtol=1e-6, atol=0.06 * spread)  # of each column


@pytest.mark.parametrize(
    "initializer, low, high",
    [
        ("v1_truncated_normal", -1.2, -0.8),  # cut at two deviations
        ("keras_truncated_normal", -1.3, 1.5),
        ("v1_random_uniform", -0.2, 0.6),
        ("v1_random_uniform_by_default", 0.0, 1.0),
        ("v2_random_uniform", 1.0, 1.5),
        ("keras_random_uniform", -3.0, -1.0),
    ],
)
def test_bounded_first_values_fill_their_range(initializer, low, high):
    values = first_values(INITIALIZERS[initializer])
    slack = 1e-6 * max(abs(low), abs(high))
    assert low - slack <= values.min() < low + 0.01 * (high - low)
    assert high - 0.01 * (high - low) < values.max() <= high + slack


@every_initializer
def test_first_values_follow_from_the_key_alone(initializer):
    keys = model.vocabulary(300)
    together = first_values(initializer, keys=keys)
    shuffled = np.random.RandomState(0).permutation(300)
    np.testing.assert_array_equal(first_values(initializer, keys=keys[shuffled]), together[shuffled])
    np.testing.assert_array_equal(first_values(initializer, keys=keys[7:8]), together[7:8])


def test_first_values_differ_between_keys_tables_and_seeds():
    def sample(name="t", seed=1):
        return first_values(lambda: v1.random_normal_initializer(seed=seed), name, np.arange(100))

    values = sample()
    assert len(np.unique(values)) > 0.99 * values.size
    np.testing.assert_array_equal(sample(), values)
    for other in (sample(name="u"), sample(seed=2)):
        assert (other != values).mean() > 0.99


def test_first_values_follow_the_seed_of_the_graph():
    def sample(seed):
        with model.process():
            v1.set_random_seed(seed)
            table = model.table("t", v1.random_normal_initializer())
            return run(sparse_lookup(table, tf.constant([1, 2, 3], tf.int64)))

    np.testing.assert_array_equal(sample(5), sample(5))
    assert (sample(5) != sample(6)).all()


@pytest.mark.parametrize("scale", [2.0, -0.5, 0.0])
@pytest.mark.parametrize("initializer", ["v1_truncated_normal", "v1_random_uniform", "v1_constant", "keras_he_normal"])
def test_init_param_scales_first_values(initializer, scale):
    keys = np.arange(200)
    plain = first_values(INITIALIZERS[initializer], keys=keys)
    scaled = first_values(INITIALIZERS[initializer], keys=keys, init_param=scale)
    np.testing.assert_allclose(scaled, plain * np.float32(scale), rtol=1e-6)


def numbered_rows(shape, dtype=None):
    """Row i holds i + 0.5 in every column."""
    return np.full(shape, 0.5) + np.arange(shape[0])[:, None]


def numbered_rows_of_tensorflow(shape, dtype=tf.float32):
    return tf.cast(tf.range(shape[0]), dtype)[:, None] + 0.5 * tf.ones(shape, dtype)


def numbered_rows_without_dtype(shape):
    return numbered_rows(shape)


@pytest.mark.parametrize(
    "custom", [numbered_rows, numbered_rows_of_tensorflow, numbered_rows_without_dtype], ids=lambda f: f.__name__
)
def test_any_callable_is_honoured(custom):
    rows, keys = 400, np.arange(300)
    values = first_values(lambda: custom, keys=keys, rows=rows)
    assert (values == values[:, :1]).all()
    assert set(values[:, 0]) <= set(np.arange(rows) + 0.5)
    assert len(set(values[:, 0])) > 100
    np.testing.assert_array_equal(first_values(lambda: custom, keys=keys[::-1], rows=rows), values[::-1])
    scaled = first_values(lambda: custom, keys=keys, rows=rows, init_param=-2.0)
    np.testing.assert_array_equal(scaled, -2.0 * values)


def test_stock_initializers_that_the_core_does_not_know_are_honoured():
    values = first_values(lambda: tf.keras.initializers.Orthogonal(seed=1), rows=8, keys=np.arange(8))
    rows = np.unique(values, axis=0)
    # Rows of an orthogonal 8x8 matrix.
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-5)


def test_an_array_as_constant_gives_its_rows():
    array = np.arange(24, dtype=np.float32).reshape(3, 8)
    values = first_values(lambda: v1.constant_initializer(array), rows=3, keys=np.arange(3))
    assert {tuple(row) for row in values} <= {tuple(row) for row in array}


def test_an_initializer_class_is_as_good_as_an_instance():
    keys = np.arange(50)
    by_class = first_values(lambda: v1.random_uniform_initializer, keys=keys)
    np.testing.assert_array_equal(by_class, first_values(lambda: v1.random_uniform_initializer(), keys=keys))


@pytest.mark.parametrize(
    "broken, message",
    [
        ("uniform", "emb_initializer"),
        (lambda shape, dtype=None: np.zeros(3), r"shape asked for, \[1000, 10\], got \[3\]"),
        (lambda shape, dtype=None: 1 / 0, "division by zero"),
    ],
    ids=["text", "wrong_shape", "failing"],
)
def test_an_initializer_that_cannot_serve_is_refused(broken, message, started):
    with pytest.raises(ValueError, match=f"table 't'.*{message}"):
        model.table("t", broken)
