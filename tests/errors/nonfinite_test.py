"""Gradients and learning rates that are not finite: what a step does with them, in each mode, on each way to the rows.

The model of model.py, with a number more to feed: `spoil` [BATCH, DIM] is added to the gradient of feature `other`, so
that NaN in it reaches one row of table "own" and no other.
"""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.core.table_stats import summary_of
from mx_rec.graph import modify_graph_and_start_emb_cache
from mx_rec.optimizers import gradient_descent, lazy_adam
from mx_rec.util.initialize import ConfigInitializer, init
from tests.shared import model
from tests.shared.optimizer_cases import ONE_OF_EACH, START, each

v1 = tf.compat.v1
BAD = (np.nan, np.inf, -np.inf)
ROW, COLUMN = 5, 3  # of what is spoiled
LOCAL_EMB, ID_OFFSET = "ASCEND_SPARSE_LOOKUP_LOCAL_EMB", "ASCEND_SPARSE_LOOKUP_ID_OFFSET"


# ---- The ways from a loss to the rows: pairs for apply_gradients ----


def straight(loss, tables):
    variables = [table.variable for table in tables]
    return zip(tf.gradients(loss, variables), variables)


def with_an_op_between(loss, tables):
    """As after clipping."""
    return [(tf.IndexedSlices(tf.identity(g.values), g.indices), v) for g, v in straight(loss, tables)]


def with_rows_twice(loss, tables):
    return [
        (tf.IndexedSlices(tf.concat([g.values, 0 * tf.ones_like(g.values)], 0), tf.concat([g.indices] * 2, 0)), v)
        for g, v in straight(loss, tables)
    ]


def by_address(loss, tables):
    return zip(tf.gradients(loss, v1.get_collection(LOCAL_EMB)), v1.get_collection(ID_OFFSET))


def by_address_with_an_op_between(loss, tables):
    return [(tf.identity(gradient), addresses) for gradient, addresses in by_address(loss, tables)]


WAYS = [straight, with_an_op_between, with_rows_twice, by_address, by_address_with_an_op_between]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def spoiled(bad):
    spoil = np.zeros((model.BATCH, model.DIM), np.float32)
    if bad is not None:
        spoil[ROW, COLUMN] = bad
    return spoil


def repeated(data, order):
    """The batches of `data` in this order."""
    return {
        name: np.concatenate([array[i * model.BATCH : (i + 1) * model.BATCH] for i in order])
        for name, array in data.items()
    }


class Trainer:
    """The model in a session, with everything a test feeds."""

    def __init__(self, session, create, way, data, **options):
        self.session = session
        self.built = model.build(data, initializer=v1.constant_initializer(START), **options)
        self.spoil = v1.placeholder(tf.float32, [None, model.DIM])
        loss = self.built.loss + tf.reduce_sum(self.built.embeddings["other"] * self.spoil)
        self.rate = v1.placeholder(tf.float32, [])
        self.optimizer = create(self.rate)
        self.global_step = v1.train.get_or_create_global_step()
        pairs = way(loss, list(self.built.tables.values()))
        self.step_op = self.optimizer.apply_gradients(pairs, global_step=self.global_step)
        session.run([v1.global_variables_initializer(), self.built.iterator.initializer])

    def step(self, bad=None, rate=0.1):
        self.session.run(self.step_op, {self.spoil: spoiled(bad), self.rate: rate})

    def stats(self):
        return {name: table.stats()["nonfinite"] for name, table in self.built.tables.items()}


def reference(case, data, bad_of_step):
    """Rows by the formulas of the optimizers, in double precision, where rows with gradients that are not finite are
    left alone."""
    fresh = np.stack([np.full(model.DIM, START), *(np.full(model.DIM, initial) for _, initial in case.slots)])
    tables = {name: {} for name in model.TABLES}
    for i, bad in enumerate(bad_of_step):
        batch = {name: array[i * model.BATCH : (i + 1) * model.BATCH] for name, array in data.items()}
        ids = {name: batch[name].reshape(model.BATCH, -1) for name in model.TABLE_OF}
        e = sum(
            np.array(
                [sum(tables[model.TABLE_OF[name]].setdefault(k, fresh.copy())[0] for k in keys) for keys in of_all]
            )
            for name, of_all in ids.items()
        )
        gradient = (e - batch["target"]) / model.BATCH
        sums = {}
        for name, of_all in ids.items():
            its = gradient + (spoiled(bad) if name == "other" else 0.0)
            for b, position in np.ndindex(of_all.shape):
                row = (model.TABLE_OF[name], of_all[b, position])
                sums[row] = sums.get(row, 0.0) + its[b]
        for (name, key), g in sums.items():
            if np.isfinite(g).all():
                case.rule(tables[name][key], g, 0.1, i + 1)
    return tables


