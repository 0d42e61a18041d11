"""Feature admission and eviction against the reference of tracking_reference.py, through the public API."""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import sparse_lookup
from mx_rec.core.feature_process import evict
from mx_rec.util.ops import import_host_pipeline_ops
from tests.shared import model
from tests.shared.admission import ACCUMULATOR, DIM, INITIAL, RATE, build, keys_and_counts, stream, train_all
from tests.shared.tracking_reference import Reference

v1 = tf.compat.v1

MODES = ("spec", "step", "modified")


def positions(data, step):
    """(ids, times, gradients) of all positions of a batch, feature after feature."""
    one, many = data["one"][step], data["many"][step]
    times = np.broadcast_to(data["time"][step], (8,))
    weight = data["weight"][step]
    return (
        np.concatenate([one, many.ravel()]),
        np.concatenate([times, np.repeat(times, 3)]),
        np.concatenate([weight[:, 0], weight[:, 1:].reshape(-1, DIM)]),
    )


def check_step(trainer, reference, data, step):
    expected = reference.train(*positions(data, step))
    got = trainer.step()
    np.testing.assert_allclose(got[:, 0], expected[:8], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[:, 1:].reshape(-1, DIM), expected[8:], rtol=1e-5, atol=1e-6)


def reference_of(**thresholds):
    labels = {"access_threshold": "access", "eviction_threshold": "eviction", "faae_coefficient": "coefficient"}
    return Reference(DIM, RATE, ACCUMULATOR, INITIAL, **{labels[name]: value for name, value in thresholds.items()})


@pytest.mark.parametrize("per_sample", [False, True], ids=["one_time", "time_per_sample"])
@pytest.mark.parametrize("mode", MODES)
def test_500_batches_with_evictions_saves_restores_and_new_thresholds(mode, per_sample, tmp_path):
    seed = MODES.index(mode) * 2 + per_sample
    random = np.random.RandomState(seed)
    thresholds = {
        "access_threshold": int(random.randint(2, 12)),
        "eviction_threshold": int(random.randint(20, 200)),
        "faae_coefficient": int(random.randint(1, 4)),
    }
    data = stream(500, seed, per_sample)
    with model.process():
        trainer = build(data, mode, **thresholds)
        value = v1.placeholder(tf.int32, [])
        set_threshold = import_host_pipeline_ops().set_threshold(value, emb_name="t", ids_name="one")
        saver = v1.train.Saver()
        reference, saved = reference_of(**thresholds), None
        with v1.Session() as trainer.session:
            trainer.session.run(v1.global_variables_initializer())
            for step in range(500):
                check_step(trainer, reference, data, step)
                what = random.randint(20)
                if what == 0:
                    assert evict() == {"t": reference.evict()}
                elif what == 1:
                    saver.save(trainer.session, str(tmp_path / "model"))
                    saved = reference.snapshot()
                elif what == 2 and saved is not None:
                    saver.restore(trainer.session, str(tmp_path / "model"))
                    reference.restore(saved)
                elif what == 3:
                    reference.access = int(random.randint(0, 15))
                    assert trainer.session.run(set_threshold, {value: reference.access}) == 1
                if step % 10 == 0:
                    reference.check(trainer.table)
            reference.check(trainer.table)
        assert reference.evicted > 50 and reference.forgotten > 0 and reference.seen > reference.admitted


@pytest.mark.parametrize("prefetch", [0, 1, 7])
def test_preparing_ahead_changes_no_bit_while_rows_are_evicted(prefetch):
    """Law 1: batches that were prepared before an eviction find their rows again or get new ones."""
    data = stream(80, 5, keys=40)
    thresholds = {"access_threshold": 3, "eviction_threshold": 30}
    rows = []
    for ahead in (0, prefetch):
        with model.process():
            trainer = build(data, "spec", prefetch=ahead, **thresholds)
            with v1.Session() as trainer.session:
                trainer.session.run(v1.global_variables_initializer())
                evicted = 0
                for step in range(80):
                    trainer.step()
                    if step % 4 == 0:
                        evicted += evict()["t"]
                assert evicted > 20
                rows.append({"t": model.dump(trainer.table)})
    model.assert_same_rows(rows[1], rows[0])


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("mode", MODES)
def test_the_modes_agree_to_the_bit_on_any_number_of_threads(mode, threads):
    data = stream(40, 6)
    rows = []
    for which, count in (("spec", 2), (mode, threads)):
        with model.process():
            trainer = build(data, which, access_threshold=4, eviction_threshold=50, faae_coefficient=2)
            config = v1.ConfigProto(intra_op_parallelism_threads=count, inter_op_parallelism_threads=count)
            with v1.Session(config=config) as trainer.session:
                trainer.session.run(v1.global_variables_initializer())
                for step in range(40):
                    trainer.step()
                    if step == 25:
                        evict()
                rows.append({"t": model.dump(trainer.table)})
    model.assert_same_rows(rows[1], rows[0])


