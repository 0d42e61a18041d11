"""What must hold for every training run, however it is fed, cut or interrupted. "Same" means the same bits."""

import collections
import contextlib
import dataclasses
import subprocess
import sys
import tempfile
from typing import Callable

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import sparse_lookup
from mx_rec.optimizers import gradient_descent
from tests.shared import model
from tests.shared.optimizers import every_optimizer
from tests.shared.paths import ROOT
from tests.shared.training import PIPELINES, STEPS, Run, trained

v1 = tf.compat.v1

# ---- Preparing ahead by any distance = not preparing ahead ----


@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES.keys())
def test_how_far_the_dataset_runs_ahead_changes_nothing(pipeline, expansion):
    data = model.batches(STEPS)
    expected = trained(data, use_dynamic_expansion=expansion)
    trained(data, pipeline=pipeline, use_dynamic_expansion=expansion).assert_same(expected)


def test_a_cached_dataset_repeats_old_plans_and_changes_nothing():
    data = model.batches(STEPS // 2)
    expected = trained(data, pipeline=lambda dataset, insert: dataset.repeat(2).map(insert))
    cached = trained(data, pipeline=lambda dataset, insert: dataset.map(insert).cache().repeat(2))
    cached.assert_same(expected)


@every_optimizer
def test_batches_may_be_prepared_before_any_row_exists(create):
    data = model.batches(STEPS)
    expected = trained(data, create)
    with Run(data, create) as run:
        feeds = run.prepare()
        assert all(table.stats()["admitted"] == 0 for table in run.model.tables.values())
        run.train(feeds=feeds).assert_same(expected)


def test_batches_may_be_prepared_before_their_rows_are_erased_and_reused():
    data = model.batches(STEPS)
    victims = np.unique(data["single"])[::2]
    newcomers = model.batches(STEPS, seed=1, keys=np.arange(10**6, 10**6 + 150))

    def outcome(is_ahead):
        with Run({name: np.concatenate([data[name], newcomers[name]]) for name in data}) as run:
            first, new = run.prepare(), run.prepare()
            run.train(feeds=first)
            run.session.run(run.model.iterator.initializer)
            again = run.prepare() if is_ahead else None
            for table in run.model.tables.values():
                assert table.native.erase(victims) > 10
            run.train(feeds=new)  # takes over the vacant rows
            return run.train(feeds=again)

    outcome(is_ahead=True).assert_same(outcome(is_ahead=False))


@pytest.mark.parametrize("pipeline", ["prefetch_1", "prefetch_50"])
def test_evaluating_in_between_changes_no_training(pipeline):
    data = model.batches(STEPS)
    unknown = np.arange(5000, 5100)
    evaluation = model.batches(3, seed=9, keys=np.concatenate([unknown, np.unique(data["single"])]))
    expected = trained(data)

    def evaluate(run, step):
        if step % 4 == 1:
            assert len(run.evaluate()) == 3

    with Run(data, pipeline=PIPELINES[pipeline], evaluation=evaluation) as run:
        run.train(between=evaluate).assert_same(expected)


# ---- Garbage hints = good hints ----


def parts_of(plan):
    """[(keys, hints)] of a plan's tables, as views (native/batch/plan.h)."""
    parts = []
    for t in range(plan[1]):
        _, _, _, keys, first, _ = plan[6 + 6 * t : 12 + 6 * t]
        parts.append((plan[first : first + keys], plan[first + keys : first + 2 * keys]))
    return parts


def spoil(name, random):
    """A function that writes nonsense of one kind into a plan's hints."""
    extremes = np.array([-(2**63), -(2**32), -2, -1, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1])
    kinds = {
        "random_rows": lambda hints: random.randint(0, 1000, hints.size),
        "rows_of_other_slabs": lambda hints: random.randint(0, 2**18, hints.size),
        "extremes": lambda hints: random.choice(extremes, hints.size),
        "any": lambda hints: random.randint(-(2**63), 2**63 - 1, hints.size, np.int64),
        "one_too_high": lambda hints: hints + 1,
        "one_too_low": lambda hints: hints - 1,
        "of_another_key": lambda hints: hints[::-1].copy(),
        "all_the_same": lambda hints: np.zeros_like(hints),
        "none": lambda hints: np.full_like(hints, -1),
    }

    def function(plan):
        plan = plan.copy()
        for _, hints in parts_of(plan):
            hints[:] = kinds[name](hints)
        return plan

    return function


GARBAGE = [
    "random_rows",
    "rows_of_other_slabs",
    "extremes",
    "any",
    "one_too_high",
    "one_too_low",
    "of_another_key",
    "all_the_same",
    "none",
]


def test_hints_are_where_these_tests_look_for_them():
    data = model.batches(STEPS)
    with Run(data) as run:
        (batch,) = run.prepare(1)
        for _, hints in parts_of(batch[run.model.plan_key]):
            assert (hints == -1).all()
        run.session.run(run.model.iterator.initializer)
        run.train()
        run.session.run(run.model.iterator.initializer)
        (batch,) = run.prepare(1)
        shared, own = parts_of(batch[run.model.plan_key])
        assert set(shared[0]) == set(batch["single"]) | set(batch["multi"].reshape(-1))
        assert set(own[0]) == set(batch["other"])
        for _, hints in (shared, own):
            assert (hints >= 0).all()
            assert len(set(hints)) > 0.8 * len(hints)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_hints_change_nothing(garbage, expansion):
    data = model.batches(STEPS)
    evaluation = model.batches(2, seed=4, keys=np.concatenate([np.unique(data["single"]), np.arange(7000, 7050)]))

    def erase_and_evaluate(losses):
        def between(run, step):
            if step % 5 == 4:
                for table in run.model.tables.values():
                    assert table.native.erase(data["single"][step :: 2 * STEPS]) > 0
                losses.append(run.evaluate())

        return between

    def run(pipeline):
        losses = []
        with Run(data, pipeline=pipeline, evaluation=evaluation, use_dynamic_expansion=expansion) as run:
            return run.train(between=erase_and_evaluate(losses)), losses

    def spoiling(dataset, insert):
        function = spoil(garbage, np.random.RandomState(0))

        def insert_and_spoil(batch):
            prepared = insert(batch)
            (key,) = prepared.keys() - batch.keys()
            plan = tf.numpy_function(function, [prepared[key]], tf.int64)
            plan.set_shape([None])
            return {**prepared, key: plan}

        return dataset.map(insert_and_spoil)

    expected, expected_losses = run(model.map_only)
    outcome, losses = run(spoiling)
    outcome.assert_same(expected)
    assert losses == expected_losses


@pytest.mark.parametrize("is_training", [True, False], ids=["grouped", "plain"])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_no_hint_gives_a_row_to_a_key_that_has_none(garbage, is_training):
    with model.process(), v1.Session() as session:
        table = model.table("t")
        table.native.write(np.arange(100), np.ones((100, 1, model.DIM)))
        assert table.native.erase(np.arange(50)) == 50
        spec = FeatureSpec("t")
        dataset = tf.data.Dataset.from_tensors({"t": np.array([2**40, 7, -1, 60])})
        batch = v1.data.make_one_shot_iterator(
            dataset.map(get_asc_insert_func(spec, is_training=is_training)).repeat()
        ).get_next()
        embeddings = sparse_lookup(table, spec, is_train=False, batch=batch)
        session.run(v1.global_variables_initializer())
        prepared = session.run(batch)
        (plan_key,) = prepared.keys() - {"t"}
        function = spoil(garbage, np.random.RandomState(1))
        for _ in range(20):
            values = session.run(embeddings, {batch[plan_key]: function(prepared[plan_key])})
            np.testing.assert_array_equal(values, np.array([[0.0], [0.0], [0.0], [1.0]]) * np.ones(model.DIM))


# ---- Expansion on = expansion off ----


@every_optimizer
def test_dynamic_expansion_changes_no_bit(create):
    data = model.batches(STEPS)
    limited = trained(data, create, use_dynamic_expansion=False)
    trained(data, create, use_dynamic_expansion=True).assert_same(limited)


# ---- 1 thread = n threads ----

# TensorFlow makes its pool of threads once per process, so each number needs a process of its own. Every gradient is
# computed elementwise: nothing but ours could depend on the number.
THREADS_SCRIPT = """
import os, sys
from tests.shared import model
from tests.shared.optimizers import OPTIMIZERS
import numpy as np, tensorflow as tf
from mx_rec.core.embedding import sparse_lookup

v1 = tf.compat.v1
threads, path = int(sys.argv[1]), sys.argv[2]
config = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
data = model.batches(3, keys=np.random.RandomState(8).permutation(model.vocabulary(5000)), batch=4096, dim=16)
results = {}
for name, create in OPTIMIZERS.items():
    with model.process(), v1.Session(config=config) as session:
        built = model.build(data, dim=16, batch=4096, rows=10**6, initializer=v1.random_normal_initializer())
        variables = [table.variable for table in built.tables.values()]
        loss = sum(tf.reduce_sum(e * e) for e in built.embeddings.values())
        step = create().apply_gradients(zip(tf.gradients(loss, variables), variables))
        session.run([v1.global_variables_initializer(), built.iterator.initializer])
        for i in range(3):
            fetched = session.run({"step": step, **built.embeddings})
        for feature in built.embeddings:
            results[name + feature] = fetched[feature]
        for table, (keys, rows) in built.rows().items():
            results[name + table + "keys"], results[name + table] = keys, rows
np.savez(path, threads=len(os.listdir("/proc/self/task")), **results)
"""


def test_the_number_of_threads_changes_nothing(tmp_path):
    outcomes = []
    for threads in (1, 4):
        path = tmp_path / f"{threads}.npz"
        result = subprocess.run(
            [sys.executable, "-c", THREADS_SCRIPT, str(threads), str(path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert result.returncode == 0, result.stdout
        with np.load(path) as archive:
            outcomes.append(dict(archive))
    assert outcomes[0].pop("threads") < outcomes[1].pop("threads")
    assert outcomes[0].keys() == outcomes[1].keys()
    for name, one in outcomes[0].items():
        np.testing.assert_array_equal(one, outcomes[1][name], err_msg=name)


# ---- Train k, save, restore, train k = train 2k; save then load = identity ----


@every_optimizer
def test_an_interrupted_training_ends_where_an_uninterrupted_one_does(create, expansion, tmp_path):
    data = model.batches(2 * STEPS)
    half = STEPS * model.BATCH
    with Run(data, create, use_dynamic_expansion=expansion) as run:
        first, expected = run.train(), run.train()
    with Run({name: array[:half] for name, array in data.items()}, create, use_dynamic_expansion=expansion) as run:
        run.train().assert_same(first)
        path = run.saver.save(run.session, str(tmp_path / "model"), global_step=STEPS)
    with Run({name: array[half:] for name, array in data.items()}, create, use_dynamic_expansion=expansion) as run:
        run.saver.restore(run.session, path)
        run.train().assert_same(expected)


def test_saving_in_the_middle_changes_no_training(tmp_path):
    data = model.batches(STEPS)
    expected = trained(data)

    def save(run, step):
        if step % 6 == 3:
            run.saver.save(run.session, str(tmp_path / "model"), global_step=step)

    with Run(data, pipeline=PIPELINES["prefetch_50"]) as run:
        run.train(between=save).assert_same(expected)


@every_optimizer
def test_save_then_load_is_identity(create, tmp_path):
    data = model.batches(STEPS)
    with Run(data, create) as run:
        saved = run.train()
        path = run.saver.save(run.session, str(tmp_path / "model"))
    # Restored into empty tables, and over other rows.
    for seed in (None, 77):
        with Run(data if seed is None else model.batches(STEPS, seed=seed), create) as run:
            if seed is not None:
                run.train()
            run.saver.restore(run.session, path)
            model.assert_same_rows(run.model.rows(), saved.rows)
            np.testing.assert_array_equal(run.session.run(run.weight), saved.weight)


def test_a_training_saved_without_expansion_goes_on_with_it(tmp_path):
    data = model.batches(2 * STEPS)
    half = STEPS * model.BATCH
    with Run(data) as run:
        run.train()
        expected = run.train()
    with Run({name: array[:half] for name, array in data.items()}) as run:
        run.train()
        path = run.saver.save(run.session, str(tmp_path / "model"))
    with Run({name: array[half:] for name, array in data.items()}, use_dynamic_expansion=True) as run:
        run.saver.restore(run.session, path)
        run.train().assert_same(expected)


# ---- Inserted = present + erased ----


def test_rows_inserted_are_rows_present_and_rows_erased(expansion):
    data = model.batches(STEPS)
    seen = collections.defaultdict(set)
    present = collections.defaultdict(set)
    erased = collections.Counter()
    inserted = collections.Counter()
    random = np.random.RandomState(0)

    with Run(data, use_dynamic_expansion=expansion) as run:
        for step in range(STEPS):
            for feature, name in model.TABLE_OF.items():
                keys = set(data[feature][step * model.BATCH : (step + 1) * model.BATCH].reshape(-1).tolist())
                inserted[name] += len(keys - present[name])
                present[name] |= keys
                seen[name] |= keys
            run.train(1)
            for name, table in run.model.tables.items():
                victims = random.choice(sorted(seen[name]) + [123456789], 5, replace=False)
                gone = present[name] & set(victims.tolist())
                assert table.native.erase(victims) == len(gone)
                erased[name] += len(gone)
                present[name] -= gone
                stats = table.stats()
                assert (stats["rows"], stats["admitted"], stats["evicted"]) == (
                    len(present[name]),
                    inserted[name],
                    erased[name],
                )
                assert stats["admitted"] == stats["rows"] + stats["evicted"]
                assert set(table.native.keys().tolist()) == present[name]
                assert table.size() == len(present[name])


# ---- A random sequence of operations on a table = the same on a dict ----

KEYS = st.sampled_from([*model.ODD_KEYS, *range(100, 130)])
BATCH_OF_KEYS = st.lists(KEYS, max_size=12)
OPERATION = st.one_of(
    st.tuples(st.just("train"), BATCH_OF_KEYS),
    st.tuples(st.just("evaluate"), BATCH_OF_KEYS),
    st.tuples(st.just("erase"), BATCH_OF_KEYS),
    st.tuples(st.just("save"), st.none()),
    st.tuples(st.just("restore"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)


@dataclasses.dataclass
class TableUnderTest:
    """A table trained by gradient descent through ids that are fed, in a process of its own."""

    table: object
    session: object
    saver: object
    train: Callable
    evaluate: Callable


def open_table(stack, expansion):
    stack.enter_context(model.process(use_dynamic_expansion=expansion))
    session = stack.enter_context(v1.Session())
    table = model.table("t", v1.constant_initializer(0.5), dim=3)
    ids = v1.placeholder(tf.int64, [None])
    factor = v1.placeholder(tf.float32, [])
    rows = sparse_lookup(table, ids)
    # The gradient at a position is the row itself times a factor.
    gradient = tf.gradients(factor * tf.reduce_sum(rows * rows) / 2, [table.variable])
    step = gradient_descent.create_hash_optimizer(0.125).apply_gradients(zip(gradient, [table.variable]))
    read = sparse_lookup(table, ids, is_train=False)
    saver = v1.train.Saver()
    session.run(v1.global_variables_initializer())
    return TableUnderTest(
        table,
        session,
        saver,
        lambda keys, by: session.run([rows, step], {ids: keys, factor: by})[0],
        lambda keys: session.run(read, {ids: keys}),
    )


@pytest.mark.parametrize("is_expanding", [False, True], ids=["limited", "expanding"])
@settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(operations=st.lists(OPERATION, min_size=5, max_size=40))
def test_a_table_behaves_as_a_dict_of_rows(is_expanding, operations):
    fresh, missing = np.full(3, 0.5), np.zeros(3)
    rows, saved = {}, None
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        tested = open_table(stack, is_expanding)
        for i, (operation, keys) in enumerate(operations):
            if operation == "train":
                for key in keys:
                    rows.setdefault(key, fresh)
                seen = tested.train(keys, 1.0 + i % 3)
                np.testing.assert_allclose(seen, np.reshape([rows[key] for key in keys], (-1, 3)), rtol=1e-5)
                for key, times in collections.Counter(keys).items():
                    rows[key] = rows[key] - 0.125 * (1.0 + i % 3) * times * rows[key]
            elif operation == "evaluate":
                expected = np.reshape([rows.get(key, missing) for key in keys], (-1, 3))
                np.testing.assert_allclose(tested.evaluate(keys), expected, rtol=1e-5)
            elif operation == "erase":
                assert tested.table.native.erase(keys) == len(rows.keys() & set(keys))
                for key in keys:
                    rows.pop(key, None)
            elif operation == "save":
                path = tested.saver.save(tested.session, f"{directory}/model", global_step=i)
                saved = dict(rows)
            elif saved is not None:
                if operation == "restart":
                    stack.close()
                    tested = open_table(stack, is_expanding)
                tested.saver.restore(tested.session, path)
                rows = dict(saved)
            present = sorted(rows)
            keys, values = model.dump(tested.table)
            assert keys.tolist() == present
            np.testing.assert_allclose(values[:, 0], np.reshape([rows[key] for key in present], (-1, 3)), rtol=1e-5)


# ---- Evaluation changes no byte ----


def test_evaluation_changes_no_byte_of_any_table(expansion):
    data = model.batches(STEPS)
    known = np.unique(data["single"])
    unknown = np.arange(40000, 40300)
    evaluation = model.batches(5, seed=6, keys=np.concatenate([unknown, known]))
    with Run(data, evaluation=evaluation, use_dynamic_expansion=expansion) as run:
        run.train()
        before, stats = run.model.rows(), {name: t.stats() for name, t in run.model.tables.items()}
        assert len(run.evaluate()) == 5
        model.assert_same_rows(run.model.rows(), before)
        assert {name: t.stats() for name, t in run.model.tables.items()} == stats


def test_evaluation_of_unknown_keys_reads_zeros_and_inserts_nothing(started):
    table = model.table("t")
    batch, specs = model.one_batch({"t": np.array([[1, 2], [3, 2]])}, is_training=False)
    in_step = sparse_lookup(table, tf.constant([1, 5], tf.int64), is_train=False)
    embeddings = sparse_lookup(table, specs["t"], is_train=False, batch=batch)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for values in session.run([embeddings, in_step]):
            np.testing.assert_array_equal(values, 0.0)
    assert table.stats()["admitted"] == 0


@pytest.mark.parametrize("first", ["trained", "frozen"])
def test_a_table_that_is_only_evaluated_stays_as_it_is_beside_a_trained_one(first, started):
    # One batch, one insert function, as with a pretrained table under a model that trains others.
    tables = {name: model.table(name) for name in ("trained", "frozen")}
    tables["frozen"].native.write([1], np.full((1, 1, model.DIM), 2.0))
    batch, specs = model.one_batch({name: np.array([1, 2]) for name in tables})
    embeddings = {}
    for name in sorted(tables, key=lambda name: name != first):
        embeddings[name] = sparse_lookup(tables[name], specs[name], is_train=name == "trained", batch=batch)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        values = session.run(embeddings)
    np.testing.assert_array_equal(values["trained"], np.full((2, model.DIM), 0.25))
    np.testing.assert_array_equal(values["frozen"], np.array([[2.0], [0.0]]) * np.ones(model.DIM))
    assert tables["frozen"].native.keys().tolist() == [1]
