"""Graph modification: it changes where ids are computed and prepared, and no value."""

import contextlib
import dataclasses
import glob
import logging
import re

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.constants.constants import ASCEND_TIMESTAMP
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.graph import GraphModifierHook, last_report, modify_graph_and_start_emb_cache
from mx_rec.optimizers import adagrad, gradient_descent, lazy_adam
from mx_rec.util.initialize import ConfigInitializer, get_initializer, get_target_batch
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model

v1 = tf.compat.v1
pytestmark = pytest.mark.border
STEPS = 100
BATCH = 8
DIM = 8
CITIES = np.array([f"city {i}" for i in range(17)])


# ---- Law: FeatureSpec mode = graph modification = lookup in the step, bit for bit.


def columns(seed, rows):
    """The raw data of all graph shapes."""
    random = np.random.RandomState(seed)
    return {
        "user": random.randint(0, 300, rows),
        "items": random.randint(-20, 20, (rows, 3)).astype(np.int32),
        "city": random.choice(CITIES, rows),
        "price": random.rand(rows).astype(np.float32),
        "label": random.rand(rows).astype(np.float32),
    }


class Shape:
    """A kind of graph: its data, how it computes ids (`reads` names their tables), and how it trains."""

    is_one_shot = False
    stays = 0  # lookups that cannot move

    def dataset(self, data, repeat):
        return tf.data.Dataset.from_tensor_slices(data).batch(BATCH).repeat(repeat)

    def label(self, batch):
        return batch["label"]

    def pool(self, embeddings):
        return tf.add_n(embeddings)


class Strings(Shape):
    """A dict of strings and numbers; hashing, crossing, a static vocabulary; shuffled, mapped in parallel."""

    reads = ("city", "city", "user")

    def dataset(self, data, repeat):
        dataset = tf.data.Dataset.from_tensor_slices(data).shuffle(64, seed=3)
        dataset = dataset.map(lambda row: {**row, "price": row["price"] * 2}, num_parallel_calls=2)
        return dataset.batch(BATCH, drop_remainder=True).repeat(repeat).prefetch(2)

    def ids(self, batch):
        words = tf.lookup.KeyValueTensorInitializer(CITIES[:9], np.arange(9, dtype=np.int64))
        vocabulary = tf.lookup.StaticHashTable(words, -1)
        crossed = tf.strings.join([batch["city"], tf.strings.as_string(batch["user"] % 7)], "_x_")
        known = vocabulary.lookup(batch["city"])
        return [
            tf.strings.to_hash_bucket_fast(batch["city"], 1000),
            tf.where(known < 0, tf.strings.to_hash_bucket_fast(crossed, 50) + 5000, known),
            tf.strings.to_number(tf.strings.as_string(batch["user"]), tf.int64) * 31 % 97,
        ]

    def step(self, loss, dense, sparse):
        step = v1.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=dense)
        gradients = tf.gradients(loss, sparse)
        return [step, lazy_adam.create_hash_optimizer(0.05).apply_gradients(zip(gradients, sparse))]


class Nested(Shape):
    """A nested tuple from a one-shot iterator; casts, reshape, many ids per example, features side by side."""

    reads = ("user", "item", "item", "item")
    is_one_shot = True

    def dataset(self, data, repeat):
        rows = ((data["user"], data["items"]), (data["price"], data["label"]))
        return tf.data.Dataset.from_tensor_slices(rows).batch(BATCH).repeat(repeat)

    def ids(self, batch):
        (user, items), _ = batch
        return [
            user,
            tf.cast(items[:, :2], tf.int64) + 1000,
            tf.reshape(tf.tile(items[:, :2], [1, 9]), [-1, 18]),  # a sum of 16 and more has its own order
            tf.cast(tf.reshape(items, [-1])[:BATCH], tf.int32),
        ]

    def label(self, batch):
        return batch[1][1]

    def pool(self, embeddings):
        user, few, many, item = embeddings
        wide = tf.concat([user, tf.reduce_mean(few, axis=1), item, tf.reduce_sum(many, axis=-2)], axis=-1)
        return tf.reduce_sum(tf.reshape(wide, [-1, 4, DIM]), 1)

    def step(self, loss, dense, sparse):
        pairs = v1.train.AdagradOptimizer(0.1).compute_gradients(loss, dense)
        step = v1.train.AdagradOptimizer(0.1).apply_gradients(pairs)
        optimizer = adagrad.create_hash_optimizer(0.1)
        return [step, optimizer.apply_gradients(optimizer.compute_gradients(loss, sparse))]


