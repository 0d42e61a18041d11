"""The optimizers of tables: all there are, and each with the settings under which every law is tried."""

import pytest

from mx_rec.optimizers import (
    adagrad,
    adagrad_by_addr,
    ftrl,
    ftrl_t,
    gradient_descent,
    gradient_descent_by_addr,
    lazy_adam,
    lazy_adam_by_addr,
    momentum,
)

FACTORIES = {  # by module of mx_rec.optimizers
    "adagrad": adagrad.create_hash_optimizer,
    "adagrad_by_addr": adagrad_by_addr.create_hash_optimizer_by_address,
    "ftrl": ftrl.create_hash_optimizer,
    "ftrl_t": ftrl_t.create_hash_optimizer,
    "gradient_descent": gradient_descent.create_hash_optimizer,
    "gradient_descent_by_addr": gradient_descent_by_addr.create_hash_optimizer_by_addr,
    "lazy_adam": lazy_adam.create_hash_optimizer,
    "lazy_adam_by_addr": lazy_adam_by_addr.create_hash_optimizer_by_address,
    "momentum": momentum.create_hash_optimizer,
}
OPTIMIZERS = {
    "adagrad": lambda: FACTORIES["adagrad"](0.1),
    "adagrad_by_addr": lambda: FACTORIES["adagrad_by_addr"](0.1),
    "ftrl": lambda: FACTORIES["ftrl"](0.1, l1_regularization_strength=0.01),
    "ftrl_t": lambda: FACTORIES["ftrl_t"](0.01, alpha=0.05, lambda1=0.01, epsilon=0.01, grad_factor=0.3),
    "gradient_descent": lambda: FACTORIES["gradient_descent"](0.1, weight_decay=0.01),
    "gradient_descent_by_addr": lambda: FACTORIES["gradient_descent_by_addr"](0.1),
    "lazy_adam": lambda: FACTORIES["lazy_adam"](0.01),
    "lazy_adam_by_addr": lambda: FACTORIES["lazy_adam_by_addr"](0.01),
    "momentum": lambda: FACTORIES["momentum"](0.05),
    "momentum_nesterov": lambda: FACTORIES["momentum"](0.05, use_nesterov=True),
}
every_optimizer = pytest.mark.parametrize("create", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
