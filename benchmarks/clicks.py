"""Clicks: labelled samples for the end-to-end benchmark, with the ids of workload w1 and a signal to learn.

Every row of every table has a hidden weight, drawn from its key; a label is 1 with probability
sigmoid(sum of the sample's weights). Nothing but the ids tells the weights, so a model must learn them row by row.
"""

import dataclasses

import numpy as np

from benchmarks import workloads

INITIAL = 0.01  # of all embeddings, in every system: the runs then differ in nothing but arithmetic
_HELD_OUT = 16  # batches
_STRENGTH = 0.4


@dataclasses.dataclass(frozen=True)
class Batches:
    indices: np.ndarray  # [n, tables, examples]
    labels: np.ndarray  # [n, examples] float32


class Clicks:
    """`training`: how many batches come before the AUC is taken; at most all that are not held out."""

    def __init__(self, scale: int, training: int):
        self._training = training
        self.work = workloads.get("w1", scale)
        self.shape = (self.work.tables, self.work.examples)
        indices = self.work.indices()
        self.train = self._label(indices[_HELD_OUT:])
        self.held_out = self._label(indices[:_HELD_OUT])

    def keys(self, batches: Batches) -> np.ndarray:
        """The batches' ids for hash systems."""
        return np.stack([workloads.key_of(table, batches.indices[:, table]) for table in range(self.work.tables)], 1)

    def auc_after_training(self, step, held_out_logits) -> float:
        """Trains on the first batches, by `step(i)`; returns the AUC of the logits of the held-out ones."""
        for i in range(self._training):
            step(i)
        logits = np.concatenate([np.ravel(held_out_logits(i)) for i in range(len(self.held_out.labels))])
        return auc(self.held_out.labels.ravel(), logits)

    def _label(self, indices):
        logit = np.zeros((len(indices), self.work.examples))
        for table in range(self.work.tables):
            bits = workloads.key_of(table + 1000, indices[:, table])  # another stream than the keys themselves
            logit += _STRENGTH * np.sqrt(12) * (bits / 2**63 - 0.5)
        chance = np.random.default_rng(indices.shape[0]).random(logit.shape)
        return Batches(indices, (chance < 1 / (1 + np.exp(-logit))).astype(np.float32))


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """The probability that a positive sample scores above a negative one; ties count half."""
    _, group, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[group]
    positive = labels > 0.5
    n, m = positive.sum(), (~positive).sum()
    return float((rank[positive].sum() - n * (n + 1) / 2) / (n * m))