class OneFeature(Shape):
    """Single tensors in a tuple; one feature in two tables, one table twice with the same ids, defaults."""

    reads = ("a", "b", "a", "a")

    def dataset(self, data, repeat):
        return tf.data.Dataset.from_tensor_slices((data["user"], data["label"])).batch(BATCH).repeat(repeat)

    def ids(self, batch):
        user = tf.where(batch[0] > 200, tf.zeros_like(batch[0]), batch[0])
        return [user, user, user, tf.expand_dims(user, 1) - [[0, 1]]]

    def label(self, batch):
        # The ids are wanted for something else, too.
        return batch[1] * tf.cast(self.ids(batch)[0] > 3, tf.float32)

    def pool(self, embeddings):
        *single, pairs = embeddings
        return tf.add_n(single) + tf.reduce_sum(pairs, axis=1)

    def step(self, loss, dense, sparse):
        return [
            v1.train.MomentumOptimizer(0.001, 0.9).minimize(loss, var_list=dense),
            gradient_descent.create_hash_optimizer(0.01).apply_gradients(zip(tf.gradients(loss, sparse), sparse)),
        ]


class Functions(Shape):
    """Branches and functions among the ops that compute ids; ids out of sparse and ragged tensors."""

    reads = ("user", "user", "item")

    def dataset(self, data, repeat):
        def add(row):
            tags = tf.sparse.from_dense(tf.cast(row["items"], tf.int64) + 21)
            lengths = tf.ones_like(row["user"])
            return {**row, "tags": tags, "ragged": tf.RaggedTensor.from_row_lengths(row["user"], lengths)}

        return tf.data.Dataset.from_tensor_slices(data).batch(BATCH).map(add).repeat(repeat)

    def ids(self, batch):
        @tf.function
        def double(x):
            return x * 2 + 1

        user = tf.cond(
            tf.equal(tf.reduce_sum(batch["user"]) % 2, 0), lambda: batch["user"], lambda: batch["user"] + 1000
        )
        tags = tf.sparse.to_dense(batch["tags"])
        with tf.control_dependencies([tf.identity(batch["price"])]):
            ragged = tf.identity(batch["ragged"].flat_values)
        return [user, double(ragged), tags]

    def pool(self, embeddings):
        user, ragged, tags = embeddings
        return user * 2 + ragged + tf.reduce_sum(tags, 1)

    def step(self, loss, dense, sparse):
        step = v1.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=dense)
        with tf.control_dependencies([step]):
            return [lazy_adam.create_hash_optimizer(0.05).apply_gradients(zip(tf.gradients(loss, sparse), sparse))]


class Mixed(Shape):
    """Some ids can move, others depend on a variable or on nothing; they read the same tables."""

    reads = ("user", "user", "item", "item")
    stays = 2

    def ids(self, batch):
        turn = tf.cast(v1.train.get_or_create_global_step(), tf.int64)
        return [
            batch["user"],
            (batch["user"] + turn) % 50,
            batch["items"][:, 0],
            tf.constant(np.arange(BATCH) % 3),
        ]

    def step(self, loss, dense, sparse):
        step = v1.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=dense)
        return [
            step,
            adagrad.create_hash_optimizer(0.1).apply_gradients(
                zip(tf.gradients(loss, sparse), sparse), global_step=v1.train.get_or_create_global_step()
            ),
        ]


SHAPES = [Strings, Nested, OneFeature, Functions, Mixed]


@dataclasses.dataclass
class Run:
    losses: list
    labels: list
    rows: dict

    def assert_same(self, other):
        assert self.losses == other.losses
        np.testing.assert_array_equal(self.labels, other.labels)
        model.assert_same_rows(self.rows, other.rows)


def build(shape, tables, weight, data, is_train, mode):
    """(initializer or None, batch label, loss) of one half of the model."""
    dataset = shape.dataset(data, -1 if is_train else 1)
    if mode == "spec":
        dataset = dataset.map(lambda *batch: _with_ids(shape, batch[0] if len(batch) == 1 else batch))
        specs = [FeatureSpec(f"ids{i}", table_name=name) for i, name in enumerate(shape.reads)]
        dataset = dataset.map(get_asc_insert_func(specs, is_training=is_train))
    if shape.is_one_shot and is_train:
        iterator, initializer = v1.data.make_one_shot_iterator(dataset), None
    else:
        iterator = v1.data.make_initializable_iterator(dataset)
        initializer = iterator.initializer
    batch = iterator.get_next()
    if mode == "spec":
        found = [sparse_lookup(tables[s.table_name], s, is_train=is_train, batch=batch) for s in specs]
        label = batch["label"]
    else:
        options = {"is_train": is_train, "modify_graph": mode == "modified", "batch": batch}
        found = [sparse_lookup(tables[name], ids, **options) for name, ids in zip(shape.reads, shape.ids(batch))]
        label = shape.label(batch)
    prediction = tf.linalg.matvec(shape.pool(found), weight)
    return initializer, label, tf.reduce_mean(tf.square(prediction - label))


