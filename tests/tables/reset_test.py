"""Tables outlive graphs: joining one is told, going on with old rows by mistake is warned of, a reset empties it."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import mx_rec
from mx_rec.core.embedding import sparse_lookup
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.saver import warm_start
from tests.shared import model

v1 = tf.compat.v1


class Fold:
    """A graph that trains tables "a" and "b" on fed keys."""

    def __init__(self, is_train=True, **config):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.ids = v1.placeholder(tf.int64, [None])
            self.tables = [model.table(name) for name in ("a", "b")]
            options = {"access_and_evict_config": config} if config else {}
            looked_up = [sparse_lookup(table, self.ids, is_train=is_train, **options) for table in self.tables]
            self.loss = tf.reduce_sum(tf.square(sum(looked_up)))
            self.train = create_hash_optimizer(0.1).minimize(self.loss) if is_train else self.loss
            self.initialize = v1.global_variables_initializer()
            self.saver = v1.train.Saver()

    def session(self, initialize=True):
        session = v1.Session(graph=self.graph)
        if initialize:
            session.run(self.initialize)
        return session

    def step(self, session, *keys):
        return session.run([self.train, self.loss], {self.ids: keys})[1]

    def rows(self):
        return {table.table_name: model.dump(table) for table in self.tables}


def run(*keys, fold=None, **options):
    """Trains a new graph; returns it."""
    fold = fold or Fold(**options)
    with fold.session() as session:
        for _ in range(3):
            fold.step(session, *keys)
    return fold


def warnings(caplog):
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


# ---- Telling. --------------------------------------------------------------------------------------------------------


def test_a_second_graph_says_that_it_joins_rows_and_warns_if_it_initializes_its_variables(started, caplog):
    with caplog.at_level(logging.INFO, logger="mx_rec"):
        run(1, 2)
        assert "joins" not in caplog.text and warnings(caplog) == []
        run(1, 3)
    assert "table 'a': this graph joins the table of the process, with 2 rows" in caplog.text
    found = warnings(caplog)
    assert len(found) == 2, "once for each table, whatever the number of steps"
    assert "table 'a' goes on with 2 rows of an earlier training" in found[0]
    assert "mx_rec.reset_tables('a')" in found[0]


def test_a_second_session_of_a_graph_that_initializes_its_variables_is_warned_of(started, caplog):
    fold = run(1, 2)
    assert warnings(caplog) == []
    run(1, 2, fold=fold)
    assert len(warnings(caplog)) == 2


def test_a_session_that_was_made_before_the_tables_is_warned_of_too(started, caplog):
    run(1, 2)
    with tf.Graph().as_default(), v1.Session() as session:
        table = model.table("a")
        train = create_hash_optimizer(0.1).minimize(tf.reduce_sum(sparse_lookup(table, tf.constant([1]))))
        session.run(v1.global_variables_initializer())
        session.run(train)
    (message,) = warnings(caplog)
    assert "table 'a' goes on with 2 rows of an earlier training" in message


def test_rows_that_were_restored_warm_started_or_reset_are_no_cause_for_alarm(started, caplog, tmp_path):
    first = run(1, 2)
    with first.session() as session:
        path = first.saver.save(session, str(tmp_path / "model"))
    warnings(caplog)

    second = Fold()
    with second.session() as session:
        second.saver.restore(session, path)
        second.step(session, 1)
    third = Fold()
    with third.session(initialize=False) as session:
        third.saver.restore(session, path)
        third.step(session, 1)
    fourth = Fold()
    with fourth.graph.as_default():
        warm_start(path)
        fourth.initialize = v1.global_variables_initializer()
    run(1, fold=fourth)
    fifth = Fold()
    mx_rec.reset_tables()
    run(1, fold=fifth)
    assert warnings(caplog) == []


def test_an_evaluation_beside_the_training_is_no_cause_for_alarm(started, caplog):
    training, evaluation = Fold(), Fold(is_train=False)
    with training.session() as first, evaluation.session() as second:
        for _ in range(2):
            training.step(first, 1, 2)
            evaluation.step(second, 1, 2)
    with (late := Fold(is_train=False)).session() as session:
        late.step(session, 1)
    assert warnings(caplog) == []


def test_a_session_is_watched_until_its_first_lookup_and_can_be_collected(started):
    import gc
    import weakref

    run(1, 2)
    fold = Fold()
    session = fold.session()
    assert "run" in vars(session)
    fold.step(session, 1)
    assert "run" not in vars(session), "no step pays for the watch"
    session, found = fold.session(), None
    assert "run" in vars(session)
    gc.disable()
    try:
        found = weakref.ref(session)
        del session
        assert found() is None, "the watch makes no cycle"
    finally:
        gc.enable()


# ---- Resetting. ------------------------------------------------------------------------------------------------------


def test_after_a_reset_a_training_has_the_bits_of_the_first_one(started):
    expected = run(1, 2, 5).rows()
    mx_rec.reset_tables()
    assert all(table.size() == 0 for table in Fold().tables)
    model.assert_same_rows(run(1, 2, 5).rows(), expected)


def test_named_tables_alone_are_reset(started):
    fold = run(1, 2)
    before = fold.rows()["a"]
    mx_rec.reset_tables("b", "b")
    assert [table.size() for table in fold.tables] == [2, 0]
    model.assert_same_rows({"a": fold.rows()["a"]}, {"a": before})
    with pytest.raises(ValueError, match=r"no table 'c' in this process; it has \['a', 'b'\]"):
        mx_rec.reset_tables("a", "c")
    with pytest.raises(ValueError, match="names of tables"):
        mx_rec.reset_tables(fold.tables[0])
    assert fold.tables[0].size() == 2, "an error changes nothing"


def test_counts_go_with_the_rows_and_thresholds_stay(started):
    fold = run(1, access_threshold=5)
    assert (fold.tables[0].size(), fold.tables[0].stats()["candidates"]) == (0, 1)
    mx_rec.reset_tables()
    assert fold.tables[0].stats()["candidates"] == 0
    assert fold.tables[0].native.tracking.access_threshold == 5
    assert fold.tables[0].native.tracking.step == 0


def test_a_running_session_goes_on_with_batches_that_were_prepared_before(started):
    data = {"t": np.array([[1, 2], [1, 3], [1, 2]])}
    batch, specs = model.one_batch_each(data)
    table = model.table("t")
    loss = tf.reduce_sum(tf.square(sparse_lookup(table, specs["t"], batch=batch)))
    train = create_hash_optimizer(0.1).minimize(loss)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)
        plan = session.run(batch[next(key for key in batch if key != "t")])  # with hints of the rows that go
        mx_rec.reset_tables()
        value = session.run(loss, {batch[next(key for key in batch if key != "t")]: plan})
        assert value == np.float32(2 * model.DIM * 0.25**2), "as a new row is"
        assert table.size() == 2


def test_addresses_that_were_fetched_before_are_refused(started):
    table = model.table("t")
    ids = v1.placeholder(tf.int64, [None])
    rows = sparse_lookup(table, ids)
    (addresses,) = v1.get_collection("ASCEND_SPARSE_LOOKUP_ID_OFFSET")
    gradient = tf.ones([2, model.DIM])
    update = create_hash_optimizer(0.1).apply_gradients([(gradient, addresses)])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        old = session.run(addresses, {ids: [1, 2]})
        mx_rec.reset_tables()
        session.run(rows, {ids: [7, 8]})
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(update, {addresses: old, ids: [7, 8]})
    np.testing.assert_array_equal(model.dump(table)[1][:, 0], np.full([2, model.DIM], 0.25, np.float32))


def test_the_next_checkpoint_holds_everything_and_a_restore_of_the_last_one_loads_it(tmp_path):
    with model.process(is_async_checkpoint=True):
        fold = Fold()
        with fold.session() as session:
            fold.step(session, 1, 2)
            path = fold.saver.save(session, str(tmp_path / "model"), 1, is_incremental_checkpoint=True)
            saved = fold.rows()
            mx_rec.reset_tables()  # waits for the save
            fold.step(session, 9)
            fold.saver.save(session, str(tmp_path / "model"), 2, save_delta=True)
            fold.saver.restore(session, path)
            model.assert_same_rows(fold.rows(), saved)
        assert sorted(name for name in os.listdir(tmp_path) if "sparse" in name) == ["sparse-model-1", "sparse-model-2"]


def test_a_restore_into_a_finalized_graph_does_not_take_the_checkpoint_for_held(started, tmp_path):
    fold = Fold()
    fold.graph.finalize()
    with fold.session() as session:
        fold.step(session, 1, 2)
        path = fold.saver.save(session, str(tmp_path / "model"))
        saved = fold.rows()
        mx_rec.reset_tables()
        fold.saver.restore(session, path)
    model.assert_same_rows(fold.rows(), saved)


def test_before_init_it_says_to_call_init():
    with pytest.raises(EnvironmentError, match="init"):
        mx_rec.reset_tables()


def test_the_name_costs_no_import_of_tensorflow():
    code = "import sys, mx_rec; assert mx_rec.reset_tables.__name__ in dir(mx_rec); print('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
