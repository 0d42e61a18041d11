"""Kills one of several ranks, or mpirun, at random moments, again and again, and compares what each restart restores
with a run of one rank that nobody killed.

    python -m tests.ranks.kill_loop [rounds] [seed]

Two ranks, or three, train a small model and save after every step: to a common path, or each to one of its own. One of
them, or mpirun, is killed with SIGKILL a random moment after the first save has begun; all must end then. The next
ranks, as many or not, restore the latest checkpoint, and train on. Now and then they go back a step, so that they save
over checkpoints of the same name; or all saves have one name.

What the ranks hold together must have the very bits of the one rank's run, for any number of ranks: all gradients are
small whole numbers, whose sums are exact in any order, and what an optimizer makes of a sum, it makes on one rank.
"""

import hashlib
import os
import random
import shutil
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

import mx_rec.saver
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.optimizers import lazy_adam
from mx_rec.util.communication import hccl_ops
from mx_rec.util.initialize import get_rank_id, get_rank_size
from tests.ranks import mpi
from tests.ranks.zygote import Job
from tests.shared import model
from tests.shared.forking import QUICK_START, warm_up

v1 = tf.compat.v1
STEPS, BATCH, DIM = 60, 12, 4  # a batch can be dealt out to 2 and to 3 ranks
DELTAS = {
    "is_async_checkpoint": True,
    "is_incremental_checkpoint": True,
    "save_checkpoint_due_time": 1000,
    "save_delta_checkpoints_secs": 1000,
}
# (whether each rank has a path of its own, whether each save has a name of its own, what init is told)
KINDS = {
    "common path": (False, True, {}),
    "own paths": (True, True, {}),
    "common path, deltas": (False, True, DELTAS),
    "own paths, deltas": (True, True, DELTAS),
    "common path, one name": (False, False, {}),
    "own paths, one name": (True, False, {}),
}
FLAGS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


class Trainee:
    """The model, which trains from the step on that `begin` is given."""

    def __init__(self):
        rank, size = get_rank_id(), get_rank_size()
        random = np.random.RandomState(0)
        keys = model.zipf(random, random.permutation(model.vocabulary(1000)), (STEPS, BATCH, 3))
        factors = random.randint(-8, 9, (STEPS, BATCH, DIM)).astype(np.float32)
        mine = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
        data = {"ids": keys[:, mine], "factor": factors[:, mine]}
        names = ("user", "item")
        specs = {name: FeatureSpec(name, table_name=name) for name in names}
        dataset = tf.data.Dataset.from_tensor_slices({"factor": data["factor"], **dict.fromkeys(names, data["ids"])})
        self._first = v1.placeholder(tf.int64, [])
        dataset = dataset.skip(self._first).map(get_asc_insert_func([*specs.values()])).prefetch(2)
        self._iterator = v1.data.make_initializable_iterator(dataset)
        batch = self._iterator.get_next()
        initializer = v1.truncated_normal_initializer(stddev=0.5, seed=3)
        self.tables = [model.table(name, initializer, DIM, 5000) for name in names]
        rows = [sparse_lookup(table, specs[table.table_name], batch=batch) for table in self.tables]
        self.weight = v1.get_variable("weight", initializer=np.ones(DIM, np.float32))
        factor = batch["factor"]
        loss = tf.add_n([tf.reduce_sum(tf.reduce_sum(row, 1) * factor) for row in rows])
        gradients = tf.gradients(loss, [table.variable for table in self.tables])
        self.global_step = v1.train.get_or_create_global_step()
        summed = hccl_ops.allreduce(tf.reduce_sum(factor, 0))
        self.step = tf.group(
            v1.train.AdamOptimizer(0.01).apply_gradients([(summed, self.weight)], self.global_step),
            lazy_adam.create_hash_optimizer(0.01).apply_gradients(
                [(gradient, table.variable) for gradient, table in zip(gradients, self.tables)]
            ),
        )
        self.saver = v1.train.Saver(max_to_keep=3)
        start_asc_pipeline()

    def begin(self, session, step):
        """What is trained next is the batch of that step."""
        session.run(self._iterator.initializer, {self._first: step})

    def digest(self, session):
        """What this rank holds: (a number of the dense variables; one of its rows, whose sum over ranks tells what they
        hold together; how many rows that are)."""
        total = count = 0
        for table in self.tables:
            keys, values = model.dump(table)
            count += len(keys)
            for key, value in zip(keys, values):
                row = table.table_name.encode() + key.tobytes() + value.tobytes()
                total += int.from_bytes(hashlib.sha256(row).digest()[:8], "little")
        dense = b"".join(np.ascontiguousarray(value).tobytes() for value in session.run(v1.trainable_variables()))
        return hashlib.sha256(dense).hexdigest(), total, count


