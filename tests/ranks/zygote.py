"""Starts ranks that need not import TensorFlow, which takes each of them seconds: this process has imported it, without
using it, and ranks are children of it.

MPI takes for its ranks what mpirun has started. So mpirun starts small programs (the end of this file). Each sends its
environment over a socket; the child that is forked for it takes that over and joins the others in its place. The
program ends as its child ends, by a signal, too; a child whose program has ended is killed.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from typing import Callable, Optional

# Seconds that starting and ending may take on a machine that is busy.
PATIENCE = 60


class Rank:
    """A rank, seen from the process that has forked it."""

    def __init__(self, pid: int, said: int, program: socket.socket):
        self.pid = pid
        self.status: Optional[int] = None  # when it has ended: its exit status, or -(the signal that has killed it)
        self._said, self._text, self._program = said, b"", program

    @property
    def lines(self) -> list[list[str]]:
        """The words of each line that it has said so far."""
        return [line.split() for line in self._text.decode().splitlines(keepends=True) if line.endswith("\n")]

    def kill(self) -> None:
        """Kills it, if it has not ended."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)

    def tend(self) -> None:
        """Takes note of what it has said, of its end and of its program's."""
        while select.select([self._said], [], [], 0)[0]:
            data = os.read(self._said, 1 << 16)
            self._text += data
            if not data:
                break
        if self.status is None and select.select([self._program], [], [], 0)[0]:
            self.kill()  # the program says nothing more: it has ended
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                self.tend()  # for its last words
                try:
                    self._program.sendall(str(self.status).encode())
                except OSError:
                    pass  # it has ended before
                self._program.close()

    def close(self) -> None:
        os.close(self._said)


class Job:
    """Ranks that run `work(say)` each, where `say(*words)` says a line. An error of `work` ends its rank, which says
    "failed", the time and the error then."""

    def __init__(self, mpirun: list[str], size: int, home: str, work: Callable[[Callable[..., None]], None]):
        """`mpirun`: the command and its flags, of Open MPI; `home`: a directory for the socket, for what ranks print,
        and for the files of MPI."""
        path, self._log = os.path.join(home, "socket"), os.path.join(home, "log")
        with socket.socket(socket.AF_UNIX) as server, open(self._log, "w") as log:
            server.bind(path)
            server.listen(size)
            server.settimeout(PATIENCE)
            program = [sys.executable, "-S", "-E", __file__, path]
            # What is killed leaves files behind, of 16 MB each.
            self._files = os.path.join(home, "mpi")
            os.mkdir(self._files)
            environment = {
                **os.environ,
                "TMPDIR": self._files,
                "OMPI_MCA_btl_sm_backing_directory": self._files,
            }
            self.mpirun = subprocess.Popen(
                [*mpirun, "-np", str(size), *program],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            programs = [server.accept()[0] for _ in range(size)]
        os.unlink(path)
        ranks = {}
        for program in programs:
            environment = json.loads(program.makefile().readline())
            ranks[int(environment["OMPI_COMM_WORLD_RANK"])] = self._fork(environment, work, program)
        self.ranks = [ranks[rank] for rank in range(size)]

    def _fork(self, environment, work, program):
        source, target = os.pipe()
        pid = os.fork()
        if pid:
            os.close(target)
            return Rank(pid, source, program)
        try:
            self._run(environment, work, target)
        finally:
            os._exit(1)

    def _run(self, environment, work, target):
        from mx_rec._native import world

        os.environ.clear()
        os.environ.update(environment)
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        said = os.fdopen(target, "w", buffering=1)
        try:
            work(lambda *words: print(*words, file=said, flush=True))
            world.leave("")
            os._exit(0)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            print("failed", time.monotonic(), text.replace("\n", " "), file=said, flush=True)
            traceback.print_exc()
            world.leave(text)

    def tend(self, until: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Takes care of the ranks until `until()` or so many seconds have passed; whether `until()`."""
        deadline = time.monotonic() + seconds
        while True:
            for rank in self.ranks:
                rank.tend()
            if until() or time.monotonic() > deadline:
                return until()
            time.sleep(0.001)

    def has_ended(self) -> bool:
        """Whether all its processes have."""
        return all(rank.status is not None for rank in self.ranks) and self.mpirun.poll() is not None

    def end(self) -> None:
        """Kills what has not ended."""
        for rank in self.ranks:
            rank.kill()
        if self.mpirun.poll() is None:
            self.mpirun.kill()
        self.tend(self.has_ended)
        self.mpirun.wait()
        for rank in self.ranks:
            rank.close()
        shutil.rmtree(self._files, ignore_errors=True)

    def log(self) -> str:
        """What ranks and mpirun have printed."""
        with open(self._log) as file:
            return file.read()


def _stand_in(path):
    """What mpirun starts."""
    with socket.socket(socket.AF_UNIX) as parent:
        parent.connect(path)
        parent.sendall(json.dumps(dict(os.environ)).encode() + b"\n")
        status = int(parent.recv(100) or 1)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    _stand_in(sys.argv[1])
