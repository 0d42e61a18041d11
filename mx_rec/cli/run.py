"""`mx_rec run script.py ARGS`: runs a script that was written for TensorFlow 1, as it is; with `-n N` on N ranks.

This file is the command alone; it loads TensorFlow when the script does.
"""

import argparse
import importlib.machinery
import os
import sys
import types
from collections.abc import Sequence

from mx_rec import _ranks
from mx_rec.cli import _attendant, _launch, _mpi

_DESCRIPTION = """\
Runs a script as `python script.py ARGS` does, with the same sys.argv, sys.path, tracebacks and exit status, and
besides: what the script and the files beside it import as `tensorflow` has TensorFlow 1's names and behaviour
(tf.Session, tf.logging, dataset.make_initializable_iterator(), some of tf.contrib), and the variables that launchers
set (RANK_ID, RANK_SIZE, OMPI_COMM_WORLD_RANK, ...) say that this is the only rank, unless they are set.

With -n N the same runs on N ranks, started by the MPI at hand: each gets those variables and its share of the cores,
its lines begin with its number, and when one fails, all end, and its error comes last.
"""
# What launchers of ranks set.
_RANK = ("RANK_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK")
_SIZE = ("RANK_SIZE", "TRAIN_RANK_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")


def add_command(commands) -> None:
    """Adds `run` to the command line's subparsers."""
    parser = commands.add_parser(
        "run",
        help="run a script that was written for TensorFlow 1, as it is; on several ranks, too",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-n", type=ranks, default=1, metavar="N", dest="ranks", help="on N ranks, by MPI")
    parser.add_argument("--hosts", metavar="a:2,b:2", help="machines, and how many ranks each takes; else this one")
    parser.add_argument(
        "--mpiexec", metavar="FILE", help="the MPI's program, if not that of this environment or of PATH"
    )
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)  # what MPI starts
    parser.add_argument("script", metavar="script.py", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="what the script gets in sys.argv")
    parser.set_defaults(run=run)


def ranks(text: str) -> int:
    """Returns the number of ranks that an option names."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= _ranks.MAX_RANKS:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {_ranks.MAX_RANKS}, got {text!r}")
    return number


def run(options) -> int:
    """Runs the command; returns the exit status, or raises the script's SystemExit."""
    try:
        source = _read(options.script)
    except _UnusableError as error:
        print(f"mx_rec run: {error}", file=sys.stderr)
        return 2
    if not options.as_rank and (options.ranks > 1 or options.hosts):
        return start(options, ["run", "--as-rank", options.script, *options.arguments])
    if options.as_rank:
        status = _attendant.begin()
        if status is not None:
            return status
    _tell_ranks()
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(options.script))
    from mx_rec.cli import _tensorflow1

    _tensorflow1.install()
    return _execute(source, os.path.abspath(options.script))


def start(options, arguments: Sequence[str]) -> int:
    """Starts `python -m mx_rec ARGUMENTS` on options.ranks ranks; returns the exit status when all have ended."""
    prog = f"mx_rec {arguments[0]}"
    try:
        hosts = _mpi.parse_hosts(options.hosts, options.ranks) if options.hosts else []
        mpi = _mpi.find(options.mpiexec)
    except _mpi.UnusableError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    return _launch.launch(mpi.command(options.ranks, hosts, [sys.executable, "-m", "mx_rec", *arguments]), prog)


def _tell_ranks():
    """Sets what ported scripts read: as the launcher says, or that this is the only rank."""
    try:
        facts = _ranks.facts()
    except (OSError, ValueError):
        facts = _ranks.Facts()  # a script that asks mx_rec for ranks gets that error; others may know better
    if facts.launcher is not None:
        os.environ.update(_attendant.variables(facts))
        return
    for names, value in ((_RANK, "0"), (_SIZE, "1")):
        known = next((os.environ[name] for name in names if name in os.environ), value)
        for name in names:
            os.environ.setdefault(name, known)


class _UnusableError(Exception):
    """There is nothing to run; the message says why."""


def _read(path):
    if os.path.isdir(path):
        raise _UnusableError(f"{path!r} is a directory; name the Python file to run")
    if not os.path.exists(path):
        raise _UnusableError(f"there is no file {path!r}")
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise _UnusableError(f"{path!r} cannot be read: {error.strerror}") from error
    if b"\0" in source:
        raise _UnusableError(f"{path!r} is not a Python file: it holds a zero byte")
    return source


def _execute(source, path):
    main = types.ModuleType("__main__")
    main.__file__, main.__cached__ = path, None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    try:
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        _show(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _show(error):
    """Prints an error as Python does, without the lines of `mx_rec run` itself."""
    seen, stack = set(), [error]
    while stack:
        one = stack.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = _of_the_script(one.__traceback__)
            stack += [one.__cause__, one.__context__]
    sys.excepthook(type(error), error, error.__traceback__)


def _of_the_script(trace):
    from mx_rec.cli import _tensorflow1

    kept = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename not in (__file__, _tensorflow1.__file__):
            kept.append(trace)
        trace = trace.tb_next
    for one, following in zip(kept, [*kept[1:], None]):
        one.tb_next = following
    return kept[0] if kept else None
