"""Momentum, as TensorFlow's MomentumOptimizer computes it, on the touched rows.

a <- momentum a + g;  w <- w - lr a,  or with Nesterov  w <- w - lr (g + momentum a)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mx_rec import _check
from mx_rec.optimizers._base import SparseOptimizer, learning_rate_argument, learning_rate_now

if TYPE_CHECKING:
    import tensorflow as tf


def create_hash_optimizer(
    learning_rate: float | tf.Tensor | tf.Variable,
    momentum: float = 0.9,
    use_locking: bool = False,
    name: str = "Momentum",
    use_nesterov: bool = False,
) -> Momentum:
    """Returns a momentum optimizer; `momentum` is a float in [0, 1]."""
    _check.boolean("use_locking", use_locking)
    _check.boolean("use_nesterov", use_nesterov)
    return Momentum(learning_rate, _check.real("momentum", momentum, 0.0, 1.0), use_nesterov, name)


class Momentum(SparseOptimizer):
    rule = "momentum"

    def __init__(self, learning_rate, momentum, use_nesterov, name):
        super().__init__(name)
        self._learning_rate = learning_rate_argument(learning_rate)
        self._momentum = momentum
        self._use_nesterov = use_nesterov

    def _slot_specs(self):
        return [("Momentum_momentum", 0.0)]

    def _hyper(self):
        return [learning_rate_now(self._learning_rate), self._momentum, float(self._use_nesterov)]
