"""Restoring tables: everything is opened at once and verified before a table that holds something is touched.

A table that holds nothing, as after the start of a process, is filled while its files are verified: they are read once,
and it is emptied again if something is wrong.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping
from typing import Optional

from mx_rec._log import logger
from mx_rec._native import checkpoint
from mx_rec._native.table import Tracking
from mx_rec._process import process
from mx_rec.checkpoint import _chain, _directory, _files, _manifest, _thresholds
from mx_rec.reading._steady import Version
from mx_rec.saver import _dense, _live, _parked, _tip
from mx_rec.saver._lenient import allowed
from mx_rec.saver._saving import table_directory


class SparseDirectoryNotFoundError(FileNotFoundError, FileExistsError):
    """A checkpoint has no tables. Both kinds of error, as scripts written for the original catch FileExistsError."""


@dataclasses.dataclass(frozen=True)
class Restore:
    """A checkpoint whose files are open, and can be loaded."""

    version: Version
    chain: list[_chain.Link]
    tables: list  # those that it has
    entries: Mapping[str, Optional[_manifest.TableEntry]]  # of its last link, by table; None: no manifest
    to_load: list  # of `tables`, those that do not hold all of it already
    untouched: list  # of these, those that hold nothing, whose files were verified as far as sizes tell
    readers: Mapping[str, list[checkpoint.Reader]]  # of each table to load, those of the links
    trackings: Mapping[str, Optional[Tracking]]  # of each table to load, as it was saved
    dense: Optional[_dense.DenseFiles]


@contextlib.contextmanager
def opened(version: Version, tables: list, wants_dense: bool, is_chosen: bool, graph):
    """A Restore while the block runs. Raises unless all `tables` can be loaded from the checkpoint, and are all there
    is; see _lenient.py for exceptions. Of tables that hold nothing, damaged contents are left for loading to find.
    `wants_dense`: the dense part is to be restored, too; `is_chosen`: the script has listed what to restore, so tables
    beside these are not missed; `graph`: the one that is restored."""
    directory = version.location.sparse
    if not os.path.isdir(directory):
        raise SparseDirectoryNotFoundError(
            f"the checkpoint has no tables: directory '{directory}' does not exist; copy it to there, restore another "
            "checkpoint, or pass the Saver a var_list without table variables to restore the dense part alone"
        )
    with contextlib.ExitStack() as files:
        # Opening all takes far less time than reading, so that another save seldom comes between.
        chain = _chain.links(directory)
        dense = _dense.open_files(version.location.dense) if wants_dense else None
        if dense is not None:
            files.callback(dense.close)
        held = chain[-1].tables
        present = [table for table in tables if table.table_name in held]
        to_load = [t for t in present if not _live.holds(t, _live.token(chain[-1], t.table_name), graph)]
        readers = {table.table_name: open_readers(table, table.table_name, chain, files) for table in to_load}
        version.confirm()
        yield _verified(version, chain, tables, present, to_load, readers, dense, is_chosen)


def open_readers(table, name: str, chain: list[_chain.Link], files: contextlib.ExitStack, rows_only: bool = False):
    """The readers of what each link has of the table called `name` there, until `files` is closed."""
    readers = []
    for link in chain:
        entry = link.tables[name]
        expected = {} if entry is None else entry.files
        path = table_directory(link.directory, name)
        _check_no_links(link.directory, name, expected)
        reader = checkpoint.Reader(table.native, path, expected, link.is_delta, rows_only)
        files.callback(reader.close)
        readers.append(reader)
    return readers


def _check_no_links(directory, name, expected):
    columns = {file.partition("/")[0] for file in expected} or os.listdir(os.path.join(directory, name))
    for column in columns:
        for file in ("slice.data", "slice.attribute"):
            _files.check_no_links(directory, name, column, file)


def check_dense(link: _chain.Link, dense: Optional[_dense.DenseFiles]) -> None:
    """ValueError if the dense part is of another save than the tables; a warning if that is allowed."""
    expected = None if link.manifest is None else link.manifest.dense_index_crc32c
    if dense is not None and expected not in (None, dense.index_crc32c):
        _differ(
            allowed().other_dense_part,
            f"checkpoint '{link.directory}': the dense part '{dense.prefix}.index' is damaged, or was written "
            "by another save than these tables",
            "other_dense_part",
        )


def _verified(version, chain, tables, present, to_load, readers, dense, is_chosen):
    may, held, directory = allowed(), chain[-1].tables, chain[-1].directory
    if chain[-1].manifest is None:
        logger.warning(
            "checkpoint '%s' has no %s (the original SDK writes none): sizes are checked, contents cannot be",
            directory,
            _manifest.NAME,
        )
    check_dense(chain[-1], dense)
    untouched, trackings = [], {}
    for table in tables:
        name = table.table_name
        if table not in present:
            _differ(
                may.missing_tables,
                f"checkpoint '{directory}': table '{name}' is not in it, only {sorted(held)}",
                "missing_tables",
            )
            continue
        is_untouched = table in to_load and table.native.facts().is_untouched
        for number, link in enumerate(chain):
            _check_table(link, table)
            if table in to_load:
                rows = readers[name][number].verify(contents=not is_untouched)
                check_rows(link, name, rows)
            _check_slots(link, table, may)
        if table in to_load:
            trackings[name] = _thresholds.saved(table, table_directory(directory, name), held[name])
        if is_untouched:
            untouched.append(table)
    unused = sorted(set(held) - {table.table_name for table in tables})
    if unused:
        _differ(
            may.unused_tables or is_chosen,
            f"checkpoint '{directory}': tables {unused} are not restored: the model, or the Saver, does not have them",
            "unused_tables",
        )
    return Restore(version, chain, present, held, to_load, untouched, readers, trackings, dense)


@contextlib.contextmanager
def loading(restore: Restore, graph):
    """Replaces the rows of the tables, and what they know of their keys, by those of the checkpoint: of tables that
    hold nothing before the body runs, of the others after it. If the files of the former turn out to be damaged, or the
    body raises, the tables are as they were."""
    directory = restore.chain[-1].directory
    if not restore.to_load:
        if restore.tables:
            logger.info("the tables hold what is in %s", directory)
        yield
        return
    started = time.monotonic()
    others = [table for table in restore.to_load if table not in restore.untouched]
    trackings = {table.table_name: table.native.tracking for table in restore.untouched}
    try:
        _load(restore, restore.untouched, graph)
        seconds = time.monotonic() - started
        yield
    except BaseException:
        for table in restore.untouched:
            _undo(table, trackings[table.table_name])
        raise
    started = time.monotonic() - seconds
    try:
        _load(restore, others, graph)
    except BaseException:
        # All was verified; so the disk failed, or memory ended, or somebody pressed Ctrl-C.
        logger.error(
            "the restore of '%s' ended half way: tables %s may be empty, or of another state than the variables; "
            "restore again before you train or save",
            directory,
            sorted(table.table_name for table in others),
        )
        raise
    _set_tip(restore)
    logger.info(
        "restored %d tables, %d rows in %.1f s: %s%s",
        len(restore.to_load),
        sum(table.native.facts().rows for table in restore.to_load),
        time.monotonic() - started,
        directory,
        "" if len(restore.chain) == 1 else f", a chain of {len(restore.chain)} checkpoints",
    )


def _load(restore, tables, graph):
    if not tables:
        return
    _parked.put_aside(tables, graph)
    _tip.set_current(None)
    for table in tables:
        name = table.table_name
        for reader in restore.readers[name]:
            reader.load()
        _check_whole(restore.chain[-1], table)
        path = table_directory(restore.chain[-1].directory, name)
        _thresholds.restore(table, path, restore.trackings[name])
        _live.note(name, _live.token(restore.chain[-1], name), _live.state_of(table))


def _check_whole(link, table):
    """ValueError unless a chain has made a table of as many rows as its last link says."""
    entry, rows = link.tables[table.table_name], table.native.facts().rows
    if entry is not None and entry.table_rows not in (None, rows):
        raise ValueError(
            f"checkpoint '{link.directory}' contradicts those it builds on: table '{table.table_name}' has {rows} "
            f"rows, expected {entry.table_rows} (table_rows in {_manifest.NAME}); restore another checkpoint"
        )


def _undo(table, tracking):
    """Empties a table that was empty."""
    table.native.clear()
    _live.note(table.table_name, None, ())
    if tracking is not None:
        table.native.restore_tracking(tracking)


def _set_tip(restore):
    """Where tables remember what changes, deltas may build on what was restored."""
    chain, config = restore.chain, process.config
    if chain[-1].manifest is None or set(restore.entries) != {table.table_name for table in restore.tables}:
        return
    if _directory.parse(chain[-1].directory) is not None:
        return  # of an interrupted save: the next save gives it its name, and nothing would be found under this one
    # Rows that do not change would have no such slots in the chain.
    if any(set(table.native.slots) - set(restore.entries[table.table_name].slots) for table in restore.tables):
        return
    if config is not None and config.is_incremental_checkpoint:
        for table in restore.tables:
            checkpoint.follow_changes(table.native, keys=True)
    moments = {table.table_name: checkpoint.moment(table.native) for table in restore.tables}
    if None not in moments.values():
        directories = tuple(link.directory for link in chain)
        _tip.set_current(_tip.Tip(directories[-1], restore.version.manifest_crc32c, moments, directories))


def check_rows(link: _chain.Link, name: str, rows: int) -> None:
    """ValueError unless the files of a table have as many rows as the manifest says."""
    entry = link.tables[name]
    if entry is not None and entry.rows != rows:
        raise ValueError(
            f"checkpoint '{link.directory}' is damaged: table '{name}' has {rows} rows in its files, {entry.rows} in "
            f"{_manifest.NAME}; restore another checkpoint"
        )


def check_room(table, directory: str, entry: Optional[_manifest.TableEntry]) -> None:
    """MemoryError if a delta makes the table larger than it may become. Without one, loading its files tells."""
    name, native = table.table_name, table.native
    if entry is not None and entry.table_rows is not None and 0 < native.max_rows < entry.table_rows:
        raise MemoryError(
            f"table '{name}' may hold {native.max_rows} rows (device_vocabulary_size + host_vocabulary_size + "
            f"ssd_vocabulary_size), but with '{directory}' it has {entry.table_rows}; raise device_vocabulary_size in "
            "create_table, or call init(use_dynamic_expansion=True) to let tables grow"
        )


def _check_table(link, table):
    name, native, directory = table.table_name, table.native, link.directory
    entry = link.tables[name]
    if entry is not None and entry.dim != native.dim:
        raise ValueError(
            f"checkpoint '{directory}': table '{name}' has dim {entry.dim} on disk, {native.dim} in the model; create "
            "the table with the checkpoint's dim"
        )
    check_room(table, directory, entry)


def _check_slots(link, table, may):
    name, directory, entry = table.table_name, link.directory, link.tables[table.table_name]
    held = slots_of(table_directory(directory, name), entry)
    fresh = [slot for slot in table.native.slots if slot not in held]
    if fresh:
        optimizer = "an unknown one" if entry is None else entry.optimizer
        _differ(
            may.other_optimizer,
            f"checkpoint '{directory}': table '{name}' was saved by optimizer {optimizer} with slots {sorted(held)}; "
            f"slots {fresh} of the model would start fresh",
            "other_optimizer",
        )


def slots_of(path: str, entry: Optional[_manifest.TableEntry]) -> set[str]:
    """The optimizer slots that were saved with the table in `path`."""
    return set(os.listdir(path)) - {"key", "embedding", *_thresholds.COLUMNS} if entry is None else set(entry.slots)


def _differ(is_allowed, what, option):
    """ValueError saying `what` differs and which option would overlook it; a warning if that is allowed."""
    if not is_allowed:
        raise ValueError(
            f"{what}; restore another checkpoint, or call restore inside mx_rec.saver.lenient({option}=True)"
        )
    logger.warning("%s", what)
