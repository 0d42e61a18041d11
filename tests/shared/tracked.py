"""A training with admission and eviction, on ids that are fed, so that it can be cut anywhere."""

import numpy as np
import tensorflow as tf

from mx_rec.core.embedding import sparse_lookup
from mx_rec.core.feature_process import evict
from tests.shared import model

v1 = tf.compat.v1
KEYS = 3000


class Tracked:
    """Training with admission, eviction by time and by count, on fed ids."""

    def __init__(self, create, policies, **options):
        self.table = model.table("t", v1.truncated_normal_initializer(seed=2), **options)
        self.ids, self.time = v1.placeholder(tf.int64, [None]), v1.placeholder(tf.int64, [])
        v1.add_to_collection("ASCEND_TIMESTAMP", self.time)
        config = {"access_threshold": 2, "eviction_threshold": 60}
        embeddings = sparse_lookup(self.table, self.ids, access_and_evict_config=config)
        loss = tf.reduce_sum(tf.square(embeddings - 1.0))
        gradient = tf.gradients(loss, [self.table.variable])[0]
        self.loss, self.step = loss, create().apply_gradients([(gradient, self.table.variable)])
        self.policies = policies
        self.saver = v1.train.Saver()

    def train(self, session, steps, begin=0):
        losses = []
        keys = model.vocabulary(KEYS)
        for i in range(begin, begin + steps):
            ids = model.zipf(np.random.RandomState(i), keys, 100)
            losses.append(session.run([self.loss, self.step], {self.ids: ids, self.time: 1000 + i})[0])
            if i % 40 == 39:
                evict()
            if i % 90 == 89:
                for policy in self.policies:
                    evict(**policy)
        return losses

    def outcome(self):
        keys, rows = model.dump(self.table)
        stats = self.table.stats()
        numbers = [stats[name] for name in ("rows", "seen", "admitted", "refused", "evicted", "candidates")]
        return {"t": (keys, rows)}, [part.tolist() for part in self.table.native.history(keys)], numbers
