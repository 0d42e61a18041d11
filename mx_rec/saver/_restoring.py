"""Restoring tables: everything is verified before a table that holds something is touched.

A table that holds nothing, as after the start of a process, is filled while its files are verified: they are read once,
and it is emptied again if something is wrong.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from typing import NamedTuple, Optional

from mx_rec._config import process
from mx_rec._native import checkpoint
from mx_rec.saver import _chain, _directory, _history, _live, _manifest, _tip, _training
from mx_rec.saver._lenient import allowed
from mx_rec.saver._saving import table_directory
from mx_rec.util.log import logger


class SparseDirectoryNotFoundError(FileNotFoundError, FileExistsError):
    """A checkpoint has no tables. Both kinds of error, as scripts written for the original catch FileExistsError."""


class Verified(NamedTuple):
    """A checkpoint that can be loaded."""

    chain: list[_chain.Link]
    tables: list  # those that it has
    entries: Mapping[str, Optional[_manifest.TableEntry]]  # of its last link, by table; None: no manifest
    to_load: list  # of `tables`, those that do not hold all of it already
    untouched: list  # of these, those that hold nothing, whose files were verified as far as sizes tell


def verify(directory: str, tables: list, dense: Optional[str], is_chosen: bool, graph) -> Verified:
    """Raises unless all `tables` can be loaded from `directory`, and are all there is; see _lenient.py for exceptions.
    Of tables that hold nothing, damaged contents are left for loading to find.
    `dense` is the prefix of the dense part, or None if it does not matter; `is_chosen`: the script has listed what to
    restore, so tables beside these are not missed; `graph`: the one that is restored."""
    may = allowed()
    if not os.path.isdir(directory):
        raise SparseDirectoryNotFoundError(
            f"the checkpoint has no tables: directory '{directory}' does not exist; copy it to there, restore another "
            "checkpoint, or pass the Saver a var_list without table variables to restore the dense part alone"
        )
    chain = _chain.links(directory)
    manifest, held = chain[-1].manifest, chain[-1].tables
    if manifest is None:
        logger.warning(
            "checkpoint '%s' has no %s (the original SDK writes none): sizes are checked, contents cannot be",
            directory,
            _manifest.NAME,
        )
    else:
        crc = None if dense is None else _directory.dense_crc32c(dense)
        if manifest.dense_index_crc32c is not None and crc not in (None, manifest.dense_index_crc32c):
            _differ(
                may.other_dense_part,
                f"checkpoint '{directory}': the dense part '{_directory.base(dense)}.index' is damaged, or was written "
                "by another save than these tables",
                "other_dense_part",
            )
    to_load, untouched = [], []
    for table in tables:
        if table.table_name not in held:
            _differ(
                may.missing_tables,
                f"checkpoint '{directory}': table '{table.table_name}' is not in it, only {sorted(held)}",
                "missing_tables",
            )
            continue
        is_held = _live.holds(table, _live.token(chain[-1], table.table_name), graph)
        is_untouched = not is_held and table.native.facts().is_untouched
        if not is_held:
            to_load.append(table)
        if is_untouched:
            untouched.append(table)
        for link in chain:
            _verify_table(link, table, may, is_held, is_untouched)
    unused = sorted(set(held) - {table.table_name for table in tables})
    if unused:
        _differ(
            may.unused_tables or is_chosen,
            f"checkpoint '{directory}': tables {unused} are not restored: the model, or the Saver, does not have them",
            "unused_tables",
        )
    return Verified(chain, [table for table in tables if table.table_name in held], held, to_load, untouched)


@contextlib.contextmanager
def loading(verified: Verified, graph):
    """Replaces the rows of the tables, and what they know of their keys, by those of the checkpoint: of tables that
    hold nothing before the body runs, of the others after it. If the files of the former turn out to be damaged, or the
    body raises, the tables are as they were."""
    directory = verified.chain[-1].directory
    if not verified.to_load:
        logger.info("the tables hold what is in %s", directory)
        yield
        return
    started = time.monotonic()
    others = [table for table in verified.to_load if table not in verified.untouched]
    trackings = {table.table_name: table.native.tracking for table in verified.untouched}
    try:
        _load(verified, verified.untouched, graph)
        seconds = time.monotonic() - started
        yield
    except BaseException:
        for table in verified.untouched:
            _undo(table, trackings[table.table_name])
        raise
    started = time.monotonic() - seconds
    _load(verified, others, graph)
    _set_tip(verified)
    logger.info(
        "restored %d tables, %d rows in %.1f s: %s%s",
        len(verified.to_load),
        sum(table.native.facts().rows for table in verified.to_load),
        time.monotonic() - started,
        directory,
        "" if len(verified.chain) == 1 else f", a chain of {len(verified.chain)} checkpoints",
    )


def _load(verified, tables, graph):
    if not tables:
        return
    _training.put_aside(tables, graph)
    _tip.set_current(None)
    for table in tables:
        _load_table(verified, table)


def _load_table(verified, table):
    name = table.table_name
    for link in verified.chain:
        path, entry = table_directory(link.directory, name), link.tables[name]
        is_verified = table not in verified.untouched or entry is None
        checkpoint.load(table.native, path, link.is_delta, None if is_verified else entry.files)
    _history.restore(table, path, verified.entries[name])
    _live.note(name, _live.token(verified.chain[-1], name), _live.state_of(table))


def _undo(table, tracking):
    """Empties a table that was empty."""
    table.native.clear()
    _live.note(table.table_name, None, ())
    if tracking is not None:
        table.native.restore_tracking(tracking)


def _set_tip(verified):
    """Where tables remember what changes, deltas may build on what was restored."""
    chain, config = verified.chain, process.config
    if chain[-1].manifest is None or set(verified.entries) != {table.table_name for table in verified.tables}:
        return
    if _directory.parse(chain[-1].directory) is not None:
        return  # of an interrupted save: the next save gives it its name, and nothing would be found under this one
    # Rows that do not change would have no such slots in the chain.
    if any(set(table.native.slots) - set(verified.entries[table.table_name].slots) for table in verified.tables):
        return
    if config is not None and config.is_incremental_checkpoint:
        for table in verified.tables:
            checkpoint.follow_changes(table.native, keys=True)
    moments = {table.table_name: checkpoint.moment(table.native) for table in verified.tables}
    if None not in moments.values():
        directory = chain[-1].directory
        identity = _manifest.identity(directory)
        _tip.set_current(_tip.Tip(directory, identity, moments, tuple(link.directory for link in chain)))


def check_room(table, directory: str, entry: Optional[_manifest.TableEntry]) -> None:
    """MemoryError if a delta makes the table larger than it may become. Without one, loading its files tells."""
    name, native = table.table_name, table.native
    if entry is not None and entry.table_rows is not None and 0 < native.max_rows < entry.table_rows:
        raise MemoryError(
            f"table '{name}' may hold {native.max_rows} rows (device_vocabulary_size + host_vocabulary_size + "
            f"ssd_vocabulary_size), but with '{directory}' it has {entry.table_rows}; raise device_vocabulary_size in "
            "create_table, or call init(use_dynamic_expansion=True) to let tables grow"
        )


def _verify_table(link, table, may, is_held, is_untouched):
    name, native, directory = table.table_name, table.native, link.directory
    path = table_directory(directory, name)
    entry = link.tables[name]
    if entry is not None and entry.dim != native.dim:
        raise ValueError(
            f"checkpoint '{directory}': table '{name}' has dim {entry.dim} on disk, {native.dim} in the model; create "
            "the table with the checkpoint's dim"
        )
    check_room(table, directory, entry)
    if not is_held:
        files = {} if entry is None else entry.files
        checkpoint.verify(native, path, files, link.is_delta, contents=not is_untouched)
    held = set(os.listdir(path)) - {"key", "embedding", *_history.COLUMNS} if entry is None else entry.slots
    fresh = [slot for slot in native.slots if slot not in held]
    if fresh:
        optimizer = "an unknown one" if entry is None else entry.optimizer
        _differ(
            may.other_optimizer,
            f"checkpoint '{directory}': table '{name}' was saved by optimizer {optimizer} with slots {sorted(held)}; "
            f"slots {fresh} of the model would start fresh",
            "other_optimizer",
        )


def _differ(is_allowed, what, option):
    """ValueError saying `what` differs and which option would overlook it; a warning if that is allowed."""
    if not is_allowed:
        raise ValueError(
            f"{what}; restore another checkpoint, or call restore inside mx_rec.saver.lenient({option}=True)"
        )
    logger.warning("%s", what)
