"""Joins the tables to `tf.compat.v1.train.Saver`.

A Saver covers the tables whose anchor variables are in its `var_list`. TensorFlow saves and restores the other
variables as ever; a Saver without anchors runs TensorFlow's own code alone, but that its restore finds the dense part
of a save that was interrupted.

``saver.save(sess, "D/model", global_step=7)`` takes these steps, each lasting before the next begins:

    1  D/.dense-model-7.tmp-<owner>/   the dense variables, by TensorFlow
       D/.sparse-model-7.tmp-<owner>/  the tables, then manifest.json
    2  D/model-7.{data-*,meta,index}   other names of the same files, in this order
    3  rename to D/sparse-model-7; the hidden directories go
    4  D/checkpoint                    with the removal of checkpoints beyond max_to_keep

Only step 4 makes the new checkpoint the latest one, so a crash before it leaves the previous one. Where a save replaces
a checkpoint of the same name (an Estimator that restarts does), a crash in step 1 leaves the previous one as well, and
one in step 2 or 3 the new one, both halves of which are found under the hidden names (_pair.py, _recovery.py).
"""

import os
import time
from typing import Optional

import tensorflow as tf
from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.client import session
from tensorflow.python.eager import context
from tensorflow.python.ops import variables
from tensorflow.python.training import saver as tf_saver
from tensorflow.python.training import training_util
from tensorflow.python.training.saving import saveable_object
from tensorflow.python.util import compat

from mx_rec._native import checkpoint
from mx_rec.saver import _directory, _history, _manifest, _recovery, _state
from mx_rec.saver._transaction import Transaction
from mx_rec.saver.lenient import allowed
from mx_rec.util.log import logger


class SparseDirectoryNotFoundError(FileNotFoundError, FileExistsError):
    """A checkpoint has no tables. Both kinds of error, as scripts written for the original catch FileExistsError."""


# TensorFlow's methods that ours stand in for. Kept after uninstall(), as somebody may hold on to one of ours.
_stock = {}
_installed = False
_last_sparse_dir: Optional[str] = None


def install() -> None:
    """Makes every Saver built from now on take care of tables. Repeating it changes nothing."""
    global _installed
    if _installed:
        return
    for name, ours in (("_build", _build), ("save", _save), ("restore", _restore)):
        _stock[name] = getattr(tf_saver.Saver, name)
        ours.__doc__ = _stock[name].__doc__
        setattr(tf_saver.Saver, name, ours)
    _installed = True


def uninstall() -> None:
    """Puts TensorFlow's own methods back. Repeating it changes nothing."""
    global _installed
    if _installed:
        for name, stock in _stock.items():
            setattr(tf_saver.Saver, name, stock)
    _installed = False


def last_sparse_dir() -> Optional[str]:
    """The directory of the tables last saved by this process, or None."""
    return _last_sparse_dir


# ---- What a Saver covers.


class _TablesOnly(saveable_object.SaveableObject):
    """Stands in for dense variables where there are none: TensorFlow refuses to write a checkpoint of nothing, but
    needs one for its list of checkpoints, `latest_checkpoint` and `max_to_keep`."""

    NAME = "mx_rec_tables_only"

    def __init__(self):
        tensor = tf.constant(1, name=self.NAME)
        super().__init__(tensor, [saveable_object.SaveSpec(tensor, "", self.NAME)], self.NAME)

    def restore(self, restored_tensors, restored_shapes):
        del restored_tensors, restored_shapes
        return tf.no_op()


def _is_anchor(variable):
    return getattr(variable, "_mx_rec_table", None) is not None


def _split(var_list):
    """(anchors, the rest in its own form) of what a Saver was given."""
    if isinstance(var_list, dict):
        return (
            [v for v in var_list.values() if _is_anchor(v)],
            {name: v for name, v in var_list.items() if not _is_anchor(v)},
        )
    if isinstance(var_list, (list, tuple, set)):
        return [v for v in var_list if _is_anchor(v)], [v for v in var_list if not _is_anchor(v)]
    return [], var_list  # TensorFlow says what is wrong with it


def _build(self, checkpoint_path, build_save, build_restore):
    if not context.executing_eagerly() and not self._is_built:
        if self.saver_def:
            # Made from a description (import_meta_graph): which variables it covers is known to its ops alone.
            self._mx_rec_anchors = None
        else:
            anchors, dense = _split(variables._all_saveable_objects() if self._var_list is None else self._var_list)
            if anchors:
                self._mx_rec_anchors = anchors
                self._mx_rec_is_chosen = self._var_list is not None  # the script says what to restore
                self._mx_rec_tables_only = not dense
                self._var_list = dense or [_TablesOnly()]
    return _stock["_build"](self, checkpoint_path, build_save, build_restore)


