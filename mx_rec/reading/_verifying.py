"""Whether checkpoints are whole: the one check of files that no table of this process is to be filled from.

A restore checks the same while it loads (native/checkpoint/reader.h); what it asks of a table's files before, it asks
TableFiles, as this does.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Collection
from typing import Callable, Optional

import numpy as np

from mx_rec.checkpoint import _chain, _columns, _manifest, _table_files
from mx_rec.checkpoint._errors import DamagedError
from mx_rec.reading import _reading

_KEYS_AT_ONCE = 1 << 24  # sorted in memory, 16 bytes each
_MAX_COUNT = 2**32 - 1  # native/table/history.h


@dataclasses.dataclass
class Findings:
    """What is wrong with a checkpoint."""

    damage: list[str] = dataclasses.field(default_factory=list)  # each names a file
    not_finite: list[str] = dataclasses.field(default_factory=list)  # whole, but no model
    warnings: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: "Findings") -> None:
        self.damage += other.damage
        self.not_finite += other.not_finite
        self.warnings += other.warnings


class Checker:
    """Checks checkpoints; if several of them build on the same one, checks that once."""

    def __init__(self):
        self._links: dict[str, tuple[Optional[_manifest.Manifest], Findings]] = {}  # by directory

    def bytes_to_check(self, checkpoint: _reading.Checkpoint) -> int:
        """Returns how many bytes `check` would pass to `advance`."""
        manifests = [link.manifest for link in checkpoint.chain if self._known(link) is None]
        entries = [entry for manifest in manifests if manifest is not None for entry in manifest.tables.values()]
        return sum(facts.bytes for entry in entries for facts in entry.files.values())

    def check(self, checkpoint: _reading.Checkpoint, advance: Optional[Callable[[int], object]] = None) -> Findings:
        """Checks everything; calls `advance` with the number of bytes checked since its last call."""
        findings = Findings()
        for link in checkpoint.chain:
            if self._known(link) is None:
                self._links[link.directory] = (link.manifest, _check_link(link, advance))
            findings.add(self._known(link))
        if checkpoint.is_delta and not findings.damage:
            findings.damage += [error for table in checkpoint.tables.values() for error in _errors(table.keys)]
        if not findings.damage:
            # Of the tables that the chain makes: what a later link has mended is no matter.
            findings.not_finite += [line for table in checkpoint.tables.values() for line in _rows_not_finite(table)]
        _check_dense(checkpoint, findings)
        return findings

    def _known(self, link):
        """Returns what was found in this directory; None if it was not looked at, or has another manifest since."""
        manifest, findings = self._links.get(link.directory, (None, None))
        return findings if manifest == link.manifest else None


def _check_link(link, advance):
    """Returns what is wrong with the tables in one directory."""
    findings, tables = Findings(), link.tables
    if link.manifest is None:
        findings.warnings.append(f"no {_manifest.NAME}: sizes were checked, contents cannot be")
        if not tables:
            findings.damage.append(f"directory '{link.directory}' holds neither a {_manifest.NAME} nor tables")
    for table in tables.values():
        findings.damage += check_table(table, advance=advance)
    foreign = [file for table in tables.values() for file in table.foreign_files()]
    expected = {_manifest.NAME, *tables}
    foreign += [os.path.join(link.directory, n) for n in os.listdir(link.directory) if n not in expected]
    if foreign:
        findings.warnings.append(f"not of this checkpoint: {', '.join(sorted(foreign))}")
    return findings


def require_whole(table: _table_files.TableFiles, columns: Optional[Collection[str]] = None) -> None:
    """Raises DamagedError if something is wrong with the table, or with those of its `columns` that are named."""
    damage = [text for link in table.links for text in check_table(link, columns)]
    if damage:
        raise DamagedError("; ".join(damage))


def check_table(
    table: _table_files.TableFiles,
    columns: Optional[Collection[str]] = None,
    advance: Optional[Callable[[int], object]] = None,
) -> list[str]:
    """Lists what is wrong with a table's files in one checkpoint, or with those of its `columns` that are named."""
    damage, bad = [], set()
    for name, facts in {} if table.entry is None else table.entry.files.items():
        column = name.partition("/")[0]
        if columns is not None and column not in columns:
            continue
        try:
            _table_files.check_content(os.path.join(table.path, name), facts, advance)
        except DamagedError as error:
            damage.append(str(error))
            bad.add(column)
    checks = {"key": _check_keys, "embedding": lambda table: table.floats("embedding")}
    checks |= {slot: lambda table, slot=slot: table.floats(slot) for slot in table.slots}
    checks |= {"table_2_threshold": lambda table: table.tracking, "history_record": _check_history}
    checks |= {column: lambda table, column=column: _check_numbers(table, column) for column in _columns.NUMBERS}
    checks |= {"admission_filter": lambda table: table.filter(), "deleted": lambda table: table.deleted()}
    for column, look in checks.items():
        if column in bad or (columns is not None and column not in columns):
            continue  # told already, or not asked for
        damage += _errors(lambda look=look: look(table))
    return list(dict.fromkeys(damage))


