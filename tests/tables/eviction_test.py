"""Evicting: the hook, the function, the policies, runtime control, and what scripts may get wrong."""

import logging
import os

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.core.feature_process import EvictHook, EvictPolicy, evict
from mx_rec.core.table_stats import SAMPLE, TableStatsHook, histograms_of
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.optimizers.gradient_descent import create_hash_optimizer
from mx_rec.util.ops import import_host_pipeline_ops
from tests.shared import model

v1 = tf.compat.v1


class Fed:
    """A table "t" of dim 2 whose keys, and their time, are fed."""

    def __init__(self, initial=0.5, rate=0.1, **config):
        self.table = model.table("t", v1.constant_initializer(initial), 2)
        self.ids = v1.placeholder(tf.int64, [None])
        self.time = v1.placeholder(tf.int64, None)
        v1.add_to_collection("ASCEND_TIMESTAMP", self.time)
        config = config or {"access_threshold": 0}
        self.embeddings = sparse_lookup(self.table, self.ids, access_and_evict_config=config)
        gradient = tf.gradients(tf.reduce_sum(self.embeddings), [self.table.variable])[0]
        update = create_hash_optimizer(rate).apply_gradients([(gradient, self.table.variable)])
        self.train = tf.group(update, self.embeddings)
        start_asc_pipeline()
        self.session = v1.Session()
        self.session.run(v1.global_variables_initializer())

    def step(self, *ids, time=1):
        self.session.run(self.train, {self.ids: ids, self.time: time})

    def keys(self):
        return sorted(self.table.native.keys().tolist())


def test_evicts_by_time_at_the_threshold_and_starts_over_afterwards(started):
    fed = Fed(access_threshold=2, eviction_threshold=10)
    fed.step(1, 1, 2, 2, 3, time=100)
    fed.step(2, time=109)
    assert evict() == {"t": 0}
    fed.step(4, time=110)  # 1 is 10 seconds old now; so is 3, which never had a row
    assert evict() == {"t": 1}
    assert fed.keys() == [2]
    assert fed.table.native.history([1, 2, 3, 4])[0].tolist() == [0, 3, 0, 1]
    fed.step(1, time=111)
    assert fed.keys() == [2]  # counts from zero
    fed.step(1, time=112)
    values, _ = fed.table.native.read([1])
    np.testing.assert_allclose(values[0, 0], 0.4)  # the initial value, less one update
    stats = fed.table.stats()
    assert stats["seen"] == stats["admitted"] + stats["refused"] == 5
    assert stats["admitted"] == stats["rows"] + stats["evicted"] == 3


def test_an_older_batch_makes_no_key_older(started):
    fed = Fed(access_threshold=0, eviction_threshold=50)
    fed.step(1, time=100)
    fed.step(1, 2, time=60)
    assert fed.table.native.history([1, 2])[1].tolist() == [100, 60]
    assert evict() == {"t": 0}
    fed.step(3, time=110)
    evict()
    assert fed.keys() == [1, 3]


def test_eviction_needs_no_admission(started):
    fed = Fed(eviction_threshold=0)  # everything goes, whenever asked
    fed.step(1, 2, time=5)
    assert fed.table.size() == 2
    assert evict() == {"t": 2}
    assert fed.table.size() == 0


def test_eviction_with_dynamic_expansion():
    with model.process(use_dynamic_expansion=True):
        fed = Fed(access_threshold=2, eviction_threshold=10)
        fed.step(*range(1000), *range(1000), time=1)
        fed.step(7, time=100)
        assert evict() == {"t": 999}
        assert fed.keys() == [7]