def _with_ids(shape, batch):
    ids = {f"ids{i}": ids for i, ids in enumerate(shape.ids(batch))}
    return {**ids, "label": shape.label(batch)}


def train(shape_type, mode):
    with model.process():
        shape = shape_type()
        tables = {
            name: model.table(name, v1.random_uniform_initializer(-1, 1), DIM, rows=20000)
            for name in sorted(set(shape.reads))
        }
        weight = v1.get_variable("weight", initializer=np.linspace(-1, 1, DIM, dtype=np.float32))
        start, label, loss = build(shape, tables, weight, columns(1, 40 * BATCH), True, mode)
        start_eval, eval_label, eval_loss = build(shape, tables, weight, columns(2, 5 * BATCH), False, mode)
        step = shape.step(loss, *get_dense_and_sparse_variable())
        if mode == "modified":
            modify_graph_and_start_emb_cache()
            report = last_report()
            assert len(report.stayed) == 2 * shape.stays, str(report)
            start = get_initializer(True)
            start_eval = get_initializer(False)
            assert (start is None) == shape.is_one_shot
        elif mode == "spec":
            start_asc_pipeline()
        losses, labels = [], []
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            if start is not None:
                session.run(start)
            for number in range(STEPS):
                result = session.run([loss, label, step])
                losses.append(float(result[0]))
                labels.append(result[1])
                if number % 25 == 24:
                    session.run(start_eval)
                    with pytest.raises(tf.errors.OutOfRangeError):
                        while True:
                            losses.append(float(session.run(eval_loss)))
        return Run(losses, labels, {name: model.dump(table) for name, table in tables.items()})


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_changes_no_bit_of_a_training_with_evaluations(shape):
    expected = train(shape, "in_step")
    assert len(expected.losses) == STEPS + 4 * 5
    train(shape, "modified").assert_same(expected)
    if not shape.stays:  # what cannot be computed in a dataset cannot be a FeatureSpec
        train(shape, "spec").assert_same(expected)


# ---- State and order.


@pytest.fixture
def started():
    with model.process() as graph:
        yield graph


def numbers(count=20, is_one_shot=False, **batch):
    """(iterator, batch) of a dataset of the numbers below `count`, two at a time."""
    dataset = tf.data.Dataset.range(count).batch(2).map(lambda x: {"x": x, "y": tf.cast(x, tf.float32)})
    make = v1.data.make_one_shot_iterator if is_one_shot else v1.data.make_initializable_iterator
    iterator = make(dataset)
    return iterator, iterator.get_next()


def until_end(session, fetches):
    found = []
    with pytest.raises(tf.errors.OutOfRangeError):
        while True:
            found.append(session.run(fetches))
    return found


@pytest.mark.parametrize("is_one_shot", [True, False], ids=["one_shot", "initializable"])
def test_every_batch_is_seen_once_and_in_order(started, is_one_shot):
    iterator, batch = numbers(is_one_shot=is_one_shot)
    table = model.table("t")
    embeddings = sparse_lookup(table, batch["x"] * 3, modify_graph=True)
    summary = v1.summary.scalar("y", tf.reduce_sum(batch["y"]))
    mean, update = v1.metrics.mean(batch["y"])
    modify_graph_and_start_emb_cache()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        if not is_one_shot:
            session.run(iterator.initializer)  # the script's own
        seen = until_end(session, [batch["x"], batch["y"], embeddings, summary, update])
        np.testing.assert_array_equal([x for x, *_ in seen], np.arange(20).reshape(10, 2))
        np.testing.assert_array_equal([y for _, y, *_ in seen], np.arange(20).reshape(10, 2))
        for _, y, _, event, _ in seen:
            assert v1.Summary.FromString(event).value[0].simple_value == y.sum()
        assert session.run(mean) == 9.5
        assert sorted(table.native.keys()) == [3 * x for x in range(20)]
        if not is_one_shot:
            session.run(get_initializer(True))
            assert len(until_end(session, embeddings)) == 10