def spoiled_key(data, step):
    return data["other"][step * model.BATCH + ROW]


# ---- "error" ----


@each(ONE_OF_EACH)
@each_way
def test_a_step_with_one_bad_value_fails_and_is_as_if_it_had_never_been(case, way):
    data = model.batches(2)
    outcomes = []
    for bad_steps in (BAD, ()):
        with model.process(), v1.Session() as session:
            trainer = Trainer(session, case.create, way, repeated(data, [0, *(0 for _ in bad_steps), 1]))
            trainer.step()
            before = trainer.built.rows()
            for bad in bad_steps:
                others = len(set(data["other"][: model.BATCH].tolist()))
                says = (
                    rf"table 'own'.*key {spoiled_key(data, 0)} .*{bad} in 1 of 10 columns.*with 1 of the {others} rows"
                )
                with pytest.raises(tf.errors.InvalidArgumentError, match=says):
                    trainer.step(bad)
                rows = trainer.built.rows()
                model.assert_same_rows({"own": rows["own"]}, {"own": before["own"]})
                if way in (straight, by_address):  # one op updates both tables
                    model.assert_same_rows(rows, before)
                else:  # an op each: the other one may have come first
                    trainer.built.tables["shared"].native.write(*before["shared"])
            assert trainer.stats() == {"shared": 0, "own": len(bad_steps)}
            trainer.step()
            assert session.run(trainer.global_step) == 2
            outcomes.append(trainer.built.rows())
    model.assert_same_rows(*outcomes)


def test_finite_gradients_whose_sum_is_not_fail_too(started):
    table = model.table("t")
    factor = tf.constant([[3e38], [1.0], [3e38]])
    batch, specs = model.one_batch({"t": np.array([7, 8, 7])})
    loss = tf.reduce_sum(sparse_lookup(table, specs["t"], batch=batch) * factor)
    pairs = straight(loss, [table])
    step = gradient_descent.create_hash_optimizer(0.1).apply_gradients(pairs)
    with v1.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="key 7 .*inf in 10 of 10"):
        session.run(step)
    assert (table.native.read([7, 8])[0] == START).all()


def test_a_bad_column_of_concatenated_features_names_the_table_it_belongs_to(started):
    tables = {name: model.table(name) for name in ("a", "b", "c")}
    features = {name: np.arange(4) + 10 * i for i, name in enumerate(tables)}
    batch, specs = model.one_batch(features)
    wide = tf.concat([sparse_lookup(table, specs[name], batch=batch) for name, table in tables.items()], -1)
    factor = v1.placeholder(tf.float32, [4, 3 * model.DIM])
    step = lazy_adam.create_hash_optimizer(0.1).apply_gradients(straight(tf.reduce_sum(wide * factor), tables.values()))
    start_asc_pipeline()  # the lookup writes the features side by side
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for i, name in enumerate(tables):
            values = np.ones((4, 3 * model.DIM), np.float32)
            values[2, i * model.DIM + 4] = np.nan
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"table '{name}'.*key {10 * i + 2} "):
                session.run(step, {factor: values})
        for table in tables.values():
            assert (model.dump(table)[1][:, 0] == START).all()
            assert table.stats()["nonfinite"] == 1


def test_a_bad_gradient_of_a_pooled_bag_names_its_first_key(started):
    table = model.table("t")
    batch, specs = model.one_batch({"t": np.array([[1, 2], [9, 4], [2, 5]])})
    pooled = tf.reduce_sum(sparse_lookup(table, specs["t"], batch=batch), -2)
    factor = tf.constant([[1.0], [np.nan], [1.0]])
    step = lazy_adam.create_hash_optimizer(0.1).apply_gradients(straight(tf.reduce_sum(pooled * factor), [table]))
    start_asc_pipeline()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="key 9 .*2 of the 5 rows"):
            session.run(step)


