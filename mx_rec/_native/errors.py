"""Status codes of the core as Python exceptions."""

from typing import Callable

# native/base/status.h
_EXCEPTIONS = {
    1: ValueError,  # invalid argument
    2: KeyError,  # not found
    3: ValueError,  # already exists
    4: MemoryError,  # resource exhausted
    5: RuntimeError,  # failed precondition
    6: ValueError,  # data loss
    7: OSError,  # input/output
}


def check(code: int, last_error: Callable[[], bytes]) -> None:
    """Raises the exception of a failed call of the C interface, whose message `last_error` gives; returns if `code` is
    0."""
    if code != 0:
        raise _EXCEPTIONS.get(code, RuntimeError)(last_error().decode("utf-8", "replace"))