@pytest.mark.parametrize(("setting", "is_train"), [("max_steps", True), ("eval_steps", False)])
def test_the_data_ends_where_init_said(setting, is_train):
    with model.process(**{setting: 3}):
        _, batch = numbers()
        embeddings = sparse_lookup(model.table("t"), batch["x"], is_train=is_train, modify_graph=True)
        modify_graph_and_start_emb_cache()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(get_initializer(is_train))
            assert len(until_end(session, embeddings)) == 3


def test_a_fed_dataset_is_fed_through_its_own_initializer(started):
    values = v1.placeholder(tf.int64, [None])
    iterator = v1.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(values).batch(2))
    table = model.table("t")
    embeddings = sparse_lookup(table, iterator.get_next(), modify_graph=True)
    modify_graph_and_start_emb_cache()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for first in (0, 100):
            session.run(iterator.initializer, {values: np.arange(first, first + 4)})
            assert len(until_end(session, embeddings)) == 2
    assert sorted(table.native.keys()) == [0, 1, 2, 3, 100, 101, 102, 103]


def test_an_iterator_over_two_datasets_keeps_both(started):
    first, second = (tf.data.Dataset.range(start, start + 4).batch(2) for start in (0, 50))
    iterator = v1.data.Iterator.from_structure(v1.data.get_output_types(first), v1.data.get_output_shapes(first))
    initializers = [iterator.make_initializer(dataset) for dataset in (first, second)]
    table = model.table("t")
    train_it = sparse_lookup(table, iterator.get_next() + 1, modify_graph=True)
    read_it = sparse_lookup(table, iterator.get_next() + 1, is_train=False, modify_graph=True)
    modify_graph_and_start_emb_cache()
    with pytest.raises(RuntimeError, match="several datasets.*make_initializer"):
        get_initializer(True)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for initializer, fetch in zip(initializers, (train_it, read_it)):
            session.run(initializer)
            assert len(until_end(session, fetch)) == 2
    assert sorted(table.native.keys()) == [1, 2, 3, 4]


def test_one_initializer_serves_all_iterators_of_a_mode(started):
    batches = [numbers(count)[1] for count in (4, 8)]
    found = [sparse_lookup(model.table(name), batch["x"], modify_graph=True) for name, batch in zip("ab", batches)]
    modify_graph_and_start_emb_cache()
    started.finalize()
    with v1.Session() as session:
        session.run(get_initializer(True))
        assert [len(until_end(session, one)) for one in found] == [2, 4]


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_a_saver_built_before_or_after_saves_and_restores(tmp_path, is_before):
    def run(path, steps, restore):
        with model.process():
            _, batch = numbers(200)
            table = model.table("t", v1.random_normal_initializer())
            loss = tf.reduce_sum(tf.square(sparse_lookup(table, batch["x"] % 5, modify_graph=True)))
            _, sparse = get_dense_and_sparse_variable()
            step = lazy_adam.create_hash_optimizer(0.1).apply_gradients(zip(tf.gradients(loss, sparse), sparse))
            saver = v1.train.Saver() if is_before else None
            modify_graph_and_start_emb_cache()
            saver = saver or v1.train.Saver()
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                if restore:
                    saver.restore(session, str(path))
                session.run(get_initializer(True))
                for _ in range(steps):
                    session.run(step)
                saver.save(session, str(path))
            return {"t": model.dump(table)}

    once = run(tmp_path / "whole" / "model", 10, False)
    run(tmp_path / "parts" / "model", 5, False)
    twice = run(tmp_path / "parts" / "model", 5, True)  # ids repeat every five batches
    model.assert_same_rows(twice, once)


# ---- Hooks.


def monitored(directory, steps, hooks, modify_graph=True):
    """Trains to `steps` in a MonitoredTrainingSession; (first step, rows)."""
    with model.process():
        step = v1.train.get_or_create_global_step()
        _, batch = numbers(200)
        table = model.table("t", v1.random_normal_initializer())
        loss = tf.reduce_sum(tf.square(sparse_lookup(table, batch["x"] % 7, modify_graph=modify_graph)))
        _, sparse = get_dense_and_sparse_variable()
        train_op = lazy_adam.create_hash_optimizer(0.1).apply_gradients(
            zip(tf.gradients(loss, sparse), sparse), global_step=step
        )
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=str(directory),
            save_checkpoint_steps=3,
            hooks=[v1.train.StopAtStepHook(last_step=steps), *hooks()],
            log_step_count_steps=None,
        ) as session:
            first = session.run(step)
            while not session.should_stop():
                session.run(train_op)
        return first, {"t": model.dump(table)}


