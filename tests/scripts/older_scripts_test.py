"""What scripts of the vendor's earlier generations write, and what they get."""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.constants import constants
from mx_rec.constants.constants import (
    ASCEND_SPARSE_LOOKUP_LOCAL_EMB,
    ASCEND_SPARSE_LOOKUP_UNIQUE_KEYS,
    ApplyGradientsStrategy,
    MxRecMode,
)
from mx_rec.core.asc.helper import FeatureSpec
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph.acg_push_ops import ACGPushOpsToDatasetHook
from mx_rec.graph.merge_lookup import do_merge_lookup
from mx_rec.graph.modifier import GraphModifierHook, modify_graph_and_start_emb_cache
from mx_rec.optimizers import ftrl_t, ftrl_t_dense
from mx_rec.optimizers.base import CustomizedOptimizer
from mx_rec.optimizers.gradient_descent import create_hash_optimizer
from mx_rec.optimizers.lazy_adam import CustomizedLazyAdam
from mx_rec.optimizers.lazy_adam_by_addr import create_hash_optimizer_by_address
from mx_rec.util.initialize import ConfigInitializer, get_host_pipeline_ops, init, terminate_config_initializer
from mx_rec.util.ops import import_host_pipeline_ops
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model

pytestmark = pytest.mark.border

v1 = tf.compat.v1
IDS = np.array([3, 5, 3, 7])


def squares(table, ids=IDS):
    """A loss whose gradient at a position is the row itself, and the ids' lookup."""
    embeddings = sparse_lookup(table, tf.constant(ids), is_train=True)
    return tf.reduce_sum(embeddings**2) / 2.0


def rows_after(step, table, steps=1):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(steps):
            session.run(step)
    keys, values = model.dump(table)
    return dict(zip(keys.tolist(), values[:, 0, 0].tolist()))


@pytest.mark.parametrize("first", [(), (True,)], ids=["keyword", "positional"])
def test_flags_of_the_old_init_may_be_numbers(first):
    old = {} if first else {"use_mpi": True}
    init(*first, **old, use_dynamic=0, use_dynamic_expansion=1)
    settings = ConfigInitializer.get_instance()
    assert settings.use_static and settings.use_dynamic_expansion is True
    terminate_config_initializer()


def test_flags_of_the_new_init_may_not():
    with pytest.raises(ValueError, match="`use_dynamic` must be True or False, got 0"):
        init(use_dynamic=0)


def test_create_table_takes_the_mode_and_the_strategy_of_older_scripts(started):
    for number, strategy in enumerate([*ApplyGradientsStrategy, "direct_apply", None]):
        mode = MxRecMode.mapping("ASC") if number % 2 else "ASC"
        model.table(f"t{number}", mode=mode, apply_gradients_strategy=strategy)
    with pytest.raises(ValueError, match="`apply_gradients_strategy` must be one of .*got 'sum'"):
        model.table("bad", apply_gradients_strategy="sum")
    with pytest.raises(ValueError, match="`mode` must be one of .*got 'HBM'"):
        model.table("bad", mode="HBM")


def test_enumerations_map_values_and_members_of_one_another():
    assert MxRecMode.mapping(MxRecMode.ASC) is MxRecMode.ASC
    with pytest.raises(KeyError, match="no member 'mean'"):
        ApplyGradientsStrategy.mapping("mean")


@pytest.mark.parametrize("collection", [ASCEND_SPARSE_LOOKUP_UNIQUE_KEYS, "ASCEND_SPARSE_LOOKUP_ID_OFFSET"])
def test_gradients_of_the_unique_keys_are_summed_and_applied(collection):
    with model.process(use_dynamic_expansion=True):
        table = model.table("t", apply_gradients_strategy=ApplyGradientsStrategy.SUM_SAME_ID_GRADIENTS_AND_APPLY)
        loss = squares(table)
        rows = v1.get_collection(ASCEND_SPARSE_LOOKUP_LOCAL_EMB)
        addresses = v1.get_collection(collection)
        step = create_hash_optimizer(0.1).apply_gradients(list(zip(tf.gradients(loss, rows), addresses)), name="sparse")
        assert rows_after(step, table) == pytest.approx({3: 0.25 - 0.1 * 0.5, 5: 0.225, 7: 0.225})


