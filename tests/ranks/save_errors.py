"""Saves that ranks do not agree on, case after case, and what sessions keep: python -m tests.ranks.save_errors FOLDER.

Three ranks at least. Every rank checks that it gets the error, and prints "all cases passed" at the end.
"""

import contextlib
import os
import sys

import numpy as np
import tensorflow as tf

from tests.ranks.sessions import LAST, RANK, SIZE, Trainer, agreed, everyone, run
from tests.shared import model

v1 = tf.compat.v1


@contextlib.contextmanager
def fails(*words, kind):
    """The block raises that kind of error, with these words."""
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), error
    else:
        raise AssertionError(f"no error with {words}")


@contextlib.contextmanager
def working_in(folder):
    before = os.getcwd()
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def saves_that_differ(folder):
    with model.process():
        trainer = Trainer(keys=np.arange(40).reshape(-1, 2))
        other = model.table("item", rows=100)
        saver = v1.train.Saver()
        some = v1.train.Saver([trainer.weight, trainer.table.variable])
        path = str(folder / "model")
        with trainer.session() as session:
            session.run(trainer.step)
            saver.save(session, path, 1)
            before = model.dump(trainer.table)
            session.run(trainer.step)
            with fails("at step", "must save together", kind=RuntimeError):
                saver.save(session, path, 2 + (RANK == LAST))
            with fails("'item'", "must save together", kind=RuntimeError):
                (some if RANK == LAST else saver).save(session, path, 2)
            with fails("either all must give one path", "get_rank_id()", kind=ValueError):
                saver.save(session, path + ("-last" if RANK == LAST else ""), 2)
            with fails("Parent directory", kind=ValueError):
                saver.save(session, str(folder / "a" / "b" / "model") if RANK == LAST else path, 2)
            # One name, and another directory on each rank.
            with working_in(folder / str(RANK)), fails("does not see", "rank 0 has made", kind=OSError):
                saver.save(session, "/proc/self/cwd/model", 2)
            everyone("all have failed")
            assert not [one for one in folder.rglob(".*") if one.name != ".mx_rec-lock"]
            assert tf.train.latest_checkpoint(str(folder)) == f"{path}-1"
            assert model.dump(other)[0].size == 0
            saver.restore(session, f"{path}-1")
            for now, then in zip(model.dump(trainer.table), before):
                np.testing.assert_array_equal(now, then)
            session.run(trainer.step)
            saver.save(session, path, 3)
            assert agreed(tf.train.latest_checkpoint(str(folder))) == f"{path}-3"


def a_session_keeps_two_checkpoints(folder):
    with model.process():
        trainer = Trainer(keys=np.arange(40).reshape(-1, 2) % 30)
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, trainer.iterator.initializer)
        scaffold = v1.train.Scaffold(saver=v1.train.Saver(max_to_keep=2))
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=str(folder),
            is_chief=RANK == 0,
            scaffold=scaffold,
            save_checkpoint_steps=3,
            save_checkpoint_secs=None,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                session.run(trainer.step)
        everyone("ended")
        state = tf.train.get_checkpoint_state(str(folder))
        steps = [int(path.rpartition("-")[2]) for path in state.all_model_checkpoint_paths]
        assert len(steps) == 2 and steps[-1] == 20, steps
        assert sorted(path.stem for path in folder.glob("model.ckpt-*.index")) == sorted(
            f"model.ckpt-{step}" for step in steps
        )
        assert sorted(path.name for path in folder.glob("sparse-*")) == sorted(
            f"sparse-model.ckpt-{step}" for step in steps
        )


CASES = (saves_that_differ, a_session_keeps_two_checkpoints)


if __name__ == "__main__":
    assert SIZE >= 3
    run(CASES, *sys.argv[1:])
