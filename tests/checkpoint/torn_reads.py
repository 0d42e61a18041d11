"""A process that saves again and again, and readers beside it that must get one save's state, or nothing.

    python -m tests.checkpoint.torn_reads <directory> <kind>
    python -m tests.checkpoint.torn_reads <directory> export    SavedModels, each in the place of the one before

It saves until its standard input ends, and prints "saving" when the first save has ended.

After step k every row of both tables is k, and so is the dense variable: a state of two saves cannot be mistaken for
one. KINDS says how checkpoints are named and written.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import tensorflow as tf

from mx_rec.core.embedding import sparse_lookup
from mx_rec.optimizers import gradient_descent
from tests.shared import model
from tests.shared.paths import ROOT

v1 = tf.compat.v1
TABLES = ("a", "b")
ROWS, DIM = 3000, 16
# (whether each save has a name of its own, what init is told, whether most saves are deltas)
KINDS = {
    "one_name": (False, {}, False),
    "one_name_async": (False, {"is_async_checkpoint": True}, False),
    "rotating": (True, {}, False),
    "rotating_deltas_async": (True, {"is_async_checkpoint": True}, True),
}


class Counter:
    """The model, built in the default graph: a step adds 1 to everything."""

    def __init__(self):
        ids = tf.constant(np.arange(ROWS), tf.int64)
        self.tables = [model.table(name, v1.zeros_initializer(), DIM, ROWS) for name in TABLES]
        rows = [sparse_lookup(table, ids) for table in self.tables]
        anchors = [table.variable for table in self.tables]
        gradients = tf.gradients(-sum(map(tf.reduce_sum, rows)), anchors)
        self.dense = v1.get_variable("dense", initializer=np.zeros(200_000, np.float32))
        self.step = tf.group(
            gradient_descent.create_hash_optimizer(1.0).apply_gradients(zip(gradients, anchors)),
            self.dense.assign_add(tf.ones_like(self.dense)),
        )
        self.saver = v1.train.Saver(max_to_keep=3)
        self.keys = v1.placeholder(tf.int64, [None])
        self.outputs = {t.table_name: sparse_lookup(t, self.keys, is_train=False) for t in self.tables}
        self.outputs["dense"] = tf.identity(self.dense)

    def state(self, session):
        """The values of each part: one number each if it is of one save."""
        values = {table.table_name: np.unique(table.native.read(table.native.keys())[0]) for table in self.tables}
        values["dense"] = np.unique(session.run(self.dense))
        return {name: found.tolist() for name, found in values.items()}


def save_forever(directory, kind):
    """Trains and saves until the standard input ends."""
    has_step, settings, is_delta = KINDS[kind]
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with model.process(**settings), v1.Session() as session:
        counter, step = Counter(), 0
        session.run(v1.global_variables_initializer())
        while not ended.is_set():
            session.run(counter.step)
            step += 1
            name = {"global_step": step, "save_delta": is_delta and step % 4 != 1} if has_step else {}
            counter.saver.save(session, os.path.join(directory, "model"), write_meta_graph=False, **name)
            if step == 2:  # the first one has ended, also in the background
                print("saving", flush=True)


def export_forever(directory):
    """Trains and exports until the standard input ends: `model` is a link to the latest of two exports or three."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    link, step = os.path.join(directory, "model"), 0
    with model.process(), v1.Session() as session:
        counter = Counter()
        session.run(v1.global_variables_initializer())
        while not ended.is_set():
            session.run(counter.step)
            step += 1
            v1.saved_model.simple_save(session, f"{link}-{step}", {"keys": counter.keys}, counter.outputs)
            os.symlink(f"model-{step}", link + ".new")
            os.rename(link + ".new", link)
            shutil.rmtree(f"{link}-{step - 2}", ignore_errors=True)
            if step == 1:
                print("saving", flush=True)


@contextlib.contextmanager
def saver_beside(directory, kind):
    """Another process saves to `directory` while the block runs."""
    command = [sys.executable, "-m", "tests.checkpoint.torn_reads", str(directory), kind]
    writer = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout.readline() == "saving\n"
        yield writer
        assert writer.poll() is None, "the saver beside must be at work all the time"
    finally:
        writer.stdin.close()
        status = writer.wait(60)
        writer.stdout.close()
    assert status == 0


def latest(directory, kind):
    """The prefix that a reader would use."""
    if not KINDS[kind][0]:
        return os.path.join(directory, "model")
    return tf.train.latest_checkpoint(str(directory))


def assert_one_save(state):
    """All parts hold one number, the same."""
    numbers = {number for values in state.values() for number in values}
    assert len(numbers) == 1 and all(len(values) == 1 for values in state.values()), f"torn: {state}"


if __name__ == "__main__":
    export_forever(sys.argv[1]) if sys.argv[2] == "export" else save_forever(sys.argv[1], sys.argv[2])