def test_the_pipeline_s_ops_have_the_timestamp(started):
    for ops in (get_host_pipeline_ops(), ConfigInitializer.get_instance().host_pipeline_ops):
        with v1.Session() as session:
            assert session.run(ops.return_timestamp(tf.constant([1, 2], tf.int64))) > 1_600_000_000
    for name in ("LIBREC_CPU_SO", "LIBREC_EOS_OPS_SO", "LIBREC_TF_REC_V1_CPU_SO"):
        assert import_host_pipeline_ops(getattr(constants, name)).return_timestamp is not None


def test_the_parts_of_the_configuration(started):
    settings = ConfigInitializer.get_instance()
    assert settings.optimizer_config.optimizer_instance is None
    optimizer = create_hash_optimizer_by_address(0.1)
    assert settings.optimizer_config.optimizer_instance is optimizer
    settings.optimizer_config.optimizer_instance = other = object()
    assert settings.optimizer_config.optimizer_instance is other

    _, specs = model.one_batch({"user": np.arange(4)})
    features = settings.feature_spec_config
    assert features.get_feature_spec("user") is specs["user"] is features.feature_spec_dict[specs["user"].name]
    assert features.get_feature_spec("item") is None
    item = FeatureSpec("item")
    features.insert_feature_spec(item, True)
    assert features.get_feature_spec(item.name) is item

    assert settings.hybrid_manager_config.freeze is False
    assert settings.hybrid_manager_config.trigger_evict() is False
    do_merge_lookup(is_train=True)


def test_trigger_evict_evicts_what_is_too_old(started):
    table = model.table("t")
    tf.compat.v1.add_to_collection("ASCEND_TIMESTAMP", tf.constant(1000, tf.int64))
    config = {"access_threshold": 0, "eviction_threshold": 0}
    embeddings = sparse_lookup(table, tf.constant(IDS), access_and_evict_config=config)
    step = create_hash_optimizer(0.1).minimize(tf.reduce_sum(embeddings))
    from mx_rec.core.asc.manager import start_asc_pipeline

    start_asc_pipeline()
    rows_after(step, table)
    assert table.size() == 3
    assert ConfigInitializer.get_instance().hybrid_manager_config.trigger_evict() is True
    assert table.size() == 0


# ---- optimizers of scripts ------------------------------------------------------------------------------------------


class Decayed(v1.train.GradientDescentOptimizer, CustomizedOptimizer):
    """In the manner of older scripts: weight decay, by TensorFlow's ops on the table's variable."""

    def __init__(self, learning_rate, weight_decay, slots=()):
        self.weight_decay, self._slots_of_rows = weight_decay, list(slots)
        super()._get_name(name="Decayed")
        super().__init__(learning_rate=learning_rate, use_locking=False, name=self.unique_name)

    def get_slot_init_values(self):
        return self._slots_of_rows

    def _apply_sparse_duplicate_indices(self, grad, var):
        rows = tf.gather(var, grad.indices)
        change = (grad.values + self.weight_decay * rows) * tf.cast(self._learning_rate_tensor, var.dtype.base_dtype)
        return v1.scatter_nd_add(var, tf.expand_dims(grad.indices, 1), -change, use_locking=self._use_locking)


