"""Has every single file operation of a save fail, and be the last one of its process, and looks at what is left.

    python -m tests.checkpoint.fault_injection [deltas | large]

A directory holds checkpoint model-1 of state A. Then state B is saved, under a new name or over model-1, and the n-th
file operation of that save goes wrong, for n = 1, 2, … until a save is over before. Afterwards the latest checkpoint
must restore A or B, every bit of every dense variable, row and slot; B if the save said that it succeeded. And the next
save must succeed, restore, and leave nothing hidden. Then the same from where a save of B was killed at the worst
moment: what a save of C does there first, to tidy up, goes wrong as well. What goes wrong:

    once   the operation fails, and the save goes on or gives up as it likes
    die    a write stores half of its bytes; the operation and all after it fail, so the files stay as they are: as if
           the process had been killed right there
    kill   the same, by SIGKILL, in a process of its own. It is slow, so only some n are tried

With "deltas", checkpoints hold what has changed where that is possible: under a new name. With "large", a table
has so many bytes in one place that they bypass the page cache; that is tried under a new name alone.

The operations are intercepted by tests/shared/faults.c, which this script compiles and has loaded.
"""

import collections
import errno
import os
import shutil
import signal
import sys
import tempfile

from tests.shared import faults
from tests.shared.faults import COUNT, DIE, KILL, ONCE, arm

NAMES = {"over the same name": 1, "under a new name": 2}
KILLS = 12  # of each name
DELTAS, LARGE = "deltas" in sys.argv[1:], "large" in sys.argv[1:]
TABLES, DIM, ROWS = (["user"], 8192, 20) if LARGE else (["user", "item"], 4, 5)
VALUES = {"A": 1.0, "B": 2.0, "C": 3.0, "D": 4.0}

faults.load(__spec__.name)

# After that, so that TensorFlow is imported once.
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from mx_rec._log import logger  # noqa: E402
from mx_rec._tf import patches  # noqa: E402
from mx_rec.transaction import _lock  # noqa: E402
from tests.shared.saver_model import Model, fill, native  # noqa: E402

v1 = tf.compat.v1


def neighbours(first):
    """Keys whose rows lie beside one another in a checkpoint: of one shard, as their hashes begin alike."""
    found, key, mask = [], first, 2**64 - 1
    while len(found) < ROWS:
        x = (key + 0x9E3779B97F4A7C15) & mask  # native/base/hash.h
        x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
        if (x ^ x >> 31) >> 56 == 0:
            found.append(key)
        key += 1
    return found


class Subject:
    """A model with a dense variable and two tables, of which `state` is everything that a checkpoint must hold."""

    def __init__(self):
        self.model = Model(TABLES, dim=DIM)
        self.saver = self.model.saver(max_to_keep=1)  # so that saves remove a checkpoint, too

    def set(self, value):
        self.model.session.run(self.model.assign, {self.model.value: [value, value]})
        for anchor in self.model.anchors.values():
            native(anchor).erase(native(anchor).keys())  # a table that is emptied does not know what has changed
            fill(anchor, neighbours(int(value)) if LARGE else list(range(int(value), int(value) + ROWS)), value)

    def state(self):
        found = {"dense": self.model.session.run(self.model.dense)}
        for name, anchor in self.model.anchors.items():
            keys = np.sort(native(anchor).keys())
            values, is_found = native(anchor).read(keys)
            assert is_found.all()
            found |= {f"{name} keys": keys, f"{name} values": values.view(np.int32)}
        return found

    def save(self, directory, step):
        path = os.path.join(directory, "model")
        return self.saver.save(self.model.session, path, global_step=step, save_delta=DELTAS)

    def restore_latest(self, directory):
        """The state that is then in memory, after another one was."""
        self.set(9.0)
        latest = tf.train.latest_checkpoint(directory)
        assert latest is not None, os.listdir(directory)
        self.saver.restore(self.model.session, latest)
        return self.state()

    def forget(self, directory):
        """Has the Saver know of model-1 alone, and deltas build on it."""
        self.saver.set_last_checkpoints_with_time([(os.path.join(directory, "model-1"), 0.0)])
        self.saver._checkpoints_to_be_deleted.clear()
        if DELTAS:
            self.saver.restore(self.model.session, os.path.join(directory, "model-1"))


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


