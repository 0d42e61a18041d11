"""Has file operations of a save by two ranks fail on one of them, or be its last ones, and looks at what is left.

    python -m tests.ranks.fault_injection [every [kills]]

A directory holds checkpoint model-1 of state A; or model-0-1 and model-1-1, where each rank has a path of its own. Then
state B is saved, under a new name or over that, and the n-th file operation of one rank goes wrong, for every
`every`-th n. Either all ranks get its error then, or none does. Afterwards the latest checkpoint must restore A or B,
every bit of every dense variable, row and slot on both ranks; B if the save said that it succeeded. And the next save
must succeed, restore, and leave nothing hidden. What goes wrong:

    once   the operation fails, and the save goes on or gives up as it likes
    die    a write stores half of its bytes; the operation and all after it fail on that rank, while the other one does
           what it does after an error
    kill   the same, but then SIGKILL ends the rank, and that the other one. It is slow, so only `kills` n are tried
"""

import errno
import functools
import os
import pickle
import shutil
import sys
import tempfile

from tests.shared import faults

faults.load(__spec__.name)

# After that, so that TensorFlow is imported once.
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from mx_rec import _ranks  # noqa: E402
from mx_rec._log import logger  # noqa: E402
from mx_rec._native import world  # noqa: E402
from mx_rec._tf import patches  # noqa: E402
from mx_rec.transaction import _lock  # noqa: E402
from tests.ranks import mpi  # noqa: E402
from tests.ranks.zygote import Job  # noqa: E402
from tests.shared import model  # noqa: E402
from tests.shared.forking import warm_up  # noqa: E402
from tests.shared.saver_model import Model, fill, native  # noqa: E402

v1 = tf.compat.v1
TABLES, DIM, ROWS, RANKS = ("user", "item"), 4, 24, 2
NAMES = {"over the same name": 1, "under a new name": 2}
PATHS = {"common path": False, "own paths": True}
MODES = {"once": faults.ONCE, "die": faults.DIE}
VALUES = {"A": 1.0, "B": 2.0, "C": 3.0, "D": 9.0}


def everyone(value):
    """What each rank says here."""
    return [pickle.loads(data) for data in _ranks.gather("what a test says", pickle.dumps(value))]


class Subject:
    """A model on all ranks, of which `state` is everything that a checkpoint must hold of this one."""

    def __init__(self, directory, has_own_paths):
        self._rank = _ranks.rank()
        self.directory = directory
        self._name = f"model-{self._rank}" if has_own_paths else "model"
        self._model = Model(TABLES, dim=DIM)
        self._saver = self._model.saver(max_to_keep=1)  # so that saves remove a checkpoint, too

    def set(self, value):
        self._model.session.run(self._model.assign, {self._model.value: [value, value]})
        keys = np.arange(int(value), int(value) + ROWS)
        mine = keys[world.owners(keys, RANKS) == self._rank]
        for anchor in self._model.anchors.values():
            native(anchor).clear()
            fill(anchor, mine.tolist(), value + 100 * self._rank)

    def state(self):
        found = {"dense": self._model.session.run(self._model.dense)}
        for name, anchor in self._model.anchors.items():
            keys = np.sort(native(anchor).keys())
            values, is_found = native(anchor).read(keys)
            assert is_found.all()
            found |= {f"{name} keys": keys, f"{name} values": values.view(np.int32)}
        return found

    def _path(self, step):
        return os.path.join(self.directory, f"{self._name}-{step}")

    def save(self, step):
        return self._saver.save(self._model.session, os.path.join(self.directory, self._name), step)

    def restore_latest(self):
        """The state that is then in memory, after another one was."""
        self.set(VALUES["D"])
        latest = tf.train.latest_checkpoint(self.directory)
        assert latest is not None, os.listdir(self.directory)
        self._saver.restore(self._model.session, self._path(int(latest.rpartition("-")[2])))
        return self.state()

    def forget(self):
        """Has the Saver know of model-1 alone, and the process save nowhere."""
        self._saver.set_last_checkpoints_with_time([(self._path(1), 0.0)])
        self._saver._checkpoints_to_be_deleted.clear()
        _lock.release(self.directory)


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


class Trial:
    """A directory with state A as model-1, again and again, and B in memory."""

    def __init__(self, home, has_own_paths):
        self.directory, self._pristine = os.path.join(home, "run"), os.path.join(home, "pristine")
        self._subject = Subject(self.directory, has_own_paths)
        self._states = {}
        for name, value in VALUES.items():
            self._subject.set(value)
            self._states[name] = self._subject.state()
        self._subject.set(VALUES["A"])
        self._subject.save(1)
        everyone("saved")
        if _ranks.rank() == 0:
            shutil.rmtree(self._pristine, ignore_errors=True)
            shutil.move(self.directory, self._pristine)

    def begin(self):
        """Everything is as it was before; B is to be saved."""
        self._subject.forget()
        everyone("forgotten")
        if _ranks.rank() == 0:
            shutil.rmtree(self.directory, ignore_errors=True)
            shutil.copytree(self._pristine, self.directory, ignore=shutil.ignore_patterns(_lock.NAME))
        everyone("begun")
        self._subject.set(VALUES["B"])

    def attempt(self, step, victim, n, how):
        """(the errors of all ranks, None of those without; operations of the victim) of one save whose n-th operation
        there goes wrong."""
        self.begin()
        number = (errno.EIO, errno.ENOSPC)[n % 2]
        faults.arm(self.directory, n, how if _ranks.rank() == victim else faults.COUNT, number)
        failure = None
        try:
            self._subject.save(step)
        except (OSError, RuntimeError, tf.errors.OpError) as error:
            failure = f"{type(error).__name__}: {error}"
        told = everyone((failure, faults.disarm()))
        return [error for error, _ in told], told[victim][1]

    def check(self, has_succeeded):
        """Which state is left, A or B. Then saves the following one."""
        left = self._subject.restore_latest()
        name = "".join(name for name in "AB" if same(left, self._states[name])) or "neither"
        names = everyone(name)
        assert names in (["A"] * RANKS, ["B"] * RANKS), f"the ranks have got {names}: {left}"
        assert name == "B" or not has_succeeded, "the save succeeded and did not save"
        self._subject.set(VALUES["C"])
        self._subject.save(3)
        everyone("saved")
        hidden = {entry for entry in os.listdir(self.directory) if entry.startswith(".")} - {_lock.NAME}
        assert not hidden, f"left after the next save: {hidden}"
        assert same(self._subject.restore_latest(), self._states["C"])
        everyone("restored")
        return name

    def check_other(self, directory):
        """The same of what other processes have left."""
        self._subject.forget()
        self.directory = self._subject.directory = directory
        return self.check(has_succeeded=False)