def path_of(directory, kind, rank, end=""):
    return os.path.join(directory, (f"model-{rank}" if KINDS[kind][0] else "model") + end)


def latest(directory, kind):
    """The ends of the names in TensorFlow's list of checkpoints, which rank 0 writes."""
    state = tf.train.get_checkpoint_state(directory)
    paths = [] if state is None else state.all_model_checkpoint_paths
    return [path.removeprefix(path_of(directory, kind, 0)) for path in paths]


def train(directory, kind, say, back=0, by_list=False):
    """Trains to STEPS from the latest checkpoint, or the one `back` before it, or from nothing, and saves after every
    step. Calls say("restored", step, *digest), say("saving", step, *digest) and say("saved", step). `by_list`: all
    ranks restore the path that TensorFlow's list names, not their own."""
    _, has_steps, settings = KINDS[kind]
    known = latest(directory, kind)
    with model.process(**settings):
        trainee, rank = Trainee(), get_rank_id()
        with v1.Session(config=QUICK_START) as session:
            session.run(v1.global_variables_initializer())
            first = 0
            if known:
                trainee.saver.recover_last_checkpoints([path_of(directory, kind, rank, end) for end in known])
                end = known[max(-1 - back, -len(known))]
                trainee.saver.restore(session, path_of(directory, kind, 0 if by_list else rank, end))
                first = int(session.run(trainee.global_step))
                assert end in ("", f"-{first}")
                say("restored", first, *trainee.digest(session))
            trainee.begin(session, first)
            for step in range(first + 1, STEPS + 1):
                session.run(trainee.step)
                say("saving", step, *trainee.digest(session))
                is_delta = bool(settings) and step % 5 != 0
                number = step if has_steps else None
                path = path_of(directory, kind, rank)
                trainee.saver.save(session, path, number, write_meta_graph=False, save_delta=is_delta)
                say("saved", step)
            mx_rec.saver.wait()


def oracle(home):
    """{step: (dense, rows, count)} of one rank, which nobody kills."""
    source, target = os.pipe()
    if os.fork() == 0:
        try:
            said = os.fdopen(target, "w", buffering=1)
            train(os.path.join(home, "oracle"), "common path", lambda *words: print(*words, file=said))
        finally:
            os._exit(0)
    os.close(target)
    with os.fdopen(source) as file:
        words = [line.split() for line in file]
    os.wait()
    known = {int(step): found for what, step, *found in words if what == "saving"}
    assert len(known) == STEPS, words[-1:]
    return {step: (dense, int(rows), int(count)) for step, (dense, rows, count) in known.items()}


class Tally:
    """What has happened in the rounds of a kind."""

    def __init__(self):
        self.compared = self.inside = self.reshared = self.back = self.ended = self.launchers = 0

    def __str__(self):
        return (
            f"{self.inside} killed inside a save, {self.launchers} times mpirun; {self.reshared} restored by another "
            f"number of ranks, {self.back} went back a step; {self.compared} states compared, "
            f"{self.ended} came to the end"
        )


