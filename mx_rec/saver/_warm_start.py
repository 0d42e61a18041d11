"""Warm start: tables and variables that begin with what another model has learned.

Estimators do it by themselves (`warm_start_from`); a script with sessions calls `warm_start` once its graph is built.
"""

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Union

import tensorflow as tf

from mx_rec import _check, _process
from mx_rec._log import logger
from mx_rec._process import Scoped, part
from mx_rec._tables import graphs
from mx_rec._tf import checkpoints
from mx_rec._tf.patch import Patch
from mx_rec.reading import _steady
from mx_rec.saver import _dense, _loading, _parked, _restoring, _warm_sources

__all__ = ["rows_only", "warm_start"]


class _RowsOnly(Scoped):
    default = False


@contextlib.contextmanager
def rows_only() -> Iterator[None]:
    """Warm starts inside it take embeddings without optimizer slots and counts; also those of an Estimator."""
    with part(_RowsOnly).set(True):
        yield


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
    is_rows_only = _check.boolean("rows_only", rows_only) or part(_RowsOnly).get()
    settings = (ckpt_to_initialize_from, vars_to_warm_start, var_name_to_vocab_info, var_name_to_prev_var_name)
    stock = PATCHES[0].stock or tf.compat.v1.train.warm_start
    if not graphs.tables_here("warm_start") and not isinstance(ckpt_to_initialize_from, (list, tuple)):
        return stock(*settings)
    graph = tf.compat.v1.get_default_graph()

    def prepare(tables):
        _parked.put_aside(tables, graph)
        for table in tables:
            table.native.clear()  # what it has counted, too

    with contextlib.ExitStack() as files, contextlib.ExitStack() as dense_files:
        opened = [_open(source, is_rows_only, files, dense_files) for source in _warm_sources.sources_of(*settings)]
        # A load replaces the whole table, so only the last one counts.
        final = {found.table.table_name: (found, load) for one in opened for found, load in one.tables}
        loads = [load for _, load in final.values()]
        for load in (load for one in opened for _, load in one.tables if load not in loads):
            load.verify_contents()
        with _loading.filling(loads, "warm start", prepare):
            for one in opened:
                selection = one.selection
                for name in selection.ignored:
                    logger.warning(
                        "warm start from '%s': the vocabulary of table '%s' is ignored", selection.source.path, name
                    )
                if _wants_dense(selection):
                    stock(one.dense_prefix, selection.selector, selection.vocab_info, selection.previous_names)
        # TensorFlow reads the dense part when the variables of the graph are initialized.
        weakref.finalize(graph, dense_files.pop_all().close)
    for load in loads:
        load.table.warm_started = load.table.content()
    _report([one.selection for one in opened], [(found, *_size(load)) for found, load in final.values()])


class _Opened(NamedTuple):
    """A checkpoint whose files are open."""

    selection: _warm_sources.Selection
    tables: list[tuple[_warm_sources.TableSource, _loading.TableLoad]]
    dense_prefix: str  # that TensorFlow can read


def _open(source, is_rows_only, files, dense_files) -> _Opened:
    """Opens what the settings select of a checkpoint, until `files` and `dense_files` are closed, and verifies it."""

    def read(version):
        with contextlib.ExitStack() as own, contextlib.ExitStack() as own_dense:
            selection = _warm_sources.selection_of(source, version.location.sparse)
            tables = [
                (found, _loading.open_table(found.table, found.name, found.chain, own, is_rows_only))
                for found in selection.tables
            ]
            # Without tables it does not matter which save the dense part is of.
            dense = _dense.open_files(version.location.dense) if selection.tables and _wants_dense(selection) else None
            if dense is not None:
                own_dense.callback(dense.close)
            version.confirm()
            if selection.tables:
                _restoring.check_dense(selection.tables[0].chain[-1], dense)
            for _, load in tables:
                load.verify()
            files.push(own.pop_all())
            dense_files.push(own_dense.pop_all())
        return _Opened(selection, tables, version.location.dense if dense is None else dense.readable)

    return _steady.steadily(source.prefix, read)


def _wants_dense(selection):
    return selection.variables or selection.previous_names or selection.vocab_info


def _size(load):
    """(rows, bytes) that the table got."""
    native = load.table.native
    fresh = [] if load.rows_only else [slot for slot in native.slots if slot not in load.files[-1].slots]
    if fresh:
        logger.info("warm start: slots %s of table '%s' start fresh", fresh, load.table.table_name)
    width = native.dim * (1 if load.rows_only else 1 + len(native.slots))
    count = native.facts().rows
    return count, count * (8 + 4 * width)


def _report(selections, loaded):
    """Logs what came from where."""
    lines = []
    for found, rows, size in loaded:
        name = found.table.table_name
        origin = found.source.prefix if found.name == name else f"{found.source.prefix}: {found.name}"
        lines.append((f"table {name}", origin, f"{rows:,} rows", f"{size:,} bytes"))
    variables = {name: (selection, found) for selection in selections for name, found in selection.variables.items()}
    for name, (selection, found) in variables.items():
        old = selection.previous_names.get(name, name)
        origin = selection.source.prefix if old == name else f"{selection.source.prefix}: {old}"
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
    Patch(lambda: checkpoints.WARM_STARTING, "warm_start", _patched, "the same, where Estimators look for it"),
]
