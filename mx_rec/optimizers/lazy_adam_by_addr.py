"""LazyAdam under the name that scripts with dynamic expansion use. The same optimizer: see lazy_adam."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mx_rec.optimizers.lazy_adam import LazyAdam

if TYPE_CHECKING:
    import tensorflow as tf


def create_hash_optimizer_by_address(
    learning_rate: float | tf.Tensor | tf.Variable = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    name: str = "LazyAdamByAddress",
) -> LazyAdam:
    """Returns a LazyAdam optimizer. Rows may be given by address or by variable, as with every optimizer here."""
    return LazyAdam(learning_rate, beta1, beta2, epsilon, name)