class Run:
    """A directory of checkpoints, in which jobs are killed."""

    def __init__(self, home, kind, known, choose):
        self._home, self._kind, self._known, self._choose = home, kind, known, choose
        self._directory = os.path.join(home, "run")
        self.tally = Tally()
        self._begin()

    def _begin(self):
        shutil.rmtree(self._directory, ignore_errors=True)
        os.mkdir(self._directory)
        self._durable, self._size = 0, None  # the step that a restart must find; ranks that have saved it

    def round(self):
        """Starts a job and kills it."""
        choose, size = self._choose, self._choose.choice((2, 3))
        back, by_list = choose.choice((0, 0, 1)), choose.choice((False, True))
        known = latest(self._directory, self._kind)
        job = Job(
            [mpi.MPIRUN, *FLAGS],
            size,
            self._home,
            lambda say: train(self._directory, self._kind, say, back, by_list),
        )
        try:
            assert job.tend(lambda: self._are_saving(job)), job.log()[-4000:]
            pause = choose.uniform(0.0, 0.08)
            job.tend(lambda: False, pause)
            victim = None if choose.random() < 0.1 else choose.randrange(size)
            killed = time.monotonic()
            job.mpirun.kill() if victim is None else job.ranks[victim].kill()
            assert job.tend(job.has_ended, 30), "a process has stayed behind: " + job.log()[-4000:]
        finally:
            job.end()
        has_ended = victim is not None and job.ranks[victim].status == 0
        self._check(job, killed)
        self._count(job, size, victim, known, back)
        if has_ended or any(line[:2] == ["saved", str(STEPS)] for rank in job.ranks for line in rank.lines):
            self.tally.ended += 1
            self._begin()

    def _are_saving(self, job):
        for rank in job.ranks:
            if rank.status is not None or any(line[0] == "failed" for line in rank.lines):
                raise AssertionError(f"a rank has failed by itself: {rank.lines[-1:]}\n{job.log()[-6000:]}")
        return all(any(line[0] == "saving" for line in rank.lines) for rank in job.ranks)

    def _check(self, job, killed):
        """Compares all states of which all ranks have told."""
        states = {}
        for rank in job.ranks:
            for what, *words in rank.lines:
                if what == "failed":
                    assert float(words[0]) >= killed, f"{' '.join(words)}\n{job.log()[-6000:]}"
                elif what != "saved":
                    states.setdefault((what, int(words[0])), []).append((words[1], int(words[2]), int(words[3])))
        for (what, step), parts in states.items():
            if len(parts) == len(job.ranks):
                whole = parts[0][0], sum(part[1] for part in parts), sum(part[2] for part in parts)
                assert len({part[0] for part in parts}) == 1, f"{what} {step}: the dense variables differ between ranks"
                assert whole == self._known[step], f"{self._kind}: {what} {step} differs from the run nobody killed"
                self.tally.compared += 1

    def _count(self, job, size, victim, known, back):
        lines = [rank.lines for rank in job.ranks]
        restored = [line for line in lines[0] if line[0] == "restored"]
        assert bool(restored) == bool(known)
        if restored and back == 0:
            assert int(restored[0][1]) >= self._durable, f"{self._durable} was saved, {restored[0][1]} is the latest"
        saved = [int(line[1]) for line in lines[0] if line[0] == "saved"]
        # What is written in the background is whole when the next save begins.
        self._durable = max([0, *saved[: len(saved) - bool(KINDS[self._kind][2])]])
        tally = self.tally
        tally.inside += any(rank[-1][0] == "saving" or rank[-1][0] == "failed" for rank in lines)
        tally.launchers += victim is None
        tally.reshared += bool(restored) and self._size not in (None, size)
        tally.back += bool(restored) and back > 0 and len(known) > 1
        self._size = size


def main(rounds=50, seed=0):
    # In memory where that is possible: saves on a disk spend their time in fsync, and most kills would fall there.
    home = tempfile.mkdtemp(prefix="mxrec_kill_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    warm_up()
    try:
        os.mkdir(os.path.join(home, "oracle"))
        known = oracle(home)
        for number, kind in enumerate(KINDS):
            run = Run(home, kind, known, random.Random(seed * len(KINDS) + number))
            for _ in range(rounds // len(KINDS)):
                run.round()
            print(f"{kind}: {rounds // len(KINDS)} rounds, {run.tally}", flush=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