def test_the_hook_modifies_initializes_and_resumes(tmp_path):
    first, half = monitored(tmp_path / "a", 7, lambda: [GraphModifierHook()])
    assert first == 0
    first, again = monitored(tmp_path / "a", 7, lambda: [GraphModifierHook()])
    assert first == 7
    model.assert_same_rows(again, half)
    first, _ = monitored(tmp_path / "a", 14, lambda: [GraphModifierHook(), GraphModifierHook()])
    assert first == 7


def test_a_hook_after_the_call_does_nothing_again(tmp_path):
    def hooks():
        modify_graph_and_start_emb_cache()
        return [GraphModifierHook()]

    _, rows = monitored(tmp_path / "a", 5, hooks)
    _, expected = monitored(tmp_path / "b", 5, lambda: [GraphModifierHook()])
    model.assert_same_rows(rows, expected)


def test_a_hook_does_not_restart_an_iterator_that_is_running(tmp_path):
    with model.process():
        step = v1.train.get_or_create_global_step()
        iterator, batch = numbers()
        embeddings = sparse_lookup(model.table("t"), batch["x"], modify_graph=True)

        class Before(v1.train.SessionRunHook):
            def after_create_session(self, session, coord):
                session.run(iterator.initializer)
                session.run(embeddings)

        with v1.train.MonitoredTrainingSession(hooks=[Before(), GraphModifierHook()]) as session:
            np.testing.assert_array_equal(session.run(batch["x"]), [2, 3])
            assert session.run(step) == 0


def test_a_forgotten_modification_is_noticed_when_a_monitored_session_is_made(tmp_path):
    with pytest.raises(RuntimeError, match="t/sparse_lookup_0.*modify_graph_and_start_emb_cache.*GraphModifierHook"):
        monitored(tmp_path, 3, list)


def test_a_forgotten_modification_is_noticed_at_the_first_run_that_needs_a_lookup(started):
    iterator, batch = numbers()
    embeddings = sparse_lookup(model.table("t"), batch["x"], modify_graph=True, name="mine")
    with v1.Session() as session:
        session.run([iterator.initializer, v1.global_variables_initializer()])
        np.testing.assert_array_equal(session.run(batch["x"]), [0, 1])
        for _ in range(2):
            with pytest.raises(RuntimeError, match="t/mine.*modify_graph_and_start_emb_cache"):
                session.run(embeddings)
    with tf.Graph().as_default(), v1.Session() as session:  # which is there before the table
        iterator, batch = numbers()
        embeddings = sparse_lookup(model.table("t"), batch["x"], modify_graph=True, name="mine")
        session.run([iterator.initializer, v1.global_variables_initializer()])
        with pytest.raises(RuntimeError, match="t/mine.*modify_graph_and_start_emb_cache"):
            session.run(embeddings)
    with tf.Graph().as_default(), v1.Session() as session:  # another graph is nobody's business
        assert session.run(tf.constant(1)) == 1


def train_with_a_session_made(before):
    """(rows, losses) of a training whose session is made, or has run already, before the graph is modified; "read":
    even before there was a table."""
    with model.process(), contextlib.ExitStack() as sessions:
        iterator, batch = numbers(is_one_shot=False)
        if before == "read":
            session = sessions.enter_context(v1.Session())
            session.run(iterator.initializer)
            session.run(batch["x"])
        table = model.table("t", v1.truncated_normal_initializer(seed=1))
        loss = tf.reduce_sum(sparse_lookup(table, batch["x"] * 3 % 7, modify_graph=True) ** 2)
        train_op = lazy_adam.create_hash_optimizer(0.1).minimize(loss)
        initialize = v1.global_variables_initializer()
        if before == "nothing":
            modify_graph_and_start_emb_cache()
        if before != "read":
            session = sessions.enter_context(v1.Session())
        if before == "initialized":
            session.run(initialize)
        modify_graph_and_start_emb_cache()
        session.run([] if before == "initialized" else initialize)
        session.run(get_initializer(True))
        found = until_end(session, [train_op, loss, batch["x"]])
        assert "run" not in vars(session), "later steps cost nothing"
        return {"t": model.dump(table)}, [(loss, x.tolist()) for _, loss, x in found], last_report()


@pytest.mark.parametrize(("before", "moved"), [("made", 1), ("initialized", 0), ("read", 0)])
def test_a_session_that_was_there_before_the_modification_trains_the_same_rows(before, moved, caplog):
    with caplog.at_level(logging.WARNING, logger="mx_rec"):
        rows, found, report = train_with_a_session_made(before)
    expected_rows, expected, _ = train_with_a_session_made("nothing")
    assert found == expected and len(found) == 10
    model.assert_same_rows(rows, expected_rows)
    assert (len(report.moved), len(report.stayed)) == (moved, 1 - moved)
    assert ("a session has run the graph before" in caplog.text) == (moved == 0)


def test_a_closed_session_does_not_keep_lookups_in_the_step(started):
    iterator, batch = numbers()
    sparse_lookup(model.table("t"), batch["x"], modify_graph=True)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
    modify_graph_and_start_emb_cache()
    assert len(last_report().moved) == 1


def test_the_hook_of_feature_spec_mode_only_starts(started):
    model.table("t")
    GraphModifierHook(modify_graph=False).begin()
    assert str(last_report()) == "nothing was changed"


# ---- What stays in the step, and why.


def stateful(batch):
    return batch["x"] + tf.random.uniform([2], 0, 10, tf.int64)


def variable(batch):
    return batch["x"] + v1.get_variable("offset", initializer=np.int64(5))


def ref_variable(batch):
    return batch["x"] + v1.get_variable("old", initializer=np.int64(5), use_resource=False)


def placeholder(batch):
    return batch["x"] + v1.placeholder_with_default(np.int64(5), [])


def mutable_table(batch):
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
    return table.lookup(batch["x"])


def constant(batch):
    return tf.constant([1, 2], tf.int64)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (stateful, "RandomUniformInt"),
        (variable, "VariableOp|VarHandleOp"),
        (ref_variable, "VariableV2"),
        (placeholder, "PlaceholderWithDefault"),
        (mutable_table, "table may change"),
        (constant, "do not come from a dataset"),
    ],
)
def test_ids_that_must_be_computed_in_the_step_stay_there(started, make, reason):
    iterator, batch = numbers()
    table, other = model.table("t"), model.table("u")
    ids = make(batch)
    staying = sparse_lookup(table, ids, modify_graph=True)
    moving = sparse_lookup(other, batch["x"], modify_graph=True)
    modify_graph_and_start_emb_cache()
    (stayed,), (moved,) = last_report().stayed, last_report().moved
    assert (stayed.table, moved.table) == ("t", "u")
    assert re.search(reason, stayed.reason)
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        session.run(iterator.initializer)
        values, seen, _ = session.run([staying, ids, moving])
        assert values.shape == (2, model.DIM)
        assert sorted(set(seen.tolist())) == sorted(table.native.keys())
        assert sorted(other.native.keys()) == [0, 1]


def test_a_lookup_in_a_branch_stays(started):
    iterator, batch = numbers()
    table = model.table("t")
    found = tf.cond(
        tf.equal(batch["x"][0] % 4, 0),
        lambda: sparse_lookup(table, batch["x"], modify_graph=True),
        lambda: tf.zeros([2, model.DIM]),
    )
    modify_graph_and_start_emb_cache()
    assert "branch" in last_report().stayed[0].reason
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), iterator.initializer])
        until_end(session, found)
    assert sorted(table.native.keys()) == [0, 1, 4, 5, 8, 9, 12, 13, 16, 17]


def test_a_gradient_through_a_branch_keeps_its_lookup_apart(started):
    iterator, batch = numbers()
    tables = [model.table(name) for name in "ab"]
    found = [sparse_lookup(table, batch["x"], modify_graph=True) for table in tables]
    loss = tf.cond(tf.equal(batch["x"][0] % 4, 0), lambda: tf.reduce_sum(found[0]), lambda: tf.reduce_sum(found[1]))
    _, sparse = get_dense_and_sparse_variable()
    step = gradient_descent.create_hash_optimizer(1.0).apply_gradients(zip(tf.gradients(loss, sparse), sparse))
    modify_graph_and_start_emb_cache()
    assert len(last_report().moved) == 2
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), iterator.initializer])
        until_end(session, step)
    for table, rest in zip(tables, (0, 2)):
        keys, values = model.dump(table)
        moved = keys[values[:, 0, 0] == -0.75]
        assert moved.tolist() == [x for x in range(20) if x % 4 in (rest, rest + 1)]


