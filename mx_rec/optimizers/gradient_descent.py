"""Stochastic gradient descent with optional weight decay on the touched rows.

w <- w - lr (g + weight_decay w)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mx_rec import _check
from mx_rec.optimizers._base import SparseOptimizer, learning_rate_argument, learning_rate_now

if TYPE_CHECKING:
    import tensorflow as tf


def create_hash_optimizer(
    learning_rate: float | tf.Tensor | tf.Variable,
    use_locking: bool = False,
    name: str = "GradientDescent",
    use_fusion_optim: bool = False,
    weight_decay: float | None = None,
) -> GradientDescent:
    """Returns a gradient descent optimizer. `weight_decay` is None or a float in [1e-5, 1e-2]."""
    _check.boolean("use_locking", use_locking)
    _check.boolean("use_fusion_optim", use_fusion_optim)
    if weight_decay is not None:
        _check.real("weight_decay", weight_decay, 1e-5, 1e-2)
    return GradientDescent(learning_rate, weight_decay or 0.0, name)


class GradientDescent(SparseOptimizer):
    rule = "gradient_descent"

    def __init__(self, learning_rate, weight_decay, name):
        super().__init__(name)
        self._learning_rate = learning_rate_argument(learning_rate)
        self._weight_decay = weight_decay

    def _slot_specs(self):
        return []

    def _hyper(self):
        return [learning_rate_now(self._learning_rate), self._weight_decay]
