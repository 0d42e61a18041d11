"""Status codes of the core as Python exceptions."""

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


def check(code: int) -> None:
    """Raises the exception of a failed call of the C interface; returns if `code` is 0."""
    if code == 0:
        return
    from mx_rec._native import library

    message = library.core().mxrec_last_error().decode("utf-8", "replace")
    raise _EXCEPTIONS.get(code, RuntimeError)(message)
