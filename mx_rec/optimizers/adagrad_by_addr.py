"""Adagrad as scripts with dynamic expansion use it: the denominator is sqrt(acc + 1e-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mx_rec.optimizers.adagrad import Adagrad

if TYPE_CHECKING:
    import tensorflow as tf


def create_hash_optimizer_by_address(
    learning_rate: float | tf.Tensor | tf.Variable = 0.001,
    initial_accumulator_value: float = 0.9,
    name: str = "Adagrad",
) -> Adagrad:
    """Returns an Adagrad optimizer. Rows may be given by address or by variable, as with every optimizer here."""
    return Adagrad(learning_rate, initial_accumulator_value, 1e-7, name)
