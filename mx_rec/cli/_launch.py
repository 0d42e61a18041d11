"""Starting ranks by MPI, and what becomes of them: all end, and the first error is shown last, where it is seen.

Each rank has an attendant (mx_rec/cli/_attendant.py).
"""

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time

from mx_rec.cli import _attendant, _orphans

# Seconds for ranks that were asked to end, for those that have heard of a failure, and for those that were asked twice.
# They may finish their step and save; then MPI is to end them; and what is left after _KILL more is killed.
_ASKED, _FAILED, _ASKED_TWICE = 20.0, 5.0, 0.0
_KILL = 5.0
_EXIT_STATUS_OF_SIGNAL = 128
# What a rank says whose error is that of another one.
_ECHO = re.compile(r"\brank (\d+)(?:: | has failed and does not come)")


def launch(command: list[str], prog: str) -> int:
    """Runs `command`, which starts ranks; returns the exit status of the rank that failed first, 0 if none has."""
    sys.stdout.flush()
    parent = os.getpid()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in a terminal is for this process, which hands it on
        preexec_fn=lambda: _orphans.die_with_parent(parent, signal.SIGTERM),
    )
    with _Ending(process) as ending:
        failures = list(_follow(process, ending))
        status = process.wait()
    if ending.signal is not None:
        return _EXIT_STATUS_OF_SIGNAL + ending.signal
    if failures:
        first = min(failures, key=_is_echo)
        others = len({failure["rank"] for failure in failures} - {first["rank"]})
        more = f" ({others} more failed after it)" if others else ""
        print(f"\n{prog}: rank {first['rank']} failed first{more}: {first['why']}", file=sys.stderr)
        return first["status"] if first["status"] > 0 else _EXIT_STATUS_OF_SIGNAL - first["status"]
    if status != 0:
        print(
            f"\n{prog}: `{shlex.join(command[:1])}` ended with exit status {status}, and no rank has said why: see "
            f"above. It was called as {shlex.join(command)}",
            file=sys.stderr,
        )
        return status if status > 0 else _EXIT_STATUS_OF_SIGNAL - status
    return 0


def _is_echo(failure):
    """Whether a rank tells of the failure of another one."""
    found = _ECHO.search(failure["why"])
    return found is not None and int(found[1]) != failure["rank"]


def _follow(process, ending):
    """Hands on what comes on stderr until the process ends. Yields the failures of ranks, as they are told."""
    pipe, rest, has_ended = process.stderr.fileno(), b"", False
    while True:
        ending.insist()
        ready, _, _ = select.select([pipe], [], [], 0.1)
        data = os.read(pipe, 1 << 16) if ready else b""
        if ready and not data or has_ended and not ready:
            break
        has_ended = process.poll() is not None
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            shown, mark, told = line.partition(_attendant.MARK)
            if mark:
                ending.due(_FAILED)  # MPICH lets ranks go on that have not called it
                yield json.loads(told)
            if shown or not mark:
                sys.stderr.buffer.write(shown + b"\n")
        sys.stderr.buffer.flush()
    sys.stderr.buffer.write(rest)
    sys.stderr.buffer.flush()


class _Ending:
    """Ctrl-C and a polite kill reach the ranks as if each had got it; who does not end is ended. A second one ends all
    at once. At the end of the block nothing is left."""

    def __init__(self, process):
        self._process = process
        self.signal = None
        self._next = []  # (signal, when); empty again when all have been sent
        self._is_due = False

    def __enter__(self):
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._send(signal.SIGKILL)

    def insist(self) -> None:
        """Sends what is due to a process that has not ended."""
        while self._next and time.monotonic() >= self._next[0][1]:
            self._send(self._next.pop(0)[0])

    def due(self, seconds) -> None:
        """Ends all in so many seconds, unless that is to be sooner."""
        at = time.monotonic() + seconds
        if not self._is_due or self._next and at < self._next[0][1]:
            self._next = [(signal.SIGTERM, at), (signal.SIGKILL, at + _KILL)]
            self._is_due = True

    def _note(self, number, _):
        if self.signal is not None:
            self.due(_ASKED_TWICE)
            return
        self.signal = number
        for told, meant in _attendant.SIGNALS.items():
            if meant == number:
                self._send(told, self._process.pid)
        self.due(_ASKED)

    def _send(self, number, whom=None):
        """To the process alone, or to all of its group."""
        try:
            os.kill(whom, number) if whom else os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass
