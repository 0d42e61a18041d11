"""One save at a time that goes on in the background while the script trains."""

import contextlib
import contextvars
import threading
from typing import Callable, Optional

from mx_rec.saver import _files

_lock = threading.Lock()
_thread: Optional[threading.Thread] = None
_failure: Optional[tuple[str, BaseException]] = None
_foreground: contextvars.ContextVar[bool] = contextvars.ContextVar("mx_rec_foreground", default=False)


def start(what: str, work: Callable[[], None]) -> None:
    """Runs `work` in a thread; call `wait` before. What it raises, the next `wait` tells. The process does not end
    before it has."""
    global _thread

    def run():
        global _failure
        try:
            work()
        except BaseException as error:
            _failure = (what, error)

    with _lock:
        assert _thread is None
        _thread = threading.Thread(target=run, name="mx_rec save")
        _thread.start()


def wait() -> None:
    """Returns when no save is under way, nor the removal of what saves have replaced. RuntimeError if the last one
    failed, once."""
    try:
        wait_for_save()
    finally:
        _files.finish_removals()


def wait_for_save() -> None:
    """The same without the removals."""
    global _thread, _failure
    with _lock:
        if _thread is not None:
            _thread.join()
        _thread = None
        failure, _failure = _failure, None
    if failure is not None:
        what, error = failure
        raise RuntimeError(
            f"{what} in the background failed: {error}; checkpoints before it are whole. Mend the cause and save again"
        ) from error


def is_busy() -> bool:
    """Whether a save is being written."""
    with _lock:
        return _thread is not None and _thread.is_alive()


@contextlib.contextmanager
def foreground():
    """Saves inside it return when they have ended."""
    token = _foreground.set(True)
    try:
        yield
    finally:
        _foreground.reset(token)


def is_foreground() -> bool:
    return _foreground.get()
