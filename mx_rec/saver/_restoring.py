"""Restoring the tables of a model: whether a checkpoint is the one for it, and what deltas may build on afterwards."""

import contextlib
import dataclasses
import os
import time
from typing import Optional

from mx_rec._log import logger
from mx_rec._native import snapshot
from mx_rec._process import process
from mx_rec.checkpoint import _chain, _layout, _manifest
from mx_rec.reading._steady import Version
from mx_rec.saver import _dense, _live, _loading, _parked, _tip
from mx_rec.saver._lenient import allowed


class SparseDirectoryNotFoundError(FileNotFoundError, FileExistsError):
    """A checkpoint has no tables. Both kinds of error, as scripts written for the original catch FileExistsError."""


@dataclasses.dataclass(frozen=True)
class Restore:
    """A checkpoint whose files are open, and can be loaded."""

    version: Version
    chain: list[_chain.Link]
    tables: list  # those that it has
    to_load: list[_loading.TableLoad]  # of these, the ones that do not hold all of it already
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
        chain = _loading.links(directory)
        dense = _dense.open_files(version.location.dense) if wants_dense else None
        if dense is not None:
            files.callback(dense.close)
        held = chain[-1].tables
        present = [table for table in tables if table.table_name in held]
        to_load = [
            _loading.open_table(table, table.table_name, chain, files)
            for table in present
            if not _live.holds(table, _live.token(chain[-1], table.table_name), graph)
        ]
        version.confirm()
        restore = Restore(version, chain, present, to_load, dense)
        _verify(restore, tables, is_chosen)
        yield restore


def check_dense(link: _chain.Link, dense: Optional[_dense.DenseFiles]) -> None:
    """Raises ValueError if the dense part is of another save than the tables; warns if that is allowed."""
    expected = None if link.manifest is None else link.manifest.dense_index_crc32c
    if dense is not None and expected not in (None, dense.index_crc32c):
        _differ(
            allowed().other_dense_part,
            f"checkpoint '{link.directory}': the dense part '{dense.prefix}.index' is damaged, or was written "
            "by another save than these tables",
            "other_dense_part",
        )


def _verify(restore, tables, is_chosen):
    may, chain = allowed(), restore.chain
    held, directory = chain[-1].tables, chain[-1].directory
    if chain[-1].manifest is None:
        logger.warning(
            "checkpoint '%s' has no %s (the original SDK writes none): sizes are checked, contents cannot be",
            directory,
            _manifest.NAME,
        )
    check_dense(chain[-1], restore.dense)
    loads = {load.table.table_name: load for load in restore.to_load}
    for table in tables:
        name = table.table_name
        if table not in restore.tables:
            _differ(
                may.missing_tables,
                f"checkpoint '{directory}': table '{name}' is not in it, only {sorted(held)}",
                "missing_tables",
            )
            continue
        for link in chain:
            _check_dim(link.tables[name], table)
        if name in loads:
            loads[name].verify()
        for link in chain:
            _check_slots(link.tables[name], table, may)
    unused = sorted(set(held) - {table.table_name for table in tables})
    if unused:
        _differ(
            may.unused_tables or is_chosen,
            f"checkpoint '{directory}': tables {unused} are not restored: the model, or the Saver, does not have them",
            "unused_tables",
        )


@contextlib.contextmanager
def loading(restore: Restore, graph):
    """Replaces the rows of the tables, and what they know of their keys, by those of the checkpoint: of tables that
    hold nothing before the body runs, of the others after it. If the files of the former turn out to be damaged, or the
    body raises, the tables are as they were."""
    last = restore.chain[-1]
    if not restore.to_load:
        if restore.tables:
            logger.info("the tables hold what is in %s", last.directory)
        yield
        return

    def prepare(tables):
        _parked.put_aside(tables, graph)
        _tip.set_current(None)

    started = time.monotonic()
    with _loading.filling(restore.to_load, f"restore of '{last.directory}'", prepare):
        dense_started = time.monotonic()
        yield
        started += time.monotonic() - dense_started
    tables = [load.table for load in restore.to_load]
    for table in tables:
        _live.note(table.table_name, _live.token(last, table.table_name), _live.state_of(table))
    _set_tip(restore)
    logger.info(
        "restored %d tables, %d rows in %.1f s: %s%s",
        len(tables),
        sum(table.native.facts().rows for table in tables),
        time.monotonic() - started,
        last.directory,
        "" if len(restore.chain) == 1 else f", a chain of {len(restore.chain)} checkpoints",
    )


def _set_tip(restore):
    """Lets deltas build on what was restored, if the tables remember what changes."""
    chain, config = _loading.own(restore.chain), process.config
    if (
        chain is None
        or chain[-1].manifest is None
        or set(chain[-1].tables) != {table.table_name for table in restore.tables}
    ):
        return
    if _layout.parse(chain[-1].directory) is not None:
        return  # of an interrupted save: the next save gives it its name, and nothing would be found under this one
    # Rows that do not change would have no such slots in the chain.
    if any(set(table.native.slots) - set(chain[-1].tables[table.table_name].slots) for table in restore.tables):
        return
    if config is not None and config.is_incremental_checkpoint:
        for table in restore.tables:
            snapshot.follow_changes(table.native, keys=True)
    moments = {table.table_name: snapshot.moment(table.native) for table in restore.tables}
    if None not in moments.values():
        directories = tuple(link.directory for link in chain)
        _tip.set_current(
            _tip.Tip(
                directories[-1], restore.version.manifest_crc32c, moments, directories, chain[-1].manifest.share is None
            )
        )


def _check_dim(files, table):
    if files.entry is not None and files.dim != table.native.dim:
        raise ValueError(
            f"checkpoint '{files.directory}': table '{files.name}' has dim {files.dim} on disk, {table.native.dim} in "
            "the model; create the table with the checkpoint's dim"
        )


def _check_slots(files, table, may):
    fresh = [slot for slot in table.native.slots if slot not in files.slots]
    if fresh:
        optimizer = "an unknown one" if files.entry is None else files.optimizer
        _differ(
            may.other_optimizer,
            f"checkpoint '{files.directory}': table '{files.name}' was saved by optimizer {optimizer} with slots "
            f"{sorted(files.slots)}; slots {fresh} of the model would start fresh",
            "other_optimizer",
        )


def _differ(is_allowed, what, option):
    """Raises ValueError saying `what` differs and which option would overlook it; warns if that is allowed."""
    if not is_allowed:
        raise ValueError(
            f"{what}; restore another checkpoint, or call restore inside mx_rec.saver.lenient({option}=True)"
        )
    logger.warning("%s", what)
