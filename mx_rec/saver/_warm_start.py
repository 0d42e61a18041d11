"""Warm start: tables and variables that begin with what another model has learned.

Estimators do it by themselves (`warm_start_from`); a script with sessions calls `warm_start` once its graph is built.
"""

import contextlib
import contextvars
import os
import tempfile
from typing import NamedTuple, Optional

import tensorflow as tf
from tensorflow.python.training import warm_starting_util

from mx_rec import _check, _config
from mx_rec._native import checkpoint
from mx_rec._patch import Patch
from mx_rec.core import _graph
from mx_rec.saver import _history, _manifest, _restoring, _training, _warm_plan
from mx_rec.util.log import logger

__all__ = ["rows_only", "warm_start"]

_rows_only: contextvars.ContextVar[bool] = contextvars.ContextVar("mx_rec_rows_only")
_COLUMNS = ("key", "embedding", "deleted")


@contextlib.contextmanager
def rows_only():
    """Warm starts inside it take embeddings without optimizer slots and counts; also those of an Estimator."""
    token = _rows_only.set(True)
    try:
        yield
    finally:
        _rows_only.reset(token)


def warm_start(
    ckpt_to_initialize_from,
    vars_to_warm_start=".*",
    var_name_to_vocab_info=None,
    var_name_to_prev_var_name=None,
    rows_only=False,
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
    _config.current()
    is_rows_only = _check.boolean("rows_only", rows_only) or _rows_only.get(False)
    settings = (ckpt_to_initialize_from, vars_to_warm_start, var_name_to_vocab_info, var_name_to_prev_var_name)
    stock = PATCHES[0].stock or warm_starting_util.warm_start
    if not _graph.state().tables and not isinstance(ckpt_to_initialize_from, (list, tuple)):
        return stock(*settings)
    plans = [_warm_plan.plan_of(source) for source in _warm_plan.sources_of(*settings)]
    with tempfile.TemporaryDirectory(prefix="mx_rec-warm-start-") as scratch:
        final = {}  # a load replaces the whole table, so only the last one counts
        for number, found in enumerate(found for plan in plans for found in plan.tables):
            views = _views(found, os.path.join(scratch, str(number)), is_rows_only)
            _verify(found, views)
            final[found.table.table_name] = (found, views)
        for plan in plans:
            for name in plan.ignored:
                logger.warning("warm start from '%s': the vocabulary of table '%s' is ignored", plan.source.path, name)
            if plan.variables or plan.previous_names or plan.vocab_info:
                stock(plan.source.prefix, plan.selector, plan.vocab_info, plan.previous_names)
        _training.put_aside([found.table for found, _ in final.values()], tf.compat.v1.get_default_graph())
        loaded = [(found, *_load(found, views, is_rows_only)) for found, views in final.values()]
    _report(plans, loaded)


class _View(NamedTuple):
    """What is to be loaded of one link: all columns of the table, or those of its embeddings alone."""

    path: str
    source: str
    entry: Optional[_manifest.TableEntry]
    is_delta: bool


def _views(found, scratch, is_rows_only):
    views = []
    for number, (source, entry, is_delta) in enumerate(found.links):
        path = os.path.join(scratch, str(number))
        os.makedirs(path)
        columns = os.listdir(source)
        for column in set(_COLUMNS).intersection(columns) if is_rows_only else columns:
            os.symlink(os.path.abspath(os.path.join(source, column)), os.path.join(path, column))
        views.append(_View(path, source, entry, is_delta))
    return views


def _verify(found, views):
    for view in views:
        files = {} if view.entry is None else view.entry.files
        columns = set(os.listdir(view.path))
        files = {name: facts for name, facts in files.items() if name.split("/")[0] in columns}
        _restoring.check_room(found.table, view.source, view.entry)
        checkpoint.verify(found.table.native, view.path, files, view.is_delta)


def _load(found, views, is_rows_only):
    """(rows, bytes) that the table got."""
    native = found.table.native
    native.clear()
    for view in views:
        checkpoint.load(native, view.path, view.is_delta)
    if not is_rows_only:
        last = views[-1]
        _history.restore(found.table, last.source, last.entry)
        slots = last.entry.slots if last.entry is not None else set(os.listdir(last.path)) - _history.COLUMNS
        fresh = [slot for slot in native.slots if slot not in slots]
        if fresh:
            logger.info("warm start: slots %s of table '%s' start fresh", fresh, found.table.table_name)
    width = native.dim * (1 if is_rows_only else 1 + len(native.slots))
    rows = native.facts().rows
    return rows, rows * (8 + 4 * width)


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
    Patch(lambda: tf.compat.v1.train, "warm_start", _patched),
    Patch(lambda: warm_starting_util, "warm_start", _patched),
]
