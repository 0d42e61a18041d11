"""FTRL-Proximal with decay, an optimizer of older scripts.

    m <- grad_factor m + (1 - grad_factor) g;  rho = (sqrt(n + m^2) - sqrt(n)) / alpha
    z <- (1 - epsilon) z + m - rho w;  n <- (1 - epsilon) n + m^2
    w <- (sign(z) lambda1 - z) / ((beta + sqrt(n)) / alpha + lambda2)  if |z| > lambda1, else 0

A row's first update takes its w for 0, whatever the table's initializer gave. ftrl_t_dense has it for dense variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from mx_rec import _check
from mx_rec.optimizers._base import SparseOptimizer, learning_rate_argument, learning_rate_now

if TYPE_CHECKING:
    import tensorflow as tf


def create_hash_optimizer(
    learning_rate: float | tf.Tensor | tf.Variable | Callable[[], Any],
    use_locking: bool = False,
    name: str = "Ftrl_t",
    alpha: float | tf.Tensor | tf.Variable | Callable[[], Any] = 0.06,
    beta: float = 1.0,
    lambda1: float = 0.0,
    lambda2: float = 0.0,
    epsilon: float = 0.0,
    grad_factor: float = 0.0,
    z_name: str | None = None,
    n_name: str | None = None,
    g_name: str | None = None,
) -> FtrlT:
    """Returns the optimizer.

    Args:
        learning_rate: checked and not used: `alpha` is the learning rate, a float in [0, 10], a Tensor, a variable or a
            callable.
        beta, lambda1, lambda2: floats in [0, 1e4].
        epsilon, grad_factor: floats in [0, 1].
        z_name, n_name, g_name: names of the slots in checkpoints instead of ftrl_t_z, ftrl_t_n and ftrl_t_g.
    """
    _check.boolean("use_locking", use_locking)
    learning_rate_argument(learning_rate)
    names = slot_names("ftrl_t_", z_name, n_name, g_name)
    return FtrlT(name, alpha, strengths(beta, lambda1, lambda2, epsilon, grad_factor), names)


def slot_names(prefix, *given) -> list[str]:
    """Returns the names of the slots z, n and g, checked; those that are not given are their letters after `prefix`."""
    return [
        prefix + slot if name is None else _check.text(f"{slot}_name", name, 255) for slot, name in zip("zng", given)
    ]


def strengths(beta, lambda1, lambda2, epsilon, grad_factor) -> list[float]:
    """Returns the numbers of the formula besides `alpha`, checked."""
    return [
        _check.real("beta", beta, 0.0, 1e4),
        _check.real("lambda1", lambda1, 0.0, 1e4),
        _check.real("lambda2", lambda2, 0.0, 1e4),
        _check.real("epsilon", epsilon, 0.0, 1.0),
        _check.real("grad_factor", grad_factor, 0.0, 1.0),
    ]


class FtrlT(SparseOptimizer):
    rule = "ftrl_t"

    def __init__(self, name, alpha, numbers, slot_names):
        super().__init__(name)
        self._learning_rate = learning_rate_argument(alpha)
        self._numbers = numbers
        self._slot_names = slot_names

    def _slot_specs(self):
        return [(name, 0.0) for name in self._slot_names]

    def _hyper(self):
        return [learning_rate_now(self._learning_rate), *self._numbers]
