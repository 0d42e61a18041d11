"""Warm start: what tables and variables begin with, out of one checkpoint or several."""

import itertools
import logging
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers import gradient_descent, lazy_adam
from mx_rec.saver import rows_only, warm_start
from mx_rec.util.initialize import ConfigInitializer
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import estimators, model
from tests.shared.estimators import Job, data_of, evaluation_data
from tf_adapter import NPUEstimator, NPURunConfig

v1 = tf.compat.v1
pytestmark = pytest.mark.border
Settings = tf.estimator.WarmStartSettings


@pytest.fixture(autouse=True)
def running():
    with model.process():
        yield


@pytest.fixture
def log(caplog):
    """All that is logged."""
    logger = logging.getLogger("mx_rec")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "mx_rec")
    yield caplog
    logger.removeHandler(caplog.handler)


# ---- The examples of the original's documentation, with their names: user_table, item_table, mlp_layer_w.

NAMES = ("user_table", "item_table", "user_table2")


def towers(features, mode, params):
    """Three tables and two dense variables; `params["value"]` is what all of them start from."""
    is_train = mode == tf.estimator.ModeKeys.TRAIN
    initializer = v1.constant_initializer(params["value"])
    dim = params.get("dim", 4)
    tables = [create_table(tf.int64, dim, name, initializer, device_vocabulary_size=1000) for name in NAMES]
    embeddings = [sparse_lookup(table, features["ids"], is_train=is_train) for table in tables]
    w = v1.get_variable("mlp_layer_w", [dim], initializer=initializer)
    b = v1.get_variable("mlp_layer_b", [dim], initializer=initializer)
    out = tf.add_n(embeddings) * w + b
    loss = tf.reduce_mean((out - 1.0) ** 2)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"out": out})
    if not is_train:
        return tf.estimator.EstimatorSpec(mode, loss=loss)
    dense, sparse = get_dense_and_sparse_variable()
    gradients = tf.gradients(loss, dense + sparse)
    # Learning rates of 0 leave everything at the value it started from, but in a model that is to be learned from.
    rate = params.get("rate", 0.0)
    updates = [
        v1.train.GradientDescentOptimizer(rate).apply_gradients(zip(gradients[:2], dense)),
        lazy_adam.create_hash_optimizer(rate).apply_gradients(zip(gradients[2:], sparse)),
    ]
    with tf.control_dependencies(updates):
        train_op = v1.train.get_global_step().assign_add(1, read_value=False)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def ids_fn(low, high):
    return lambda: tf.data.Dataset.from_tensors({"ids": tf.range(low, high, dtype=tf.int64)}).repeat()


def learned(directory, value, low, high):
    """A checkpoint in `directory`: rows `low` to `high` and all variables have the value `value`."""
    estimator = NPUEstimator(towers, str(directory), NPURunConfig(), {"value": float(value)})
    estimator.train(ids_fn(low, high), steps=1)
    restart()


def restart():
    """As if another process began."""
    model.terminate_config_initializer()
    model.init()


def started(directory, settings, steps=1):
    """What a new model, all of 0, has after a step that changes no value: rows by table, variables by name."""
    estimator = NPUEstimator(
        model_fn=towers,
        params={"value": 0.0},
        model_dir=str(directory),
        config=NPURunConfig(),
        warm_start_from=settings,
    )
    estimator.train(ids_fn(0, 3), steps=steps)
    return rows_now(), {name: estimator.get_variable_value(name)[0] for name in ("mlp_layer_w", "mlp_layer_b")}


def rows_now():
    """{table: {key: value}}; all floats of an embedding are equal here."""
    found = {}
    with tf.Graph().as_default():
        for name in NAMES:
            table = create_table(tf.int64, 4, name, v1.constant_initializer(0.0), device_vocabulary_size=1000)
            keys, values = model.dump(table)
            assert (values[:, 0] == values[:, 0, :1]).all()
            found[name] = dict(zip(keys.tolist(), values[:, 0, 0].tolist()))
    return found


