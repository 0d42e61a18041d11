"""A training that one rank ends in its own way: python -m tests.ranks.faults CASE MARK. MARK finds its processes."""

import os
import signal
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

from mx_rec.util.initialize import get_rank_id, init
from tests.ranks.sessions import SIZE, Trainer

v1 = tf.compat.v1
RANK = get_rank_id()
ODD = RANK == SIZE - 1


def raises_between_steps(trainer, session):
    if ODD:
        raise RuntimeError("the script of this rank had enough")
    session.run(trainer.step)


def is_killed(trainer, session):
    if ODD:
        os.kill(os.getpid(), signal.SIGKILL)
    session.run(trainer.step)


def is_killed_inside_a_step(trainer, session):
    if ODD:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, wherever it is
    for _ in range(10**6):
        session.run([trainer.step], {trainer.scale: 0.0})
        if ODD:
            time.sleep(0.01)
    raise AssertionError("nothing has ended it")


def has_a_gradient_that_is_not_finite(trainer, session):
    session.run(trainer.step, {trainer.scale: np.inf if ODD else 1.0})


def fills_its_table(trainer, session):
    while True:
        session.run(trainer.step)


def ends_without_an_error(trainer, session):
    if ODD:
        sys.exit(0)
    session.run(trainer.step)


def evaluates_alone(trainer, session):
    if RANK == 0:
        session.run(trainer.rows)
    time.sleep(30)


def reads_rows_alone(trainer, session):
    if RANK == 0:
        trainer.table.read([1])
    time.sleep(30)


def saves_alone(trainer, session):
    if RANK == 0:
        trainer.saver.save(session, tempfile.mkdtemp() + "/model")
    time.sleep(30)


def main(name, mark):
    init()
    tf.compat.v1.disable_eager_execution()
    limit = 8 if name == "fills_its_table" else 1000
    keys = np.arange(4000).reshape(-1, 2) + 10_000 * RANK
    trainer = Trainer(keys=keys, device_vocabulary_size=limit * SIZE, rate=0.0)
    trainer.saver = v1.train.Saver()
    session = trainer.session()
    for _ in range(3):
        session.run(trainer.step)
    print("the ranks train", flush=True)
    globals()[name](trainer, session)
    print("it goes on", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
