"""What the rows of a saved table are like: how norms, counts and ages are spread, in one pass over its files.

In memory is a piece of each column; of a table that counts its keys also the keys that have a row, 8 bytes each.
"""

import dataclasses
from collections.abc import Iterator
from typing import Callable, Optional

import numpy as np

from mx_rec.checkpoint import _table_files
from mx_rec.checkpoint._errors import CheckpointError
from mx_rec.checkpoint._table_files import TableFiles
from mx_rec.cli._distribution import Distribution


@dataclasses.dataclass
class Profile:
    """What the rows of one table are like. What is None is not recorded, or damaged: then `problems` says so."""

    norms: dict[str, Distribution] = dataclasses.field(default_factory=dict)  # Euclidean; "embedding" or a slot
    counts: Optional[Distribution] = None  # of keys that have a row, as all below but one
    refused: Optional[Distribution] = None  # counts of those that have none
    ages: Optional[Distribution] = None  # in units of the data's timestamps, usually seconds
    steps: Optional[Distribution] = None  # since the key last occurred
    problems: list[str] = dataclasses.field(default_factory=list)


def work(table: TableFiles) -> int:
    """How often take() will call `advance` for one row, times the rows: the length of its progress bar."""
    return table.rows * (2 + len(table.slots))


def take(table: TableFiles, advance: Callable[[int], object]) -> Profile:
    """Returns the profile of a table. Calls `advance` with the number of rows of a column read since its last call."""
    profile = Profile()
    for column in ("embedding", *table.slots):
        with _Noting(profile.problems):
            profile.norms[column] = _norms(table.floats(column), advance)
    if table.tracking is not None:
        with _Noting(profile.problems):
            _take_history(table, profile)
        with _Noting(profile.problems):
            profile.steps = _step_ages(table)
    advance(table.rows)
    return profile


class _Noting:
    """Notes damage of one column, so that the others are read."""

    def __init__(self, problems):
        self._problems = problems

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if kind is not None and issubclass(kind, CheckpointError):
            self._problems.append(str(error))
            return True
        return None


def norms(column) -> Iterator[np.ndarray]:
    """Yields the Euclidean norms of the rows, float32, piece by piece."""
    with np.errstate(over="ignore", invalid="ignore"):
        for part in _table_files.chunks(len(column)):
            block = np.asarray(column[part], np.float64)
            yield np.sqrt(np.einsum("ij,ij->i", block, block)).astype(np.float32)


def _norms(column, advance):
    found = Distribution()
    for piece in norms(column):
        found.add(piece)
        advance(len(piece))
    return found


def _take_history(table, profile):
    history = table.history()
    if history is None:
        return
    with_row, without, ages = Distribution(), Distribution(), Distribution()
    rows = np.sort(table.keys())
    for part in _table_files.chunks(len(history.keys)):
        keys, counts, times = (np.asarray(array[part]) for array in (history.keys, history.counts, history.times))
        at = np.searchsorted(rows, keys)
        has_row = at < len(rows)
        has_row[has_row] = rows[at[has_row]] == keys[has_row]
        counts = np.maximum(counts, 0)
        with_row.add(counts[has_row])
        without.add(counts[~has_row])
        # A row that came without a time begins to age when it is first looked at, as in native/table/eviction.cc.
        age = np.where(times > 0, np.maximum(history.now - times, 0), 0)
        ages.add(age[has_row])
    profile.counts, profile.refused = with_row, without
    profile.ages = ages if history.now > 0 else None


def _step_ages(table):
    last = table.numbers("last_step")
    if last is None:
        return None
    found = Distribution()
    for part in _table_files.chunks(len(last)):
        found.add(np.maximum(table.tracking.step - np.asarray(last[part]), 0))
    return found
