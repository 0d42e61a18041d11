"""Bad input, one test each: an error of the right type that names the thing, the rule, the value and the remedy."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.asc.feature_spec import FeatureSpec
from mx_rec.core.asc.helper import get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers import adagrad, ftrl, gradient_descent, gradient_descent_by_addr, lazy_adam, momentum
from mx_rec.util.communication.hccl_ops import get_device_id, get_local_rank_size, get_rank_id, get_rank_size
from mx_rec.util.initialize import ConfigInitializer, get_use_dynamic_expansion, init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph
    from mx_rec._process import process

    if process.config is not None:
        terminate_config_initializer()


def table(name="table", **changes):
    arguments = {
        "key_dtype": tf.int64,
        "dim": 4,
        "name": name,
        "emb_initializer": tf.zeros_initializer(),
        "device_vocabulary_size": 100,
    }
    arguments.update(changes)
    return create_table(**arguments)


def batch_of(specs, **data):
    data = data or {"ids": np.arange(8)}
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(4).map(get_asc_insert_func(tgt_key_specs=specs))
    iterator = v1.data.make_initializable_iterator(dataset)
    return iterator.get_next(), iterator


def message_of(error):
    return str(error.value)


# ---- init -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max_steps", "train_steps", "eval_steps", "save_steps"])
@pytest.mark.parametrize("value", [-2, 2**31, 1.0, True, "10", None])
def test_init_refuses_steps_out_of_range_or_of_another_type(name, value):
    with pytest.raises(ValueError, match=name):
        init(**{name: value})


@pytest.mark.parametrize(
    "name", ["if_load", "use_dynamic", "use_dynamic_expansion", "bind_cpu", "is_incremental_checkpoint", "use_lccl"]
)
def test_init_refuses_flags_that_are_not_bool(name):
    with pytest.raises(ValueError, match=name):
        init(**{name: 1})


def test_init_refuses_all_steps_zero():
    with pytest.raises(ValueError, match="all be 0"):
        init(max_steps=0, train_steps=0, eval_steps=0)


def test_init_needs_both_periods_for_incremental_checkpoints():
    with pytest.raises(ValueError, match="save_delta_checkpoints_secs"):
        init(is_incremental_checkpoint=True, save_checkpoint_due_time=10)


@pytest.mark.parametrize(
    "name,low",
    [
        ("save_checkpoint_due_time", 1),
        ("save_delta_checkpoints_secs", 1),
        ("restore_model_version", 0),
        ("recent_key_count_threshold", 0),
    ],
)
def test_init_refuses_periods_below_their_range(name, low):
    with pytest.raises(ValueError, match=name):
        init(**{name: low - 1})


def test_init_takes_the_old_form():
    init(True, rank_id=0, rank_size=1, train_interval=5, prefetch_batch_number=2, use_hot=1, use_dynamic=1)
    assert ConfigInitializer.get_instance().train_steps == 5
    assert ConfigInitializer.get_instance().use_dynamic is True


def test_a_second_init_is_an_error_until_terminate():
    init()
    with pytest.raises(EnvironmentError, match="terminate_config_initializer"):
        init()
    terminate_config_initializer()
    init(use_dynamic_expansion=True)
    assert get_use_dynamic_expansion()


def test_terminate_before_init_and_twice_only_warns(log):
    def warnings():
        return [text for level, text in log if level == "WARNING"]

    warning = "terminate_config_initializer: mx_rec is not initialized, nothing to do"
    terminate_config_initializer()
    assert warnings() == [warning]
    init()
    t = table()
    gradient = tf.gradients(tf.reduce_sum(sparse_lookup(t, tf.constant([1, 2, 1]))), [t.variable])[0]
    train = gradient_descent.create_hash_optimizer(0.5).apply_gradients([(gradient, t.variable)])
    start_asc_pipeline()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)
        assert t.native.read([1, 2])[0][:, 0].tolist() == [[-1.0] * 4, [-0.5] * 4]
    terminate_config_initializer()
    assert warnings() == [warning]
    terminate_config_initializer()
    assert warnings() == [warning, warning]


@pytest.mark.parametrize(
    "variable,value",
    [("KEY_PROCESS_THREAD_NUM", "11"), ("HD_CHANNEL_SIZE", "many"), ("MXREC_LOG_LEVEL", "LOUD"), ("TF_DEVICE", "TPU")],
)
def test_init_refuses_environment_variables_out_of_range(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{variable}.*{value}"):
        init()


@pytest.mark.parametrize(
    "call",
    [
        lambda: table(),
        lambda: get_asc_insert_func(FeatureSpec("ids")),
        lambda: sparse_lookup(None, None),
        lambda: start_asc_pipeline(),
        lambda: get_dense_and_sparse_variable(),
        lambda: ConfigInitializer.get_instance(),
        lambda: get_use_dynamic_expansion(),
    ],
)
def test_every_call_before_init_says_to_call_init(call):
    with pytest.raises(EnvironmentError, match="Please init the environment for mx_rec at first.*init()"):
        call()


@pytest.mark.parametrize("call", [init, get_rank_id, get_rank_size, get_device_id, get_local_rank_size])
def test_several_ranks_without_a_launcher_are_refused_rather_than_trained_apart(call, monkeypatch):
    monkeypatch.setenv("RANK_SIZE", "2")
    monkeypatch.setenv("RANK_ID", "1")
    with pytest.raises(EnvironmentError, match="RANK_SIZE=2.*mpirun -np 2.*with RANK_SIZE unset"):
        call()


@pytest.mark.parametrize(
    "statement",
    [
        "from mx_rec.util.initialize import init",
        "from mx_rec.util.communication.hccl_ops import get_rank_id",
        "from rec_sdk_common.communication.hccl.hccl_info import get_rank_id",
    ],
)
def test_several_ranks_are_refused_before_a_script_can_delete_its_checkpoints(statement):
    script = f"{statement}\nprint('the script goes on')"
    environment = {**os.environ, "RANK_SIZE": "2", "RANK_ID": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 1 and done.stdout == "" and "RANK_SIZE=2" in done.stderr


def test_one_rank_of_a_launcher_is_as_good_as_none(monkeypatch):
    for variable, value in (("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0"), ("RANK_SIZE", "1")):
        monkeypatch.setenv(variable, value)
    assert (get_rank_id(), get_rank_size(), get_device_id(), get_local_rank_size()) == (0, 1, 0, 1)


# ---- create_table ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argument,values",
    {
        "key_dtype": [tf.float32, "string", None],
        "dim": [0, 8193, 4.0, True, "4", tf.TensorShape([2, 2]), tf.TensorShape([None]), tf.TensorShape([0])],
        "name": ["", "a" * 101, "a b", "ü", "a/b", 7, None, "..", "mergeable_table_1"],
        "device_vocabulary_size": [0, 10**9 + 1, 1.0, True, None],
        "host_vocabulary_size": [-1, 10**9 + 1, 1.0],
        "ssd_vocabulary_size": [-1, 10**9 + 1, 1.0],
        "ssd_data_path": [[], "path", [""], ["/no/such/directory"], ["../up"], [1]],
        "is_save": [1, None],
        "is_dp": [0],
        "init_param": [1, -10.1, 10.1, float("nan"), True, "1"],
        "all2all_gradients_op": ["mean", None],
        "enable_merge": [1],
        "value_dtype": [tf.float16, tf.int64],
        "shard_num": [0, 8193, 1.0],
        "fusion_optimizer_var": [1],
        "hashtable_threshold": [-1, 2**31, 1.0],
        "emb_initializer": [3, None, "zeros"],
    }.items(),
)
def test_create_table_refuses_bad_arguments(argument, values):
    init()
    for value in values:
        with pytest.raises(ValueError, match=argument):
            table(**{argument: value})


def test_a_disk_tier_needs_a_host_tier():
    init()
    with pytest.raises(ValueError, match="host_vocabulary_size"):
        table(ssd_vocabulary_size=10)


def test_a_symbolic_link_is_no_disk_path(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    init()
    with pytest.raises(ValueError, match="symbolic link"):
        table(ssd_data_path=[str(tmp_path / "link")])


def test_merging_needs_expansion():
    init()
    with pytest.raises(RuntimeError, match="use_dynamic_expansion"):
        table(enable_merge=True)


@pytest.mark.parametrize(
    "given", [{"padding_keys": 3}, {"padding_keys_mask": True}, {"padding_keys": [3], "padding_keys_mask": True}]
)
def test_padding_arguments_come_together(given):
    init()
    with pytest.raises(ValueError, match="together"):
        table(**given)


def test_padding_excludes_data_parallel():
    init()
    with pytest.raises(RuntimeError, match="is_dp"):
        table(padding_keys=[3], padding_keys_mask=True, padding_keys_len=1, is_dp=True)


def test_unknown_arguments_are_refused_but_optimizer_list_of_old_scripts_is_not():
    init()
    with pytest.raises(TypeError, match="colour"):
        table(colour="red")
    table(optimizer_list=[])


@pytest.mark.parametrize(
    "changed",
    [
        {"dim": 8},
        {"device_vocabulary_size": 7},
        {"emb_initializer": tf.ones_initializer()},
        {"init_param": 2.0},
        {"is_save": False},
    ],
)
def test_one_name_with_another_configuration_is_an_error(changed):
    init()
    first = table("twice")
    with pytest.raises(ValueError, match="table 'twice'"):
        table("twice", **changed)
    assert table("twice") is first


def test_one_name_with_another_configuration_is_an_error_in_another_graph_too():
    init()
    table("twice")
    with tf.Graph().as_default(), pytest.raises(ValueError, match="dim is 4, now 8"):
        table("twice", dim=8)


# ---- FeatureSpec and the insert function ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argument,values",
    {
        "name": ["", "a" * 256, None, 3],
        "table_name": ["", "a" * 256, 3],
        "index_key": ["", "a" * 256, -1, 256, 1.5],
        "access_threshold": [-2, 2**31, 1.0, True],
        "eviction_threshold": [-2, 2**31, 1.0],
        "is_timestamp": [1, "yes"],
        "batch_size": [0, 1.0],
        "faae_coefficient": [0, 1.5, None],
    }.items(),
)
def test_feature_spec_refuses_bad_arguments(argument, values):
    for value in values:
        with pytest.raises(ValueError, match=argument):
            FeatureSpec(**{"name": "ids", argument: value})


def test_feature_spec_takes_feat_count_of_old_scripts():
    assert FeatureSpec("ids", feat_count=3).table_name == "ids"


def test_the_insert_function_wants_specs_or_lists_but_not_both():
    spec = FeatureSpec("ids")
    for arguments in (
        {},
        {"tgt_key_specs": spec, "args_index_list": [0], "table_names": ["t"]},
        {"args_index_list": [0]},
        {"args_index_list": [0], "table_names": ["a", "b"]},
        {"tgt_key_specs": []},
        {"tgt_key_specs": ["ids"]},
        {"tgt_key_specs": spec, "is_training": 1},
    ):
        with pytest.raises(ValueError):
            get_asc_insert_func(**arguments)


def test_two_timestamps_are_refused():
    with pytest.raises(EnvironmentError, match="one timestamp"):
        get_asc_insert_func(
            [FeatureSpec("ids"), FeatureSpec("a", is_timestamp=True), FeatureSpec("b", is_timestamp=True)]
        )


def test_a_missing_timestamp_is_a_key_error():
    init()
    with pytest.raises(KeyError, match="timestamp"):
        batch_of([FeatureSpec("ids"), FeatureSpec("time", is_timestamp=True)])


@pytest.mark.parametrize(
    "time, message",
    [
        (np.zeros((8, 2), np.int64), r"scalar, or hold one number for each sample.*, 2\)"),
        (np.zeros(8, np.float32), "int64 seconds, got float32"),
    ],
)
def test_a_timestamp_must_be_one_whole_number_for_the_batch_or_for_each_sample(time, message):
    init()
    with pytest.raises(ValueError, match=message):
        batch_of([FeatureSpec("ids"), FeatureSpec("time", is_timestamp=True)], ids=np.arange(8), time=time)


def test_float_ids_are_refused_naming_the_spec_and_the_dtype():
    init()
    with pytest.raises(ValueError, match="'ids'.*float32"):
        batch_of([FeatureSpec("ids")], ids=np.zeros(8, np.float32))


def test_sparse_ids_are_refused_with_the_remedy():
    init()
    dataset = tf.data.Dataset.from_tensors({"ids": tf.sparse.from_dense([[1, 0], [0, 2]])})
    with pytest.raises(TypeError, match="to_dense"):
        dataset.map(get_asc_insert_func([FeatureSpec("ids")]))


def test_a_position_beyond_the_batch_is_refused():
    init()
    dataset = tf.data.Dataset.from_tensors((tf.constant([1]), tf.constant([2])))
    with pytest.raises(ValueError, match="2 elements.*5"):
        dataset.map(get_asc_insert_func([FeatureSpec("ids", index_key=5)]))


def test_a_batch_without_any_of_the_features_is_refused():
    init()
    with pytest.raises(ValueError, match="other"):
        batch_of([FeatureSpec("ids")], other=np.arange(8))


# ---- sparse_lookup --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argument,values",
    {
        "send_count": [0, -1, 2**31, 1.0, True],
        "is_train": [1, None],
        "name": ["", "a" * 256, 3],
        "modify_graph": [0],
        "is_grad": [1],
        "serving_default_value": [0.0, [1.0]],
        "access_and_evict_config": [3, {"threshold": 1}, {"access_threshold": -2}],
    }.items(),
)
def test_sparse_lookup_refuses_bad_arguments(argument, values):
    init()
    t = table()
    for value in values:
        with pytest.raises(ValueError):
            sparse_lookup(t, tf.constant([1, 2]), **{argument: value})


@pytest.mark.parametrize(
    "ids", [1.5, "ids", [], ["ids"], np.arange(3.0), None, [True], [[1], [1, 2]], [2**63], np.array([2**63], np.uint64)]
)
def test_sparse_lookup_refuses_ids_of_another_kind(ids):
    init()
    with pytest.raises(ValueError, match="`ids` must"):
        sparse_lookup(table(), ids)


IDS_OF_TENSORFLOW = {
    "sparse": (
        lambda: tf.sparse.from_dense([[1, 0]]),
        r"`ids` must be dense, got a SparseTensor; use tf.sparse.to_dense",
    ),
    "ragged": (lambda: tf.ragged.constant([[1], [1, 2]]), r"got a RaggedTensor; use ids.to_tensor\(\)"),
    "a list": (lambda: [tf.constant(1), tf.constant(2)], "got a list with a Tensor; tf.stack them"),
    "nested": (lambda: [[tf.constant(1)]], "got list; convert"),
}


@pytest.mark.parametrize("ids, message", IDS_OF_TENSORFLOW.values(), ids=IDS_OF_TENSORFLOW)
def test_sparse_lookup_says_what_to_do_with_ids_that_are_no_dense_tensor(ids, message):
    init()
    with pytest.raises(ValueError, match=message):
        sparse_lookup(table(), ids())


@pytest.mark.parametrize("examples", [np.arange(8), np.arange(16).reshape(8, 2)], ids=["one id", "several"])
@pytest.mark.parametrize("is_passed", [True, False], ids=["with batch", "without batch"])
def test_an_insert_function_before_batch_is_told_to_come_after_it(examples, is_passed):
    init()
    spec = FeatureSpec("ids", table_name="table")
    dataset = (
        tf.data.Dataset.from_tensor_slices({"ids": examples}).map(get_asc_insert_func(tgt_key_specs=spec)).batch(4)
    )
    batch = v1.data.make_initializable_iterator(dataset).get_next()
    with pytest.raises(ValueError, match="map after batch"):
        sparse_lookup(table(), spec, batch=batch if is_passed else None)


def test_sparse_lookup_refuses_float_ids():
    init()
    with pytest.raises(ValueError, match="'table'.*float32"):
        sparse_lookup(table(), tf.constant([1.0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: tf.reshape(tf.strings.to_number(tf.constant(["7"]), name="parse"), [-1]),
            r"float32, made by 'parse' \(StringToNumber\); write tf.strings.to_number\(..., tf.int64\).*tf.cast",
        ),
        (
            lambda: tf.multiply(tf.ones([2]), 3.0, name="triple"),
            r"float32, made by 'triple' \(Mul\); add tf.cast\(ids, tf.int64",
        ),
        (
            lambda: tf.constant(["a"], name="words"),
            r"string, made by 'words' \(Const\); hash them .*to_hash_bucket_fast",
        ),
        (lambda: tf.constant([True], name="flag"), r"bool, made by 'flag' \(Const\); add tf.cast\(ids, tf.int64\)$"),
    ],
)
def test_what_made_ids_of_another_type_is_named_with_what_to_add(make, message):
    init()
    with pytest.raises(ValueError, match="table 'table': ids must be int64 or int32, got " + message):
        sparse_lookup(table(), make())


def test_numbers_parsed_in_the_mapped_function_are_refused_with_what_to_add():
    init()
    insert = get_asc_insert_func([FeatureSpec("ids")])
    dataset = tf.data.Dataset.from_tensors({"ids": ["1", "2"]})
    with pytest.raises(ValueError, match=r"'ids'.*float32.*tf.strings.to_number\(..., tf.int64\)"):
        dataset.map(lambda batch: insert({"ids": tf.strings.to_number(batch["ids"])}))


def test_sparse_lookup_refuses_something_that_is_no_table():
    init()
    with pytest.raises(ValueError, match="create_table"):
        sparse_lookup(tf.constant([1.0]), tf.constant([1]))


def test_static_shape_needs_send_count():
    init(use_dynamic=False)
    with pytest.raises(ValueError, match="send_count"):
        sparse_lookup(table(), tf.constant([1]))


def test_a_lookup_with_another_tables_spec_is_refused():
    init()
    spec = FeatureSpec("ids", table_name="first")
    batch, _ = batch_of([spec])
    table("first")
    with pytest.raises(ValueError, match="'first'.*'second'"):
        sparse_lookup(table("second"), spec, batch=batch)


def test_a_spec_that_never_went_through_the_insert_function_is_refused():
    init()
    batch, _ = batch_of([FeatureSpec("ids", table_name="table")])
    with pytest.raises(RuntimeError, match="never went through an insert function"):
        sparse_lookup(table(), FeatureSpec("ids", table_name="table"), batch=batch)


def test_a_batch_without_the_prepared_tensor_is_refused():
    init()
    spec = FeatureSpec("ids", table_name="table")
    batch_of([spec])  # prepared, but the lookup gets another batch, and there are two iterators to choose from
    batch_of([spec])
    with pytest.raises(RuntimeError, match="ids_read_emb_key"):
        sparse_lookup(table(), spec, batch={"ids": tf.constant([1])})


def test_graph_modification_is_not_for_specs():
    init()
    spec = FeatureSpec("ids", table_name="table")
    batch, _ = batch_of([spec])
    with pytest.raises(ValueError, match="modify_graph"):
        sparse_lookup(table(), spec, batch=batch, modify_graph=True)


def test_a_table_of_another_graph_is_refused():
    init()
    t = table()
    with tf.Graph().as_default(), pytest.raises(ValueError, match="another graph"):
        sparse_lookup(t, tf.constant([1]))


def test_a_pipeline_without_tables_is_refused():
    init()
    with pytest.raises(RuntimeError, match="create_table"):
        start_asc_pipeline()


def test_a_batch_prepared_for_a_table_that_was_never_created_says_so():
    init()
    spec, missing = FeatureSpec("ids", table_name="table"), FeatureSpec("ids", table_name="missing")
    batch, iterator = batch_of([spec, missing])
    embeddings = sparse_lookup(table(), spec, batch=batch)
    with v1.Session() as session:
        session.run(iterator.initializer)
        with pytest.raises(tf.errors.NotFoundError, match="'missing'.*create_table"):
            session.run(embeddings)


def test_a_full_table_is_an_error_that_loses_nothing(tmp_path):
    init()
    t = table("small", device_vocabulary_size=10, emb_initializer=tf.ones_initializer())
    ids = v1.placeholder(tf.int64, [None])
    embeddings = sparse_lookup(t, ids)
    v1.train.get_or_create_global_step()
    saver = v1.train.Saver()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(embeddings, {ids: np.arange(8)})
        with pytest.raises(tf.errors.ResourceExhaustedError) as error:
            session.run(embeddings, {ids: np.arange(8, 16)})
        for part in ("'small'", "10 rows", "device_vocabulary_size", "use_dynamic_expansion=True"):
            assert part in message_of(error)
        assert t.size() == 8, "a refused batch leaves no row behind"
        session.run(embeddings, {ids: np.arange(6, 10)})  # what fits still fits
        assert t.size() == 10
        assert np.all(session.run(embeddings, {ids: np.arange(10)}) == 1.0)
        path = saver.save(session, str(tmp_path / "model"), global_step=1)
        t.native.clear()
        saver.restore(session, path)
        assert sorted(t.native.keys()) == list(range(10))


# ---- optimizers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factory,argument,values",
    [
        (lazy_adam.create_hash_optimizer, "learning_rate", [1, -0.1, 10.1, "0.1", True]),
        (lazy_adam.create_hash_optimizer, "beta1", [0.0, 1.0, 1]),
        (lazy_adam.create_hash_optimizer, "beta2", [-0.1, 1.1, 1]),
        (lazy_adam.create_hash_optimizer, "epsilon", [0.0, 1.1]),
        (lazy_adam.create_hash_optimizer, "name", ["", "a" * 201, 3]),
        (lazy_adam.create_hash_optimizer, "use_fusion_optim", [1]),
        (adagrad.create_hash_optimizer, "initial_accumulator_value", [0.0, 1.1, 1]),
        (adagrad.create_hash_optimizer, "use_locking", [1]),
        (lambda **a: ftrl.create_hash_optimizer(0.1, **a), "learning_rate_power", [0.1, -1]),
        (lambda **a: ftrl.create_hash_optimizer(0.1, **a), "initial_accumulator_value", [0.0, 1.1]),
        (lambda **a: ftrl.create_hash_optimizer(0.1, **a), "l1_regularization_strength", [-0.1, 1e5, 1]),
        (lambda **a: ftrl.create_hash_optimizer(0.1, **a), "l2_regularization_strength", [-0.1, 1e5]),
        (lambda **a: ftrl.create_hash_optimizer(0.1, **a), "l2_shrinkage_regularization_strength", [-0.1, 1e5]),
        (lambda **a: ftrl.create_hash_optimizer(0.1, **a), "accum_name", ["", "a" * 256]),
        (lambda **a: gradient_descent.create_hash_optimizer(0.1, **a), "weight_decay", [1e-6, 0.1, 1]),
        (lambda **a: gradient_descent_by_addr.create_hash_optimizer_by_addr(0.1, **a), "weight_decay", [-0.1, 1.1]),
        (lambda **a: momentum.create_hash_optimizer(0.1, **a), "momentum", [-0.1, 1.1, 1]),
    ],
)
def test_optimizers_refuse_bad_arguments(factory, argument, values):
    for value in values:
        with pytest.raises(ValueError, match=argument):
            factory(**{argument: value})


def test_a_dense_variable_is_refused_by_a_sparse_optimizer():
    init()
    table()
    w = v1.get_variable("w", [3])
    with pytest.raises(ValueError, match="tables only"):
        lazy_adam.create_hash_optimizer().apply_gradients([(tf.ones([3]), w)])


def test_a_second_optimizer_on_a_table_is_refused():
    init()
    t = table()
    loss = tf.reduce_sum(sparse_lookup(t, tf.constant([1, 2])))
    gradients = tf.gradients(loss, [t.variable])
    lazy_adam.create_hash_optimizer().apply_gradients(zip(gradients, [t.variable]))
    with pytest.raises(RuntimeError, match="LazyAdam_momentum.*Adagrad_accumulator"):
        adagrad.create_hash_optimizer().apply_gradients(zip(gradients, [t.variable]))
