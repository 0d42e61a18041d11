"""What each optimizer does to a row, as a formula in NumPy, and the cases in which it is compared with that."""

import dataclasses
from typing import Callable, Optional

import numpy as np
import pytest
import tensorflow as tf

from tests.shared.optimizers import FACTORIES

v1 = tf.compat.v1
START = 0.25  # of rows made by training


# ---- The rules. A row is [w, slot, slot]; a rule changes it in place. In double precision. ----


def descent_rule(decay=0.0):
    def rule(row, g, rate, t):
        row[0] -= rate * (g + decay * row[0])

    return rule


def adagrad_rule(epsilon=0.0):
    def rule(row, g, rate, t):
        row[1] += g**2
        row[0] -= rate * g / np.sqrt(row[1] + epsilon)

    return rule


def adam_rule(beta1=0.9, beta2=0.999, epsilon=1e-8):
    def rule(row, g, rate, t):
        row[1] = beta1 * row[1] + (1 - beta1) * g
        row[2] = beta2 * row[2] + (1 - beta2) * g**2
        corrected = rate * np.sqrt(1 - beta2**t) / (1 - beta1**t)
        row[0] -= corrected * row[1] / (np.sqrt(row[2]) + epsilon)

    return rule


def ftrl_rule(power=-0.5, l1=0.0, l2=0.0, shrinkage=0.0):
    def rule(row, g, rate, t):
        accumulator = row[1] + g**2
        sigma = (accumulator**-power - row[1] ** -power) / rate
        row[2] += g + 2 * shrinkage * row[0] - sigma * row[0]
        row[1] = accumulator
        outside = np.abs(row[2]) > l1
        row[0] = np.where(outside, (np.sign(row[2]) * l1 - row[2]) / (accumulator**-power / rate + 2 * l2), 0.0)

    return rule


def ftrl_t_rule(beta=1.0, lambda1=0.0, lambda2=0.0, epsilon=0.0, factor=0.0):
    def rule(row, g, rate, t):
        w = np.where(row[2] == 0, 0.0, row[0])
        row[3] = factor * row[3] + (1 - factor) * g
        row[1] = (1 - epsilon) * row[1] + row[3] - (np.sqrt(row[2] + row[3] ** 2) - np.sqrt(row[2])) / rate * w
        row[2] = (1 - epsilon) * row[2] + row[3] ** 2
        outside = np.abs(row[1]) > lambda1
        divisor = (beta + np.sqrt(row[2])) / rate + lambda2
        row[0] = np.where(outside, (np.sign(row[1]) * lambda1 - row[1]) / divisor, 0.0)

    return rule


def momentum_rule(factor=0.9, nesterov=False):
    def rule(row, g, rate, t):
        row[1] = factor * row[1] + g
        row[0] -= rate * (g + factor * row[1] if nesterov else row[1])

    return rule


# ---- The cases ----


@dataclasses.dataclass(frozen=True)
class Case:
    label: str
    create: Callable  # learning rate -> our optimizer
    rate: float
    rule: Callable
    slots: tuple[tuple[str, float], ...] = ()  # checkpoint name and initial value
    tensorflow: Optional[Callable] = None  # learning rate -> TensorFlow's optimizer
    tensorflow_slots: tuple[str, ...] = ()


ADAM_SLOTS = (("LazyAdam_momentum", 0.0), ("LazyAdam_velocity", 0.0))


def ftrl_case(label, rate, power=-0.5, initial=0.1, l1=0.0, l2=0.0, shrinkage=0.0):
    options = {
        "learning_rate_power": power,
        "initial_accumulator_value": initial,
        "l1_regularization_strength": l1,
        "l2_regularization_strength": l2,
        "l2_shrinkage_regularization_strength": shrinkage,
    }
    return Case(
        label,
        lambda r: FACTORIES["ftrl"](r, **options),
        rate,
        ftrl_rule(power, l1, l2, shrinkage),
        (("ftrl_accum", initial), ("ftrl_linear", 0.0)),
        lambda r: v1.train.FtrlOptimizer(r, **options),
        ("accum", "linear"),
    )


FTRL_T_SLOTS = (("ftrl_t_z", 0.0), ("ftrl_t_n", 0.0), ("ftrl_t_g", 0.0))


