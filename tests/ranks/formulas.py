"""Trains with every rule, each rank with its part of every batch: python -m tests.ranks.formulas FOLDER.

Writes FOLDER/<case>-<rank>.npz: this rank's rows of every table.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf

from mx_rec.util.initialize import get_rank_id, get_rank_size
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.ranks.training import mine
from tests.shared import model
from tests.shared.formulas import every_key, first_rows
from tests.shared.optimizer_cases import CASES, START

v1 = tf.compat.v1

STEPS, BATCH = 200, 24  # a batch can be dealt out to 2, 3 and 4 ranks
# The case of each module of mx_rec.optimizers: what the others try is the same code.
LABELS = {
    "adagrad": "adagrad",
    "adagrad_by_addr": "adagrad_by_addr",
    "ftrl": "ftrl_l1",
    "ftrl_t": "ftrl_t_decayed",
    "gradient_descent": "descent",
    "gradient_descent_by_addr": "descent_by_addr",
    "lazy_adam": "lazy_adam",
    "lazy_adam_by_addr": "lazy_adam_by_addr",
    "momentum": "momentum",
}
CHOSEN = [case for case in CASES if case.label in LABELS.values()]


def batches():
    """The data of all ranks."""
    return model.batches(STEPS, batch=BATCH)


def train(case):
    """{table: (keys, values)} of this rank."""
    with model.process(), v1.Session() as session:
        data = {name: array.reshape(STEPS, BATCH, *array.shape[1:]) for name, array in batches().items()}
        part = {name: array.reshape(-1, *array.shape[2:]) for name, array in mine(data, 1).items()}
        built = model.build(part, initializer=v1.constant_initializer(START), batch=BATCH // get_rank_size())
        sparse = get_dense_and_sparse_variable()[1]
        # The mean over this rank's part, and its share of the mean over the batch.
        gradients = tf.gradients(built.loss / get_rank_size(), sparse)
        step = case.create(case.rate).apply_gradients(zip(gradients, sparse))
        for name, rows in first_rows(every_key(batches())).items():
            built.tables[name].assign(np.array([*rows], np.int64), np.stack([*rows.values()]))
        session.run([v1.global_variables_initializer(), built.iterator.initializer])
        for _ in range(STEPS):
            session.run(step)
        return built.rows()


def main(folder):
    for case in CHOSEN:
        arrays = {
            f"{table}/{what}": array
            for table, pair in train(case).items()
            for what, array in zip(("keys", "values"), pair)
        }
        np.savez(pathlib.Path(folder, f"{case.label}-{get_rank_id()}.npz"), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
