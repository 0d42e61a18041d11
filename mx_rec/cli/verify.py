"""`python -m mx_rec verify`: whether checkpoints are whole."""

import os

from tqdm import tqdm

from mx_rec.checkpoint._errors import CheckpointError
from mx_rec.cli._steadily import steadily
from mx_rec.reading import _finding
from mx_rec.reading._reading import Checkpoint
from mx_rec.reading._verifying import Checker, Findings

_DESCRIPTION = """\
Checks every file of the tables against the size and CRC32C in the manifest, sizes against attributes, that no key
occurs twice and that all columns have as many rows, that no row holds NaN or Inf, and that the dense part beside was
written by the same save; of a delta, also all that it builds on. Prints a line per checkpoint; the exit status is 1 if
one is damaged or has rows that are not finite. Of a checkpoint without a manifest, as the original SDK writes them,
sizes and keys alone can be checked.
"""


def add_command(commands) -> None:
    """Adds `verify` to the command line's subparsers."""
    parser = commands.add_parser("verify", help="check that checkpoints are whole", description=_DESCRIPTION)
    parser.add_argument(
        "path",
        nargs="+",
        metavar="PATH",
        help="a prefix (D/model-7), a sparse directory (D/sparse-model-7), or a directory: all checkpoints in it",
    )
    parser.set_defaults(run=run)


def run(options) -> int:
    """Runs the command; returns the exit status."""
    status, checker = 0, Checker()
    for path in options.path:
        for one in _expand(path):
            try:
                is_whole = steadily([one], lambda checkpoint: _print_check(checkpoint, checker))
            except CheckpointError as error:
                print(f"{one}: FAILED: {error}", flush=True)
                is_whole = False
            status = status if is_whole else 1
    return status


def _print_check(checkpoint, checker):
    """Prints a line; returns whether there is nothing to say against the checkpoint."""
    findings = check_with_bar(checkpoint, checker)
    print(_line(checkpoint, findings))
    return not (findings.damage or findings.not_finite)


def _expand(path):
    """Returns the checkpoints that `path` stands for: of a directory with checkpoints, all."""
    if os.path.isdir(path) and not _finding.is_sparse_directory(path):
        return _finding.list_prefixes(path) or [path]
    return [path]


def _line(checkpoint, findings):
    if findings.damage:
        result = "DAMAGED: " + "; ".join(findings.damage)
    else:
        rows = sum(table.rows for table in checkpoint.tables.values())
        size = sum(table.bytes for table in checkpoint.tables.values())
        count = len(checkpoint.tables)
        result = f"ok: {count} table{'s' if count != 1 else ''}, {rows:,} rows, {size:,} bytes"
        if checkpoint.is_delta:
            result += f" in a chain of {len(checkpoint.chain)}"
        if findings.not_finite:
            result = f"NOT FINITE: {'; '.join(findings.not_finite)}; its files are whole; {result.removeprefix('ok: ')}"
    return "; ".join([f"{checkpoint.directory}: {result}", *(f"warning: {text}" for text in findings.warnings)])


def check_with_bar(checkpoint: Checkpoint, checker: Checker) -> Findings:
    """Returns what `checker` finds, with a progress bar where there is a terminal."""
    name, total = os.path.basename(checkpoint.directory), checker.bytes_to_check(checkpoint)
    with tqdm(total=total, desc=name, unit="B", unit_scale=True, disable=None, leave=False) as bar:
        return checker.check(checkpoint, bar.update)