def _anchors(saver, sess):
    if not isinstance(sess, session.SessionInterface):
        return []  # TensorFlow raises
    # Savers without the attribute were built before there were tables.
    anchors = getattr(saver, "_mx_rec_anchors", ())
    if anchors is None:
        anchors = [v for v in sess.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES) if _is_anchor(v)]
    return list(anchors)


def _tables(anchors):
    return [anchor._mx_rec_table for anchor in anchors if anchor._mx_rec_table.is_save]


def _table_directory(directory, name):
    if name in (".", "..") or "/" in name or name.startswith(_manifest.NAME):
        raise ValueError(f"table '{name}' cannot be saved: its name must serve as a directory beside {_manifest.NAME}")
    return os.path.join(directory, name)


# ---- Save.


def _save(
    self,
    sess,
    save_path,
    global_step=None,
    latest_filename=None,
    meta_graph_suffix="meta",
    write_meta_graph=True,
    write_state=True,
    strip_default_attrs=False,
    save_debug_info=False,
    is_incremental_checkpoint=False,
    save_delta=False,
):
    if is_incremental_checkpoint or save_delta:
        raise NotImplementedError(
            "incremental checkpoints are not available; call save without `is_incremental_checkpoint` and "
            "`save_delta`, which saves everything"
        )

    def stock(save_path, global_step, write_state):
        return _stock["save"](
            self,
            sess,
            save_path,
            global_step=global_step,
            latest_filename=latest_filename,
            meta_graph_suffix=meta_graph_suffix,
            write_meta_graph=write_meta_graph,
            write_state=write_state,
            strip_default_attrs=strip_default_attrs,
            save_debug_info=save_debug_info,
        )

    tables = _tables(_anchors(self, sess))
    if not tables:
        return stock(save_path, global_step, write_state)

    started = time.monotonic()
    save_path = compat.as_str(save_path)
    step, prefix = None, save_path
    if global_step is not None:
        is_number = isinstance(global_step, compat.integral_types)
        step = int(global_step) if is_number else training_util.global_step(sess, global_step)
        prefix = f"{save_path}-{step:08d}" if self._pad_step_number else f"{save_path}-{step}"
    directory = _directory.of(prefix)
    try:
        _directory.make_parent(directory, save_path)
        transaction = Transaction.begin(prefix)
        try:
            hidden = os.path.join(os.path.dirname(transaction.dense_prefix), os.path.basename(save_path))
            written = stock(hidden, step, False)
            entries = {table.table_name: _write_table(table, transaction.sparse) for table in tables}
            transaction.commit(step, entries)
        except BaseException:
            transaction.abort()
            raise
        # TensorFlow's old format adds the number of shards.
        path = os.path.join(os.path.dirname(prefix), os.path.basename(written))
        if write_state:
            _record(self, path, os.path.dirname(save_path), latest_filename or "checkpoint", meta_graph_suffix)
    except OSError as error:
        raise _explained(error, prefix) from error

    global _last_sparse_dir
    _last_sparse_dir = directory
    logger.info(
        "saved %d tables, %d rows, %.1f MB in %.1f s: %s",
        len(entries),
        sum(entry.rows for entry in entries.values()),
        sum(file.bytes for entry in entries.values() for file in entry.files.values()) / 1e6,
        time.monotonic() - started,
        directory,
    )
    return path


def _write_table(table, directory):
    rows, files = checkpoint.save(table.native, _table_directory(directory, table.table_name))
    return _manifest.TableEntry(
        dim=table.native.dim,
        rows=rows,
        key_dtype=tf.as_dtype(table.key_dtype).name,
        slots=table.native.slots,
        optimizer=table.optimizer_name,
        files=files,
        tracking=table.native.tracking,
    )


def _record(saver, path, save_dir, latest_filename, meta_graph_suffix):
    """What TensorFlow's save does for write_state=True; sparse directories go where the dense files went."""
    before = _known_checkpoints(saver)
    saver._RecordLastCheckpoint(path)
    _state.write(save_dir, path, saver.last_checkpoints, latest_filename, saver._save_relative_paths)
    saver._MaybeDeleteOldCheckpoints(meta_graph_suffix=meta_graph_suffix)
    after = _known_checkpoints(saver)
    for old in before:
        # A checkpoint that keep_checkpoint_every_n_hours protects leaves the list but keeps its files.
        if old not in after and not checkpoint_management.checkpoint_exists_internal(old):
            _directory.remove(old)


def _explained(error, prefix):
    """`error` of the operating system, in words that tell whom it concerns."""
    where = f" ('{error.filename}')" if error.filename else ""
    what = (
        f"checkpoint '{prefix}' could not be saved: {error.strerror or error}{where}; no earlier checkpoint is harmed; "
        "see to it that its directory can be written to and has space, then save again"
    )
    return OSError(error.errno, what) if error.errno is not None else OSError(what)


def _known_checkpoints(saver) -> list[str]:
    return [path for path, _ in saver._last_checkpoints + saver._checkpoints_to_be_deleted]


