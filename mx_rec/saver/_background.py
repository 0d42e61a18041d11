"""One save at a time that goes on in the background while the script trains.

`save` has returned, so the checkpoint is a promise: whoever waits for it, the script or the end of the process,
finishes it even if Ctrl-C comes meanwhile. A second Ctrl-C gives it up.
"""

import atexit
import contextlib
import dataclasses
import threading
from typing import Callable, Optional

from mx_rec._log import logger
from mx_rec._process import Part, Scoped, part
from mx_rec.checkpoint import _files


@dataclasses.dataclass(eq=False)
class _Save:
    what: str
    # Waited for in the place of the thread: in Python before 3.13 a Thread.join that Ctrl-C interrupts takes the thread
    # for ended, and the process then ends without it.
    ended: threading.Event = dataclasses.field(default_factory=threading.Event)
    failure: Optional[BaseException] = None
    is_given_up: bool = False


class _Background(Part):
    lasts = True  # until the process ends

    def __init__(self):
        self.lock = threading.Lock()
        self.save: Optional[_Save] = None  # under way, or ended and not asked for yet

    def settle(self):
        wait()


class _Foreground(Scoped):
    default = False


def start(what: str, work: Callable[[], None]) -> None:
    """Runs `work` in a thread; call `wait` before. The next `wait` raises if `work` does. The process does not end
    before `work` has ended."""
    save = _Save(what)

    def run():
        try:
            work()
        except BaseException as error:
            save.failure = error
        finally:
            save.ended.set()

    background = part(_Background)
    with background.lock:
        assert background.save is None
        background.save = save
        # A daemon, as the end of the process waits for it by _finish, which can be interrupted.
        threading.Thread(target=run, name="mx_rec save", daemon=True).start()


def wait() -> None:
    """Returns when no save is under way, nor the removal of what saves have replaced. RuntimeError if the last one
    failed, once."""
    try:
        wait_for_save()
    finally:
        _files.finish_removals()


def wait_for_save() -> None:
    """Does the same without waiting for removals."""
    background = part(_Background)
    with background.lock:
        save = background.save
    if save is None:
        return
    _finish(save)
    with background.lock:
        if background.save is not save:
            return  # another thread was told
        background.save = None
    if save.failure is not None:
        raise RuntimeError(
            f"{save.what} in the background failed: {save.failure}; checkpoints before it are whole. Mend the cause "
            "and save again"
        ) from save.failure


def _finish(save):
    """Returns when it has ended. A KeyboardInterrupt, or what another signal raises, waits for that; a second one does
    not."""
    interrupt = None
    while not save.ended.is_set():
        try:
            if interrupt is not None:  # in here, as the second one may come at once
                logger.warning("interrupted, but %s is finished first; interrupt again to give it up", save.what)
            save.ended.wait()
        except BaseException as error:
            if interrupt is not None:
                save.is_given_up = True
                logger.error("%s is given up: if the process ends now, it is lost", save.what)
                raise
            interrupt = error
    if interrupt is not None:
        raise interrupt


@atexit.register
def _finish_at_exit():
    save = part(_Background).save
    if save is None:
        return
    if not save.is_given_up:
        with contextlib.suppress(KeyboardInterrupt):
            _finish(save)
    if not save.ended.is_set():
        logger.error("%s was given up and is lost; checkpoints before it are whole", save.what)
    elif save.failure is not None:
        logger.error("%s in the background failed: %s; checkpoints before it are whole", save.what, save.failure)


def is_busy() -> bool:
    """Whether a save is being written."""
    background = part(_Background)
    with background.lock:
        return background.save is not None and not background.save.ended.is_set()


def foreground() -> contextlib.AbstractContextManager[None]:
    """Saves inside it return when they have ended."""
    return part(_Foreground).set(True)


def is_foreground() -> bool:
    return part(_Foreground).get()