def test_an_iterator_of_another_process_stays(started):
    _, batch = numbers()
    handle = v1.placeholder(tf.string, [])
    types, shapes = {"x": tf.int64, "y": tf.float32}, {"x": [None], "y": [None]}
    other = v1.data.Iterator.from_string_handle(handle, types, {k: tf.TensorShape(s) for k, s in shapes.items()})
    sparse_lookup(model.table("t"), other.get_next()["x"], modify_graph=True)
    modify_graph_and_start_emb_cache()
    assert "dataset is not in the graph" in last_report().stayed[0].reason


def test_lookups_that_did_not_ask_are_left_alone(started):
    iterator, batch = numbers()
    table = model.table("t")
    asked, other = (sparse_lookup(table, batch["x"] + i, modify_graph=not i) for i in range(2))
    modify_graph_and_start_emb_cache()
    assert len(last_report().moved) == 1
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), iterator.initializer])
        session.run([asked, other])
    assert sorted(table.native.keys()) == [0, 1, 2]


# ---- Errors.


def test_without_any_lookup(started):
    with pytest.raises(RuntimeError, match="no lookup in this graph.*sparse_lookup"):
        modify_graph_and_start_emb_cache()
    model.table("t")
    with pytest.raises(RuntimeError, match="no lookup in this graph.*sparse_lookup"):
        GraphModifierHook().begin()


def test_with_ids_out_of_two_batches(started):
    (_, first), (_, second) = numbers(), numbers()
    sparse_lookup(model.table("t"), first["x"] + second["x"], modify_graph=True, name="both")
    with pytest.raises(ValueError, match=r"t/both.*two batches, IteratorGetNext and IteratorGetNext_1.*zip"):
        modify_graph_and_start_emb_cache()


def test_with_ids_out_of_a_loop(started):
    _, batch = numbers()
    v1.disable_control_flow_v2()
    try:
        ids = v1.while_loop(lambda x: tf.reduce_sum(x) < 100, lambda x: x * 2 + 1, [batch["x"]])
    finally:
        v1.enable_control_flow_v2()
    sparse_lookup(model.table("t"), ids, modify_graph=True, name="looped")
    with pytest.raises(ValueError, match=r"t/looped.*cannot be copied.*while/\w+ \((Exit|Enter)"):
        modify_graph_and_start_emb_cache()


@pytest.mark.parametrize("arguments", [{"dump_graph": 1}, {"full_graph": "graph"}])
def test_with_bad_arguments(started, arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        modify_graph_and_start_emb_cache(**arguments)


# ---- What people look at.


def test_dumps_the_graph_before_and_after(started, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, batch = numbers()
    sparse_lookup(model.table("t"), batch["x"], modify_graph=True)
    modify_graph_and_start_emb_cache(dump_graph=True)
    ops = {}
    for folder, file in (("before", "old_graph.pbtxt"), ("after", "new_graph.pbtxt")):
        (events,) = glob.glob(f"export_graph/{folder}/events.out.tfevents.*")
        (graph,) = [event.graph_def for event in v1.train.summary_iterator(events) if event.HasField("graph_def")]
        nodes = v1.GraphDef.FromString(graph).node
        text = tmp_path.joinpath("export_graph", file).read_text()
        ops[folder] = {node.name for node in nodes}
        assert all(f'name: "{name}"' in text for name in ops[folder])
    assert {name for name in ops["after"] - ops["before"] if name.startswith("mx_rec/pipeline")}


def test_reports_what_was_moved(started, caplog):
    _, batch = numbers()
    sparse_lookup(model.table("t"), tf.cast(batch["y"], tf.int64) + 1, modify_graph=True)
    sparse_lookup(model.table("u"), tf.constant([1]), modify_graph=True)
    modify_graph_and_start_emb_cache()
    (moved,) = last_report().moved
    assert (moved.lookup, moved.table, moved.source) == ("t/sparse_lookup_0", "t", "IteratorGetNext")
    assert moved.target.startswith("mx_rec/pipeline/IteratorGetNext")
    assert moved.ops == 3  # cast, constant, addition
    assert "moved: lookup 't/sparse_lookup_0'" in str(last_report())
    assert "stayed: lookup 'u/sparse_lookup_0'" in str(last_report())


def test_the_new_batch_has_the_structure_of_the_old(started):
    assert get_target_batch(True) is None
    assert get_initializer(True) is None
    iterator, batch = numbers()
    sparse_lookup(model.table("t"), batch["x"], modify_graph=True, batch=batch)
    modify_graph_and_start_emb_cache()
    target = ConfigInitializer.get_instance().train_params_config.get_target_batch(True)
    assert target.keys() == batch.keys()
    assert get_target_batch(False) is None
    assert get_initializer(False) is None
    with v1.Session() as session:
        session.run(iterator.initializer)
        values = session.run(target)
        np.testing.assert_array_equal(values["x"], [0, 1])
        np.testing.assert_array_equal(values["y"], [0, 1])


def test_without_a_batch_in_the_lookup_the_new_one_has_the_structure_of_the_dataset(started):
    data = {"deep": (np.arange(4), {"x": np.arange(4)}), "a": np.arange(4)}
    iterator = v1.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(data).batch(2))
    batch = iterator.get_next()
    sparse_lookup(model.table("t"), batch["deep"][1]["x"], modify_graph=True)
    modify_graph_and_start_emb_cache()
    target = get_target_batch(True)
    tf.nest.assert_same_structure(target, batch)
    with v1.Session() as session:
        session.run(get_initializer(True))
        np.testing.assert_array_equal(session.run(target["deep"][1]["x"] + target["a"]), [0, 2])


def test_a_graph_that_is_not_the_default_one():
    with model.process() as graph:
        iterator, batch = numbers()
        table = model.table("t")
        embeddings = sparse_lookup(table, batch["x"], modify_graph=True)
        with tf.Graph().as_default():
            modify_graph_and_start_emb_cache(full_graph=graph)
        with v1.Session(graph=graph) as session:
            session.run([v1.global_variables_initializer(), iterator.initializer])
            session.run(embeddings)
        assert sorted(table.native.keys()) == [0, 1]


def test_carries_timestamps_and_collections_along(started):
    iterator, batch = numbers()
    v1.add_to_collection(ASCEND_TIMESTAMP, tf.cast(batch["x"][0], tf.int64) + 100)
    v1.add_to_collection("others", batch["y"])
    config = {"access_threshold": 1, "eviction_threshold": 10}
    table = model.table("t")
    embeddings = sparse_lookup(table, batch["x"], modify_graph=True, access_and_evict_config=config)
    modify_graph_and_start_emb_cache()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), iterator.initializer])
        session.run(embeddings)
        assert session.run(v1.get_collection(ASCEND_TIMESTAMP))[0] == 102
        np.testing.assert_array_equal(session.run(v1.get_collection("others")[0]), [4, 5])
    assert table.native.history([0, 1, 2])[1].tolist() == [100, 100, 0]