def test_an_optimizer_that_updates_rows_itself_trains_tables_and_variables(started):
    table = model.table("t")
    weight = v1.get_variable("w", initializer=2.0)
    loss = squares(table) + squares(table, IDS[:1]) + weight
    optimizer = Decayed(0.1, 0.5)
    assert optimizer.unique_name == "Decayed_0" and Decayed(0.1, 0.5).unique_name == "Decayed_1"
    ConfigInitializer.get_instance().optimizer_config.optimizer_instance = optimizer
    _, sparse = get_dense_and_sparse_variable()
    variables = [*sparse, weight]
    count = v1.train.get_or_create_global_step()
    step = optimizer.apply_gradients(list(zip(tf.gradients(loss, variables), variables)), global_step=count)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(step)
        assert session.run([weight, count]) == [pytest.approx(1.7), 3]
    keys, values = model.dump(table)
    found = dict(zip(keys.tolist(), values[:, 0, 0].tolist()))
    # Each step: w -= 0.1 * (occurrences * w + 0.5 * w)
    expected = {key: 0.25 * (1 - 0.1 * (occurrences + 0.5)) ** 3 for key, occurrences in ((3, 3), (5, 1), (7, 1))}
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("make", [lambda: Decayed(0.1, 0.01), lambda: create_hash_optimizer(0.1, weight_decay=0.01)])
def test_an_optimizer_that_updates_rows_itself_survives_graph_modification(started, make):
    data = {"user": np.arange(8) % 3, "friend": np.arange(8) % 5, "viewer": np.arange(8) + 100}
    batch = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(data).batch(4).repeat()).get_next()
    table = model.table("t")
    user, friend, _ = (sparse_lookup(table, batch[name], modify_graph=True) for name in data)
    loss = tf.reduce_sum(user**2 + user * friend)
    optimizer = make()
    _, sparse = get_dense_and_sparse_variable()
    step = optimizer.apply_gradients(list(zip(tf.gradients(loss, sparse), sparse)))
    modify_graph_and_start_emb_cache()
    found = rows_after(step, table, steps=4)
    expected = dict.fromkeys(found, 0.25)
    for start in (0, 4, 0, 4):
        gradients = dict.fromkeys(found, 0.0)
        touched = {number % 3 for number in range(start, start + 4)} | {
            number % 5 for number in range(start, start + 4)
        }
        for number in range(start, start + 4):
            gradients[number % 3] += 2 * expected[number % 3] + expected[number % 5]
            gradients[number % 5] += expected[number % 3]
        for key in touched:
            expected[key] -= 0.1 * (gradients[key] + 0.01 * expected[key])
    assert found == pytest.approx(expected, rel=1e-5)


def test_an_optimizer_that_updates_rows_itself_may_have_no_slots(started):
    table = model.table("t")
    pairs = list(zip(tf.gradients(squares(table), [table.variable]), [table.variable]))
    with pytest.raises(NotImplementedError, match=r"Decayed keeps \[0.0\] beside each row.*derive it from"):
        Decayed(0.1, 0.0, slots=[0.0]).apply_gradients(pairs)


class Scaled(CustomizedLazyAdam):
    """Scales the loss by deriving from an optimizer of ours."""

    scale = 1024.0

    def compute_gradients(self, loss, var_list=None):
        pairs = super().compute_gradients(loss * self.scale, var_list)
        return [(tf.IndexedSlices(g.values / self.scale, g.indices, g.dense_shape), v) for g, v in pairs]


def test_loss_scaling_by_deriving_changes_nothing_but_the_scale(started):
    results = []
    for kind in (CustomizedLazyAdam, Scaled):
        with tf.Graph().as_default():
            table = model.table(f"t{len(results)}")
            optimizer = kind()
            assert isinstance(optimizer, CustomizedOptimizer) and optimizer.slot_num == 2
            step = optimizer.apply_gradients(optimizer.compute_gradients(squares(table)))
            results.append(rows_after(step, table, steps=3))
    assert results[0] == results[1]


