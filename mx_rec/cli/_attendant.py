"""The attendant of a rank: the process that MPI starts, which starts the rank's own and stays beside it.

It makes ready what the script reads, prefixes what it prints, hands on signals, and tells the launcher
(mx_rec/cli/_launch.py) by a line on stderr why the rank has failed, also where it was killed and cannot tell. When the
attendant dies, the rank dies.
"""

import array
import contextlib
import fcntl
import json
import os
import re
import select
import signal
import sys
import termios
import time
import traceback
from typing import Optional

from mx_rec import _ranks
from mx_rec.cli import _orphans

# Begins a line that is for the launcher.
MARK = b"\x1emx_rec "
# MPIs hand on user signals, but take the others for an order to end at once: the launcher sends the first, and the rank
# gets the second.
SIGNALS = {signal.SIGUSR1: signal.SIGINT, signal.SIGUSR2: signal.SIGTERM}

_CHUNK = 4096  # what MPIs read at once, and the most that a pipe takes as a whole
_LAST_WORDS = 4096
_TEXT = 2000  # of an error: with its marks it is one chunk


def begin() -> Optional[int]:
    """Starts the rank's own process. Returns None there; here, when it has ended, its exit status."""
    os.environ.update(variables(_ranks.facts()))
    set_threads(_ranks.facts().local_size)
    rank, parent = _ranks.facts().rank, os.getpid()
    _orphans.die_with_parent(os.getppid())
    pipes = {name: os.pipe() for name in ("stdout", "stderr", "error")}
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # a signal to the attendant's group would come twice
        _orphans.die_with_parent(parent)
        _become_rank(pipes)
        return None
    for _, end in pipes.values():
        os.close(end)
    return _Attendant(rank, child, {pipes[name][0]: name for name in pipes}).attend()


def variables(facts: _ranks.Facts) -> dict[str, str]:
    """Returns what ported scripts read, as a launcher of the original sets it."""
    numbers = (
        (facts.rank, ("RANK_ID", "OMPI_COMM_WORLD_RANK")),
        (facts.size, ("RANK_SIZE", "TRAIN_RANK_SIZE", "OMPI_COMM_WORLD_SIZE")),
        (facts.local_rank, ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK")),
        (facts.local_size, ("OMPI_COMM_WORLD_LOCAL_SIZE",)),
    )
    return {name: str(number) for number, names in numbers for name in names}


def set_threads(local_size: int) -> None:
    """Deals this machine's cores out to its ranks, where the user has not."""
    threads = max(1, len(os.sched_getaffinity(0)) // local_size)
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))


def _become_rank(pipes):
    for read, _ in pipes.values():
        os.close(read)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(pipes[name][1], number)
        os.close(pipes[name][1])
    sys.stdout.reconfigure(line_buffering=True)  # a pipe's is by block: lines would come late, or never
    errors, shown = pipes["error"][1], sys.excepthook

    def tell(kind, error, trace):
        with contextlib.suppress(OSError):
            os.write(errors, "".join(traceback.format_exception_only(kind, error)).encode()[:_LAST_WORDS])
        shown(kind, error, trace)

    sys.excepthook = tell


class _Attendant:
    def __init__(self, rank, child, pipes):
        self._rank, self._child, self._pipes = rank, child, pipes
        self._rest = {"stdout": b"", "stderr": b""}  # of a line that has not ended
        self._last_words = b""
        self._is_told = False
        self._is_asked_to_end = False

    def attend(self):
        for number in (*SIGNALS, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hand_on)
        status = None
        while status is None or self._pipes:
            ready, _, _ = select.select([*self._pipes], [], [], 0.05)
            for pipe in ready:
                self._read(pipe)
            if status is not None and not ready:
                break  # what is still open is in the hands of a process that the rank has started
            if status is None:
                ended, code = os.waitpid(self._child, os.WNOHANG)
                status = os.waitstatus_to_exitcode(code) if ended else None
        for name, rest in self._rest.items():
            if rest:
                self._write(name, rest + b"\n")
        if status != 0 and not (status < 0 and self._is_asked_to_end):
            self._tell(status, self._why(status))
        return status if status >= 0 else 128 - status

    def _hand_on(self, number, _):
        self._is_asked_to_end = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, SIGNALS.get(number, number))

    def _read(self, pipe):
        name, data = self._pipes[pipe], os.read(pipe, 1 << 16)
        if not data:
            os.close(pipe)
            del self._pipes[pipe]
        elif name == "error":
            self._tell(1, data.decode(errors="replace"))
        else:
            # A carriage return is where a progress bar begins anew.
            *lines, self._rest[name] = re.split(rb"\r\n|[\r\n]", self._rest[name] + data)
            if name == "stderr":
                self._last_words = (self._last_words + data)[-_LAST_WORDS:]
            self._write(name, b"".join(line + b"\n" for line in lines))

    def _write(self, name, text):
        """Prints whole lines, as many as MPI reads at once: so those of other ranks come between them, not inside."""
        number, chunk = {"stdout": 1, "stderr": 2}[name], b""
        for line in text.splitlines(keepends=True):
            line = f"[{self._rank}] ".encode() + line
            if chunk and len(chunk) + len(line) > _CHUNK:
                _put(number, chunk)
                chunk = b""
            chunk += line
        if chunk:
            _put(number, chunk)

    def _tell(self, status, why):
        if not self._is_told:
            self._is_told = True
            _put(2, MARK + json.dumps({"rank": self._rank, "status": status, "why": _shorten(why)}).encode() + b"\n")

    def _why(self, status):
        if status < 0:
            try:
                name = signal.Signals(-status).name
            except ValueError:
                name = f"signal {-status}"
            return f"killed by {name}" + (" (out of memory?)" if -status == signal.SIGKILL else "")
        lines = self._last_words.decode(errors="replace").strip().splitlines()
        return f"exit status {status}" + (f"; the last it printed on stderr: {lines[-1]}" if lines else "")


def _shorten(text):
    """Returns an error's text without what TensorFlow says of where the op was built, which the script's own traceback
    tells."""
    text = re.split(r"^Original stack trace for ", text, flags=re.MULTILINE)[0]
    text = re.sub(r'^ +File ".*", line \d+, in .*\n', "", text, flags=re.MULTILINE).strip()
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} ..."


def _put(number, data):
    """Writes `data` when what was written before has been read, so that it is read as a whole."""
    waiting, until = array.array("i", [0]), time.monotonic() + 1
    with contextlib.suppress(OSError):  # no pipe: nobody reads it in pieces
        while time.monotonic() < until:
            fcntl.ioctl(number, termios.FIONREAD, waiting)
            if waiting[0] == 0:
                break
            time.sleep(0.001)
    with contextlib.suppress(OSError):  # nobody reads
        while data:
            data = data[os.write(number, data) :]
