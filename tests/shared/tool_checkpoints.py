"""Checkpoints that the command line's tools are tried on."""

import tensorflow as tf

from tests.shared import admission, model, training

v1 = tf.compat.v1

STEPS = (3, 6, 9)


def save_run(directory):
    """Saves the checkpoints of STEPS of a training; returns the rows of each as the tables had them in memory."""
    rows = {}
    with training.Run(model.batches(STEPS[-1])) as run:
        saver = v1.train.Saver(max_to_keep=10)
        for step in range(1, STEPS[-1] + 1):
            run.session.run(run.step)
            if step in STEPS:
                saver.save(run.session, str(directory / "model"), global_step=step)
                rows[step] = run.model.rows()
    return rows


def save_counted(directory):
    """Saves a checkpoint of table `t`, which counts its keys; returns {key: (count, time, step)}, all that it knows of
    them, and the keys that have rows."""
    data = admission.stream(20, 11)
    keys = admission.keys_and_counts(data)[0]
    with model.process():
        trainer = admission.train_all(data, access_threshold=4, eviction_threshold=60, faae_coefficient=3)
        v1.train.Saver().save(trainer.session, str(directory / "model"), global_step=20)
        known = dict(zip(keys.tolist(), zip(*(column.tolist() for column in trainer.table.native.history(keys)))))
        return known, trainer.table.native.keys().tolist()