@pytest.mark.parametrize("attribute, make", [("_lr", CustomizedLazyAdam), ("_learning_rate", create_hash_optimizer)])
def test_loss_scaling_by_dividing_the_learning_rate_of_an_optimizer(started, attribute, make):
    table = model.table("t")
    optimizer = make(learning_rate=0.1)
    scale = tf.convert_to_tensor(8, tf.float32)
    setattr(optimizer, attribute, getattr(optimizer, attribute) / scale)
    gradients = tf.gradients(squares(table) * scale, [table.variable])
    rows = rows_after(optimizer.apply_gradients(list(zip(gradients, [table.variable]))), table)
    if make is create_hash_optimizer:
        assert rows == pytest.approx({3: 0.25 - 0.1 * 0.5, 5: 0.225, 7: 0.225})
    else:
        assert rows == pytest.approx(dict.fromkeys((3, 5, 7), 0.25 - 0.1 / 8), rel=1e-5)


@pytest.mark.parametrize("use_resource", [False, True])
def test_ftrl_t_trains_variables_as_it_trains_tables(started, use_resource):
    options = {"alpha": 0.5, "beta": 0.5, "lambda1": 0.01, "lambda2": 0.1, "epsilon": 0.01, "grad_factor": 0.3}
    table = model.table("t", dim=2, rows=4)
    variable = v1.get_variable("v", initializer=tf.fill([1, 2], 0.25), use_resource=use_resource)
    target = tf.constant([[1.0, -2.0]])
    row = sparse_lookup(table, tf.constant([7]), is_train=True)
    dense = ftrl_t_dense.create_ftrl_dense_optimizer(0.1, **options)
    sparse = ftrl_t.create_hash_optimizer(0.1, **options)
    step = tf.group(
        dense.minimize(tf.reduce_sum((variable - target) ** 2), var_list=[variable]),
        sparse.minimize(tf.reduce_sum((row - target) ** 2)),
    )
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(20):
            session.run(step)
        np.testing.assert_allclose(session.run(variable), model.dump(table)[1][:, 0], rtol=1e-4)
    with pytest.raises(ValueError, match="trains dense variables, got table 't'; use .*ftrl_t.create_hash_optimizer"):
        dense.apply_gradients([(tf.zeros([0, 2]), table.variable)])


def test_ftrl_t_dense_takes_the_gradients_of_gathered_rows(started):
    variable = v1.get_variable("v", initializer=tf.ones([4, 2]), use_resource=True)
    loss = tf.reduce_sum(tf.gather(variable, [1, 1, 2]))
    step = ftrl_t_dense.create_ftrl_dense_optimizer(0.1).minimize(loss, var_list=[variable])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(step)
        first = session.run(variable)[:, 0]
    assert first[1] < first[2] < 0.0


def test_the_older_slicer_moves_the_conversion_of_strings_into_the_dataset(started, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset = tf.data.Dataset.from_tensors({"user": ["3", "5"]}).repeat()
    batch = v1.data.make_one_shot_iterator(dataset).get_next()
    table = create_table(tf.int64, 4, "t", v1.constant_initializer(0.5), device_vocabulary_size=10)
    ids = tf.strings.to_number(batch["user"], tf.int64) + v1.get_variable("shift", initializer=np.int64(1))
    embeddings = sparse_lookup(table, ids, is_train=True)
    v1.train.get_or_create_global_step()
    graph = v1.get_default_graph()
    before = {op.name for op in graph.get_operations()}
    with v1.train.MonitoredSession(hooks=[ACGPushOpsToDatasetHook(dump_graph=True), GraphModifierHook()]) as session:
        assert session.run(embeddings).shape == (2, 4)
    assert table.size() == 2
    conversions = [op for op in graph.get_operations() if op.type == "StringToNumber" and op.name in before]
    assert not any(op.outputs[0].consumers() for op in conversions)
    assert {path.name for path in (tmp_path / "export_graph").iterdir()} >= {"old_graph.pbtxt", "new_graph.pbtxt"}
