"""Training runs that tests compare: ways to feed them, and what comes out."""

import dataclasses

import numpy as np
import tensorflow as tf

from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model
from tests.shared.optimizers import OPTIMIZERS

v1 = tf.compat.v1

STEPS = 20
# How far ahead of the steps, and in how many threads, batches are prepared.
PIPELINES = {
    "prefetch_1": lambda dataset, insert: dataset.map(insert).prefetch(1),
    "prefetch_50": lambda dataset, insert: dataset.map(insert).prefetch(50),
    "parallel_map": lambda dataset, insert: dataset.map(insert, num_parallel_calls=4).prefetch(50),
    "two_prefetches": lambda dataset, insert: dataset.prefetch(5).map(insert, num_parallel_calls=2).prefetch(7),
}


@dataclasses.dataclass
class Outcome:
    losses: list
    weight: np.ndarray
    rows: dict  # of every table

    def assert_same(self, other):
        np.testing.assert_array_equal(self.losses, other.losses)
        np.testing.assert_array_equal(self.weight, other.weight)
        model.assert_same_rows(self.rows, other.rows)


class Run:
    """The model of model.py with a dense weight, in a graph and session of its own; use it as a context manager."""

    def __init__(
        self, data, create=OPTIMIZERS["lazy_adam"], pipeline=model.map_only, evaluation=None, tables=None, **settings
    ):
        self._data, self._create, self._pipeline, self._evaluation = data, create, pipeline, evaluation
        self._tables = tables or {}  # options of create_table
        self._process = model.process(**settings)

    def __enter__(self):
        self._process.__enter__()
        try:
            initializer = v1.truncated_normal_initializer(stddev=0.3, seed=3)
            self.weight = v1.get_variable("weight", initializer=np.linspace(0.5, 1.5, model.DIM, dtype=np.float32))
            self.model = model.build(self._data, self._pipeline, initializer, weight=self.weight, **self._tables)
            dense, sparse = get_dense_and_sparse_variable()
            gradients = tf.gradients(self.model.loss, dense + sparse)
            self.step = tf.group(
                v1.train.AdamOptimizer(0.01).apply_gradients(zip(gradients[: len(dense)], dense)),
                self._create().apply_gradients(zip(gradients[len(dense) :], sparse)),
            )
            self.eval = None
            if self._evaluation is not None:
                self.eval = model.build(
                    self._evaluation, initializer=initializer, is_train=False, weight=self.weight, **self._tables
                )
            self.saver = v1.train.Saver()
            self.session = v1.Session()
            self.session.run([v1.global_variables_initializer(), self.model.iterator.initializer])
        except BaseException:
            self._process.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *failure):
        self.session.close()
        self._process.__exit__(*failure)

    def train(self, steps=STEPS, feeds=None, between=None):
        """The outcome after `steps` more steps; step i takes the batch feeds[i] instead of the dataset's.

        `between(run, i)` is called before step i.
        """
        losses = []
        for i in range(steps):
            if between is not None:
                between(self, i)
            feed = {} if feeds is None else {self.model.batch[name]: value for name, value in feeds[i].items()}
            losses.append(self.session.run([self.model.loss, self.step], feed)[0])
        return Outcome(losses, self.session.run(self.weight), self.model.rows())

    def prepare(self, steps=STEPS):
        """The next `steps` batches as the dataset prepares them now."""
        return [self.session.run(self.model.batch) for _ in range(steps)]

    def evaluate(self):
        """The losses of one pass over the evaluation data."""
        self.session.run(self.eval.iterator.initializer)
        losses = []
        while True:
            try:
                losses.append(self.session.run(self.eval.loss))
            except tf.errors.OutOfRangeError:
                return losses


def trained(data, *args, **options):
    with Run(data, *args, **options) as run:
        return run.train()
