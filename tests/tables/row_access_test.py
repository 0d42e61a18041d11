"""Rows from and to NumPy: `table.assign` and `table.read`, beside a dict."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.core.feature_process import evict
from mx_rec.optimizers import adagrad
from mx_rec.reading import _reading
from mx_rec.util.initialize import init, terminate_config_initializer
from tests.shared import model

v1 = tf.compat.v1
DIM = 4
KINDS = {
    "memory": {},
    "disk": {"rows": 1, "host_vocabulary_size": 49, "ssd_vocabulary_size": 950},
}


def vectors(count, seed=0):
    return np.random.RandomState(seed).normal(size=(count, DIM)).astype(np.float32)


def make(tmp_path, kind="memory", name="t", **options):
    options = {"rows": 1000, **KINDS[kind], **options}
    if "ssd_vocabulary_size" in options:
        options["ssd_data_path"] = [str(tmp_path)]
    return model.table(name, dim=DIM, **options)


class Trained:
    """A table whose fed ids are trained with Adagrad, which has a slot that does not begin with zero."""

    def __init__(self, table, **config):
        self.table = table
        self.ids = v1.placeholder(tf.int64, [None])
        embeddings = sparse_lookup(table, self.ids, access_and_evict_config=config or None)
        optimizer = adagrad.create_hash_optimizer(0.1, initial_accumulator_value=0.25)
        self.train = optimizer.minimize(tf.reduce_sum(tf.square(embeddings)))
        self.saver = v1.train.Saver()
        self.session = v1.Session()
        self.session.run(v1.global_variables_initializer())

    def step(self, *ids):
        self.session.run(self.train, {self.ids: ids})

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.session.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_tracked", [False, True], ids=["plain", "tracked"])
def test_what_was_assigned_is_read_again_whatever_else_happens_to_the_table(tmp_path, expansion, kind, is_tracked):
    random = np.random.RandomState(1)
    every_key = model.vocabulary(300)
    config = {"access_threshold": 0} if is_tracked else {}
    with (
        model.process(use_dynamic_expansion=expansion),
        Trained(make(tmp_path, kind), **config) as trained,
    ):
        table, expected = trained.table, {}
        for round_ in range(30):
            keys = random.choice(every_key, random.randint(0, 120), replace=False)
            rows = vectors(len(keys), round_)
            table.assign(keys, rows)
            expected.update(zip(keys.tolist(), rows))
            touched = random.choice(every_key, 20, replace=False)
            trained.step(*touched)
            values, found = table.read(touched)
            assert found.all()
            expected.update(zip(touched.tolist(), values))
            values, found = table.read(every_key)
            for key, row, is_there in zip(every_key.tolist(), values, found):
                assert is_there == (key in expected)
                np.testing.assert_array_equal(row, expected.get(key, np.zeros(DIM)))
        stats = table.stats()
        assert stats["rows"] == len(expected) == stats["admitted"] - stats["evicted"]


def test_slots_of_rows_that_are_there_stay_and_those_of_new_rows_are_initial(started, tmp_path):
    with Trained(make(tmp_path)) as trained:
        trained.step(1)
        slot = trained.table.native.read([1])[0][0, 1]
        assert (slot > 0.25).all()
        trained.table.assign([1, 2], vectors(2))
        values, _ = trained.table.native.read([1, 2])
        np.testing.assert_array_equal(values[:, 0], vectors(2))
        np.testing.assert_array_equal(values[0, 1], slot)
        np.testing.assert_array_equal(values[1, 1], np.full(DIM, 0.25, np.float32))


def test_lookups_see_assigned_rows_and_training_goes_on_from_them(started, tmp_path):
    table = make(tmp_path)
    table.assign([7], np.ones([1, DIM]))  # before any session or optimizer
    read = sparse_lookup(table, tf.constant([[7, 8]], tf.int64), is_train=False)
    with Trained(table) as trained:
        np.testing.assert_array_equal(trained.session.run(read), [[np.ones(DIM), np.zeros(DIM)]])
        trained.step(7)
        assert (table.read([7])[0] < 1).all()


def test_read_keeps_the_shape_of_the_keys_and_makes_no_rows(started, tmp_path):
    table = make(tmp_path)
    table.assign(np.arange(6, dtype=np.int32), vectors(6).astype(np.float64))
    rows, found = table.read([[0, 9], [5, 0]])
    assert rows.shape == (2, 2, DIM) and rows.dtype == np.float32
    np.testing.assert_array_equal(found, [[True, False], [True, True]])
    np.testing.assert_array_equal(rows[1], vectors(6)[[5, 0]])
    row, is_found = table.read(3)
    assert row.shape == (DIM,) and is_found
    assert table.read([])[0].shape == (0, DIM)
    assert table.size() == 6


def test_more_keys_than_are_read_at_once_are_read(started):
    keys = np.arange(70_000)
    table = model.table("t", dim=1, rows=100_000)
    table.assign(keys, keys.astype(np.float32)[:, None])
    rows, found = table.read(keys)
    assert found.all()
    np.testing.assert_array_equal(rows[:, 0], keys)


BAD = {
    "floats as keys": ([1.0], vectors(1), "`keys` must be integers, got float64"),
    "flags as keys": ([True], vectors(1), "`keys` must be integers, got bool"),
    "objects as keys": ([None], vectors(1), "`keys` must be an array or a list of numbers"),
    "ragged keys": ([[1], [1, 2]], vectors(2), "`keys` must be an array or a list of numbers"),
    "keys of two axes": ([[1, 2]], vectors(2), r"`keys` must have shape \[n\], got \[1, 2\]"),
    "a key beyond int64": (np.array([2**64 - 1], np.uint64), vectors(1), "`keys` must be int64"),
    "a key twice": ([5, 1, 5], vectors(3), "`keys` must all be different, got 5 more than once"),
    "too few rows": ([1, 2, 3], vectors(2), r"`rows` must have shape \[3, 4\]"),
    "rows of another dim": ([1], np.ones([1, 3], np.float32), r"`rows` must have shape \[1, 4\].*got \[1, 3\]"),
    "whole numbers as rows": ([1], np.ones([1, DIM], np.int64), "`rows` must be floats, got int64"),
    "NaN": ([1, 2], np.array([[0.0] * DIM, [np.nan] * DIM]), "1 keys are not, the first of key 2"),
    "too large for float32": ([1], np.full([1, DIM], 1e300), "`rows` must be finite in float32"),
}


@pytest.mark.parametrize("keys, rows, message", BAD.values(), ids=BAD)
def test_what_cannot_be_assigned_is_told_and_changes_nothing(started, tmp_path, keys, rows, message):
    table = make(tmp_path)
    table.assign([1], vectors(1))
    with pytest.raises(ValueError, match=f"table 't': .*{message}"):
        table.assign(keys, rows)
    np.testing.assert_array_equal(table.read([1])[0], vectors(1))
    assert table.size() == 1


def test_tensors_of_the_graph_are_no_keys_to_read(started, tmp_path):
    with pytest.raises(ValueError, match="`keys` must be an array or a list of numbers, got"):
        make(tmp_path).read(tf.constant([1], tf.int64))


def test_keys_of_an_int32_table_are_int32(started):
    table = create_table(tf.int32, DIM, "t", v1.zeros_initializer(), 10)
    with pytest.raises(ValueError, match="`keys` must be int32"):
        table.assign([2**31], vectors(1))
    with pytest.raises(ValueError, match="`keys` must be int32"):
        table.read([-(2**31) - 1])
    table.assign([-(2**31), 2**31 - 1], vectors(2))
    assert table.read([-(2**31), 2**31 - 1])[1].all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_is_too_small_changes_nothing(started, tmp_path, kind):
    table = make(tmp_path, kind)
    table.assign(np.arange(999), vectors(999))
    with pytest.raises(MemoryError, match="table 't' is full: it holds 999 rows, and 2 new keys come"):
        table.assign([5, 1000, 1001], vectors(3, seed=7))
    assert table.size() == 999
    np.testing.assert_array_equal(table.read(np.arange(999))[0], vectors(999))
    table.assign([5, 1000], vectors(2))  # one of them is new


def test_assigned_rows_need_no_admission_and_are_as_young_as_the_step(started, tmp_path):
    with Trained(make(tmp_path), access_threshold=3) as trained:
        trained.step(1)
        trained.step(1, 2)
        trained.table.assign([1, 9], vectors(2))
        assert trained.table.size() == 2
        counts, _, steps = trained.table.native.history([1, 9])
        np.testing.assert_array_equal(counts, [2, 0])
        np.testing.assert_array_equal(steps, [2, 2])
        assert trained.table.stats()["seen"] == 3


def test_assigned_rows_outlive_an_eviction_by_time_until_data_has_aged_them(started, tmp_path):
    now = v1.placeholder(tf.int64, [])
    v1.add_to_collection("ASCEND_TIMESTAMP", now)
    with Trained(make(tmp_path), eviction_threshold=100) as trained:
        trained.table.assign([9], vectors(1))
        trained.session.run(trained.train, {trained.ids: [1], now: 1_000_000})
        evict()
        assert trained.table.read([1, 9])[1].all()
        trained.session.run(trained.train, {trained.ids: [1], now: 1_000_200})
        evict()
        np.testing.assert_array_equal(trained.table.read([1, 9])[1], [True, False])


def test_padding_keys_can_be_assigned_and_stay_so(started, tmp_path):
    table = make(tmp_path, padding_keys=[0], padding_keys_mask=True, padding_keys_len=1)
    with Trained(table) as trained:
        table.assign([0, 1], np.ones([2, DIM]))
        trained.step(0, 1)
        rows, _ = table.read([0, 1])
        assert (rows[0] == 1).all() and (rows[1] != 1).all()


def test_an_incremental_checkpoint_holds_assigned_rows_and_a_restore_brings_them_back(tmp_path):
    settings = {
        "is_incremental_checkpoint": True,
        "save_checkpoint_due_time": 10_000,
        "save_delta_checkpoints_secs": 10_000,
    }
    with model.process(**settings), Trained(make(tmp_path)) as trained:
        trained.step(*range(100))
        trained.saver.save(trained.session, str(tmp_path / "model"), global_step=1)
        trained.table.assign([5, 500], vectors(2))
        path = trained.saver.save(trained.session, str(tmp_path / "model"), global_step=2, save_delta=True)
        delta = _reading.open_checkpoint(path).chain[-1]
        assert delta.tables["t"].rows == 2
        trained.table.assign([5, 500, 501], vectors(3, seed=9))
        trained.saver.restore(trained.session, path)
        np.testing.assert_array_equal(trained.table.read([5, 500])[0], vectors(2))
        assert trained.table.size() == 101


def test_a_save_in_the_background_holds_the_rows_of_its_instant(tmp_path):
    with model.process(is_async_checkpoint=True), Trained(make(tmp_path)) as trained:
        trained.step(*range(200))
        before = trained.table.read(np.arange(200))[0]
        path = trained.saver.save(trained.session, str(tmp_path / "model"))
        trained.table.assign(np.arange(300), vectors(300))
        trained.saver.restore(trained.session, path)
        np.testing.assert_array_equal(trained.table.read(np.arange(200))[0], before)
        assert trained.table.size() == 200


def test_a_second_session_is_warned_of_rows_of_a_training_but_not_of_assigned_ones(started, tmp_path, caplog):
    with Trained(make(tmp_path)) as trained:
        pass
    table = trained.table
    with caplog.at_level(logging.WARNING, logger="mx_rec"):
        for assigned in ([1], [2, 3]):
            table.assign(assigned, vectors(len(assigned)))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(trained.train, {trained.ids: [1]})
        assert "earlier training" not in caplog.text
        table.assign([9], vectors(1))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(trained.train, {trained.ids: [1]})
        assert "goes on with 4 rows of an earlier training" in caplog.text


def test_a_table_that_was_freed_is_told(started, tmp_path):
    table = make(tmp_path)
    terminate_config_initializer()
    init()
    with tf.Graph().as_default():
        make(tmp_path)
        for call in (lambda: table.read([1]), lambda: table.assign([1], vectors(1))):
            with pytest.raises(ValueError, match="table 't' was freed by terminate_config_initializer"):
                call()


def test_a_table_that_was_made_without_a_size_says_so_when_it_is_full(started):
    table = create_table(tf.int64, DIM, "t", v1.zeros_initializer())
    with pytest.raises(MemoryError, match="limit of 1 is the default of device_vocabulary_size"):
        table.assign([1, 2], vectors(2))
    with v1.Session() as session, pytest.raises(tf.errors.ResourceExhaustedError, match="called without it"):
        session.run(sparse_lookup(table, tf.constant([1, 2], tf.int64)))


def test_with_expansion_no_size_need_be_given():
    with model.process(use_dynamic_expansion=True):
        table = create_table(tf.int64, DIM, "t", v1.zeros_initializer())
        table.assign(np.arange(5000), vectors(5000))
        assert table.size() == 5000
