"""Sessions of several ranks, case after case: python -m tests.ranks.sessions FOLDER.

Every rank checks what it sees, also against what the others say of theirs, and prints "all cases passed" at the end.
"""

import json
import pathlib
import sys
import time

import numpy as np
import tensorflow as tf

from mx_rec import _ranks
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.core.feature_process import EvictHook, EvictPolicy
from mx_rec.core.table_stats import TableStatsHook
from mx_rec.optimizers import lazy_adam
from mx_rec.optimizers.gradient_descent import create_hash_optimizer
from mx_rec.util.communication import hccl_ops
from mx_rec.util.initialize import get_host_pipeline_ops, get_rank_id, get_rank_size
from tests.shared import model

v1 = tf.compat.v1
RANK, SIZE = get_rank_id(), get_rank_size()
LAST = SIZE - 1
DIM = 4


def everyone(value):
    """What each rank says here."""
    return [json.loads(data) for data in _ranks.gather("what a test says", json.dumps(value).encode())]


def agreed(value):
    """`value`, which is the same on all ranks."""
    said = everyone(value)
    assert all(one == said[0] for one in said), said
    return value


class Trainer:
    """A table, a dense weight, and batches of two ids; rank r has `batches + r * more` of them."""

    def __init__(self, batches=6, more=0, rate=0.1, keys=None, is_train=True, optimizer=None, lookup=None, **table):
        count = batches + RANK * more
        keys = np.arange(2 * count, dtype=np.int64).reshape(-1, 2) % 20 + RANK if keys is None else np.asarray(keys)
        factor = np.ones(len(keys), np.float32)
        self.table = create_table(
            **{
                "key_dtype": tf.int64,
                "dim": DIM,
                "name": "user",
                "emb_initializer": v1.truncated_normal_initializer(seed=2),
                "device_vocabulary_size": 100,
                **table,
            }
        )
        spec = FeatureSpec("ids", table_name=self.table.table_name, **(lookup or {}))
        specs = [spec] + ([FeatureSpec("time", is_timestamp=True)] if lookup else [])
        data = {"ids": keys, "factor": factor}
        if lookup:
            data["time"] = np.arange(len(keys), dtype=np.int64) + 1000
        dataset = tf.data.Dataset.from_tensor_slices(data).map(get_asc_insert_func(specs, is_training=is_train))
        self.iterator = v1.data.make_initializable_iterator(dataset)
        self.batch = self.iterator.get_next()
        self.rows = sparse_lookup(self.table, spec, is_train=is_train, batch=self.batch)
        self.step_number = v1.train.get_or_create_global_step()
        self.weight = v1.get_variable(
            "weight", [self.table.emb_size], initializer=v1.random_normal_initializer(), use_resource=True
        )
        self.scale = v1.placeholder_with_default(np.float32(1), [])
        if is_train:
            loss = tf.reduce_sum(self.rows * self.weight) * self.scale * self.batch["factor"]
            gradients = tf.gradients(loss, [self.table.variable])
            optimizer = create_hash_optimizer(rate) if optimizer is None else optimizer()
            self.step = optimizer.apply_gradients(zip(gradients, [self.table.variable]), global_step=self.step_number)
            start_asc_pipeline()

    def session(self):
        session = v1.Session()
        session.run([v1.global_variables_initializer(), self.iterator.initializer])
        return session


def steps_until(session, fetch, kind=tf.errors.OutOfRangeError):
    """(how often a run succeeded before the error, its text)."""
    done = 0
    while True:
        try:
            session.run(fetch)
        except kind as error:
            return done, str(error)
        done += 1


def refuses(build, words, kind=ValueError):
    """The first run fails on every rank, with words that say why."""
    with tf.Graph().as_default():
        trainer = build()
        with trainer.session() as session:
            try:
                session.run(trainer.step)
            except kind as error:
                for word in words:
                    assert word in str(error), error
            else:
                raise AssertionError(f"no error with {words}")


def dense_variables_begin_alike(folder):
    with model.process():
        trainer = Trainer()
        with trainer.session() as session:
            own = session.run(trainer.weight).tolist()
            assert len({tuple(one) for one in everyone(own)}) == SIZE  # no seed: other numbers on each
            session.run(trainer.step)
            assert agreed(session.run(trainer.weight).tolist()) == everyone(own)[0]