@pytest.mark.parametrize(
    "policy, left",
    [
        ({"by": "count", "below": 3}, [3, 4]),
        ({"by": "count", "keep": 1}, [4]),
        ({"by": "step", "older_than": 2}, [1, 2, 4]),
        ({"by": "step", "keep": 3}, [1, 2, 4]),
        ({"by": "time", "older_than": 150}, [2, 3, 4]),
        ({"by": "time", "keep": 2}, [3, 4]),
        ({"by": "norm", "below": 0.25}, [1, 2, 3]),
        ({"by": "norm", "keep": 1}, [1]),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_policies(policy, left, started):
    fed = Fed(rate=0.1)
    # Key: count, last step, last time, norm: 1: 1 4 150, 2: 2 3 200, 3: 3 2 250, 4: 4 4 300
    fed.step(4, 4, time=300)
    fed.step(3, 3, 3, 4, time=250)
    fed.step(2, 2, time=200)
    fed.step(1, 4, time=150)
    assert evict(**policy) == {"t": 4 - len(left)}
    assert fed.keys() == left


def test_an_evicted_row_is_reused(started):
    fed = Fed()
    fed.step(*range(900), time=1)
    size = fed.table.stats()["bytes"]
    for round_ in range(1, 20):
        assert evict(by="count", keep=0) == {"t": 900}
        fed.step(*range(round_ * 10_000, round_ * 10_000 + 900), time=1)
    assert fed.table.stats()["bytes"] < 1.3 * size
    assert fed.table.stats()["evicted"] == 19 * 900


def monitored(hooks, steps, times, config, global_step=True):
    """Trains `steps` steps of one key each, key and time of step i being i and times[i]; yields the table."""
    table = model.table("t", dim=2)
    data = {"ids": np.arange(steps)[:, None], "time": np.array(times, np.int64)}
    specs = [FeatureSpec("ids", table_name="t", **config), FeatureSpec("time", is_timestamp=True)]
    dataset = tf.data.Dataset.from_tensor_slices(data).map(get_asc_insert_func(specs)).prefetch(3)
    batch = v1.data.make_one_shot_iterator(dataset).get_next()
    embeddings = sparse_lookup(table, specs[0], batch=batch)
    counter = v1.train.get_or_create_global_step() if global_step else None
    gradient = tf.gradients(tf.reduce_sum(embeddings), [table.variable])[0]
    train = create_hash_optimizer(0.1).apply_gradients([(gradient, table.variable)], global_step=counter)
    start_asc_pipeline()
    rows = []
    with v1.train.MonitoredSession(hooks=hooks) as session:
        for _ in range(steps):
            session.run(train)
            rows.append(table.size())
    return table, rows


def test_the_hook_evicts_at_multiples_of_its_steps(started):
    hooks = [EvictHook(evict_enable=True, evict_time_interval=24 * 60 * 60, evict_step_interval=4)]
    _, rows = monitored(hooks, 12, range(1, 13), {"access_threshold": 0, "eviction_threshold": 2})
    assert rows == [1, 2, 3, 2, 3, 4, 5, 2, 3, 4, 5, 2]


def test_the_hook_evicts_by_the_clock_on_the_wall(started, monkeypatch):
    from mx_rec.core import feature_process

    clock = iter(np.arange(0, 1000, 0.3))
    monkeypatch.setattr(feature_process.time, "monotonic", lambda: float(next(clock)))
    hooks = [EvictHook(True, evict_time_interval=2)]
    _, rows = monitored(hooks, 30, range(1, 31), {"eviction_threshold": 3})
    assert max(rows) < 15 and sum(a > b for a, b in zip(rows, rows[1:])) >= 2


def test_a_hook_that_is_not_enabled_does_nothing(started):
    _, rows = monitored([EvictHook(evict_step_interval=1)], 5, range(1, 6), {"eviction_threshold": 1})
    assert rows == [1, 2, 3, 4, 5]


def test_the_hook_takes_other_policies(started):
    hooks = [EvictHook(True, evict_step_interval=5, policy=EvictPolicy(by="step", keep=1))]
    _, rows = monitored(hooks, 10, range(1, 11), {"access_threshold": 0})
    assert rows == [1, 2, 3, 4, 1, 2, 3, 4, 5, 1]


def test_a_pass_over_a_large_table_is_spread_over_steps(started, monkeypatch):
    from mx_rec.core import feature_process

    monkeypatch.setattr(feature_process, "_SLICE", 3)
    hooks = [EvictHook(True, evict_step_interval=20)]
    _, rows = monitored(hooks, 30, [1] * 19 + [100] * 11, {"eviction_threshold": 50})
    assert rows[18] == 19
    # Step 20 begins; every step adds a row and takes a few of the old ones; the last step's pass ends with the session.
    falls = [a + 1 - b for a, b in zip(rows[18:], rows[19:])]
    assert all(0 <= fall <= 10 for fall in falls) and falls[0] < 19
    assert rows[-1] == 11


def test_the_hook_needs_a_global_step_for_its_step_interval(started):
    hook = EvictHook(True, evict_step_interval=3)
    with pytest.raises(RuntimeError, match="global step"):
        hook.begin()


@pytest.mark.parametrize(
    "arguments",
    [
        {"evict_enable": 1},
        {"evict_time_interval": 0},
        {"evict_step_interval": 0},
        {"evict_step_interval": 2.5},
        {"policy": "count"},
    ],
)
def test_bad_arguments_of_the_hook(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        EvictHook(**arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"by": "size"}, "`by` must be one of"),
        ({"by": "count"}, "needs `below` or `keep`"),
        ({"by": "count", "older_than": 3}, "use `below`"),
        ({"by": "step", "below": 3}, "use `older_than`"),
        ({"by": "norm", "below": "3"}, "must be a number"),
        ({"by": "count", "below": 3, "keep": 2}, "not both"),
        ({"keep": -1}, "keep"),
        ({"tables": "unknown"}, "no table 'unknown'.*'t'"),
        ({"by": "count", "keep": 2, "tables": ["plain"]}, "access_threshold=0"),
        ({"tables": "plain"}, "no `eviction_threshold`"),
        ({"keep": 2}, "no batch had a timestamp"),
    ],
)
def test_bad_arguments_of_evict(arguments, message, started):
    fed = Fed()
    fed.step(1, 2, 3, time=[])
    model.table("plain", dim=2)
    with pytest.raises((ValueError, RuntimeError), match=message):
        evict(**arguments)


