"""`python -m mx_rec`: the command line."""

import argparse
import sys

import mx_rec
from mx_rec.cli import demo


def main(arguments=None) -> int:
    """Runs a command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mx_rec", description=mx_rec.__doc__.partition(": ")[2])
    parser.add_argument("--version", action="version", version=f"mx_rec {mx_rec.version()}")
    commands = parser.add_subparsers(title="commands", metavar="<command>")
    demo.add_command(commands)
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return 0
    try:
        return options.run(options)
    except KeyboardInterrupt:
        return 130  # as a shell reports a program that SIGINT ended


if __name__ == "__main__":
    sys.exit(main())