def every_operation(trial, name, victim, mode, every):
    """(operations of a save, how many of them were tried, which states were left)."""
    n, left, tried = 1 + every // 2, [], 0
    while True:
        errors, operations = trial.attempt(NAMES[name], victim, n, MODES[mode])
        try:
            assert len({error is None for error in errors}) == 1, f"of one rank alone: {errors}"
            assert errors[0] is None or all(
                os.strerror(errno.EIO) in e or os.strerror(errno.ENOSPC) in e for e in errors
            )
            left.append(trial.check(errors[0] is None))
        except BaseException:
            lines = faults.operations()
            line = lines[n - 1] if n <= len(lines) else "none"
            print(f"{name}, rank {victim}, {mode}: operation {n} of {operations} ({line}): {errors}", flush=True)
            raise
        if operations < n:
            break
        n, tried = n + every, tried + 1
    assert left[-1] == "B" and (left[0] == "A" or every > 1)
    if mode == "die":  # in time order: a state that was reached is not lost again
        assert left == sorted(left), left
    return operations, tried, left


def inject(home, has_own_paths, every, say):
    with model.process():
        trial = Trial(home, has_own_paths)
        for name in NAMES:
            for victim in range(RANKS):
                for mode in MODES:
                    operations, tried, left = every_operation(trial, name, victim, mode, every)
                    if _ranks.rank() == 0:
                        counts = (left.count(state) for state in "AB")
                        say("tried", name.replace(" ", "_"), victim, mode, operations, tried, *counts)


def die(home, has_own_paths, name, victim, part, _say):
    """Saves until this rank, if it is the victim, is killed when it has done that part of the operations."""
    with model.process():
        trial = Trial(home, has_own_paths)
        _, operations = trial.attempt(NAMES[name], victim, 0, faults.COUNT)
        trial.attempt(NAMES[name], victim, max(1, int(operations * part)), faults.KILL)


def look(home, has_own_paths, say):
    """Looks at what is left of ranks that have died."""
    with model.process():
        trial = Trial(os.path.join(home, "other"), has_own_paths)
        say("left", trial.check_other(os.path.join(home, "run")))


def job(home, work):
    """Runs `work(say)` on the ranks, and returns them when all have ended."""
    flags = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    running = Job([mpi.MPIRUN, *flags], RANKS, home, work)
    try:
        assert running.tend(running.has_ended, 900), running.log()[-8000:]
        return running.ranks, running.log()
    finally:
        running.end()


def try_operations(home, paths, every):
    """Has operations fail, and be the last ones that do not."""
    ranks, log = job(home, lambda say: inject(home, PATHS[paths], every, say))
    assert [rank.status for rank in ranks] == [0] * RANKS, log[-8000:]
    for _, name, victim, mode, operations, tried, before, after in ranks[0].lines:
        print(
            f"{paths}, {name.replace('_', ' ')}, rank {victim}, {mode}: {tried} of {operations} operations; left A "
            f"{before} times, B {after} times",
            flush=True,
        )


def try_kills(home, paths, name, victim, kills):
    """Kills a rank at the operations that divide those of a save into equal parts."""
    left = ""
    for part in (np.arange(kills) + 0.5) / kills:
        ranks, log = job(home, functools.partial(die, home, PATHS[paths], name, victim, part))
        assert ranks[victim].status == -9 and all(rank.status != 0 for rank in ranks), log[-8000:]
        ranks, log = job(home, functools.partial(look, home, PATHS[paths]))
        assert [rank.status for rank in ranks] == [0] * RANKS, (paths, name, victim, part, log[-8000:])
        left += ranks[0].lines[-1][1]
    print(f"{paths}, {name}, rank {victim}, kill: {kills} jobs; left {left}", flush=True)


def main(every=1, kills=12):
    home = tempfile.mkdtemp(prefix="mxrec_faults_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    faults.arm(home, 0, faults.COUNT)  # from now on no save waits for the disk
    logger.setLevel("ERROR")
    v1.logging.set_verbosity(v1.logging.FATAL)
    warm_up()
    patches.install()
    os.mkdir(os.path.join(home, "other"))
    try:
        for paths in PATHS:
            try_operations(home, paths, every)
            for name in NAMES:
                for victim in range(RANKS):
                    try_kills(home, paths, name, victim, kills)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
