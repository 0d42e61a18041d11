"""`mx_rec run script.py ARGS`: runs a script that was written for TensorFlow 1, as it is.

This file is the command alone; it loads TensorFlow when the script does.
"""

import argparse
import importlib.machinery
import os
import sys
import types

_DESCRIPTION = """\
Runs a script as `python script.py ARGS` does, with the same sys.argv, sys.path, tracebacks and exit status, and
besides: what the script and the files beside it import as `tensorflow` has TensorFlow 1's names and behaviour
(tf.Session, tf.logging, dataset.make_initializable_iterator(), some of tf.contrib), and the variables that launchers
set (RANK_ID, RANK_SIZE, OMPI_COMM_WORLD_RANK, ...) say that this is the only rank, unless they are set.
"""
# What launchers of ranks set.
_RANK = ("RANK_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK")
_SIZE = ("RANK_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")


def add_command(commands) -> None:
    """Adds `run` to the command line's subparsers."""
    parser = commands.add_parser(
        "run",
        help="run a script that was written for TensorFlow 1, as it is",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("script", metavar="script.py", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="what the script gets in sys.argv")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Runs the command; returns the exit status, or raises the script's SystemExit."""
    try:
        source = _read(options.script)
    except _UnusableError as error:
        print(f"mx_rec run: {error}", file=sys.stderr)
        return 2
    for names, value in ((_RANK, "0"), (_SIZE, "1")):
        known = next((os.environ[name] for name in names if name in os.environ), value)
        for name in names:
            os.environ.setdefault(name, known)
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(options.script))
    from mx_rec.cli import _tensorflow1

    _tensorflow1.install()
    return _execute(source, os.path.abspath(options.script))


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
