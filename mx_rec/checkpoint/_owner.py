"""Who made a hidden file. Whether they are still at work on it, the lock of its directory tells (_lock.py).

An owner is written <host>-<pid>, the host without dots, so that it can be told from the name before it.
"""

import os
import socket
import threading
from urllib.parse import quote

from mx_rec._process import Part, part


class _AtWork(Part):
    """What threads of this process are saving, maybe longer than mx_rec runs."""

    lasts = True

    def __init__(self):
        self.lock = threading.Lock()
        self.prefixes: set[str] = set()


def host() -> str:
    """This machine's name, as owners have it."""
    return quote(socket.gethostname(), safe="").replace(".", "%2E")


def name() -> str:
    """This process as an owner."""
    return f"{host()}-{os.getpid()}"


def begin(prefix: str) -> None:
    """Marks `prefix` as being saved by a thread of this process, until `end`; RuntimeError if it is marked already."""
    path, at_work = os.path.abspath(prefix), part(_AtWork)
    with at_work.lock:
        if path in at_work.prefixes:
            raise RuntimeError(
                f"checkpoint '{prefix}' is being saved by another thread of this process; save it again when that "
                "save has ended, or under another name"
            )
        at_work.prefixes.add(path)


def end(prefix: str) -> None:
    """Removes the mark of `begin`."""
    at_work = part(_AtWork)
    with at_work.lock:
        at_work.prefixes.discard(os.path.abspath(prefix))


def is_at_work(prefix: str) -> bool:
    """Whether a thread of this process is saving `prefix`."""
    at_work = part(_AtWork)
    with at_work.lock:
        return os.path.abspath(prefix) in at_work.prefixes