def _errors(look):
    try:
        look()
    except DamagedError as error:
        return [str(error)]
    return []


def _check_keys(table):
    keys = table.keys()
    # First among neighbours, of which the holes of a sparse file are full: then what is walked several times is as long
    # as the file seems.
    twin = next((twin for part in _table_files.chunks(len(keys)) if (twin := _twin(keys[part])) is not None), None)
    count = -(-len(keys) // _KEYS_AT_ONCE)
    for number in range(count) if twin is None else ():
        twin = _twin(_keys_of_part(keys, number, count))
        if twin is not None:
            break
    if twin is not None:
        parts = _table_files.chunks(len(keys))
        places = (part.start + at for part in parts for at in np.flatnonzero(keys[part] == twin))
        rows = list(itertools.islice(places, 2))
        raise DamagedError(
            f"checkpoint file '{table.data_file('key')}' has the key {twin} twice, in rows {rows[0]} and {rows[1]}"
        )


def _twin(keys):
    """Returns a key that occurs twice; None if there is none."""
    ordered = np.sort(keys)
    twins = np.flatnonzero(ordered[1:] == ordered[:-1])
    return int(ordered[twins[0]]) if len(twins) else None


def _keys_of_part(keys, number, count):
    """Returns the keys of one of `count` parts into which keys are dealt, equal keys into the same."""
    found = []
    for part in _table_files.chunks(len(keys)):
        mixed = keys[part].view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        found.append(keys[part][mixed % np.uint64(count) == number])
    return np.concatenate(found)


def _rows_not_finite(table):
    """Finds, of each column of floats, how many of its rows hold a NaN or an infinity, and the first key of these."""
    for column in ("embedding", *table.slots):
        values, count, first = table.floats(column), 0, None
        for part in _table_files.chunks(table.rows):
            bad = np.flatnonzero(~np.isfinite(values[part]).all(axis=1))
            if len(bad) and first is None:
                first = int(table.keys()[part.start + bad[0]])
            count += len(bad)
        if count:
            rows = f"{count:,} of {table.rows:,} rows of '{column}'"
            yield f"table '{table.name}': {rows} hold NaN or Inf, first key {first}"


def _check_history(table):
    history = table.history()
    if history is None:
        return
    for part in _table_files.chunks(len(history.keys)):
        key, count, time = history.keys[part], history.counts[part], history.times[part]
        bad = np.flatnonzero((count < 0) | (count > _MAX_COUNT) | (time < 0))
        if len(bad):
            raise DamagedError(
                f"checkpoint file '{table.data_file('history_record')}' is damaged: key {key[bad[0]]} has count "
                f"{count[bad[0]]} and time {time[bad[0]]}"
            )


def _check_numbers(table, column):
    numbers = table.numbers(column)
    if numbers is None:
        return
    for part in _table_files.chunks(len(numbers)):
        bad = np.flatnonzero((numbers[part] < 0) | (numbers[part] > _columns.NUMBERS[column]))
        if len(bad):
            row, what = part.start + bad[0], column.removeprefix("last_")
            raise DamagedError(
                f"checkpoint file '{table.data_file(column)}' is damaged: row {row} has {what} {numbers[row]}"
            )


def _check_dense(checkpoint, findings):
    prefix = checkpoint.dense_prefix
    if checkpoint.dense == "missing":
        users = [os.path.basename(path) for path in _chain.children(checkpoint.directory)]
        reason = f"; its tables stay as {', '.join(users)} builds on them" if users else ""
        findings.warnings.append(f"no dense part: '{prefix}.index' does not exist, or is no regular file{reason}")
        return
    if checkpoint.dense == "differs":
        findings.damage.append(f"the dense part '{prefix}.index' was written by another save than these tables")
    # Its own checksums are TensorFlow's to check, when it is restored; a file that was lost is seen by its number.
    parent, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + r"\.data-(\d{5})-of-(\d{5})")
    shards = [found.groups() for found in map(pattern.fullmatch, os.listdir(parent or ".")) if found]
    count = int(shards[0][1]) if shards else 1
    if {int(number) for number, _ in shards} != set(range(count)):
        findings.damage.append(f"the dense part '{prefix}' has {len(shards)} of its {count} data files")
