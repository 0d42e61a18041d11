"""Kills a training process at random moments, again and again, and compares what each restart restores with a run that
nobody killed.

    python tests/kill_loop.py [rounds] [seed]

A child trains a small model and saves every few steps. It is killed with SIGKILL a random moment after it has restored,
or begun its first save. Its successor restores the latest checkpoint, whose rows, slots and dense variables must have
the very bits that the unharmed run had at that step; then it trains on, until it is killed. Children are forked from a
process that has imported TensorFlow but not used it, which saves them the time for that.
"""

import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time

import model
import numpy as np
import tensorflow as tf
from training import OPTIMIZERS

from mx_rec.util.variable import get_dense_and_sparse_variable

v1 = tf.compat.v1
STEPS, EVERY = 120, 3
TABLES = {"memory": {"rows": 5000}, "disk": {"rows": 1, "host_vocabulary_size": 199, "ssd_vocabulary_size": 5000}}
# Written while training goes on, and mostly what changed.
DELTAS = {
    "is_async_checkpoint": True,
    "is_incremental_checkpoint": True,
    "save_checkpoint_due_time": 1000,
    "save_delta_checkpoints_secs": 1000,
}
TABLES |= {f"{kind}, deltas": {**options, "init": DELTAS} for kind, options in TABLES.items()}


def digest(run, session):
    """A fingerprint of everything that a checkpoint must bring back."""
    found = hashlib.sha256()
    for name, (keys, values) in sorted(run.rows().items()):
        found.update(name.encode() + keys.tobytes() + values.tobytes())
    for value in session.run(v1.trainable_variables()):
        found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def train(directory, options, say):
    """Trains from the latest checkpoint, or from nothing, to STEPS, and saves every EVERY steps. say(step, digest) is
    called after each restore and before each save."""
    settings = options.pop("init", {})
    with model.process(**settings):
        weight = v1.get_variable("weight", initializer=np.ones(model.DIM, np.float32))
        data = model.batches(STEPS, keys=model.vocabulary(1000))
        built = model.build(data, initializer=v1.truncated_normal_initializer(seed=3), weight=weight, **options)
        dense, sparse = get_dense_and_sparse_variable()
        gradients = tf.gradients(built.loss, dense + sparse)
        global_step = v1.train.get_or_create_global_step()
        step_op = tf.group(
            v1.train.AdamOptimizer(0.01).apply_gradients(zip(gradients[:1], dense), global_step),
            OPTIMIZERS["lazy_adam"]().apply_gradients(zip(gradients[1:], sparse)),
        )
        saver = v1.train.Saver(max_to_keep=3)
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), built.iterator.initializer])
            latest = tf.train.latest_checkpoint(directory)
            if latest is not None:
                saver.restore(session, latest)
                say(int(session.run(global_step)), digest(built, session))
                for _ in range(int(session.run(global_step))):
                    session.run(built.batch)  # what was trained already
            while (step := int(session.run(global_step))) < STEPS:
                session.run(step_op)
                if (step + 1) % EVERY == 0:
                    say(step + 1, digest(built, session))
                    is_delta = bool(settings) and step % 5 != 0
                    saver.save(session, os.path.join(directory, "model"), global_step=step + 1, save_delta=is_delta)


def in_child(work):
    """Forks; the child does `work(write)` and exits. Returns (pid, file to read what it wrote)."""
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(source)
            with os.fdopen(target, "w", buffering=1) as out, open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 2)
                work(lambda *words: print(*words, file=out, flush=True))
            code = 0
        except BaseException as error:
            os.write(target, f"failed {type(error).__name__}: {error}\n".replace("\n", " ").encode() + b"\n")
        finally:
            os._exit(code)
    os.close(target)
    return pid, os.fdopen(source)


def oracle(kind, home):
    """{step: digest} of the run that nobody kills."""
    pid, lines = in_child(lambda say: train(os.path.join(home, "oracle"), options_of(kind, home), say))
    known = dict(line.split() for line in lines)
    assert os.waitpid(pid, 0)[1] == 0, known
    assert len(known) == STEPS // EVERY
    return known


def options_of(kind, home):
    options = dict(TABLES[kind])
    if "ssd_vocabulary_size" in options:
        options["ssd_data_path"] = [home]
    return options


def main(rounds=200, seed=0):
    choose = random.Random(seed)
    home = tempfile.mkdtemp(prefix="mxrec_kill_")
    try:
        for kind in TABLES:
            for name in ("oracle", "run"):
                shutil.rmtree(os.path.join(home, name), ignore_errors=True)
                os.mkdir(os.path.join(home, name))
            known = oracle(kind, home)
            compared = ended = 0
            for _ in range(rounds // len(TABLES)):
                directory = os.path.join(home, "run")
                pid, lines = in_child(lambda say, d=directory, k=kind: train(d, options_of(k, home), say))
                first = lines.readline()
                time.sleep(choose.uniform(0.0, 0.15))
                os.kill(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                for line in [first, *lines]:
                    step, fingerprint = line.split(maxsplit=1)
                    assert step != "failed", fingerprint
                    assert known[step] == fingerprint.strip(), f"{kind}: step {step} differs from the run nobody killed"
                    compared += 1
                if os.WIFEXITED(status):  # it came to the end: begin anew
                    ended += 1
                    shutil.rmtree(directory)
                    os.mkdir(directory)
            print(
                f"{kind}: {rounds // len(TABLES)} rounds, {compared} states compared, {ended} came to the end",
                flush=True,
            )
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
