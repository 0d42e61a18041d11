"""FTRL-Proximal, as TensorFlow's FtrlOptimizer computes it.

n' = n + g^2;  sigma = (n'^-p - n^-p) / lr  with p = learning_rate_power
z <- z + (g + 2 l2_shrinkage w) - sigma w
w <- (sign(z) l1 - z) / (n'^-p / lr + 2 l2)  if |z| > l1, else 0
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
    name: str = "Ftrl",
    learning_rate_power: float = -0.5,
    initial_accumulator_value: float = 0.1,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    l2_shrinkage_regularization_strength: float = 0.0,
    accum_name: str | None = None,
    linear_name: str | None = None,
) -> Ftrl:
    """Returns an FTRL optimizer. `accum_name` and `linear_name` name its slots in checkpoints."""
    _check.boolean("use_locking", use_locking)
    return Ftrl(
        learning_rate,
        name,
        _check.real("learning_rate_power", learning_rate_power, -float(_check.MAX_INT32), 0.0),
        _check.real("initial_accumulator_value", initial_accumulator_value, 0.0, 1.0, low_open=True),
        [
            _check.real(f"{label}_regularization_strength", strength, 0.0, 1e4)
            for label, strength in (
                ("l1", l1_regularization_strength),
                ("l2", l2_regularization_strength),
                ("l2_shrinkage", l2_shrinkage_regularization_strength),
            )
        ],
        "ftrl_accum" if accum_name is None else _check.text("accum_name", accum_name, 255),
        "ftrl_linear" if linear_name is None else _check.text("linear_name", linear_name, 255),
    )


class Ftrl(SparseOptimizer):
    rule = "ftrl"

    def __init__(self, learning_rate, name, power, initial, strengths, accum_name, linear_name):
        super().__init__(name)
        self._learning_rate = learning_rate_argument(learning_rate)
        self._power = power
        self._strengths = strengths
        self._slots_in_row = [(accum_name, initial), (linear_name, 0.0)]

    def _slot_specs(self):
        return self._slots_in_row

    def _hyper(self):
        return [learning_rate_now(self._learning_rate), self._power, *self._strengths]