def test_threshold_0_counts_and_refuses_nothing(started):
    data = stream(10, 1)
    trainer = train_all(data, access_threshold=0)
    keys, counts = keys_and_counts(data)
    assert trainer.table.native.history(keys)[0].tolist() == counts.tolist()
    assert trainer.table.size() == len(keys) == trainer.table.stats()["seen"]


@pytest.mark.parametrize("threshold", [-1, None])
def test_admission_that_is_off_counts_nothing(threshold, started):
    data = stream(10, 1)
    trainer = train_all(data, access_threshold=threshold, eviction_threshold=threshold)
    keys, _ = keys_and_counts(data)
    assert trainer.table.native.tracking is None
    assert trainer.table.native.history(keys)[0].tolist() == [0] * len(keys)
    assert trainer.table.size() == len(keys)


def test_a_refused_key_reads_the_default_and_an_admitted_one_its_row(started):
    table = model.table("t", v1.constant_initializer(0.5), 2)
    ids = v1.placeholder(tf.int64, [None])
    default = tf.constant([7.0, 8.0])
    config = {"access_threshold": 3}
    embeddings = sparse_lookup(table, ids, access_and_evict_config=config, serving_default_value=default)
    zeros = sparse_lookup(table, ids, is_train=False)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for batch, expected in (([1, 2], [[7, 8], [7, 8]]), ([1, 1], [[0.5, 0.5], [0.5, 0.5]]), ([2], [[7, 8]])):
            np.testing.assert_array_equal(session.run(embeddings, {ids: batch}), expected)
        for _ in range(5):  # evaluation reads, and never counts
            np.testing.assert_array_equal(session.run(zeros, {ids: [1, 2, 3]}), [[0.5, 0.5], [0, 0], [0, 0]])
        assert table.native.history([1, 2, 3])[0].tolist() == [3, 2, 0]


def test_a_feature_looked_up_pooled_and_not_is_counted_once(started):
    table = model.table("ids", v1.constant_initializer(0.5), 2)
    ids = np.array([[1, 2], [2, 3]], np.int64)
    spec = FeatureSpec("ids", access_threshold=2)
    dataset = tf.data.Dataset.from_tensors({"ids": ids}).repeat().map(get_asc_insert_func([spec]))
    batch = v1.data.make_one_shot_iterator(dataset).get_next()
    each = sparse_lookup(table, spec, batch=batch)
    pooled = sparse_lookup(table, spec, batch=batch, combiner="sum")
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for step in range(1, 4):
            got = session.run([each, pooled])
            assert table.native.history([1, 2, 3])[0].tolist() == [step, 2 * step, step]
            np.testing.assert_array_equal(got[0].sum(1), got[1])


def test_refused_keys_take_24_bytes_at_most(started):
    table = model.table("t", dim=64, rows=10**6)
    ids = v1.placeholder(tf.int64, [None])
    lookup = sparse_lookup(table, ids, access_and_evict_config={"access_threshold": 2})
    count = 300_000
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        before = table.stats()["bytes"]
        for first in range(0, count, 50_000):
            session.run(lookup.op, {ids: np.arange(first, first + 50_000)})
    assert table.stats()["refused"] == table.stats()["candidates"] == count
    assert table.stats()["bytes"] - before <= 24 * count


def test_a_filter_bounds_the_memory_of_refused_keys(started):
    data = stream(20, 3)
    trainer = train_all(data, access_threshold=1000, admission_filter_bytes=1 << 16)
    before = trainer.table.stats()["bytes"]
    ids = v1.placeholder(tf.int64, [None])
    lookup = sparse_lookup(trainer.table, ids)
    trainer.session.run(lookup.op, {ids: np.arange(200_000)})
    assert trainer.table.stats()["bytes"] == before
    keys, counts = keys_and_counts(data)
    assert (trainer.table.native.history(keys)[0] >= counts).all()  # never too low
    assert trainer.table.size() == 0


def test_a_filter_admits_in_time(started):
    data = stream(60, 4)
    trainer = train_all(data, access_threshold=5, admission_filter_bytes=1 << 18)
    keys, counts = keys_and_counts(data)
    assert set(trainer.table.native.keys()) == set(keys[counts >= 5])  # so much room that keys do not collide
