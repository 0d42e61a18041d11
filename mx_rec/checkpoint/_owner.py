"""Who made a hidden file. Whether they are still at work on it, the lock of its directory tells (_lock.py).

An owner is written <host>-<pid>, the host without dots, so that it can be told from the name before it.
"""

import os
import socket
import threading
from urllib.parse import quote

_lock = threading.Lock()
_at_work: set[str] = set()  # the prefixes that threads of this process are saving


def host() -> str:
    """This machine's name, as owners have it."""
    return quote(socket.gethostname(), safe="").replace(".", "%2E")


def name() -> str:
    """This process as an owner."""
    return f"{host()}-{os.getpid()}"


def begin(prefix: str) -> None:
    """Marks `prefix` as being saved by a thread of this process, until `end`; RuntimeError if it is marked already."""
    path = os.path.abspath(prefix)
    with _lock:
        if path in _at_work:
            raise RuntimeError(
                f"checkpoint '{prefix}' is being saved by another thread of this process; save it again when that "
                "save has ended, or under another name"
            )
        _at_work.add(path)


def end(prefix: str) -> None:
    """Removes the mark of `begin`."""
    with _lock:
        _at_work.discard(os.path.abspath(prefix))


def is_at_work(prefix: str) -> bool:
    """Whether a thread of this process is saving `prefix`."""
    with _lock:
        return os.path.abspath(prefix) in _at_work
