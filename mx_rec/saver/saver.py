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

import contextlib
import os
import re
from typing import Any, NamedTuple, Optional

import tensorflow as tf

from mx_rec import _check, _ranks
from mx_rec._config import Config
from mx_rec._log import logger
from mx_rec._process import Part, part, process
from mx_rec._sessions import beginnings
from mx_rec._tables.anchors import table_of
from mx_rec._tf import checkpoints
from mx_rec._tf.notes import Note
from mx_rec._tf.patch import Patch
from mx_rec._tf.sessions import SessionInterface
from mx_rec.checkpoint import _chain, _layout
from mx_rec.reading import _steady
from mx_rec.saver import _background, _checkpoint_list, _parked, _restoring, _shares, _timers, _tip
from mx_rec.saver._saving import Request, Saving, explained
from mx_rec.transaction import _recovery

# Where an exporter saves the variables of a model.
_IN_MODEL = os.path.join(os.sep, tf.saved_model.VARIABLES_DIRECTORY, tf.saved_model.VARIABLES_FILENAME)


class _Saved(Part):
    """The checkpoints saved since `init`."""

    def __init__(self):
        self.prefixes: set[str] = set()


class _Last(Part):
    lasts = True
    sparse_dir: Optional[str] = None


def last_sparse_dir() -> Optional[str]:
    """Returns the directory of the tables last saved by this process, models apart, or None."""
    return part(_Last).sparse_dir


# ---- What a Saver covers.


class _Covered(NamedTuple):
    """What a Saver with tables covers."""

    anchors: Any = ()  # None: those of the graph
    is_chosen: bool = False  # the script says what to restore
    tables_only: bool = False


_COVERED = Note("covered")
_WHOLE = "all rows are asked for"
# TensorFlow writes no checkpoint of nothing, but needs one for its list of checkpoints, `latest_checkpoint` and
# `max_to_keep`. The name is in files.
_TABLES_ONLY = "mx_rec_tables_only"


def _covered(saver) -> _Covered:
    # Savers without a note were built before there were tables.
    return _COVERED.of(saver, _Covered())


def _is_anchor(variable):
    return table_of(variable) is not None


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
    if not tf.executing_eagerly() and not checkpoints.is_built(self):
        if self.saver_def:
            # Made from a description (import_meta_graph): which variables it covers is known to its ops alone.
            _COVERED.set(self, _Covered(anchors=None))
        else:
            given = checkpoints.variables_of(self)
            anchors, dense = _split(checkpoints.saveables() if given is None else given)
            if anchors:
                _COVERED.set(self, _Covered(anchors, given is not None, not dense))
                checkpoints.give_variables(self, dense or [checkpoints.StandIn(_TABLES_ONLY)])
    return _PATCHES[checkpoints.BUILD].stock(self, checkpoint_path, build_save, build_restore)


def _anchors(saver, sess):
    if not isinstance(sess, SessionInterface):
        return []  # TensorFlow raises
    anchors = _covered(saver).anchors
    if anchors is None:
        anchors = [v for v in sess.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES) if _is_anchor(v)]
    return list(anchors)


