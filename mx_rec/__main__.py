"""The command line: `mx_rec`, or `python -m mx_rec`."""

import argparse
import os
import sys

import mx_rec


def main(arguments=None, prog="python -m mx_rec") -> int:
    """Runs a command; returns the exit status. `prog`: how the user calls it."""
    from mx_rec.checkpoint._errors import CheckpointError, DamagedError
    from mx_rec.cli import completion, demo, diff, export, inspect, prune, run, verify

    parser = argparse.ArgumentParser(prog=prog, description=mx_rec.__doc__.partition(": ")[2])
    parser.add_argument("--version", action="version", version=f"mx_rec {mx_rec.version()}")
    commands = parser.add_subparsers(title="commands", metavar="<command>", dest="command")
    for module in (demo, run, inspect, verify, diff, prune, export, completion):
        module.add_command(commands)
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return 0
    try:
        status = options.run(options)
        sys.stdout.flush()
        return status
    except CheckpointError as error:
        print(f"{parser.prog} {options.command}: {error}", file=sys.stderr)
        return 1 if isinstance(error, DamagedError) else 2
    except BrokenPipeError:
        # `| head` has seen enough. What Python still holds would be an error again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130  # as a shell reports a program that SIGINT ended


def console(prog="mx_rec") -> int:
    """Runs a command for the console script; returns the exit status."""
    # Before main imports the commands, as the package's log reads it then: its lines would drown those of a command.
    # A script that is run has the log that it always has.
    if sys.argv[1:2] != ["run"]:
        os.environ.setdefault("MXREC_LOG_LEVEL", "WARNING")
    return main(prog=prog)


if __name__ == "__main__":
    sys.exit(console("python -m mx_rec"))