def test_evict_without_any_threshold_does_nothing_and_says_so(started, caplog):
    fed = Fed(access_threshold=0)
    fed.step(1)
    with caplog.at_level(logging.WARNING, logger="mx_rec"):
        assert evict() == {}
    assert "no table has an `eviction_threshold`" in caplog.text
    assert fed.keys() == [1]


def test_a_policy_passes_over_tables_that_do_not_count(started):
    fed = Fed()
    model.table("plain", dim=2)
    fed.step(1, 1, 2)
    assert evict(by="count", keep=1) == {"t": 1}
    assert evict(by="norm", below=1e-9) == {"t": 0, "plain": 0}


def test_a_filter_without_a_threshold_is_told(started, caplog):
    table = model.table("t", dim=2, admission_filter_bytes=1024)
    sparse_lookup(table, tf.constant([1]))
    with caplog.at_level(logging.WARNING, logger="mx_rec"):
        start_asc_pipeline()
    assert "table 't': `admission_filter_bytes` has no effect without an `access_threshold`" in caplog.text


def test_new_thresholds_apply_from_the_next_step(started):
    fed = Fed(access_threshold=5)
    value = v1.placeholder(tf.int32, [])
    ops = import_host_pipeline_ops()
    change = ops.set_threshold(value, emb_name="t")
    everywhere = ops.set_threshold(tf.constant(4))
    fed.step(1, 1, 1, 2)
    fed.session.run(change, {value: 4})
    fed.step(1, 2)
    assert fed.keys() == [1]
    fed.session.run(change, {value: 0})
    fed.step(3)
    assert fed.keys() == [1, 3]
    assert fed.session.run(everywhere) == 1
    fed.step(4, 2)
    assert fed.keys() == [1, 3]
    fed.step(2)  # the count of 2 went on all the time
    assert fed.keys() == [1, 2, 3]


@pytest.mark.parametrize(
    "value, name, message",
    [(-1, "t", "must not be negative, got -1"), (3, "unknown", "unknown"), (3, "plain", "does not count its keys")],
)
def test_bad_thresholds_at_run_time_are_refused(value, name, message, started):
    fed = Fed(access_threshold=5)
    model.table("plain", dim=2)
    change = import_host_pipeline_ops().set_threshold(tf.constant(value), emb_name=name)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fed.session.run(change)
    assert fed.table.native.tracking.access_threshold == 5


def test_ids_name_stands_for_its_table(started):
    fed = Fed(access_threshold=5)
    ops = import_host_pipeline_ops()
    fed.session.run(ops.set_threshold(2, ids_name=fed.ids.op.name))
    assert fed.table.native.tracking.access_threshold == 2
    with pytest.raises(ValueError, match="'nothing'"):
        ops.set_threshold(2, ids_name="nothing")


def test_the_other_ops_of_the_host_pipeline(started):
    import time

    ops = import_host_pipeline_ops()
    with v1.Session() as session:
        now = session.run(ops.return_timestamp(tf.constant([5], tf.int64)))
        assert abs(now - time.time()) < 60 and now.shape == ()
        session.run(ops.clear_channel(channel_id=1))
    with pytest.raises(ValueError, match="so_pkg_name"):
        import_host_pipeline_ops("")


@pytest.mark.parametrize("label, first, second", [("access_threshold", 3, 4), ("eviction_threshold", 3, -1)])
def test_lookups_of_a_table_must_agree(label, first, second, started):
    table = model.table("t", dim=2)
    sparse_lookup(table, tf.constant([1], tf.int64), access_and_evict_config={label: first})
    sparse_lookup(table, tf.constant([2], tf.int64), access_and_evict_config={label: None})  # says nothing
    with pytest.raises(ValueError, match=f"'t'.*`{label}`.*{first}.*{second}"):
        sparse_lookup(table, tf.constant([3], tf.int64), access_and_evict_config={label: second})