def rows(value, low, high):
    """Those of a model that learned `value`, and beside them the fresh ones of ids 0, 1 and 2."""
    return {**dict.fromkeys(range(3), 0.0), **dict.fromkeys(range(low, high), float(value))}


FRESH = rows(0, 0, 3)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A directory of checkpoints, good ones and bad ones."""
    root = tmp_path_factory.mktemp("checkpoints")
    with model.process():
        learned(root / "warm_start", 7, 10, 14)
        for number in (1, 2, 3):
            learned(root / f"warm_start_{number}", number, 10 * number, 10 * number + 5)
        estimator = NPUEstimator(towers, str(root / "wide"), NPURunConfig(), {"value": 5.0, "dim": 6})
        estimator.train(ids_fn(0, 3), steps=1)
        restart()
        with tf.Graph().as_default(), v1.Session() as session:
            create_table(tf.int64, 4, "user_table", v1.constant_initializer(0.0), device_vocabulary_size=1000)
            v1.get_variable("mlp_layer_w", [4])
            v1.get_variable("mlp_layer_b", [4])
            session.run(v1.global_variables_initializer())
            v1.train.Saver().save(session, str(root / "fewer"))
    (root / "empty").mkdir()
    shutil.copytree(root / "warm_start", root / "dense_only")
    shutil.rmtree(root / "dense_only" / "sparse-model.ckpt-1")
    shutil.copytree(root / "warm_start_1", root / "damaged")
    with open(root / "damaged" / "sparse-model.ckpt-1" / "user_table" / "embedding" / "slice.data", "r+b") as file:
        file.write(b"\x55")
    return root


@pytest.fixture
def warm(checkpoints, tmp_path, monkeypatch):
    """The checkpoints, in the current directory: warm_start, warm_start_1 to 3, and those with something wrong."""
    shutil.copytree(checkpoints, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def test_example_1_one_table_of_one_path(warm, log):
    warm_settings = tf.estimator.WarmStartSettings(
        ckpt_to_initialize_from="./warm_start",
        vars_to_warm_start="user_table",
        var_name_to_vocab_info=None,
        var_name_to_prev_var_name=None,
    )
    tables, variables = started("model", warm_settings)
    assert tables["user_table"] == rows(7, 10, 14)
    assert tables["item_table"] == FRESH
    assert tables["user_table2"] == FRESH, "a table is matched by its full name"
    assert variables == {"mlp_layer_w": 0.0, "mlp_layer_b": 0.0}
    assert "table user_table  ./warm_start/model.ckpt-1  4 rows" in log.text


def test_example_2_several_paths_later_ones_replacing_earlier_ones(warm, log):
    ckpt_to_initialize_from_list = ["./warm_start_1", "./warm_start_2", "./warm_start_3"]
    vars_to_warm_start_list = [".*", ["user_table", "item_table"], "mlp_layer_w"]
    var_name_to_prev_var_name_list = [{}, {}, {}]
    warm_settings = tf.estimator.WarmStartSettings(
        ckpt_to_initialize_from=ckpt_to_initialize_from_list,
        vars_to_warm_start=vars_to_warm_start_list,
        var_name_to_vocab_info=None,
        var_name_to_prev_var_name=var_name_to_prev_var_name_list,
    )
    tables, variables = started("model", warm_settings)
    assert tables["user_table"] == rows(2, 20, 25)
    assert tables["item_table"] == rows(2, 20, 25)
    assert tables["user_table2"] == rows(1, 10, 15)
    assert variables == {"mlp_layer_w": 3.0, "mlp_layer_b": 1.0}
    for line in (
        r"table user_table   ./warm_start_2/model.ckpt-1  5 rows",
        r"table user_table2  ./warm_start_1/model.ckpt-1  5 rows",
        r"mlp_layer_w        ./warm_start_3/model.ckpt-1",
        r"mlp_layer_b        ./warm_start_1/model.ckpt-1",
    ):
        assert line in log.text


def test_a_model_that_has_a_checkpoint_goes_on_from_there(warm):
    settings = Settings("./warm_start", ".*")
    tables, _ = started("model", settings)
    shutil.rmtree("warm_start")
    shutil.copytree("warm_start_2", "warm_start")
    assert started("model", settings)[0] == tables


def test_an_estimator_predicts_warm_before_it_has_trained(warm):
    estimator = NPUEstimator(towers, "model", NPURunConfig(), {"value": 0.0}, warm_start_from="./warm_start")
    found = next(iter(estimator.predict(ids_fn(9, 12), yield_single_examples=False)))["out"]
    np.testing.assert_array_equal(found[:, 0], [7.0, 3 * 7.0 * 7.0 + 7.0, 3 * 7.0 * 7.0 + 7.0])


# ---- Selectors.


@pytest.mark.parametrize(
    "selector, tables, variables",
    [
        (".*", NAMES, "wb"),
        ("user_table", ["user_table"], ""),
        ("user_.*", ["user_table", "user_table2"], ""),
        ("(user|item)_table", ["user_table", "item_table"], ""),
        ("mlp", [], "wb"),
        ("mlp_layer_b", [], "b"),
        (["user_table", "mlp_layer_w"], ["user_table"], "w"),
        ([".*2", "mlp_.*_b"], ["user_table2"], "b"),
        (None, [], ""),
    ],
)
def test_selectors(selector, tables, variables, warm):
    found, dense = started("model", Settings("./warm_start", selector))
    assert found == {name: rows(7, 10, 14) if name in tables else FRESH for name in NAMES}
    assert dense == {f"mlp_layer_{name}": 7.0 if name in variables else 0.0 for name in "wb"}


def test_variables_as_selectors(warm):
    with tf.Graph().as_default():
        features = ids_fn(0, 3)().take(1)
        batch = v1.data.make_one_shot_iterator(features).get_next()
        v1.train.create_global_step()
        towers(batch, tf.estimator.ModeKeys.EVAL, {"value": 0.0})
        anchors = {v.op.name: v for v in get_dense_and_sparse_variable()[1]}
        weight = next(v for v in v1.trainable_variables() if v.op.name == "mlp_layer_w")
        warm_start("./warm_start", [anchors["item_table"], weight])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            assert session.run(v1.trainable_variables()[0])[0] == 7.0
            assert session.run(v1.trainable_variables()[1])[0] == 0.0
    found = rows_now()
    assert found == {"user_table": {}, "item_table": dict.fromkeys(range(10, 14), 7.0), "user_table2": {}}


def test_tables_and_variables_may_be_renamed(warm, log):
    settings = Settings(
        ["./warm_start_1", "./warm_start_2"],
        [["user_table", "mlp_layer_w"], "item_table"],
        [{}, {}],
        [{"user_table": "item_table", "mlp_layer_w": "mlp_layer_b"}, {"item_table": "user_table2"}],
    )
    tables, variables = started("model", settings)
    assert tables == {"user_table": rows(1, 10, 15), "item_table": rows(2, 20, 25), "user_table2": FRESH}
    assert variables == {"mlp_layer_w": 1.0, "mlp_layer_b": 0.0}
    assert "./warm_start_2/model.ckpt-1: user_table2" in log.text


def test_a_prefix_names_one_checkpoint(warm):
    tables, _ = started("model", Settings("./warm_start_1/model.ckpt-0", "user_table"))
    assert tables["user_table"] == FRESH  # saved before the first step
    tables, _ = started("other", Settings("./warm_start_1/model.ckpt-1", "user_table"))
    assert tables["user_table"] == rows(1, 10, 15)


def test_a_directory_that_was_moved_is_found(warm):
    os.rename("warm_start", "moved")
    assert started("model", Settings("./moved", ".*"))[0]["item_table"] == rows(7, 10, 14)


# ---- Session scripts.


def test_a_session_script_warm_starts_by_a_call(warm):
    with tf.Graph().as_default():
        batch = v1.data.make_one_shot_iterator(ids_fn(0, 12)()).get_next()
        v1.train.create_global_step()
        spec = towers(batch, tf.estimator.ModeKeys.PREDICT, {"value": 0.0})
        warm_start(["./warm_start_1", "./warm_start"], [".*", "user_table"])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            out = session.run(spec.predictions["out"])[:, 0]
    np.testing.assert_array_equal(out, [1.0] * 10 + [(7 + 1 + 1) * 1.0 + 1.0] * 2)


def test_tensorflow_s_own_function_knows_tables_too(warm):
    with tf.Graph().as_default():
        batch = v1.data.make_one_shot_iterator(ids_fn(0, 3)()).get_next()
        v1.train.create_global_step()
        towers(batch, tf.estimator.ModeKeys.EVAL, {"value": 0.0})
        v1.train.warm_start("./warm_start", vars_to_warm_start="item_table")
    assert rows_now()["item_table"] == dict.fromkeys(range(10, 14), 7.0)


# ---- Paths, selectors, modes, admission: all together.

SELECTORS = {"regex": ".*", "name": "shared", "list": ["shared", "own"], "dense": ["weight"]}


def matrix():
    return [
        pytest.param(paths, selector, mode, admission, id=f"{paths}-{selector}-{mode}-{'admission' * bool(admission)}")
        for paths, selector, mode, admission in itertools.product(
            (1, 2), SELECTORS, ("bare", "modified"), (None, estimators.ADMISSION)
        )
    ]


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    """{(number, has admission): (directory, rows, weight)} of trained models."""
    found = {}
    for number, admission in itertools.product((0, 1), (None, estimators.ADMISSION)):
        directory = tmp_path_factory.mktemp("teacher")
        with model.process():
            job = Job(directory, admission=admission)
            job.train(data_of(number), 6)
            counts = {name: table.native.history(job.rows()[name][0]) for name, table in job.tables.items()}
            found[number, admission is not None] = (directory, job.rows(), job.weight(), counts)
    return found


@pytest.mark.parametrize("paths, selector, mode, admission", matrix())
def test_every_combination(paths, selector, mode, admission, teachers, tmp_path):
    chosen = [teachers[number, admission is not None] for number in range(paths)]
    settings = Settings([str(one[0]) for one in chosen], [".*", SELECTORS[selector]][-paths:])
    if paths == 1:
        settings = Settings(str(chosen[0][0]), SELECTORS[selector])
    job = Job(tmp_path, mode, admission, warm_start_from=settings)
    source = dict.fromkeys(("shared", "own", "weight"), chosen[0] if paths == 2 else None)
    taken = {"regex": ("shared", "own", "weight"), "name": ("shared",), "list": ("shared", "own"), "dense": ("weight",)}
    for name in taken[selector]:
        source[name] = chosen[-1]
    predicted = job.predict(evaluation_data())  # before any training: just what was taken
    empty = (np.empty(0, np.int64), np.empty((0, 1, model.DIM), np.float32))
    expected = {name: source[name][1][name] if source[name] else empty for name in model.TABLES}
    weight = source["weight"][2] if source["weight"] else np.linspace(0.5, 1.5, model.DIM, dtype=np.float32)
    reference = estimators.predict(expected, weight, evaluation_data())
    np.testing.assert_allclose(predicted, reference, rtol=1e-5, atol=1e-6)

    listener = Snapshot(job)
    job.train(data_of(2), 3, saving_listeners=[listener])
    for name in model.TABLES:
        keys, values = listener.first[name]
        np.testing.assert_array_equal(keys, expected[name][0])
        if source[name]:
            np.testing.assert_array_equal(values, expected[name][1], err_msg="rows and slots")
            np.testing.assert_array_equal(listener.counts[name], source[name][3][name])
    assert job.estimator.get_variable_value("global_step") == 3


class Snapshot(v1.train.CheckpointSaverListener):
    """What the tables hold before the first step."""

    def __init__(self, job):
        self.job, self.first = job, None

    def after_save(self, session, global_step_value):
        if self.first is None:
            self.first = self.job.rows()
            self.counts = {name: self.job.tables[name].native.history(keys) for name, (keys, _) in self.first.items()}


@pytest.mark.parametrize("mode", ["bare", "modified"])
def test_rows_only_leaves_slots_and_counts_behind(mode, teachers, tmp_path):
    directory, expected, _, _ = teachers[0, True]
    job = Job(tmp_path, mode, estimators.ADMISSION, warm_start_from=str(directory))
    listener = Snapshot(job)
    with rows_only():
        job.train(data_of(2), 3, saving_listeners=[listener])
    for name, (keys, values) in listener.first.items():
        np.testing.assert_array_equal(keys, expected[name][0])
        np.testing.assert_array_equal(values[:, 0], expected[name][1][:, 0])
        assert (values[:, 1:] == 0).all() and (expected[name][1][:, 1:] != 0).any()
        assert not np.any(listener.counts[name])


def test_slots_of_another_optimizer_start_fresh(teachers, tmp_path, log):
    directory, expected, _, _ = teachers[0, False]
    with tf.Graph().as_default():
        table = model.table("shared", v1.truncated_normal_initializer(stddev=0.3, seed=3))
        loss = tf.reduce_sum(sparse_lookup(table, tf.constant([1, 2], tf.int64)))
        gradients = tf.gradients(loss, [table.variable])
        gradient_descent.create_hash_optimizer(0.1).apply_gradients(zip(gradients, [table.variable]))
        warm_start(str(directory), "shared")
        keys, values = model.dump(table)
    np.testing.assert_array_equal(keys, expected["shared"][0])
    np.testing.assert_array_equal(values[:, 0], expected["shared"][1][:, 0])


def test_tables_with_rows_on_disk_and_tables_that_grow_start_warm(teachers, tmp_path):
    directory, expected, _, _ = teachers[0, False]
    initializer = v1.truncated_normal_initializer(stddev=0.3, seed=3)
    with tf.Graph().as_default():
        tier = {"host_vocabulary_size": 10, "ssd_vocabulary_size": 1000, "ssd_data_path": [str(tmp_path)]}
        found = model.table("shared", initializer, rows=10, **tier)
        warm_start(str(directory), "shared", rows_only=True)
        assert found.stats()["rows_on_disk"] > 0
        np.testing.assert_array_equal(model.dump(found)[1][:, 0], expected["shared"][1][:, 0])
    model.terminate_config_initializer()
    model.init(use_dynamic_expansion=True)
    with tf.Graph().as_default():
        found = model.table("shared", initializer, rows=1)
        warm_start(str(directory), "shared")
        np.testing.assert_array_equal(model.dump(found)[0], expected["shared"][0])


@pytest.mark.parametrize("is_rows_only", [False, True])
def test_a_delta_brings_all_that_it_builds_on(is_rows_only, tmp_path):
    table = model.table("t", v1.truncated_normal_initializer(seed=1))
    ids = v1.placeholder(tf.int64, [None])
    gradients = tf.gradients(tf.reduce_sum(sparse_lookup(table, ids) ** 2), [table.variable])
    step = lazy_adam.create_hash_optimizer(0.1).apply_gradients(zip(gradients, [table.variable]))
    saver = v1.train.Saver()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for number, keys in enumerate([range(100), range(50, 150), range(20, 30)]):
            session.run(step, {ids: list(keys)})
            table.native.erase([number, 60 + number])
            saver.save(session, str(tmp_path / "model"), global_step=number, save_delta=True)
    assert len(list(tmp_path.glob("delta-sparse-model-*"))) == 2
    keys, values = model.dump(table)
    table.native.clear()
    warm_start(str(tmp_path), "t", rows_only=is_rows_only)
    found, rows = model.dump(table)
    np.testing.assert_array_equal(found, keys)
    if is_rows_only:
        values[:, 1:] = 0  # Adam's slots begin at 0
    np.testing.assert_array_equal(rows, values)


def bytes_read():
    """How many bytes this process has asked the kernel for, from disk or cache."""
    with open("/proc/self/io") as file:
        return int(next(line for line in file if line.startswith("rchar:")).split()[1])


@pytest.mark.parametrize("is_rows_only", [False, True])
def test_each_byte_of_a_table_is_read_once(is_rows_only, tmp_path):
    def table_with_slots():
        table = model.table("t", v1.truncated_normal_initializer(seed=1), rows=100_000)
        gradients = tf.gradients(tf.reduce_sum(sparse_lookup(table, tf.constant([0], tf.int64))), [table.variable])
        lazy_adam.create_hash_optimizer(0.1).apply_gradients(zip(gradients, [table.variable]))
        return table

    with tf.Graph().as_default(), v1.Session() as session:
        table = table_with_slots()
        keys = np.arange(100_000)
        table.native.write(keys, np.ones((100_000, 3, model.DIM), np.float32))
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "model"))
    restart()
    columns = ["key", "embedding"] if is_rows_only else ["key", "embedding", "LazyAdam_momentum", "LazyAdam_velocity"]
    size = sum((tmp_path / "sparse-model/t" / column / "slice.data").stat().st_size for column in columns)
    with tf.Graph().as_default():
        table = table_with_slots()
        before = bytes_read()
        warm_start(str(tmp_path), "t", rows_only=is_rows_only)
        count = bytes_read() - before
    assert table.size() == 100_000
    assert size <= count < size + 100_000, "and manifests"


def test_more_rows_than_a_table_may_hold_are_refused(teachers):
    with tf.Graph().as_default():
        found = model.table("shared", v1.zeros_initializer(), rows=3)
        with pytest.raises(MemoryError, match="shared"):
            warm_start(str(teachers[0, False][0]), "shared")
        assert found.size() == 0


# ---- Errors: each names what is wrong and what to do, and changes nothing.


@pytest.mark.parametrize(
    "settings, message",
    [
        ((["./warm_start", "./warm_start_1"], [".*"]), "`vars_to_warm_start` must be a list of 2.*got a list of 1"),
        ((["./warm_start", "./warm_start_1"], ".*"), "`vars_to_warm_start` must be a list of 2.*got '.*'"),
        (
            (["./warm_start", "./warm_start_1"], [".*", ".*"], None, [{}]),
            "`var_name_to_prev_var_name` must be a list of 2.*got a list of 1",
        ),
        (
            (["./warm_start"], [".*"], [{}, {}]),
            "`var_name_to_vocab_info` must be a list of 1.*got a list of 2",
        ),
        (([], []), "at least one path"),
        (("./nowhere", ".*"), "there is no checkpoint './nowhere'"),
        (("./empty", ".*"), "directory './empty' has no checkpoint"),
        (("./warm_start", "user_tabl"), "'user_tabl' of `vars_to_warm_start` matches no table in full"),
        (("./warm_start", ["user_table", "item"]), "'item' of `vars_to_warm_start` matches no table in full"),
        (("./warm_start", "user_table("), r"'user_table\(' is no regular expression"),
        (("./warm_start", 5), "must be a regular expression, a list of names, or a list of variables, got 5"),
        (("./dense_only", "user_table"), "has no tables"),
        (("./fewer", ".*"), "has no table 'item_table', only.*`var_name_to_prev_var_name`"),
        (
            ("./warm_start", "user_table", None, {"user_table": "users"}),
            "has no table 'users', only.*'item_table', 'user_table'",
        ),
        (
            ("./warm_start", "user_table", None, {"item_table": "user_table"}),
            r"renames the tables \['item_table'\].*does not select",
        ),
        (("./wide", "user_table"), "has dim 4, table 'user_table' of checkpoint.*has dim 6"),
        ((["./warm_start", "./damaged"], [".*", "user_table"]), "damaged|checksum|changed"),
    ],
)
def test_errors(settings, message, warm):
    with tf.Graph().as_default():
        batch = v1.data.make_one_shot_iterator(ids_fn(0, 3)()).get_next()
        v1.train.create_global_step()
        towers(batch, tf.estimator.ModeKeys.EVAL, {"value": 0.0})
        for table in ConfigInitializer.get_instance().sparse_embed_config.table_instance_dict.values():
            table.native.write([5], np.full((1, 1, 4), 9.0, np.float32))
        with pytest.raises(ValueError, match=message):
            warm_start(*settings)
    assert rows_now() == {name: {5: 9.0} for name in NAMES}
