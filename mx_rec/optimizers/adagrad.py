"""Adagrad.

acc <- acc + g^2;  w <- w - lr g / sqrt(acc)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mx_rec import _check
from mx_rec.optimizers._base import SparseOptimizer, learning_rate_argument, learning_rate_now

if TYPE_CHECKING:
    import tensorflow as tf


def create_hash_optimizer(
    learning_rate: float | tf.Tensor | tf.Variable = 0.001,
    initial_accumulator_value: float = 0.9,
    use_locking: bool = False,
    name: str = "Adagrad",
) -> Adagrad:
    """Returns an Adagrad optimizer. `use_locking` is accepted; rows are never updated by two threads at once."""
    _check.boolean("use_locking", use_locking)
    return Adagrad(learning_rate, initial_accumulator_value, 0.0, name)


class Adagrad(SparseOptimizer):
    rule = "adagrad"

    def __init__(self, learning_rate, initial_accumulator_value, epsilon, name):
        super().__init__(name)
        self._learning_rate = learning_rate_argument(learning_rate)
        self._initial = _check.real("initial_accumulator_value", initial_accumulator_value, 0.0, 1.0, low_open=True)
        self._epsilon = epsilon

    def _slot_specs(self):
        return [("Adagrad_accumulator", self._initial)]

    def _hyper(self):
        return [learning_rate_now(self._learning_rate), self._epsilon]