def variables_initialized_on_some_ranks(folder):
    with model.process():
        trainer = Trainer()
        with v1.Session() as session:
            session.run(trainer.iterator.initializer)
            if RANK != LAST:
                session.run(v1.global_variables_initializer())
            try:
                session.run(trainer.step)
            except tf.errors.FailedPreconditionError as error:
                assert f"not on rank {LAST}" in str(error) and "variable '" in str(error), error
            else:
                raise AssertionError("no error")


def models_that_differ(folder):
    odd = RANK == LAST
    for build, words in (
        (lambda: Trainer(dim=8 if odd else 4), ["table 'user' has dim 4 on rank 0 and 8 on"]),
        (lambda: Trainer(device_vocabulary_size=9 if odd else 99), ["device_vocabulary_size 99 on rank 0 and 9 on"]),
        (lambda: Trainer(name="item" if odd else "user"), ["no table 'item' on rank 0"]),
        (lambda: Trainer(emb_initializer=v1.truncated_normal_initializer(seed=7 if odd else 8)), ["seed", "8", "7"]),
        (lambda: Trainer(emb_initializer=v1.constant_initializer(7.0 if odd else 8.0)), ["constant(8", "constant(7"]),
        (lambda: Trainer(is_dp=odd), ["is_dp False on rank 0 and True on"]),
        (
            lambda: Trainer(optimizer=lazy_adam.create_hash_optimizer if odd else None),
            ["slots of the optimizer none on rank 0 and"],
        ),
        (lambda: Trainer(lookup={"access_threshold": 3 if odd else 2}), ["access_threshold 2 on rank 0 and 3 on"]),
    ):
        with model.process():
            refuses(build, [*words, "all ranks must build the same"])


def graphs_that_differ(folder):
    with model.process():
        trainer = Trainer()
        with trainer.session() as session:
            try:
                session.run(trainer.rows if RANK == LAST else trainer.step)
            except ValueError as error:
                assert "the session of rank 0 runs 'Grad" in str(error) and "update'" in str(error), error
            else:
                raise AssertionError("no error")


def a_drawn_initializer_is_that_of_rank_0(folder):
    with model.process():
        trainer = Trainer(emb_initializer=lambda shape, dtype: np.random.RandomState(RANK).normal(size=shape), rate=0.0)
        with trainer.session() as session:
            session.run(trainer.step)
            agreed(trainer.table.read(np.arange(SIZE + 2))[0].tolist())


def training_ends_for_all_with_the_shortest(folder):
    with model.process():
        trainer = Trainer(batches=3, more=2)
        with trainer.session() as session:
            assert steps_until(session, trainer.step)[0] == 3
            session.run(trainer.iterator.initializer)  # another epoch
            assert steps_until(session, trainer.step)[0] == 3
            assert agreed(int(session.run(trainer.step_number))) == 6


def a_monitored_session_ends_for_all(folder):
    with model.process():
        trainer = Trainer(batches=4, more=3)
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, trainer.iterator.initializer)
        done = 0
        with v1.train.MonitoredTrainingSession(log_step_count_steps=None) as session:
            while not session.should_stop():
                session.run(trainer.step)
                done += 1
        assert done == 4, done


def evaluation_waits_for_the_longest(folder):
    with model.process():
        trainer = Trainer(batches=5)
        with trainer.session() as session:
            steps_until(session, trainer.step)
            known = trainer.table.read(np.arange(24))[0]
        with tf.Graph().as_default():
            evaluated = Trainer(batches=2, more=2, is_train=False)
            with evaluated.session() as session:
                for _ in range(2):
                    done, ids = 0, np.arange(2 * (2 + RANK * 2)).reshape(-1, 2) % 20 + RANK
                    while True:
                        try:
                            rows = session.run(evaluated.rows)
                        except tf.errors.OutOfRangeError:
                            break
                        np.testing.assert_array_equal(rows, known[ids[done]])
                        done += 1
                    assert done == 2 + RANK * 2
                    session.run(evaluated.iterator.initializer)


