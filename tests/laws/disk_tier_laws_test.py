"""Rows on disk: where a row is changes no bit, whatever else a table does; and what happens when a disk does not."""

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.util.initialize import get_initializer
from tests.shared import model
from tests.shared.optimizers import OPTIMIZERS, every_optimizer
from tests.shared.tracked import KEYS, Tracked
from tests.shared.training import PIPELINES, Run

v1 = tf.compat.v1

STEPS = 300
MEMORY = KEYS // 20
IN_MEMORY = {"rows": 2 * KEYS}


def on_disk(path, memory=MEMORY):
    """Options of a table that may hold a twentieth of the keys in memory."""
    return {
        "rows": 1,
        "host_vocabulary_size": memory - 1,
        "ssd_vocabulary_size": 2 * KEYS,
        "ssd_data_path": [str(path)],
    }


def data(steps=STEPS, seed=0):
    return model.batches(steps, seed, keys=np.random.RandomState(7).permutation(model.vocabulary(KEYS)))


def assert_both_tiers_were_used(run, least=1000):
    stats = [table.stats() for table in run.model.tables.values()]
    for numbers in stats:
        assert numbers["rows_in_memory"] <= MEMORY
        assert numbers["rows_in_memory"] + numbers["rows_on_disk"] == numbers["rows"]
        assert numbers["bytes_on_disk"] > 0
    assert sum(numbers["promotions"] for numbers in stats) > least
    assert sum(numbers["demotions"] for numbers in stats) > least


# ---- Memory only = memory and disk.


@every_optimizer
def test_rows_on_disk_change_no_bit(create, expansion, tmp_path):
    batches = data()
    with Run(batches, create, tables=IN_MEMORY) as run:
        expected = run.train(STEPS)
    options = {"tables": on_disk(tmp_path), "use_dynamic_expansion": expansion}
    with Run(batches, create, pipeline=PIPELINES["parallel_map"], **options) as run:
        run.train(STEPS).assert_same(expected)
        assert_both_tiers_were_used(run)


@every_optimizer
def test_a_restored_training_goes_on_with_the_same_bits_in_either_tier(create, tmp_path):
    batches, half = data(), STEPS // 2
    first = {name: array[: half * model.BATCH] for name, array in batches.items()}
    second = {name: array[half * model.BATCH :] for name, array in batches.items()}
    with Run(batches, create, tables=IN_MEMORY) as run:
        expected = run.train(half), run.train(half)
    disk = on_disk(tmp_path)
    for number, (before, after) in enumerate([(disk, disk), (disk, IN_MEMORY), (IN_MEMORY, disk)]):
        with Run(first, create, tables=before) as run:
            run.train(half).assert_same(expected[0])
            path = run.saver.save(run.session, str(tmp_path / f"model{number}"))
            run.train(0).assert_same(expected[0].__class__([], expected[0].weight, expected[0].rows))
        with Run(second, create, tables=after) as run:
            run.saver.restore(run.session, path)
            run.train(half).assert_same(expected[1])
            if after is disk:
                assert_both_tiers_were_used(run, least=100)


def test_evaluation_reads_rows_on_disk_and_changes_none(tmp_path):
    batches, held_out = data(50), data(20, seed=1)
    with Run(batches, evaluation=held_out, tables=IN_MEMORY) as run:
        expected = run.train(50)
        losses = run.evaluate()
    with Run(batches, evaluation=held_out, tables=on_disk(tmp_path)) as run:
        run.train(50).assert_same(expected)
        for _ in range(2):
            assert run.evaluate() == losses
        model.assert_same_rows(run.model.rows(), expected.rows)


@every_optimizer
def test_admission_and_eviction_treat_rows_on_disk_as_all_others(create, tmp_path):
    policies = [{"by": "count", "below": 3}, {"by": "norm", "below": 2.0}, {"by": "step", "older_than": 70}]
    outcomes = []
    for number, options in enumerate([IN_MEMORY, on_disk(tmp_path), on_disk(tmp_path)]):
        with model.process(use_dynamic_expansion=number == 2), v1.Session() as session:
            tracked = Tracked(create, policies, **options)
            session.run(v1.global_variables_initializer())
            losses = tracked.train(session, STEPS // 2)
            if number == 2:  # in another process, so to speak
                path = tracked.saver.save(session, str(tmp_path / "model"))
                tracked.table.native.clear()
                tracked.saver.restore(session, path)
            losses += tracked.train(session, STEPS // 2, begin=STEPS // 2)
            outcomes.append((losses, *tracked.outcome()))
            if number > 0:
                assert tracked.table.stats()["promotions"] > 500
    expected = outcomes[0]
    assert expected[3][4] > 500, "something was evicted"
    for number, outcome in enumerate(outcomes[1:], 1):
        assert outcome[0] == expected[0]
        model.assert_same_rows(outcome[1], expected[1])
        assert outcome[2] == expected[2]
        if number == 1:  # what the counters knew before is of the other process
            assert outcome[3] == expected[3]


def test_graph_modification_and_both_other_modes_agree(tmp_path):
    keys = model.zipf(np.random.RandomState(3), model.vocabulary(KEYS), (100, 64))
    rows = {}
    for mode in ("memory", "spec", "step", "modified"):
        with model.process(), v1.Session() as session:
            table = model.table("t", v1.random_normal_initializer(seed=1), **on_disk(tmp_path))
            if mode == "memory":
                table = model.table("t2", v1.random_normal_initializer(seed=1), rows=KEYS)
            spec = FeatureSpec("ids", table_name=table.table_name)
            dataset = tf.data.Dataset.from_tensor_slices({"ids": keys})
            if mode in ("spec", "memory"):
                dataset = dataset.map(get_asc_insert_func([spec])).prefetch(10)
            iterator = v1.data.make_initializable_iterator(dataset)
            batch = iterator.get_next()
            lookups = {"step": batch["ids"], "modified": batch["ids"] + 0}
            embeddings = sparse_lookup(
                table, lookups.get(mode, spec), batch=batch, modify_graph=mode == "modified", is_train=True
            )
            gradient = tf.gradients(tf.reduce_sum(embeddings**2), [table.variable])[0]
            step = OPTIMIZERS["adagrad"]().apply_gradients([(gradient, table.variable)])
            if mode == "modified":
                modify_graph_and_start_emb_cache()
            else:
                start_asc_pipeline()
            initializer = get_initializer(True) if mode == "modified" else iterator.initializer
            session.run([v1.global_variables_initializer(), initializer])
            for _ in range(len(keys)):
                session.run(step)
            rows[mode] = {"t": model.dump(table)}
            assert mode == "memory" or table.stats()["promotions"] > 100
    # The names of tables are part of initial values, so only tables of one name can be compared.
    for mode in ("step", "modified"):
        model.assert_same_rows(rows[mode], rows["spec"])
    np.testing.assert_array_equal(rows["memory"]["t"][0], rows["spec"]["t"][0])