# ---- Restore.


def _restore(self, sess, save_path):
    anchors = _anchors(self, sess)
    tables = _tables(anchors)
    tables_only = getattr(self, "_mx_rec_tables_only", False)
    dense = save_path
    if save_path is not None and isinstance(sess, session.SessionInterface):
        prefix = compat.as_text(save_path)
        if tables or _directory.is_local(prefix):
            dense, directory, pair = _recovery.locate(prefix)
            if pair is not None:
                logger.warning("the save of '%s' was interrupted; it is complete in '%s'", prefix, directory)
        # A prefix without dense files is TensorFlow's to refuse.
        if tables and (tables_only or checkpoint_management.checkpoint_exists_internal(dense)):
            held = _verify(directory, tables, None if tables_only else dense, getattr(self, "_mx_rec_is_chosen", False))
            tables = [table for table in tables if table.table_name in held]
    if tables and not tables_only:
        _restore_dense(self, sess, dense)
    elif save_path is None or not tables_only:
        _stock["restore"](self, sess, dense)
    if tables:
        started = time.monotonic()
        rows = 0
        for table in tables:
            path = _table_directory(directory, table.table_name)
            rows += checkpoint.load(table.native, path)
            _history.restore(table, path, held[table.table_name])
        seconds = time.monotonic() - started
        logger.info("restored %d tables, %d rows in %.1f s: %s", len(tables), rows, seconds, directory)
    if anchors:
        # They are in no file, yet a MonitoredSession starts only when every variable is initialised.
        sess.run([anchor.initializer for anchor in anchors])


def _restore_dense(saver, sess, dense):
    """TensorFlow's restore. Of a file that was cut it raises an OutOfRangeError that does not name it, which training
    loops would take for the end of their data."""
    try:
        _stock["restore"](saver, sess, dense)
    except (tf.errors.OutOfRangeError, tf.errors.DataLossError) as error:
        message = f"the dense part of checkpoint '{dense}' is damaged, restore another one: {error.message}"
        raise tf.errors.DataLossError(error.node_def, error.op, message) from error


def _differ(is_allowed, what, option):
    """ValueError saying `what` differs and which option would overlook it; a warning if that is allowed."""
    if not is_allowed:
        raise ValueError(
            f"{what}; restore another checkpoint, or call restore inside mx_rec.saver.lenient({option}=True)"
        )
    logger.warning("%s", what)


def _verify(directory, tables, dense, is_chosen):
    """Raises unless all `tables` can be loaded from `directory`, and are all there is; see lenient.py for exceptions.
    `dense` is the prefix of the dense part, or None if it does not matter; `is_chosen`: the script has listed what to
    restore, so tables beside these are not missed.

    Returns the tables of the checkpoint by name, each with its part of the manifest, or None without one.
    """
    may = allowed()
    if not os.path.isdir(directory):
        raise SparseDirectoryNotFoundError(
            f"the checkpoint has no tables: directory '{directory}' does not exist; copy it to there, restore another "
            "checkpoint, or pass the Saver a var_list without table variables to restore the dense part alone"
        )
    manifest = _manifest.read(directory)
    if manifest is None:
        logger.warning(
            "checkpoint '%s' has no %s (the original SDK writes none): sizes are checked, contents cannot be",
            directory,
            _manifest.NAME,
        )
        held = {name: None for name in os.listdir(directory) if os.path.isdir(os.path.join(directory, name, "key"))}
    else:
        held = manifest.tables
        crc = None if dense is None else _directory.dense_crc32c(dense)
        if manifest.dense_index_crc32c is not None and crc not in (None, manifest.dense_index_crc32c):
            _differ(
                may.other_dense_part,
                f"checkpoint '{directory}': the dense part '{_directory.base(dense)}.index' is damaged, or was written "
                "by another save than these tables",
                "other_dense_part",
            )
    for table in tables:
        if table.table_name not in held:
            _differ(
                may.missing_tables,
                f"checkpoint '{directory}': table '{table.table_name}' is not in it, only {sorted(held)}",
                "missing_tables",
            )
            continue
        _verify_table(directory, table, held[table.table_name], may)
    unused = sorted(set(held) - {table.table_name for table in tables})
    if unused:
        _differ(
            may.unused_tables or is_chosen,
            f"checkpoint '{directory}': tables {unused} are not restored: the model, or the Saver, does not have them",
            "unused_tables",
        )
    return held


def _verify_table(directory, table, entry, may):
    name, native = table.table_name, table.native
    path = _table_directory(directory, name)
    if entry is not None and entry.dim != native.dim:
        raise ValueError(
            f"checkpoint '{directory}': table '{name}' has dim {entry.dim} on disk, {native.dim} in the model; create "
            "the table with the checkpoint's dim"
        )
    checkpoint.verify(native, path, {} if entry is None else entry.files)
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