def errors_reach_all_ranks(folder):
    """An error of one rank's step is that of all, and the next step finds them together."""
    with model.process():
        trainer = Trainer(batches=20)
        with trainer.session() as session:
            session.run(trainer.step)
            before = trainer.table.read(np.arange(24))[0]
            try:
                session.run(trainer.step, {trainer.scale: np.nan if RANK == LAST else 1.0})
            except tf.errors.InvalidArgumentError as error:
                assert "'user'" in str(error) and "finite" in str(error), error
            else:
                raise AssertionError("no error")
            np.testing.assert_array_equal(trainer.table.read(np.arange(SIZE))[0], before[:SIZE])
            session.run(trainer.step)
            # A feed of another shape fails before the first op runs.
            try:
                session.run(trainer.step, {trainer.batch["factor"]: np.ones(3, np.float32) if RANK == LAST else 1.0})
            except (ValueError, tf.errors.InvalidArgumentError) as error:
                assert "shape" in str(error), error
            else:
                raise AssertionError("no error")
            session.run(trainer.step)
            (plan,) = (name for name in trainer.batch if name not in ("ids", "factor"))
            # All that the step reads: an iterator whose next batch is on its way when a step fails is cancelled.
            damaged = {trainer.batch[plan]: np.arange(5), trainer.batch["factor"]: 1.0}
            try:
                session.run(trainer.step, damaged if RANK == LAST else {})
            except tf.errors.InvalidArgumentError as error:
                assert "prepared batch" in str(error), error
            else:
                raise AssertionError("no error")
            session.run(trainer.step)


def a_table_is_full_for_all(folder):
    with model.process():
        mine = np.arange(60).reshape(-1, 2) * SIZE + RANK  # each rank brings keys of its own
        trainer = Trainer(keys=mine, device_vocabulary_size=10 * SIZE)
        with trainer.session() as session:
            done, text = steps_until(session, trainer.step, tf.errors.ResourceExhaustedError)
            assert 5 <= done <= 6 and "is full" in text and f"is {10 * SIZE} rows" in text, (done, text)
            stats = trainer.table.stats()
            assert stats["rows"] == trainer.table.size() and stats["capacity"] == 10 * SIZE
            assert sum(everyone(trainer.table.size())) >= 10 * SIZE


def stats_count_all_ranks(folder):
    with model.process():
        trainer = Trainer(keys=np.arange(32).reshape(-1, 2) % 16 + RANK)
        with trainer.session() as session:
            steps_until(session, trainer.step)
            keys = {int(key) for rank in range(SIZE) for key in np.arange(16) + rank}
            totals = agreed(trainer.table.stats()["rows_on_all_ranks"])
            assert sum(everyone(trainer.table.size())) == len(keys) and totals == len(keys)
        assert trainer.table.slice_device_vocabulary_size == -(-100 // SIZE)


def rows_are_assigned_and_read(folder):
    for is_dp in (False, True):
        with model.process():
            trainer = Trainer(is_dp=is_dp, optimizer=lazy_adam.create_hash_optimizer)
            keys = np.arange(50, dtype=np.int64) * 7 - 20
            rows = np.random.RandomState(1).normal(size=(50, DIM)).astype(np.float32)
            trainer.table.assign(keys, rows)
            assert sum(everyone(trainer.table.size())) == 50 * (SIZE if is_dp else 1)
            mine = np.concatenate([keys[RANK : 20 + 3 * RANK], [10**9]]).reshape(-1, 1)  # others than other ranks'
            got, found = trainer.table.read(mine)
            assert got.shape == (*mine.shape, DIM) and found[:-1].all() and not found[-1]
            np.testing.assert_array_equal(got[:-1, 0], rows[RANK : 20 + 3 * RANK])
            assert trainer.table.read(np.zeros([0], np.int64))[0].shape == (0, DIM)
            try:
                trainer.table.assign(keys, rows + RANK)
            except ValueError as error:
                assert "other keys or rows" in str(error), error
            else:
                raise AssertionError("no error")
            np.testing.assert_array_equal(trainer.table.read(keys)[0], rows)


class _NotedPolicy(EvictPolicy):
    """Notes at which of the steps in `sizes` a pass begins."""

    def begin(self):
        self.began.append(len(self.sizes))
        return super().begin()


def eviction_happens_at_the_same_step(folder):
    for when in ({"evict_time_interval": 1}, {"evict_step_interval": 7}):
        with model.process():
            keys = np.arange(120).reshape(-1, 2)
            trainer = Trainer(keys=keys, lookup={"access_threshold": 1, "eviction_threshold": 5})
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, trainer.iterator.initializer)
            policy = _NotedPolicy()
            sizes, began = vars(policy)["sizes"], vars(policy)["began"] = [], []
            hook = EvictHook(True, policy=policy, **when)
            with v1.train.MonitoredTrainingSession(hooks=[hook], log_step_count_steps=None) as session:
                while not session.should_stop():
                    time.sleep(0.03 * (1 + RANK))  # clocks that disagree
                    session.run(trainer.step)
                    sizes.append(trainer.table.stats()["evicted"])
            assert len(agreed(began)) >= 2 and sum(everyone(sizes[-1])) > 60, (began, sizes)


