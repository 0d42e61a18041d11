"""Sessions that read tables end before the interpreter does.

An input pipeline with a Python function in it (`tf.data.Dataset.from_generator`) runs ahead of the script, also when
that has ended. If the interpreter goes first, the function never returns, and a session that is deleted then waits for
it for ever. So sessions that are still open end at exit, while Python functions can.
"""

import atexit
import sys
import threading
import weakref

from mx_rec._log import logger
from mx_rec._process import Part, part
from mx_rec._tf import sessions

# How long a generator may take for an element; one that blocks for ever must not keep the process from ending.
_SECONDS = 10.0


class _Sessions(Part):
    """Those to end at exit."""

    lasts = True

    def __init__(self):
        self.all: weakref.WeakSet[sessions.BaseSession] = weakref.WeakSet()


def remember(session) -> None:
    """Ends `session` when the interpreter exits, if it is still there."""
    known = part(_Sessions).all
    if not known:
        atexit.unregister(_end_all)  # so that it is there once, and runs before all that was registered earlier
        atexit.register(_end_all)
    known.add(session)


def _end_all():
    running = _in_other_threads()
    # To delete a session under a thread that runs it would be a crash instead of a wait.
    taken = [sessions.take(session) for session in list(part(_Sessions).all) if id(session) not in running]
    ender = threading.Thread(target=_end, args=[taken], name="mx_rec sessions end", daemon=True)
    ender.start()
    ender.join(_SECONDS)
    if ender.is_alive():
        logger.warning(
            "at exit: an input pipeline has not ended after %g s, because a function of its dataset does not return; "
            "the process ends without it",
            _SECONDS,
        )


def _end(taken):
    for session in taken:
        try:
            if session is not None:
                sessions.delete(session)
        except Exception as error:  # one that cannot be closed must not keep the others
            logger.debug("at exit: %s", error)


def _in_other_threads():
    """id() of all sessions that a method of theirs is running for in another thread."""
    found = set()
    for thread, frame in sys._current_frames().items():
        while frame is not None and thread != threading.get_ident():
            owner = frame.f_locals.get("self")
            if isinstance(owner, sessions.BaseSession):
                found.add(id(owner))
            frame = frame.f_back
    return found