def test_the_mode_stays_when_graph_modification_merges_the_updates_of_lookups():
    with model.process(nonfinite_gradients="skip"):
        iterator = v1.data.make_initializable_iterator(tf.data.Dataset.from_tensors({"x": np.arange(3)}))
        batch = iterator.get_next()
        tables = [model.table(name) for name in ("t", "u")]
        factor = tf.constant([[1.0], [np.nan], [1.0]])
        loss = sum(tf.reduce_sum(sparse_lookup(table, batch["x"], modify_graph=True) * factor) for table in tables)
        step = gradient_descent.create_hash_optimizer(0.25).apply_gradients(straight(loss, tables))
        modify_graph_and_start_emb_cache()
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), iterator.initializer])
            session.run(step)
        for table in tables:
            assert model.dump(table)[1][:, 0, 0].tolist() == [0.0, START, 0.0]


# ---- "skip" and "allow" ----


@each(ONE_OF_EACH)
@each_way
def test_skip_leaves_rows_with_bad_gradients_alone_and_trains_the_others(case, way):
    data = model.batches(5)
    bad_of_step = (None, *BAD, None)
    with model.process(nonfinite_gradients="skip"), v1.Session() as session:
        trainer = Trainer(session, case.create, way, data)
        for i, bad in enumerate(bad_of_step):
            key = spoiled_key(data, i)
            before, was_there = trainer.built.tables["own"].native.read([key])
            trainer.step(bad)
            if bad is not None and was_there[0]:
                np.testing.assert_array_equal(trainer.built.tables["own"].native.read([key])[0], before)
        assert trainer.stats() == {"shared": 0, "own": len(BAD)}
        expected = reference(case, data, bad_of_step)
        for name, (keys, values) in trainer.built.rows().items():
            assert keys.tolist() == sorted(expected[name])
            np.testing.assert_allclose(values, [expected[name][key] for key in keys], rtol=0, atol=1e-5)


@each_way
def test_allow_writes_what_comes(way):
    data = model.batches(1)
    with model.process(nonfinite_gradients="allow"), v1.Session() as session:
        trainer = Trainer(session, lazy_adam.create_hash_optimizer, way, data)
        trainer.step(np.nan)
        keys, values = trainer.built.rows()["own"]
        expected = np.zeros(values.shape, bool)
        expected[keys.tolist().index(spoiled_key(data, 0)), :, COLUMN] = True
        np.testing.assert_array_equal(np.isnan(values), expected)
        assert trainer.stats() == {"shared": 0, "own": 0}


# ---- Tables with more to them ----


@pytest.mark.parametrize("mode", ["error", "skip"])
def test_rows_that_come_back_from_disk_are_treated_the_same(mode, tmp_path):
    data = repeated(model.batches(3, keys=np.arange(400)), [0, 1, 2, 0, 0])
    tier = {"rows": 100, "host_vocabulary_size": 100, "ssd_vocabulary_size": 1000, "ssd_data_path": [str(tmp_path)]}
    outcomes = []
    for options in (tier, {}):
        with model.process(nonfinite_gradients=mode), v1.Session() as session:
            trainer = Trainer(session, lazy_adam.create_hash_optimizer, straight, data, **options)
            for _ in range(3):
                trainer.step()
            before = trainer.built.rows()
            if mode == "error":
                with pytest.raises(tf.errors.InvalidArgumentError, match=f"'own'.*key {spoiled_key(data, 0)} "):
                    trainer.step(np.nan)
                model.assert_same_rows(trainer.built.rows(), before)
            else:
                trainer.step(np.nan)
            trainer.step()
            outcomes.append(trainer.built.rows())
    model.assert_same_rows(*outcomes)


