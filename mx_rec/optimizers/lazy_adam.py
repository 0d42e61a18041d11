"""LazyAdam: Adam on the rows that a batch touches; the moments of other rows do not decay.

    m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2
    w <- w - lr sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)

t counts the steps of the optimizer, not of the row.
"""

from __future__ import annotations

import tensorflow as tf

from mx_rec import _check
from mx_rec._tables import graphs
from mx_rec.optimizers._base import SparseOptimizer, learning_rate_argument, learning_rate_now


def create_hash_optimizer(
    learning_rate: float | tf.Tensor | tf.Variable = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    name: str = "LazyAdam",
    use_fusion_optim: bool = False,
) -> LazyAdam:
    """Returns a LazyAdam optimizer. `use_fusion_optim` is accepted; the update is always one fused pass."""
    _check.boolean("use_fusion_optim", use_fusion_optim)
    return LazyAdam(learning_rate, beta1, beta2, epsilon, name)


class LazyAdam(SparseOptimizer):
    rule = "lazy_adam"

    def __init__(self, learning_rate, beta1, beta2, epsilon, name):
        super().__init__(name)
        # Under the name that TensorFlow's Adam has for it: scripts that scale the loss divide it by the scale.
        self._lr = learning_rate_argument(learning_rate)
        self._beta1 = _check.real("beta1", beta1, 0.0, 1.0, low_open=True, high_open=True)
        self._beta2 = _check.real("beta2", beta2, 0.0, 1.0)
        self._epsilon = _check.real("epsilon", epsilon, 0.0, 1.0, low_open=True)

    def _slot_specs(self):
        return [("LazyAdam_momentum", 0.0), ("LazyAdam_velocity", 0.0)]

    def _power_variables(self):
        """Returns the variables beta1^t and beta2^t of the default graph."""
        known = graphs.state().optimizer_variables
        if self not in known:
            with tf.name_scope(""), tf.control_dependencies(None):
                known[self] = tuple(
                    tf.compat.v1.Variable(
                        value, name=f"{self.get_name()}_{label}", trainable=False, dtype=tf.float32, use_resource=True
                    )
                    for label, value in (("beta1_power", self._beta1), ("beta2_power", self._beta2))
                )
        return known[self]

    def _hyper(self):
        # In float32 and in this order, as TensorFlow's Adam computes it.
        beta1_power, beta2_power = (variable.read_value() for variable in self._power_variables())
        rate = tf.cast(learning_rate_now(self._lr), tf.float32)
        return [rate * tf.sqrt(1.0 - beta2_power) / (1.0 - beta1_power), self._beta1, self._beta2, self._epsilon]

    def _after_step(self):
        beta1_power, beta2_power = self._power_variables()
        return [
            beta1_power.assign(beta1_power * self._beta1, read_value=False),
            beta2_power.assign(beta2_power * self._beta2, read_value=False),
        ]


class CustomizedLazyAdam(LazyAdam):
    """LazyAdam under the name that scripts make it by, with all of its defaults."""

    def __init__(
        self,
        learning_rate: float | tf.Tensor | tf.Variable = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "LazyAdam",
    ) -> None:
        _check.boolean("use_locking", use_locking)
        super().__init__(learning_rate, beta1, beta2, epsilon, name)
