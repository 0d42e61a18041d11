"""Warm start: tables and variables that begin with what another model has learned.

Estimators do it by themselves (`warm_start_from`); a script with sessions calls `warm_start` once its graph is built.
"""

import contextlib
import contextvars
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional, Union

import tensorflow as tf
from tensorflow.python.training import warm_starting_util

from mx_rec import _check, _process
from mx_rec._log import logger
from mx_rec._native import checkpoint
from mx_rec._native.table import Tracking
from mx_rec._tables import graphs
from mx_rec._tf.patch import Patch
from mx_rec.checkpoint import _thresholds
from mx_rec.reading import _steady
from mx_rec.saver import _dense, _parked, _restoring, _warm_plan
from mx_rec.saver._saving import table_directory

__all__ = ["rows_only", "warm_start"]

_rows_only: contextvars.ContextVar[bool] = contextvars.ContextVar("mx_rec_rows_only")


@contextlib.contextmanager
def rows_only() -> Iterator[None]:
    """Warm starts inside it take embeddings without optimizer slots and counts; also those of an Estimator."""
    token = _rows_only.set(True)
    try:
        yield
    finally:
        _rows_only.reset(token)


def warm_start(
    ckpt_to_initialize_from: Union[str, Sequence[str]],
    vars_to_warm_start: Any = ".*",
    var_name_to_vocab_info: Any = None,
    var_name_to_prev_var_name: Any = None,
    rows_only: bool = False,
) -> None:
    """Starts tables and dense variables of the default graph from one checkpoint, or from several, one after another.

    The rows of the tables are there when the call returns, and replace what the tables held. Dense variables get them
    as their initial values, so call it before they are initialized, as with tf.compat.v1.train.warm_start.

    Args:
        ckpt_to_initialize_from: a checkpoint's prefix, a directory with checkpoints (the latest one counts), an
            exported model; or a list of them. Then all other arguments are lists of the same length, and what a later
            checkpoint brings replaces what came from an earlier one.
        vars_to_warm_start: a regular expression, a list of them, or a list of variables. Tables are selected by their
            full name; dense variables by TensorFlow's rules: trainable ones whose name begins with a match of the
            expression, or for each entry of a list any variable whose name begins with a match. None: only what
            `var_name_to_vocab_info` names.
        var_name_to_vocab_info: for dense variables, as in TensorFlow. Tables need none: their keys are the ids.
        var_name_to_prev_var_name: the names that tables and variables have in the checkpoint, where they differ.
        rows_only: True takes embeddings alone: optimizer slots start from their initial values, and keys are counted
            from zero. Otherwise slots, counts and thresholds come along, as far as the checkpoint has them.

    Raises ValueError, and changes no table, if the lists differ in length, a path has no checkpoint, an expression
    matches nothing, or a table is not in the checkpoint, damaged, or of another dim; MemoryError if there are more
    rows than the table may hold.
    """
    _process.config()
    is_rows_only = _check.boolean("rows_only", rows_only) or _rows_only.get(False)
    settings = (ckpt_to_initialize_from, vars_to_warm_start, var_name_to_vocab_info, var_name_to_prev_var_name)
    stock = PATCHES[0].stock or warm_starting_util.warm_start
    if not graphs.tables_here("warm_start") and not isinstance(ckpt_to_initialize_from, (list, tuple)):
        return stock(*settings)
    graph = tf.compat.v1.get_default_graph()
    with contextlib.ExitStack() as files:
        opened = [_open(source, is_rows_only, files) for source in _warm_plan.sources_of(*settings)]
        for one in opened:
            plan = one.plan
            for name in plan.ignored:
                logger.warning("warm start from '%s': the vocabulary of table '%s' is ignored", plan.source.path, name)
            if _wants_dense(plan):
                stock(_readable(one, graph), plan.selector, plan.vocab_info, plan.previous_names)
        # A load replaces the whole table, so only the last one counts.
        final = {rows.found.table.table_name: rows for one in opened for rows in one.tables}
        _parked.put_aside([rows.found.table for rows in final.values()], graph)
        loaded = [(rows.found, *_load(rows, is_rows_only)) for rows in final.values()]
        for rows in final.values():
            rows.found.table.warm_started = rows.found.table.content()
    _report([one.plan for one in opened], loaded)