def thresholds_change_on_all_ranks(folder):
    with model.process():
        trainer = Trainer(keys=np.full((10, 2), 3), lookup={"access_threshold": 4 * SIZE})
        change = get_host_pipeline_ops().set_threshold(100 * SIZE, emb_name="user", ids_name="ids")
        with trainer.session() as session:
            session.run(trainer.step)
            assert sum(everyone(trainer.table.size())) == 0
            session.run(change)
            for _ in range(3):
                session.run(trainer.step)
            assert sum(everyone(trainer.table.size())) == 0
        trainer.table.native.clear()


class _Noted:
    """Stands in for a Saver: notes when it is asked."""

    saver_def = None

    def __init__(self):
        self.steps = []

    def save(self, session, path, global_step=None, **ignored):
        self.steps.append(int(global_step))


def hooks_save_at_the_same_steps(folder):
    with model.process():
        trainer = Trainer(keys=np.arange(160).reshape(-1, 2) % 30)
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, trainer.iterator.initializer)
        saver = _Noted()
        hooks = [
            v1.train.CheckpointSaverHook(str(folder), save_secs=1, saver=saver),
            TableStatsHook(10, str(folder)),
        ]
        keywords = {"is_chief": RANK == 0, "save_checkpoint_secs": None, "save_checkpoint_steps": None}
        with v1.train.MonitoredTrainingSession(hooks=hooks, **keywords) as session:
            while not session.should_stop():
                time.sleep(0.02 + 0.02 * RANK)
                session.run(trainer.step)
        assert len(agreed(saver.steps)) >= 3, saver.steps  # at the begin, at the end, and between
        everyone("written")
        found = sorted(path.parent.name for path in pathlib.Path(folder).rglob("events.out*"))
        assert found == sorted([pathlib.Path(folder).name, *(f"rank{rank}" for rank in range(1, SIZE))]), found


def all_reduced_metrics(folder):
    with model.process():
        loss = hccl_ops.allreduce(tf.constant(float(RANK))) / SIZE
        with v1.Session() as session:
            assert session.run(loss) == sum(range(SIZE)) / SIZE


CASES = (
    *(dense_variables_begin_alike, variables_initialized_on_some_ranks, models_that_differ, graphs_that_differ),
    *(a_drawn_initializer_is_that_of_rank_0, training_ends_for_all_with_the_shortest),
    *(a_monitored_session_ends_for_all, evaluation_waits_for_the_longest, errors_reach_all_ranks),
    *(a_table_is_full_for_all, stats_count_all_ranks, rows_are_assigned_and_read, eviction_happens_at_the_same_step),
    *(thresholds_change_on_all_ranks, hooks_save_at_the_same_steps, all_reduced_metrics),
)


def run(cases, folder, *names):
    """Runs those of the cases that are named, or all, each in a folder of its own that all ranks share."""
    for case in cases:
        if names and case.__name__ not in names:
            continue
        place = pathlib.Path(folder, case.__name__)
        place.mkdir(exist_ok=True)
        case(place)
        print(f"rank {RANK}: {case.__name__} passed", flush=True)
    print(f"rank {RANK}: all cases passed", flush=True)


if __name__ == "__main__":
    run(CASES, *sys.argv[1:])
