"""Kills a training process at random moments, again and again, and compares what each restart restores with a run that
nobody killed.

    python -m tests.checkpoint.kill_loop [rounds] [seed]

A child trains a small model and saves after every step. It is killed with SIGKILL a random moment after it has begun
its first save. Its successor restores the latest checkpoint, whose rows, slots and dense variables must have the very
bits that the unharmed run had at that step; then it trains on, until it is killed. Now and then a child goes back a
step, so that it saves over checkpoints of the same name. Children are forked from a process that has imported
TensorFlow but not used it, which saves them the time for that.
"""

import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model
from tests.shared.forking import QUICK_START, warm_up
from tests.shared.optimizers import OPTIMIZERS

v1 = tf.compat.v1
STEPS = 60
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


def train(directory, options, say, back=0):
    """Trains to STEPS from the latest checkpoint, or the one `back` before it, or from nothing, and saves after every
    step. Calls say("restored", step, digest), say("saving", step, digest) and say("saved", step)."""
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
        with v1.Session(config=QUICK_START) as session:
            session.run([v1.global_variables_initializer(), built.iterator.initializer])
            state = tf.train.get_checkpoint_state(directory)
            if state is not None:
                known = list(state.all_model_checkpoint_paths)
                saver.recover_last_checkpoints(known)
                latest = tf.train.latest_checkpoint(directory)
                saver.restore(session, known[-1 - back] if back < len(known) else latest)
                say("restored", int(session.run(global_step)), digest(built, session))
                for _ in range(int(session.run(global_step))):
                    session.run(built.batch)  # what was trained already
            while (step := int(session.run(global_step))) < STEPS:
                session.run(step_op)
                say("saving", step + 1, digest(built, session))
                is_delta = bool(settings) and step % 5 != 0
                saver.save(session, os.path.join(directory, "model"), global_step=step + 1, save_delta=is_delta)
                say("saved", step + 1)


def in_child(work):
    """Forks; the child does `work(write)` and exits. Returns (pid, file to read what it wrote)."""
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(source)
            out = os.fdopen(target, "w", buffering=1)
            with open(os.devnull, "w") as nothing:
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
    words = [line.split() for line in lines]
    assert os.waitpid(pid, 0)[1] == 0, words
    known = {step: fingerprint for what, step, *fingerprint in words if what == "saving"}
    assert len(known) == STEPS
    return known


def options_of(kind, home):
    options = dict(TABLES[kind])
    if "ssd_vocabulary_size" in options:
        options["ssd_data_path"] = [home]
    return options


def main(rounds=200, seed=0):
    choose = random.Random(seed)
    # In memory where that is possible: saves on a disk spend their time in fsync, and most kills would fall there.
    home = tempfile.mkdtemp(prefix="mxrec_kill_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    warm_up()
    try:
        for kind in TABLES:
            for name in ("oracle", "run"):
                shutil.rmtree(os.path.join(home, name), ignore_errors=True)
                os.mkdir(os.path.join(home, name))
            known = oracle(kind, home)
            compared = ended = inside = over = 0
            for _ in range(rounds // len(TABLES)):
                directory = os.path.join(home, "run")
                back = choose.choice((0, 1))
                pid, lines = in_child(lambda say, d=directory, k=kind, b=back: train(d, options_of(k, home), say, b))
                words = [lines.readline().split()]
                if words[0][0] == "restored":
                    words.append(lines.readline().split())
                time.sleep(choose.uniform(0.0, 0.08))
                os.kill(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                words += [line.split() for line in lines]
                for what, step, *fingerprint in words:
                    assert what != "failed", (step, fingerprint)
                    if what != "saved":
                        assert known[step] == fingerprint, f"{kind}: step {step} differs from the run nobody killed"
                        compared += 1
                inside += words[-1][0] == "saving"
                over += words[-1][0] == "saving" and words[0][0] == "restored" and back > 0 and len(words) == 2
                if os.WIFEXITED(status) or words[-1][1] == str(STEPS):  # it came to the end: begin anew
                    ended += 1
                    shutil.rmtree(directory)
                    os.mkdir(directory)
            print(
                f"{kind}: {rounds // len(TABLES)} rounds, {inside} killed inside a save, {over} of them over a "
                f"checkpoint of the same name; {compared} states compared, {ended} came to the end",
                flush=True,
            )
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