class _Rows(NamedTuple):
    """A table and its files, which are open and verified."""

    found: _warm_plan.TableSource
    readers: list[checkpoint.Reader]  # of the links
    tracking: Optional[Tracking]  # as it was saved


class _Opened(NamedTuple):
    """A checkpoint whose files are open."""

    plan: _warm_plan.Plan
    tables: list[_Rows]
    dense_prefix: str
    dense: Optional[_dense.DenseFiles]  # None: no matter which save it is of


def _open(source, is_rows_only, files) -> _Opened:
    """Opens what the settings select of a checkpoint, until `files` is closed, and verifies it."""

    def read(version):
        with contextlib.ExitStack() as own:
            plan = _warm_plan.plan_of(source, version.location.sparse)
            readers = [
                _restoring.open_readers(found.table, found.name, found.chain, own, is_rows_only)
                for found in plan.tables
            ]
            dense = _dense.open_files(version.location.dense) if plan.tables and _wants_dense(plan) else None
            if dense is not None:
                own.callback(dense.close)
            version.confirm()
            if plan.tables:
                _restoring.check_dense(plan.tables[0].chain[-1], dense)
            tables = [_verified(*each, is_rows_only) for each in zip(plan.tables, readers)]
            files.push(own.pop_all())
        return _Opened(plan, tables, version.location.dense, dense)

    return _steady.steadily(source.prefix, read)


def _wants_dense(plan):
    return plan.variables or plan.previous_names or plan.vocab_info


def _verified(found, readers, is_rows_only):
    for link, reader in zip(found.chain, readers):
        _restoring.check_room(found.table, link.directory, link.tables[found.name])
        _restoring.check_rows(link, found.name, reader.verify())
    last = found.chain[-1]
    path = table_directory(last.directory, found.name)
    tracking = None if is_rows_only else _thresholds.saved(found.table, path, last.tables[found.name])
    return _Rows(found, readers, tracking)


def _readable(one, graph):
    """The dense part's prefix for TensorFlow, which reads it when the variables of `graph` are initialized: so the
    files stay open as long as the graph lives."""
    if one.dense is None:
        return one.dense_prefix
    kept = _dense.open_files(one.dense.readable)
    weakref.finalize(graph, kept.close)
    return kept.readable


def _load(rows, is_rows_only):
    """(rows, bytes) that the table got."""
    found, native = rows.found, rows.found.table.native
    native.clear()
    for reader in rows.readers:
        reader.load()
    if not is_rows_only:
        last = found.chain[-1]
        path = table_directory(last.directory, found.name)
        _thresholds.restore(found.table, path, rows.tracking)
        slots = _restoring.slots_of(path, last.tables[found.name])
        fresh = [slot for slot in native.slots if slot not in slots]
        if fresh:
            logger.info("warm start: slots %s of table '%s' start fresh", fresh, found.table.table_name)
    width = native.dim * (1 if is_rows_only else 1 + len(native.slots))
    count = native.facts().rows
    return count, count * (8 + 4 * width)


def _report(plans, loaded):
    """Logs what came from where."""
    lines = []
    for found, rows, size in loaded:
        name = found.table.table_name
        origin = found.source.prefix if found.name == name else f"{found.source.prefix}: {found.name}"
        lines.append((f"table {name}", origin, f"{rows:,} rows", f"{size:,} bytes"))
    variables = {name: (plan, found) for plan in plans for name, found in plan.variables.items()}
    for name, (plan, found) in variables.items():
        old = plan.previous_names.get(name, name)
        origin = plan.source.prefix if old == name else f"{plan.source.prefix}: {old}"
        size = sum(v.dtype.base_dtype.size * (v.shape.num_elements() or 0) for v in found)
        lines.append((name, origin, "", f"{size:,} bytes"))
    widths = [max((len(line[column]) for line in lines), default=0) for column in range(4)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    logger.info("warm start:\n  %s", "\n  ".join(rows))


def _patched(
    ckpt_to_initialize_from,
    vars_to_warm_start=".*",
    var_name_to_vocab_info=None,
    var_name_to_prev_var_name=None,
):
    return warm_start(ckpt_to_initialize_from, vars_to_warm_start, var_name_to_vocab_info, var_name_to_prev_var_name)


PATCHES = [
    Patch(lambda: tf.compat.v1.train, "warm_start", _patched, "tables begin warm, too"),
    Patch(lambda: warm_starting_util, "warm_start", _patched, "the same, where Estimators look for it"),
]