def momentum_case(label, rate, factor, nesterov):
    return Case(
        label,
        lambda r: FACTORIES["momentum"](r, momentum=factor, use_nesterov=nesterov),
        rate,
        momentum_rule(factor, nesterov),
        (("Momentum_momentum", 0.0),),
        lambda r: v1.train.MomentumOptimizer(r, factor, use_nesterov=nesterov),
        ("momentum",),
    )


PLAIN = Case(
    "descent",
    FACTORIES["gradient_descent"],
    0.1,
    descent_rule(),
    tensorflow=v1.train.GradientDescentOptimizer,
)
LAZY_ADAM = Case("lazy_adam", FACTORIES["lazy_adam"], 0.01, adam_rule(), ADAM_SLOTS)
ADAGRAD = Case(
    "adagrad",
    FACTORIES["adagrad"],
    0.1,
    adagrad_rule(),
    (("Adagrad_accumulator", 0.9),),
    lambda r: v1.train.AdagradOptimizer(r, initial_accumulator_value=0.9),
    ("accumulator",),
)
FTRL = ftrl_case("ftrl", 0.1)
MOMENTUM = momentum_case("momentum", 0.05, 0.9, False)

CASES = [
    PLAIN,
    Case(
        "descent_decayed",
        lambda r: FACTORIES["gradient_descent"](r, weight_decay=0.01),
        0.1,
        descent_rule(0.01),
    ),
    Case(
        "descent_by_addr",
        lambda r: FACTORIES["gradient_descent_by_addr"](r, weight_decay=0.0),
        0.1,
        descent_rule(),
        tensorflow=v1.train.GradientDescentOptimizer,
    ),
    Case(
        "descent_by_addr_decays_by_default",
        FACTORIES["gradient_descent_by_addr"],
        1.0,
        descent_rule(1e-4),
    ),
    ADAGRAD,
    Case(
        "adagrad_small_start",
        lambda r: FACTORIES["adagrad"](r, initial_accumulator_value=0.01),
        0.05,
        adagrad_rule(),
        (("Adagrad_accumulator", 0.01),),
        lambda r: v1.train.AdagradOptimizer(r, initial_accumulator_value=0.01),
        ("accumulator",),
    ),
    Case(
        "adagrad_by_addr",
        FACTORIES["adagrad_by_addr"],
        0.1,
        adagrad_rule(1e-7),
        (("Adagrad_accumulator", 0.9),),
    ),
    LAZY_ADAM,
    Case(
        "lazy_adam_fast",
        lambda r: FACTORIES["lazy_adam"](r, beta1=0.5, beta2=0.9, epsilon=1e-3),
        0.05,
        adam_rule(0.5, 0.9, 1e-3),
        ADAM_SLOTS,
    ),
    Case("lazy_adam_by_addr", FACTORIES["lazy_adam_by_addr"], 0.01, adam_rule(), ADAM_SLOTS),
    Case("ftrl_t", lambda r: FACTORIES["ftrl_t"](0.01, alpha=r), 0.06, ftrl_t_rule(), FTRL_T_SLOTS),
    Case(
        "ftrl_t_decayed",
        lambda r: FACTORIES["ftrl_t"](
            0.01, alpha=r, beta=0.5, lambda1=0.01, lambda2=0.1, epsilon=0.01, grad_factor=0.3
        ),
        0.5,
        ftrl_t_rule(0.5, 0.01, 0.1, 0.01, 0.3),
        FTRL_T_SLOTS,
    ),
    FTRL,
    ftrl_case("ftrl_l1", 0.1, l1=0.05),
    ftrl_case("ftrl_l2", 0.5, initial=1.0, l2=0.3),
    ftrl_case("ftrl_shrinkage", 0.1, l1=0.01, l2=0.1, shrinkage=0.05),
    ftrl_case("ftrl_power", 0.1, power=-0.3, l1=0.01, shrinkage=0.02),
    ftrl_case("ftrl_power_one", 0.5, power=-1.0, l2=0.1),
    ftrl_case("ftrl_power_zero", 0.1, power=0.0, l1=0.01, l2=0.1),
    MOMENTUM,
    momentum_case("momentum_nesterov", 0.05, 0.9, True),
    momentum_case("momentum_heavy", 0.01, 0.99, False),
]
ONE_OF_EACH = [PLAIN, ADAGRAD, LAZY_ADAM, FTRL, MOMENTUM]


def each(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.label)
