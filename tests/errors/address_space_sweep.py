"""Trains while the process may take only so much more memory: `python -m tests.errors.address_space_sweep <steps>`.

Every step either succeeds or is a ResourceExhaustedError after which no table has changed in a bit; with the limit
lifted, the same batch trains as if nothing had happened.
"""

import gc
import resource
import sys

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers import gradient_descent
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

v1 = tf.compat.v1
KEYS, DIM, RATE = 50_000, 16, 0.5


def limit(extra):
    """Lets the process take `extra` bytes more than it has; None: as many as there are."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard if extra is None else now + extra, hard))


class Model:
    def __init__(self):
        self.ids = v1.placeholder(tf.int64, [None, None])
        one = tf.ones_initializer()
        self.tables = [create_table(key_dtype=tf.int64, dim=DIM, name=name, emb_initializer=one) for name in "ab"]
        # A pooled lookup and one without, in tables of their own.
        outputs = [
            sparse_lookup(self.tables[0], self.ids),
            tf.reduce_sum(sparse_lookup(self.tables[1], self.ids), axis=-2),
        ]
        loss = sum(tf.reduce_sum(output) for output in outputs)
        _, sparse = get_dense_and_sparse_variable()
        optimizer = gradient_descent.create_hash_optimizer(learning_rate=RATE)
        self.train = optimizer.apply_gradients(zip(tf.gradients(loss, sparse), sparse))
        start_asc_pipeline()
        self.session = v1.Session()
        self.session.run(v1.global_variables_initializer())

    def state(self, keys):
        facts = [table.native.facts() for table in self.tables]
        rows = [table.native.read(keys)[0] for table in self.tables]
        return [(fact.rows, fact.inserted, fact.mutations) for fact in facts], rows


def same(a, b):
    return a[0] == b[0] and all(np.array_equal(x, y) for x, y in zip(a[1], b[1]))


def main():
    steps = int(sys.argv[1])
    init(use_dynamic_expansion=True)
    failed = 0
    with tf.Graph().as_default():
        model = Model()
        known = np.arange(1000)
        # Several times: a thread of TensorFlow that waits for another one for the first time needs memory, and where
        # there is none, ends the process.
        trained = 20
        for _ in range(trained):
            model.session.run(model.train, {model.ids: known.reshape(100, 10)})
        for step in range(steps):
            # Known keys and new ones; each step more than the ones before, so that memory kept from them does not do.
            new = np.arange(KEYS + 25_000 * step) + (step + 1) * 10_000_000
            ids = np.concatenate([known, new]).reshape(-1, 10)
            before = model.state(known)
            gc.collect()
            limit(step * 7 % 40 << 20)
            try:
                model.session.run(model.train, {model.ids: ids})
                outcome = "trained"
            except tf.errors.ResourceExhaustedError as error:
                outcome = "refused: " + " ".join(error.message.split())[:120]
            finally:
                limit(None)
            print(step, outcome, flush=True)
            if outcome != "trained":
                failed += 1
                assert same(before, model.state(known)), "the failed step has changed a table"
                model.session.run(model.train, {model.ids: ids})
            trained += 1
            for table in model.tables:
                rows, found = table.native.read(new)
                assert found.all() and (rows == 1 - RATE).all(), "new rows"
                assert (table.native.read(known)[0] == 1 - RATE * trained).all(), "known rows"
    terminate_config_initializer()
    assert failed > 0, "no step ran out of memory"
    print("survived", failed, "of", steps)


if __name__ == "__main__":
    main()
