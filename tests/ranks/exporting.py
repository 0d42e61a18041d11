"""Two ranks train a small model and export it: python -m tests.ranks.exporting FOLDER.

Each writes FOLDER/rows-<rank>.npz: the rows that it holds at the end, and what the ranks were told of the exports.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf

from mx_rec._ranks import together
from mx_rec._tf.estimator import estimator
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers.gradient_descent import create_hash_optimizer
from mx_rec.util.initialize import get_rank_id
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model

v1 = tf.compat.v1
DIM = 4


def lookup(ids, is_train):
    table = create_table(tf.int64, DIM, "user", v1.truncated_normal_initializer(seed=4), device_vocabulary_size=1000)
    return table, sparse_lookup(table, ids, is_train=is_train, modify_graph=False)


def train_op(rows):
    _, sparse = get_dense_and_sparse_variable()
    gradients = tf.gradients(tf.reduce_sum(rows * rows), sparse)
    return create_hash_optimizer(0.1).apply_gradients(
        zip(gradients, sparse), global_step=v1.train.get_or_create_global_step()
    )


def by_session(folder):
    """Exports by simple_save, twice from one graph, and saves a checkpoint with its MetaGraph."""
    ids = v1.placeholder(tf.int64, [None], "ids")
    table, rows = lookup(ids, True)
    scale = v1.get_variable("scale", initializer=np.float32(2))
    served = tf.identity(sparse_lookup(table, ids, is_train=False, modify_graph=False) * scale, "served")
    step = train_op(rows)
    start_asc_pipeline()
    told = []
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for number in range(2):
            for k in range(5):
                session.run(step, {ids: np.arange(20) + 7 * k + 3 * get_rank_id() + 100 * number})
            directory = str(folder / f"served{number}")
            v1.saved_model.simple_save(session, directory, {"ids": ids}, {"rows": served})
            assert sorted(path.name for path in folder.glob("served?")) == [f"served{n}" for n in range(number + 1)]
            told.append(directory)
            keys, values = model.dump(table)
            np.savez(folder / f"served{number}-rows-{get_rank_id()}.npz", keys=keys, rows=values[:, 0])
        v1.train.Saver().save(session, str(folder / "checkpoint" / "model"), global_step=7)


def model_fn(features, labels, mode):
    del labels
    is_train = mode == estimator.ModeKeys.TRAIN
    _, rows = lookup(features["ids"], is_train)
    if mode == estimator.ModeKeys.PREDICT:
        return estimator.EstimatorSpec(mode, predictions={"rows": rows})
    return estimator.EstimatorSpec(mode, loss=tf.reduce_sum(rows), train_op=train_op(rows))


def by_estimator(folder):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices({"ids": np.arange(24, dtype=np.int64) + 10 * get_rank_id()}).batch(8)

    def receiver_fn():
        ids = v1.placeholder(tf.int64, [None])
        return estimator.export.ServingInputReceiver({"ids": ids}, {"ids": ids})

    one = estimator.Estimator(model_fn, model_dir=str(folder / "model_dir"))
    one.train(input_fn, max_steps=3)
    path = one.export_saved_model(str(folder / "exported"), receiver_fn).decode()
    assert together("paths", lambda: path) == [path, path]
    assert [child.name for child in (folder / "exported").iterdir()] == [pathlib.Path(path).name]


def main(folder):
    folder = pathlib.Path(folder)
    (folder / "checkpoint").mkdir(exist_ok=True)
    with model.process():
        by_session(folder)
    with model.process():
        by_estimator(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
