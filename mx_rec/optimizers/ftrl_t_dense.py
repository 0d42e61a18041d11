"""FTRL-Proximal with decay for dense variables: the formula of ftrl_t."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from mx_rec import _check
from mx_rec._tables.anchors import table_of
from mx_rec._tf.optimizers import add_zeros
from mx_rec.optimizers._base import learning_rate_argument, learning_rate_now
from mx_rec.optimizers.ftrl_t import slot_names, strengths


def create_ftrl_dense_optimizer(
    learning_rate: float | tf.Tensor | tf.Variable | Callable[[], Any],
    use_locking: bool = False,
    name: str = "Ftrl_t_dense",
    alpha: float | tf.Tensor | tf.Variable | Callable[[], Any] = 0.06,
    beta: float = 1.0,
    lambda1: float = 0.0,
    lambda2: float = 0.0,
    epsilon: float = 0.0,
    grad_factor: float = 0.0,
    z_name: str | None = None,
    n_name: str | None = None,
    g_name: str | None = None,
) -> FtrlTDense:
    """Returns the optimizer, for TensorFlow's variables. Arguments as in ftrl_t; slots have the names z, n and g unless
    `z_name`, `n_name` or `g_name` says otherwise."""
    _check.boolean("use_locking", use_locking)
    learning_rate_argument(learning_rate)
    names = slot_names("", z_name, n_name, g_name)
    return FtrlTDense(name, alpha, strengths(beta, lambda1, lambda2, epsilon, grad_factor), names)


class FtrlTDense(tf.compat.v1.train.Optimizer):
    def __init__(self, name, alpha, numbers, slot_names):
        super().__init__(use_locking=False, name=_check.text("name", name, 200))
        self._learning_rate = learning_rate_argument(alpha)
        self._numbers = numbers
        self._slot_names = slot_names

    def _create_slots(self, var_list):
        for variable in var_list:
            table = table_of(variable)
            if table is not None:
                raise ValueError(
                    f"{self.get_name()} trains dense variables, got table '{table.table_name}'; use "
                    "mx_rec.optimizers.ftrl_t.create_hash_optimizer for tables"
                )
            for slot in self._slot_names:
                add_zeros(self, variable, slot)

    def _apply_dense(self, grad, var):
        z, n, mean = (self.get_slot(var, slot) for slot in self._slot_names)
        dtype = var.dtype.base_dtype
        alpha = tf.cast(learning_rate_now(self._learning_rate), dtype)
        beta, lambda1, lambda2, epsilon, factor = (tf.cast(number, dtype) for number in self._numbers)
        # All is read before anything is written.
        old_w, old_z, old_n, old_mean = (tf.identity(tensor) for tensor in (var, z, n, mean))
        new_mean = factor * old_mean + (1.0 - factor) * grad
        w = tf.where(tf.equal(old_n, 0.0), tf.zeros_like(old_w), old_w)
        rho = (tf.sqrt(old_n + new_mean**2) - tf.sqrt(old_n)) / alpha
        new_z = (1.0 - epsilon) * old_z + new_mean - rho * w
        new_n = (1.0 - epsilon) * old_n + new_mean**2
        divisor = (beta + tf.sqrt(new_n)) / alpha + lambda2
        new_w = tf.where(
            tf.abs(new_z) > lambda1,
            tf.math.divide_no_nan(tf.sign(new_z) * lambda1 - new_z, divisor),
            tf.zeros_like(new_z),
        )
        with tf.control_dependencies([new_w, new_z, new_n, new_mean]):
            pairs = ((var, new_w), (z, new_z), (n, new_n), (mean, new_mean))
            return tf.group(*(tf.compat.v1.assign(old, new) for old, new in pairs))

    def _resource_apply_dense(self, grad, handle):
        return self._apply_dense(grad, handle)

    def _apply_sparse_duplicate_indices(self, grad, var):
        return self._apply_dense(tf.convert_to_tensor(grad), var)

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        dense = tf.IndexedSlices(grad, indices, tf.shape(handle, out_type=indices.dtype))
        return self._apply_dense(tf.convert_to_tensor(dense), handle)
