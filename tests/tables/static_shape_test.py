"""Static shape, init(use_dynamic=False): a batch brings a table no more different ids than its lookups' send_count."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.graph import last_report, modify_graph_and_start_emb_cache
from mx_rec.optimizers import gradient_descent, lazy_adam
from tests.shared import model

v1 = tf.compat.v1
pytestmark = pytest.mark.border
DIM = model.DIM

every_mode = pytest.mark.parametrize("mode", ["spec", "in_step", "modified"])
modes_with_one_plan = pytest.mark.parametrize("mode", ["spec", "modified"])
train_or_eval = pytest.mark.parametrize("is_train", [True, False], ids=["train", "eval"])


@pytest.fixture
def static():
    with model.process(use_dynamic=False) as graph:
        yield graph


class Source:
    """Batches of `features`, arrays with an entry per step; `mode` says where their ids are prepared."""

    def __init__(self, mode, features, table="t", is_train=True):
        self._mode = mode
        self._is_train = is_train
        self._specs = {name: FeatureSpec(name, table_name=table) for name in features}
        dataset = tf.data.Dataset.from_tensor_slices(features).repeat()
        if mode == "spec":
            dataset = dataset.map(get_asc_insert_func(list(self._specs.values()), is_training=is_train))
        self._batch = v1.data.make_one_shot_iterator(dataset).get_next()

    def look_up(self, table, name, send_count, **options):
        ids = self._specs[name] if self._mode == "spec" else self._batch[name]
        options = {"is_train": self._is_train, "modify_graph": self._mode == "modified", **options}
        return sparse_lookup(table, ids, send_count, batch=self._batch, **options)

    def start(self):
        (modify_graph_and_start_emb_cache if self._mode == "modified" else start_asc_pipeline)()


@contextlib.contextmanager
def session():
    with v1.Session() as opened:
        opened.run(v1.global_variables_initializer())
        yield opened


def refuses(capacity, different):
    """The error of a batch with too many different ids."""
    return pytest.raises(
        tf.errors.InvalidArgumentError,
        match=f"table 't'.*must not exceed {capacity}, .*send_count, got {different}; raise send_count.* {different},",
    )


def training_step(loss, table, optimizer=None):
    optimizer = optimizer or gradient_descent.create_hash_optimizer(1.0)
    return optimizer.apply_gradients(zip(tf.gradients(loss, [table.variable]), [table.variable]))


# ---- What is counted ----


@train_or_eval
@every_mode
def test_a_batch_may_bring_as_many_different_ids_as_send_count(mode, is_train, static):
    table = model.table("t")
    ids = np.array([[1, 2, 3, 4, 4, 1], [1, 2, 3, 4, 5, 5], [5, 5, 5, 5, 5, 6]])
    if not is_train:
        table.native.write(np.unique(ids), np.full((6, 1, DIM), 0.25))
    source = Source(mode, {"x": ids}, is_train=is_train)
    found = source.look_up(table, "x", 4)
    source.start()
    with session() as run:
        np.testing.assert_array_equal(run.run(found), np.full((6, DIM), 0.25))
        with refuses(4, 5):
            run.run(found)
        if is_train:
            assert sorted(table.native.keys()) == [1, 2, 3, 4], "a refused batch leaves no row behind"
        np.testing.assert_array_equal(run.run(found), np.full((6, DIM), 0.25))  # of the next batch


@train_or_eval
@modes_with_one_plan
def test_the_send_counts_of_a_tables_lookups_add_up(mode, is_train, static):
    table = model.table("t")
    features = {
        "x": np.array([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]),  # more than its own send_count
        "y": np.array([[4, 5], [4, 4], [5, 6]]),
    }
    source = Source(mode, features, is_train=is_train)
    found = [source.look_up(table, "x", 3), source.look_up(table, "y", 2)]
    source.start()
    with session() as run:
        run.run(found)
        run.run(found)
        with refuses(5, 6):
            run.run(found)
    assert table.size() == (5 if is_train else 0)


@train_or_eval
def test_tensors_that_are_prepared_in_the_step_are_counted_each_for_itself(is_train, static):
    table = model.table("t")
    source = Source("in_step", {"x": np.array([[1, 2, 3]]), "y": np.array([[4, 5]])}, is_train=is_train)
    x, y = source.look_up(table, "x", 2), source.look_up(table, "y", 3)
    source.start()
    with session() as run:
        with refuses(2, 3):
            run.run(x)
        run.run(y)


def test_tensors_that_count_together_for_admission_do_so_here(static):
    table = model.table("t")
    source = Source("in_step", {"x": np.array([[1, 2, 3], [1, 2, 3]]), "y": np.array([[3, 4], [4, 5]])})
    config = {"access_threshold": 0}
    found = [source.look_up(table, name, 2, access_and_evict_config=config) for name in ("x", "y")]
    source.start()
    with session() as run:
        run.run(found)
        with refuses(4, 5):
            run.run(found)


def test_a_list_of_specs_may_bring_send_count_times_their_number(static):
    table = model.table("t")
    specs = [FeatureSpec(name, table_name="t") for name in ("x", "y")]
    dataset = tf.data.Dataset.from_tensor_slices({"x": [[1, 2, 3], [1, 2, 3]], "y": [[3, 4], [4, 5]]})
    batch = v1.data.make_one_shot_iterator(dataset.map(get_asc_insert_func(specs))).get_next()
    found = sparse_lookup(table, specs, 2, batch=batch)
    with session() as run:
        run.run(found)
        with refuses(4, 5):
            run.run(found)


def test_a_spec_that_is_looked_up_again_counts_once_with_its_larger_send_count(static):
    table = model.table("t")
    source = Source("spec", {"x": np.array([[1, 2, 3]])})
    views = [
        source.look_up(table, "x", 1),
        source.look_up(table, "x", 2),
        source.look_up(table, "x", 2, combiner="sum"),  # by an op of its own
        source.look_up(table, "x", 1, is_train=False),  # by another one
    ]
    with session() as run:
        for view in views:
            with refuses(2, 3):
                run.run(view)
    assert table.size() == 0


def test_training_and_evaluation_of_one_batch_count_together(static):
    # Each of the two ops resolves the keys of the whole batch.
    table = model.table("t")
    source = Source("spec", {"x": np.array([[1, 2], [1, 2]]), "y": np.array([[3, 4], [3, 5]])})
    x, y = source.look_up(table, "x", 2), source.look_up(table, "y", 2, is_train=False)
    with session() as run:
        run.run([x, y])
        run.run([x, y])
    assert table.size() == 5


def test_tables_of_one_batch_have_capacities_of_their_own(static):
    tables = [model.table(name) for name in ("t", "u")]
    specs = [FeatureSpec(name) for name in ("t", "u")]
    dataset = tf.data.Dataset.from_tensor_slices({"t": [[1, 2], [1, 3]], "u": [[1, 2, 3], [4, 5, 6]]})
    dataset = dataset.concatenate(tf.data.Dataset.from_tensors({"t": [1, 2, 3], "u": [7, 8, 9]}))
    batch = v1.data.make_one_shot_iterator(dataset.map(get_asc_insert_func(specs))).get_next()
    found = [sparse_lookup(table, spec, n, batch=batch) for table, spec, n in zip(tables, specs, (2, 3))]
    with session() as run:
        run.run(found)
        run.run(found)
        with refuses(2, 3):
            run.run(found)
    assert [table.size() for table in tables] == [3, 6], "no table of a refused batch gets a row"


def test_a_refused_batch_is_not_counted_for_admission(static):
    table = model.table("t")
    source = Source("in_step", {"x": np.array([[1, 2], [1, 3]])})
    wide = Source("in_step", {"x": np.array([[1, 2, 4]])})
    config = {"access_threshold": 2}
    narrow, wide = (s.look_up(table, "x", 2, access_and_evict_config=config) for s in (source, wide))
    with session() as run:
        run.run(narrow)
        before = table.stats()
        with refuses(2, 3):
            run.run(wide)
        assert table.stats() == before
        run.run(narrow)
    assert table.native.keys().tolist() == [1], "2 has occurred once in the batches that were trained"


@pytest.mark.parametrize("fused", ["sum", "concatenation"])
@modes_with_one_plan
def test_what_is_fused_into_a_lookup_is_still_checked(mode, fused, static):
    table = model.table("t")
    source = Source(mode, {"x": np.array([[[1, 2]], [[1, 2]]]), "y": np.array([[[2, 3]], [[3, 4]]])})
    parts = [source.look_up(table, name, count) for name, count in (("x", 2), ("y", 1))]
    if fused == "sum":
        outputs = [tf.reduce_sum(part, axis=-2) for part in parts]
    else:
        outputs = [tf.concat(parts, axis=-1)]
    step = training_step(sum(tf.reduce_sum(output) for output in outputs), table)
    source.start()
    assert len(last_report().fused) == len(outputs)
    with session() as run:
        run.run(step)
        with refuses(3, 4):
            run.run(step)
    assert sorted(table.native.keys()) == [1, 2, 3]


@pytest.mark.parametrize("version", [1, 2], ids=["control_flow_v1", "control_flow_v2"])
def test_a_lookup_in_a_branch_is_checked(version, static):
    was_v2 = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
    try:
        table = model.table("t")
        source = Source("spec", {"x": np.array([[1, 2, 3]])})
        is_wide = v1.placeholder(tf.bool, [])
        ids = tf.constant([4, 5], tf.int64)
        found = tf.cond(is_wide, lambda: source.look_up(table, "x", 2), lambda: sparse_lookup(table, ids, 2))
    finally:
        (v1.enable_control_flow_v2 if was_v2 else v1.disable_control_flow_v2)()
    with session() as run:
        with refuses(2, 3):
            run.run(found, {is_wide: True})
        run.run(found, {is_wide: False})
    assert sorted(table.native.keys()) == [4, 5]


def test_dynamic_shape_does_not_count(started):
    table = model.table("t")
    source = Source("spec", {"x": np.array([[1, 2, 3]])})
    found = source.look_up(table, "x", 2)
    with session() as run:
        assert run.run(found).shape == (3, DIM)


# ---- Static shape changes no value ----


@every_mode
def test_static_shape_trains_and_evaluates_to_the_same_bits(mode):
    random = np.random.RandomState(0)
    data = {"x": model.zipf(random, model.vocabulary(50), (20, 16)), "y": random.randint(0, 9, (20, 4, 2))}

    def outcome(use_dynamic):
        with model.process(use_dynamic=use_dynamic):
            table = model.table("t", v1.random_normal_initializer(seed=1))
            sources = [Source(mode, data), Source(mode, {k: v[:5] + 1 for k, v in data.items()}, is_train=False)]
            train, evaluation = ([s.look_up(table, name, 20) for name in data] for s in sources)
            default = sources[1].look_up(table, "x", 20, serving_default_value=tf.constant(7.0))
            loss = tf.nn.l2_loss(train[0]) + tf.nn.l2_loss(tf.reduce_sum(train[1], axis=1))
            step = training_step(loss, table, lazy_adam.create_hash_optimizer(0.1))
            sources[0].start()
            with session() as run:
                seen = [[run.run([loss, step])[0], *run.run([*evaluation, default])] for _ in range(20)]
            return seen, {"t": model.dump(table)}

    seen, rows = outcome(use_dynamic=False)
    expected_seen, expected_rows = outcome(use_dynamic=True)
    model.assert_same_rows(rows, expected_rows)
    for values, expected in zip(zip(*seen), zip(*expected_seen)):
        np.testing.assert_array_equal(values, expected)