def test_specs_of_a_table_must_agree(started):
    specs = [FeatureSpec("a", table_name="t", access_threshold=3), FeatureSpec("b", table_name="t", access_threshold=5)]
    dataset = tf.data.Dataset.from_tensors({"a": tf.constant([1]), "b": tf.constant([2])})
    batch = v1.data.make_one_shot_iterator(dataset.map(get_asc_insert_func(specs))).get_next()
    table = model.table("t", dim=2)
    sparse_lookup(table, specs[0], batch=batch)
    with pytest.raises(ValueError, match="`access_threshold`.*FeatureSpec.'a'.*3.*FeatureSpec.'b'.*5"):
        sparse_lookup(table, specs[1], batch=batch)


@pytest.mark.parametrize("label", ["access_threshold", "eviction_threshold"])
def test_thresholds_below_minus_1_are_refused(label, started):
    table = model.table("t", dim=2)
    for make in (
        lambda: FeatureSpec("a", **{label: -2}),
        lambda: sparse_lookup(table, tf.constant([1]), access_and_evict_config={label: -2}),
    ):
        with pytest.raises(ValueError, match=f"{label}.*-2"):
            make()


def test_a_filter_counts_up_to_65535(started):
    table = model.table("t", dim=2, admission_filter_bytes=1 << 16)
    with pytest.raises(ValueError, match="'t'.*65535.*65536"):
        sparse_lookup(table, tf.constant([1]), access_and_evict_config={"access_threshold": 65536})


@pytest.mark.parametrize("mode", ["spec", "tensor", "modified"])
def test_an_eviction_threshold_without_a_timestamp_is_refused(mode, started):
    table = model.table("ids", dim=2)
    dataset = tf.data.Dataset.from_tensors({"ids": tf.constant([1, 2], tf.int64)})
    config = {"access_threshold": 2, "eviction_threshold": 3}
    with pytest.raises(ValueError, match="'ids' has an `eviction_threshold`.*no timestamp"):
        if mode == "spec":
            spec = FeatureSpec("ids", **config)
            batch = v1.data.make_one_shot_iterator(dataset.map(get_asc_insert_func([spec]))).get_next()
            sparse_lookup(table, spec, batch=batch)
        else:
            batch = v1.data.make_one_shot_iterator(dataset).get_next()
            sparse_lookup(table, batch["ids"], modify_graph=mode == "modified", access_and_evict_config=config)
            start_asc_pipeline() if mode == "tensor" else modify_graph_and_start_emb_cache()


def test_without_a_started_pipeline_a_missing_timestamp_fails_the_step(started):
    table = model.table("t", dim=2)
    lookup = sparse_lookup(table, tf.constant([1]), access_and_evict_config={"eviction_threshold": 3})
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="'t' evicts by time.*no timestamp"):
            session.run(lookup)
    assert table.size() == 0


@pytest.mark.parametrize("time", [0, -5])
def test_a_timestamp_that_is_not_positive_fails_the_step(time, started):
    fed = Fed(eviction_threshold=3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"must be positive, got {time}"):
        fed.step(1, time=time)
    assert fed.table.size() == 0


