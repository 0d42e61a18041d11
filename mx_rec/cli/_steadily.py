"""Commands that read a checkpoint which a training beside them may replace: what they tell is of one save."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from mx_rec.checkpoint import _manifest
from mx_rec.checkpoint._errors import CheckpointError
from mx_rec.reading import _finding, _reading, _steady

_T = TypeVar("_T")


def steadily(paths: Sequence[str], read: Callable[..., _T]) -> _T:
    """Returns read(*checkpoints) of the checkpoints that `paths` mean, and prints what it printed: that of the first
    time in which they were the same at its end as at its beginning. Files are immutable below a directory of tables,
    and a save replaces the directory, so what was read meanwhile is of one save. What `read` raises then, or
    CheckpointError if another save always came between."""
    for _ in range(_steady.ATTEMPTS):
        # With the encoding of the terminal, by which commands choose their characters.
        printed = io.TextIOWrapper(io.BytesIO(), encoding=sys.stdout.encoding, errors=sys.stdout.errors)
        before, failure = [], None
        try:
            for path in paths:
                directory = _finding.find(path)
                before.append((directory, _manifest.identity(directory)))
            with contextlib.redirect_stdout(printed):
                result = read(*(_reading.open_checkpoint(directory) for directory, _ in before))
        except (CheckpointError, OSError) as error:  # such as of a directory that has gone while it was listed
            failure = error
        is_there = len(before) == len(paths) and all(os.path.isdir(directory) for directory, _ in before)
        if not is_there and _steady.comes_back(lambda: _are_there(paths)):
            continue
        if all(_manifest.identity(directory) == identity for directory, identity in before):
            printed.seek(0)
            print(printed.read(), end="", flush=True)
            if failure is not None:
                raise failure
            return result
    raise CheckpointError(
        f"{' or '.join(map(repr, paths))} was replaced by another save each of the {_steady.ATTEMPTS} times it was "
        "read; name a checkpoint that stays for a while, one with a step"
    )


def _are_there(paths):
    try:
        return all(os.path.isdir(_finding.find(path)) for path in paths)
    except (CheckpointError, OSError):
        return False