@pytest.mark.parametrize("mode", ["error", "skip"])
def test_gradients_of_keys_that_are_not_admitted_do_not_matter(mode):
    with model.process(nonfinite_gradients=mode), v1.Session() as session:
        table = model.table("t")
        spec = FeatureSpec("t", access_threshold=2)
        dataset = tf.data.Dataset.from_tensors({"t": np.array([1, 1, 2])}).repeat().map(get_asc_insert_func([spec]))
        batch = v1.data.make_one_shot_iterator(dataset).get_next()
        factor = tf.constant([[1.0], [1.0], [np.nan]])
        loss = tf.reduce_sum(sparse_lookup(table, spec, batch=batch) * factor)
        step = gradient_descent.create_hash_optimizer(0.125).apply_gradients(straight(loss, [table]))
        session.run(step)  # key 2 has no row yet
        assert table.stats()["nonfinite"] == 0
        assert model.dump(table)[1].tolist() == [[[0.0] * model.DIM]]
        if mode == "error":
            with pytest.raises(tf.errors.InvalidArgumentError, match="key 2 .*1 of the 2 rows"):
                session.run(step)
        else:
            session.run(step)
        assert table.stats()["nonfinite"] == 1


def test_gradients_of_padding_keys_do_not_matter(started):
    table = model.table("t", padding_keys=[0], padding_keys_mask=True, padding_keys_len=1)
    batch, specs = model.one_batch({"t": np.array([0, 5])})
    loss = tf.reduce_sum(sparse_lookup(table, specs["t"], batch=batch) * tf.constant([[np.nan], [1.0]]))
    step = gradient_descent.create_hash_optimizer(0.125).apply_gradients(straight(loss, [table]))
    with v1.Session() as session:
        session.run(step)
    assert table.native.read([0, 5])[0][:, 0, 0].tolist() == [START, START - 0.125]


# ---- Learning rates ----


@pytest.mark.parametrize("way", [straight, with_an_op_between], ids=lambda way: way.__name__)
@pytest.mark.parametrize("mode", ["error", "skip"])
@each(ONE_OF_EACH)
def test_a_bad_learning_rate_in_a_tensor_fails_before_anything_is_written(case, mode, way):
    with model.process(nonfinite_gradients=mode), v1.Session() as session:
        trainer = Trainer(session, case.create, way, repeated(model.batches(1), [0] * 6))
        trainer.step()
        before = trainer.built.rows()
        for rate in (np.nan, np.inf, -np.inf, -0.1):
            says = f"optimizer '{trainer.optimizer.rule}': (learning_rate|step_size) must be finite and not negative"
            with pytest.raises(tf.errors.InvalidArgumentError, match=says) as failure:
                trainer.step(rate=rate)
            assert f"got {'-0.' if rate == -0.1 else rate}" in str(failure.value)
            model.assert_same_rows(trainer.built.rows(), before)
        trainer.step(rate=0.0)  # schedules do reach it


def test_allow_takes_any_learning_rate():
    with model.process(nonfinite_gradients="allow"), v1.Session() as session:
        trainer = Trainer(session, gradient_descent.create_hash_optimizer, straight, model.batches(1))
        trainer.step(rate=np.nan)
        assert np.isnan(trainer.built.rows()["own"][1]).all()


# ---- The setting, and the counter ----


@pytest.mark.parametrize("value", ["ignore", "", None, True, ["skip"]])
def test_an_unknown_mode_is_refused_with_the_choices(value):
    with pytest.raises(ValueError, match="`nonfinite_gradients` must be one of 'error', 'skip', 'allow', got"):
        init(nonfinite_gradients=value)


def test_the_mode_is_a_setting_like_the_others():
    with model.process():
        assert ConfigInitializer.get_instance().nonfinite_gradients == "error"
    with model.process(nonfinite_gradients="skip"):
        assert ConfigInitializer.get_instance().nonfinite_gradients == "skip"


def test_the_counter_is_among_the_numbers_for_tensorboard():
    with model.process(nonfinite_gradients="skip"), v1.Session() as session:
        trainer = Trainer(session, lazy_adam.create_hash_optimizer, straight, model.batches(1))
        trainer.step(np.nan)
        summary = summary_of({name: table.stats() for name, table in trainer.built.tables.items()})
        numbers = {value.tag: value.simple_value for value in summary.value}
        assert (numbers["mx_rec/own/nonfinite"], numbers["mx_rec/shared/nonfinite"]) == (1.0, 0.0)