def _tables(anchors):
    return [table for table in map(table_of, anchors) if table.is_save]


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
    _check.boolean("is_incremental_checkpoint", is_incremental_checkpoint)
    _check.boolean("save_delta", save_delta)
    _background.wait_for_save()

    def stock(save_path, global_step, write_state):
        return _PATCHES["save"].stock(
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

    _parked.put_back(sess.graph)
    save_path = tf.compat.as_str(save_path)
    if re.search(r"[*?\[\\]", save_path):
        raise ValueError(
            f"`save_path` must not contain any of '*', '?', '[' and backslash, got {save_path!r}: TensorFlow takes "
            "them for patterns and would not find the checkpoint again; choose another name"
        )
    step, prefix = None, save_path
    if global_step is not None:
        is_number = isinstance(global_step, tf.compat.integral_types)
        step = int(global_step) if is_number else tf.compat.v1.train.global_step(sess, global_step)
        prefix = checkpoints.prefix_of(self, save_path, step)

    def write_dense(hidden):
        return stock(os.path.join(os.path.dirname(hidden), os.path.basename(save_path)), step, False)

    try:
        with _ranks.Meeting("save") as meeting:
            _layout.make_parent(_layout.of(prefix), save_path)
            wants_delta = save_delta or _timers.wants_delta()
            request = _request(meeting, prefix, step, tables, is_incremental_checkpoint, wants_delta, write_state)
        saving = Saving(request, write_dense)
    except OSError as error:
        raise explained(error, prefix) from error

    def finish():
        try:
            saving.finish()
            part(_Saved).prefixes.add(os.path.abspath(prefix))
            if write_state:
                state = (os.path.dirname(save_path), latest_filename or "checkpoint", meta_graph_suffix)
                _record(self, request.role, saving.path, *state)
        except OSError as error:
            raise explained(error, prefix) from error
        if write_state or not prefix.endswith(_IN_MODEL):
            part(_Last).sparse_dir = saving.directory

    if request.while_training:
        _background.start(f"the save of '{prefix}'", finish)
    else:
        finish()
    return saving.path


def _request(meeting, prefix, step, tables, starts_chain, wants_delta, is_listed):
    """What to save, as all ranks agree on it in `meeting`. `is_listed`: the checkpoint is for TensorFlow's list of
    them. Others, of exporters, are written at once, and what init says of checkpoints is not for them."""
    config = process.config or Config()
    starts_chain = starts_chain or wants_delta or (config.is_incremental_checkpoint and is_listed)
    broken = _chain.children(_layout.of(prefix))
    if broken:
        logger.warning("checkpoint '%s' is replaced, though %s build on it and cannot be restored then", prefix, broken)
    reason = _tip.why_not(prefix, tables) if wants_delta else _WHOLE
    is_export = not is_listed and prefix.endswith(_IN_MODEL)
    role, reason = _shares.agree(meeting, prefix, step, [table.table_name for table in tables], reason, is_export)
    if reason is None and _tip.current().is_common != role.is_common:
        reason = "the last one was saved by all ranks together and this one by each to its own path, or the reverse"
    if wants_delta and reason is not None:
        logger.info("checkpoint '%s' holds all rows, not what has changed: %s", prefix, reason)
    parent = None if reason is not None else _tip.current()
    while_training = config.is_async_checkpoint and is_listed and not _background.is_foreground()
    return Request(role, step, tables, parent, starts_chain, while_training)


def _record(saver, role, path, save_dir, latest_filename, meta_graph_suffix):
    """What TensorFlow's save does for write_state=True; sparse directories go where the dense files went."""
    before = checkpoints.known_to(saver)
    checkpoints.record(saver, path)

    def write():
        if role.leads_directory:
            is_relative = checkpoints.names_relative_paths(saver)
            _checkpoint_list.write(save_dir, path, saver.last_checkpoints, latest_filename, is_relative)

    # No rank removes what the list of another one still calls the latest, nor goes on before the list is there: it may
    # look for the latest checkpoint at once.
    _ranks.together("save/list", write)
    if not role.has_transaction:
        checkpoints.forget_old(saver)  # rank 0 removes them
        return
    checkpoints.remove_old(saver, meta_graph_suffix)
    after = checkpoints.known_to(saver)
    for old in before:
        # A checkpoint that keep_checkpoint_every_n_hours protects leaves the list but keeps its files.
        if old not in after and not checkpoints.exists(old):
            _chain.release(old)


# ---- Restore.


def _restore(self, sess, save_path):
    _background.wait()
    anchors = _anchors(self, sess)
    tables = _tables(anchors)
    if save_path is None or not isinstance(sess, SessionInterface):
        return _PATCHES["restore"].stock(self, sess, save_path)  # which raises
    prefix = tf.compat.as_text(save_path)
    if tables:
        _steady.steadily(
            _shares.find(_version(prefix)),
            lambda version: _restore_all(self, sess, version, tables),
            # Ranks try again together.
            lambda version, error: all(_ranks.together("restore/again", lambda: version.is_settled(error))),
        )
    elif not _covered(self).tables_only:
        _PATCHES["restore"].stock(self, sess, _locate(prefix) if _layout.is_local(prefix) else save_path)
    if anchors:
        # They are in no file, yet a MonitoredSession starts only when every variable is initialised.
        sess.run([anchor.initializer for anchor in anchors])
        beginnings.settle(sess)


def _locate(prefix):
    location = _recovery.locate(prefix)
    _tell_of(prefix, location)
    return location.dense


def _tell_of(prefix, location):
    if location.pair is not None:
        logger.warning("the save of '%s' was interrupted; it is complete in '%s'", prefix, location.sparse)


def _restore_all(saver, sess, version, tables):
    location = version.location
    _, is_chosen, tables_only = _covered(saver)
    wants_dense = not tables_only
    _tell_of(version.prefix, location)

    def restore_dense():
        if wants_dense:
            _restore_dense(saver, sess, location.dense, restore.dense)

    with contextlib.ExitStack() as until:
        # What fails on one rank fails on all, each of which takes back what it did.
        met, opened, filled = (
            until.enter_context(_ranks.Meeting(f"restore/{stage}")) for stage in ("end", "open", "fill")
        )
        if wants_dense and not checkpoints.exists(location.dense):
            return _PATCHES["restore"].stock(saver, sess, location.dense)  # which refuses it
        restore = until.enter_context(_restoring.opened(version, tables, wants_dense, is_chosen, sess.graph))
        _shares.check_same(restore.chain[-1], version.manifest_crc32c, opened)
        with _restoring.loading(restore, sess.graph):
            filled.meet(restore_dense)
        met.meet()


def _restore_dense(saver, sess, prefix, files):
    """TensorFlow's restore. Of a file that was cut it raises an OutOfRangeError that does not name it, which training
    loops would take for the end of their data."""
    try:
        if files is None:  # in TensorFlow's old format
            return _PATCHES["restore"].stock(saver, sess, prefix)
        with files.named():
            _PATCHES["restore"].stock(saver, sess, files.readable)
    except (tf.errors.OutOfRangeError, tf.errors.DataLossError) as error:
        message = f"the dense part of checkpoint '{prefix}' is damaged, restore another one: {error.message}"
        raise tf.errors.DataLossError(error.node_def, error.op, message) from error


def _version(prefix):
    """`prefix`, or the checkpoint of that name that init(restore_model_version=...) asks for: of those that were there
    before, not of those that this process has saved since."""
    version = None if process.config is None else process.config.restore_model_version
    match = re.fullmatch(r"(.*-)\d+", prefix)
    if version is None or match is None or os.path.abspath(prefix) in part(_Saved).prefixes:
        return prefix
    stem = match.group(1)
    for name in (f"{stem}{version}", f"{stem}{version:08d}"):
        if checkpoints.exists(name):
            return name
    pattern = re.compile(re.escape(os.path.basename(stem)) + r"(\d+)\.index")
    parent = os.path.dirname(prefix) or "."
    names = os.listdir(parent) if os.path.isdir(parent) else []
    known = sorted(int(found.group(1)) for found in map(pattern.fullmatch, names) if found)
    raise ValueError(
        f"init asks for restore_model_version={version}, but there is no checkpoint '{stem}{version}'; there are those "
        f"of the steps {known}; choose one of them, or leave it out to restore the latest"
    )


_PATCHES = {
    name: Patch(lambda: tf.compat.v1.train.Saver, name, ours, "checkpoints have tables beside the dense variables")
    for name, ours in ((checkpoints.BUILD, _build), ("save", _save), ("restore", _restore))
}
PATCHES = [*_PATCHES.values(), *_timers.PATCHES.values()]
