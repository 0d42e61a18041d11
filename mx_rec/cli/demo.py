"""`python -m mx_rec demo`: trains a small click model and shows how far it came.

This file is the command alone; it loads neither TensorFlow nor NumPy until the command runs. The call sequence that a
script of your own would follow is in _training.py.
"""

import argparse
import os
import shlex
import sys
import time

from mx_rec import _ranks
from mx_rec.cli import _attendant
from mx_rec.cli.run import ranks, start

_STEPS, _DIR, _BATCH_SIZE, _SEED = 3000, "demo-run", 2048, 1
_DESCRIPTION = """\
Trains a two-tower click model on a generated log: embeddings of users, items, segments and categories in mx_rec's
tables, dense layers in TensorFlow. The true click probabilities are known, so the AUC reached is printed beside the
best reachable one. Run it again to resume from the last checkpoint.
"""


def add_command(commands) -> None:
    """Adds `demo` to the command line's subparsers."""
    parser = commands.add_parser(
        "demo",
        help="train a small click model, with checkpoints and TensorBoard logs",
        description=_DESCRIPTION,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=_positive, default=_STEPS, metavar="N", help="train until this step")
    parser.add_argument("--dir", default=_DIR, help="for checkpoints and TensorBoard logs")
    parser.add_argument("--fresh", action="store_true", help="start over: remove the run that DIR holds")
    parser.add_argument("--batch-size", type=_positive, default=_BATCH_SIZE, metavar="N", help="impressions per step")
    parser.add_argument("--seed", type=_natural, default=_SEED, metavar="N", help="of the data and the first weights")
    parser.add_argument(
        "--forget",
        action="store_true",
        help="users and items get a row when they are shown for the third time, and lose it when they were not shown "
        "for 8 hours of the log; trains also without, to compare",
    )
    parser.add_argument("--ranks", type=ranks, default=1, metavar="N", help="processes that share the work, by MPI")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)  # what MPI starts
    parser.set_defaults(run=run, hosts=None, mpiexec=None)


def run(options) -> int:
    """Runs the command; returns the exit status."""
    if options.as_rank:
        status = _attendant.begin()
        if status is not None:
            return status
    elif _ranks.are_several():
        print("python -m mx_rec demo: several ranks are started by --ranks N, not by an MPI launcher", file=sys.stderr)
        return 2
    if options.ranks > options.batch_size:
        print(
            f"python -m mx_rec demo: --batch-size must be at least --ranks, {options.ranks}, got {options.batch_size}",
            file=sys.stderr,
        )
        return 2
    options.started = time.monotonic()
    options.is_reference = False
    options.again = _command(options)
    # Before TensorFlow is imported: its notes on CPU features and our own log lines would drown the demo's.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("MXREC_LOG_LEVEL", "WARNING")
    from mx_rec.demo import _run_directory

    try:
        directory = _run_directory.open_run(options)
    except _run_directory.UnusableError as error:
        print(f"python -m mx_rec demo: {error}", file=sys.stderr)
        return 2
    if options.ranks > 1 and not options.as_rank:
        return start(options, ["demo", "--as-rank", *_settings(options), "--steps", str(options.steps)])
    from mx_rec.demo import _training

    outcome = _training.train(options, directory)
    if not options.forget or outcome.status != 0:
        return outcome.status
    beside = argparse.Namespace(**{**vars(options), "dir": directory.beside, "forget": False, "is_reference": True})
    everything = _training.train(beside, _run_directory.open_run(beside))
    if everything.status == 0:
        _training.compare(outcome, everything)
    return everything.status


def _command(options):
    """Returns what would continue this run, but for --steps."""
    program = sys.executable.removeprefix(os.getcwd() + os.sep)
    return shlex.join([program, "-m", "mx_rec", "demo", *_settings(options)])


def _settings(options):
    words = []
    for name, default in (("dir", _DIR), ("batch_size", _BATCH_SIZE), ("seed", _SEED), ("ranks", 1)):
        value = getattr(options, name)
        words += [] if value == default else [f"--{name.replace('_', '-')}", str(value)]
    return words + (["--forget"] if options.forget else [])


def _positive(text):
    return _number(text, 1)


def _natural(text):
    return _number(text, 0)


def _number(text, low):
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or not low <= number < 2**31:
        raise argparse.ArgumentTypeError(f"must be a whole number from {low} to {2**31 - 1}, got {text!r}")
    return number
