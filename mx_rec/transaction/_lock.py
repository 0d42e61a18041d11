"""Which process writes to a directory: one alone, from its first save there until it ends or terminates mx_rec.

Two trainings that save under the same names would overwrite each other's checkpoints unnoticed. So a process
locks D/.mx_rec-lock, a file that says who it is. The lock is the operating system's and ends with the process, however
that ends; the file may stay then, and means nothing without the lock. It also tells what is left over: of the hidden
names in a directory (_layout.py), those that the holder of its lock is not at work on. Numbers of processes could
not: in two containers that share a disk and a host name they are of different processes, or the same for two of them.

Readers need no lock.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
import sys
import threading
import time
from typing import Optional

from mx_rec._log import logger
from mx_rec._process import Part, part, process
from mx_rec.checkpoint import _owner

NAME = ".mx_rec-lock"
# Tools hold the lock for moments, while they tidy up; another training holds it for good.
PATIENCE_SECONDS = 5.0
_LIMIT = 4096  # bytes of the file that are read
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


class _Locks(Part):
    def __init__(self):
        self.mutex = threading.Lock()
        self.held: dict[str, int] = {}  # open files, by directory
        self.without: set[str] = set()  # directories whose file system has no locks, and that the log has said so of

    def close(self):
        """Lets other processes save where this one did."""
        with self.mutex:
            for directory, handle in self.held.items():
                _unlock(directory, handle)
            self.held.clear()


class LockedError(RuntimeError):
    """Another process saves into the directory."""


def acquire(directory: str) -> None:
    """Makes this process the one that saves into `directory`; repeating it changes nothing. LockedError, naming the
    other process, if there is one; ValueError if something that is no lock has its name. Where the file system has no
    locks, a warning, once."""
    directory = os.path.realpath(directory)
    deadline = None
    while True:
        with part(_Locks).mutex:
            if _is_held(directory) or directory in part(_Locks).without:
                return
            try:
                handle = _lock(directory)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                part(_Locks).without.add(directory)
                logger.warning(
                    "the file system of '%s' has no locks (%s): see to it that no other process saves there",
                    directory,
                    error.strerror,
                )
                return
            if handle is not None:
                part(_Locks).held[directory] = handle
                return
        if deadline is None:
            deadline = time.monotonic() + PATIENCE_SECONDS
            logger.info("waiting for %s, which has locked '%s'", holder(directory), directory)
        elif time.monotonic() > deadline:
            raise LockedError(
                f"'{directory}' is where {holder(directory)} saves its checkpoints, and two processes would overwrite "
                "each other's: save into another directory, or end that process first (or call "
                "terminate_config_initializer() in it)"
            )
        time.sleep(0.05)


def is_held(directory: str) -> bool:
    """Tells whether this process is the one that saves into `directory`."""
    with part(_Locks).mutex:
        return _is_held(os.path.realpath(directory))


@contextlib.contextmanager
def borrowed(directory: str):
    """Whether no other process saves into `directory` while the block runs."""
    directory, handle = os.path.realpath(directory), None
    with part(_Locks).mutex:
        is_ours = _is_held(directory)
        if not is_ours:
            with contextlib.suppress(OSError, ValueError):
                handle = _lock(directory)
    try:
        yield is_ours or handle is not None
    finally:
        if handle is not None:
            _unlock(directory, handle)


def holder(directory: str) -> str:
    """Returns the process that has locked `directory`, in words."""
    try:
        with open(os.path.join(directory, NAME), "rb", buffering=0, opener=_open_to_read) as file:
            facts = json.loads(file.read(_LIMIT).decode())
        command, since = (str(facts[name])[:200] for name in ("command", "since"))
        return f"process {int(facts['pid'])} on {str(facts['host'])[:200]} ({command!r}, since {since})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"


def release(directory: str) -> None:
    """Lets other processes save into `directory`, which may be gone. Repeating it changes nothing."""
    with part(_Locks).mutex:
        handle = part(_Locks).held.pop(os.path.realpath(directory), None)
        if handle is not None:
            _unlock(directory, handle)


def _is_held(directory):
    handle = part(_Locks).held.get(directory)
    if handle is None:
        return False
    # Somebody may have removed the directory, and made another one of that name.
    if _has_name(handle, os.path.join(directory, NAME)):
        return True
    os.close(part(_Locks).held.pop(directory))
    return False


def _has_name(handle, path):
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False


def _lock(directory) -> Optional[int]:
    """Returns the open file, locked; None if another process has locked it."""
    path = os.path.join(directory, NAME)
    while True:
        handle = _lock_file(path)
        # Whoever had the lock before may have removed the file after it was opened here.
        if handle is None or _has_name(handle, path):
            break
        os.close(handle)
    if handle is not None:
        _sign(handle)
    return handle


def _unlock(directory, handle):
    path = os.path.join(directory, NAME)
    with contextlib.suppress(OSError):  # the file may stay
        if _has_name(handle, path):
            os.unlink(path)
    os.close(handle)


def _lock_file(path):
    # No link is followed, and no FIFO waited for.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise ValueError(f"'{path}' is no regular file, so it cannot be locked: remove it") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"'{path}' is no regular file, so it cannot be locked: remove it")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


def _sign(handle):
    command = " ".join(map(os.path.basename, sys.argv[:1])) or "python"
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    text = json.dumps({"host": _owner.host(), "pid": os.getpid(), "command": command, "since": since})
    with contextlib.suppress(OSError):  # on a full disk the save will say so; a lock without a name is one, too
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode(), 0)


def _open_to_read(path, flags):
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _forget():
    """A child that was forked has not got the locks, and must not keep them when its parent ends. Another thread of the
    parent may have held the mutex."""
    locks = process.parts.pop(_Locks, None)
    for handle in locks.held.values() if locks is not None else ():
        os.close(handle)


os.register_at_fork(after_in_child=_forget)
