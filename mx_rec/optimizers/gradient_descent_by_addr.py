"""Gradient descent as scripts with dynamic expansion use it. Beware: its weight decay is on by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mx_rec import _check
from mx_rec.optimizers.gradient_descent import GradientDescent

if TYPE_CHECKING:
    import tensorflow as tf


def create_hash_optimizer_by_addr(
    learning_rate: float | tf.Tensor | tf.Variable,
    weight_decay: float = 0.0001,
    use_locking: bool = False,
    name: str = "GradientDescentByAddr",
) -> GradientDescent:
    """Returns a gradient descent optimizer; `weight_decay` is a float in [0, 1], 0.0 for none."""
    _check.boolean("use_locking", use_locking)
    return GradientDescent(learning_rate, _check.real("weight_decay", weight_decay, 0.0, 1.0), name)