# ---- Estimators.


def estimate(directory, modify_graph):
    """(rows, evaluation loss, predictions) of an Estimator that was trained, evaluated and asked."""

    def data(repeat):
        dataset = tf.data.Dataset.range(40).shuffle(40, seed=5).batch(4)
        return dataset.map(lambda x: ({"x": x}, tf.cast(x, tf.float32))).repeat(repeat)

    def model_fn(features, labels, mode):
        is_train = mode == tf.estimator.ModeKeys.TRAIN
        table = model.table("t", v1.random_normal_initializer(seed=3))
        found = sparse_lookup(table, features["x"] % 11, is_train=is_train, modify_graph=modify_graph)
        prediction = tf.reduce_sum(found, axis=-1)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions=prediction)
        loss = tf.reduce_mean(tf.square(prediction - labels))
        if not is_train:
            return tf.estimator.EstimatorSpec(mode, loss=loss)
        _, sparse = get_dense_and_sparse_variable()
        step = lazy_adam.create_hash_optimizer(0.1).apply_gradients(
            zip(tf.gradients(loss, sparse), sparse), global_step=v1.train.get_or_create_global_step()
        )
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

    def hooks():
        return [GraphModifierHook()] if modify_graph else []

    with model.process():
        config = tf.estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=5)
        estimator = tf.estimator.Estimator(model_fn, str(directory), config)
        estimator.train(lambda: data(2), hooks=hooks())
        estimator.train(lambda: data(2), steps=7, hooks=hooks())
        evaluation = estimator.evaluate(lambda: data(1), hooks=hooks())
        predictions = list(estimator.predict(lambda: data(1), hooks=hooks()))
        return {"t": model.dump(model.table("t", v1.random_normal_initializer(seed=3)))}, evaluation, predictions


@pytest.mark.skipif(not hasattr(tf, "estimator"), reason="this TensorFlow has no Estimator")
def test_an_estimator_trains_evaluates_and_predicts_the_same(tmp_path):
    rows, evaluation, predictions = estimate(tmp_path / "plain", modify_graph=False)
    modified_rows, *modified = estimate(tmp_path / "modified", modify_graph=True)
    assert modified == [evaluation, predictions]
    assert evaluation["global_step"] == 27
    model.assert_same_rows(modified_rows, rows)