class Trial:
    """A directory with state `before` as model-1, again and again, and `after` in memory."""

    def __init__(self, home):
        self.directory, self.pristine = os.path.join(home, "run"), os.path.join(home, "pristine")
        self.subject = Subject()
        self.states = {}
        for name, value in VALUES.items():
            self.subject.set(value)
            self.states[name] = self.subject.state()
        self.before, self.after, self.following = "ABC"
        self.subject.set(VALUES["A"])
        self.subject.save(self.directory, 1)
        os.rename(self.directory, self.pristine)

    def begin(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        _lock.release(self.directory)
        shutil.copytree(self.pristine, self.directory)
        self.subject.forget(self.directory)
        self.subject.set(VALUES[self.after])

    def interrupt(self):
        """From now on, B as model-1 is what is left by a save that was killed between the two renames of the tables."""
        attempt(self, 1, 0, COUNT, 0)
        operations = faults.operations()
        attempt(self, 1, operations.index(f"rename {self.directory}/sparse-model-1") + 1, DIE, errno.EIO)
        assert not os.path.exists(os.path.join(self.directory, "sparse-model-1"))
        shutil.rmtree(self.pristine)
        os.rename(self.directory, self.pristine)
        self.before, self.after, self.following = "BCD"

    def check(self, directory, has_succeeded):
        """Which state is left: `before` or `after`. Then saves the following one."""
        left = self.subject.restore_latest(directory)
        (name,) = [name for name in (self.before, self.after) if same(left, self.states[name])] or ["neither"]
        assert name != "neither", f"a third state: {left}"
        assert name == self.after or not has_succeeded, "the save succeeded and did not save"
        self.subject.set(VALUES[self.following])
        self.subject.save(directory, 3)
        hidden = {entry for entry in os.listdir(directory) if entry.startswith(".") or ".tmp" in entry} - {
            ".mx_rec-lock"
        }
        assert not hidden, f"left after the next save: {hidden}"
        assert same(self.subject.restore_latest(directory), self.states[self.following])
        return name


def attempt(trial, step, n, how, error):
    """(whether the save succeeded, operations, exception) of one save whose n-th operation goes wrong."""
    trial.begin()
    arm(trial.directory, n, how, error)
    failure = None
    try:
        trial.subject.save(trial.directory, step)
    except (OSError, tf.errors.OpError) as exception:
        failure = exception
    return failure is None, faults.disarm(), failure


def assert_seen(operations):
    """That no file of a save is written behind the library's back: all were opened, written and closed before it."""
    seen = collections.defaultdict(set)
    for line in operations:
        operation, path = line.split(" ", 1)
        seen[operation].add(path.rsplit("/", 1)[1])
    written = seen["write"] | seen["pwrite"] | seen["writev"] | seen["fwrite"]
    dense = {name.partition(".tempstate")[0] for name in written}
    assert {"slice.data", "slice.attribute", "manifest.json.new"} <= written, written
    assert any(".data-00000-of-00001" in name for name in dense), written
    assert any(".index" in name for name in dense) and any(".meta" in name for name in dense), written
    assert any(name.startswith(".state-checkpoint") for name in written), written


def every_operation(trial, name, how):
    step = NAMES[name]
    left = []
    n = 0
    while True:
        n += 1
        has_succeeded, operations, failure = attempt(trial, step, n, how, (errno.EIO, errno.ENOSPC)[n % 2])
        try:
            left.append(trial.check(trial.directory, has_succeeded))
        except BaseException:
            lines = faults.operations()
            print(f"{name}: operation {n} of {operations} ({lines[n - 1] if n <= len(lines) else 'none'}): {failure}")
            raise
        if operations < n:
            break
    assert left[0] == trial.before and left[-1] == trial.after
    if how == DIE:  # in time order: a state that was reached is not lost again
        assert left == sorted(left), left
    print(f"{name}, {'die' if how == DIE else 'once'}: {n - 1} operations; left {trial.before} "
          f"{left.count(trial.before)} times, {trial.after} {left.count(trial.after)} times", flush=True)  # fmt: skip
    return n - 1


def prepare(subject, directory):
    """State A as model-1, and B in memory. The next save has to lock the directory again."""
    subject.set(VALUES["A"])
    subject.save(directory, 1)
    _lock.release(directory)
    subject.forget(directory)
    subject.set(VALUES["B"])


def count(subject, directory, step):
    """How many operations it takes to save B."""
    prepare(subject, directory)
    arm(directory, 0, COUNT)
    subject.save(directory, step)
    operations = faults.disarm()
    assert_seen(faults.operations())
    return operations


def fork_kills(home):
    """Directories in which processes were killed while they saved, [(directory, name)]. TensorFlow must be unused, or
    the children would inherit locks of threads that they do not have."""
    killed = []
    for name, step in NAMES.items():
        for i in range(KILLS):
            directory = os.path.join(home, f"kill-{step}-{i}")
            child = os.fork()
            if child == 0:
                try:
                    with tf.Graph().as_default():
                        subject = Subject()
                        operations = count(subject, directory + "-counted", step)
                        prepare(subject, directory)
                        arm(directory, max(1, operations * (i + 1) // (KILLS + 1)), KILL)
                        subject.save(directory, step)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "it was to be killed"
            shutil.rmtree(directory + "-counted")
            killed.append((directory, name))
    return killed


def main():
    logger.setLevel("ERROR")
    v1.logging.set_verbosity(v1.logging.FATAL)
    # In memory where that is possible, which takes a third of the time.
    home = tempfile.mkdtemp(prefix="mxrec_faults_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    arm(home, 0, COUNT)  # from now on no save waits for the disk
    patches.install()
    try:
        killed = [] if LARGE else fork_kills(home)
        with tf.Graph().as_default():
            trial = Trial(home)
            left = collections.defaultdict(list)
            for directory, name in killed:
                trial.subject.forget(directory)
                left[name].append(trial.check(directory, has_succeeded=False))
            for name, found in left.items():
                assert found == sorted(found), found
                print(f"{name}, kill: {len(found)} processes; left A {found.count('A')} times, B {found.count('B')} "
                      "times", flush=True)  # fmt: skip
            for name in ["under a new name"] if LARGE else NAMES:
                operations = count(trial.subject, os.path.join(home, "counted"), NAMES[name])
                shutil.rmtree(os.path.join(home, "counted"))
                found = every_operation(trial, name, DIE)
                assert found == operations, f"{found} operations, {operations} without faults"
                every_operation(trial, name, ONCE)
            if not LARGE:
                trial.interrupt()
                for name in NAMES:
                    every_operation(trial, name, DIE)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
