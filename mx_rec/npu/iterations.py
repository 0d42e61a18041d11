"""Steps per run of a session."""

from typing import Any, TypeVar

from mx_rec import _check

__all__ = ["set_iteration_per_loop"]

_T = TypeVar("_T")


def set_iteration_per_loop(sess: Any, train_op: _T, iterations_per_loop: int = 1) -> _T:
    """Returns an op that makes `iterations_per_loop` training steps in one run of `sess`, which must be 1 here.

    The vendor's device loops over `train_op` by itself. TensorFlow cannot repeat an op that exists, and to make fewer
    steps than the script asks for would go unnoticed: so a larger number is a ValueError.
    """
    del sess
    _check.integer("iterations_per_loop", iterations_per_loop, 1, _check.MAX_INT32)
    if iterations_per_loop > 1:
        raise ValueError(
            f"`iterations_per_loop` must be 1 on this machine, got {iterations_per_loop}: each run of a session is one "
            f"step. Pass 1, and run the op {iterations_per_loop} times as often"
        )
    return train_op