def test_a_bad_timestamp_ends_a_monitored_session(started):
    """AbortedError, as the original raises, would have it start over without end."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be positive, got -7"):
        monitored([], 3, [5, -7, 8], {"eviction_threshold": 3})


def test_two_timestamps_of_one_batch_are_refused(started):
    table = model.table("t", dim=2)
    dataset = tf.data.Dataset.from_tensors({"ids": [1, 2], "a": np.int64(1), "b": np.int64(2)})
    batch = v1.data.make_one_shot_iterator(dataset).get_next()
    for name in ("a", "b"):
        v1.add_to_collection("ASCEND_TIMESTAMP", batch[name])
    sparse_lookup(table, batch["ids"], access_and_evict_config={"eviction_threshold": 3})
    with pytest.raises(ValueError, match="one timestamp.*IteratorGetNext:"):
        start_asc_pipeline()


def test_each_batch_has_its_own_timestamp(started):
    table = model.table("t", dim=2)
    lookups = []
    for start in (100, 500):
        dataset = tf.data.Dataset.from_tensors({"ids": [start], "time": np.int64(start)})
        batch = v1.data.make_one_shot_iterator(dataset).get_next()
        v1.add_to_collection("ASCEND_TIMESTAMP", batch["time"])
        lookups.append(sparse_lookup(table, batch["ids"], access_and_evict_config={"eviction_threshold": 3}))
    start_asc_pipeline()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(lookups)
    assert table.native.history([100, 500])[1].tolist() == [100, 500]


def test_a_number_of_timestamps_that_does_not_fit_the_ids_is_an_error(started):
    fed = Fed(eviction_threshold=3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 timestamps.*3 ids"):
        fed.step(1, 2, 3, time=[1, 2])


def test_evaluation_needs_no_timestamp(started):
    table = model.table("ids", dim=2)
    spec = FeatureSpec("ids", eviction_threshold=3)
    specs = [spec, FeatureSpec("time", is_timestamp=True)]
    dataset = tf.data.Dataset.from_tensors({"ids": tf.constant([1, 2], tf.int64)})
    batch = v1.data.make_one_shot_iterator(dataset.map(get_asc_insert_func(specs, is_training=False))).get_next()
    lookup = sparse_lookup(table, spec, batch=batch, is_train=False)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(lookup), np.zeros((2, 2)))


def test_building_the_graph_again_keeps_thresholds_that_were_changed():
    with model.process():
        fed = Fed(access_threshold=5, eviction_threshold=7)
        fed.session.run(import_host_pipeline_ops().set_threshold(2, emb_name="t"))
        with tf.Graph().as_default():
            Fed(access_threshold=5, eviction_threshold=7)  # as an Estimator does for its next mode
            assert fed.table.native.tracking.access_threshold == 2
        with tf.Graph().as_default():
            Fed(access_threshold=9, eviction_threshold=7)
            assert fed.table.native.tracking.access_threshold == 9


def histograms(table):
    return {value.tag: value.histo for value in histograms_of([table]).value}


def test_histograms_are_of_the_norms_and_counts_of_rows(started):
    fed = Fed(initial=3.0, rate=0.0)
    assert histograms(fed.table) == {}, "an empty table has none"
    fed.step(1, 2, 2, 3, 3, 3, 3)
    found = histograms(fed.table)
    assert sorted(found) == ["mx_rec/t/count", "mx_rec/t/norm"]
    norm, count = found["mx_rec/t/norm"], found["mx_rec/t/count"]
    assert (norm.num, norm.min, norm.max) == (3, pytest.approx(np.sqrt(18)), pytest.approx(np.sqrt(18)))
    assert sum(norm.bucket) == 3 and len(norm.bucket) == len(norm.bucket_limit)
    assert (count.num, count.min, count.max, count.sum, count.sum_squares) == (3, 1, 4, 7, 21)
    assert dict(zip(count.bucket_limit, count.bucket)) == {1: 0, 2: 1, 4: 1, 8: 1}


def test_histograms_are_of_a_sample_and_leave_out_what_is_not_finite(started):
    keys = np.arange(5 * SAMPLE)
    table = create_table(tf.int64, 2, "t", v1.constant_initializer(0.0), device_vocabulary_size=len(keys))
    rows = np.random.RandomState(1).normal(size=(len(keys), 1, 2)).astype(np.float32)
    rows[0] = np.nan
    table.native.write(keys, rows)
    found = histograms(table)
    assert sorted(found) == ["mx_rec/t/norm"], "it does not count its keys"
    norm = found["mx_rec/t/norm"]
    assert SAMPLE - 1 <= norm.num == sum(norm.bucket) <= SAMPLE
    mean = np.linalg.norm(rows[1:], axis=-1).mean()
    assert norm.sum / norm.num == pytest.approx(mean, rel=0.05), "by hash, as good as by lot"
    table.native.write(keys, np.full_like(rows, np.inf))
    assert histograms(table) == {}


def test_stats_go_to_the_log_and_to_tensorboard(tmp_path, started, caplog):
    hooks = [TableStatsHook(every_n_steps=4, output_dir=str(tmp_path))]
    with caplog.at_level(logging.INFO, logger="mx_rec"):
        table, _ = monitored(hooks, 10, range(1, 11), {"access_threshold": 0})
    lines = [record.getMessage() for record in caplog.records if "table 't': " in record.getMessage()]
    assert [line for line in lines if line.startswith("step 8,")][0].count("8 rows") == 1
    scalars = {}
    for name in os.listdir(tmp_path):
        for event in v1.train.summary_iterator(str(tmp_path / name)):
            for value in event.summary.value:
                scalars.setdefault(value.tag, {})[event.step] = value.simple_value
    for name in ("norm", "count"):
        assert list(scalars.pop(f"mx_rec/t/{name}")) == [4, 8, 10]
    assert scalars["mx_rec/t/rows"] == {4: 4, 8: 8, 10: 10}
    for name, value in table.stats().items():
        assert scalars[f"mx_rec/t/{name}"][10] == value
