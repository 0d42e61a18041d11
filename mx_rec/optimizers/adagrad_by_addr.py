"""Adagrad as scripts with dynamic expansion use it: the denominator is sqrt(acc + 1e-7)."""

from mx_rec.optimizers.adagrad import Adagrad


def create_hash_optimizer_by_address(learning_rate=0.001, initial_accumulator_value=0.9, name="Adagrad"):
    """An Adagrad optimizer. Rows may be given by address or by variable, as with every optimizer here."""
    return Adagrad(learning_rate, initial_accumulator_value, 1e-7, name)
