"""CheckpointSaverHook with two timers: init(is_incremental_checkpoint=True) saves deltas often and everything now and
then, in a MonitoredTrainingSession and in an Estimator.

The hook's own interval has no effect then. What it saves when a session begins or ends is whole. Where its listeners
look at the checkpoint, and at the end, it is in its place before they go on, also with init(is_async_checkpoint=True).
"""

import time

import tensorflow as tf

from mx_rec._process import Scoped, part, process
from mx_rec._tf import checkpoints
from mx_rec._tf.notes import Note
from mx_rec._tf.patch import Patch
from mx_rec.saver import _background

# When a hook last began a whole save, and when any.
_WHOLE_AT, _DELTA_AT = Note("whole_at"), Note("delta_at")


class _WantsDelta(Scoped):
    default = False


def wants_delta() -> bool:
    """Whether a timer asks for a delta now."""
    return part(_WantsDelta).get()


def _is_incremental():
    return process.config is not None and process.config.is_incremental_checkpoint


def _after_create_session(self, session, coord):
    PATCHES["after_create_session"].stock(self, session, coord)
    now = time.monotonic()
    _WHOLE_AT.set(self, now)
    _DELTA_AT.set(self, now)


def _after_run(self, run_context, run_values):
    if not _is_incremental():
        return PATCHES["after_run"].stock(self, run_context, run_values)
    config, now = process.config, time.monotonic()
    is_whole = now - _WHOLE_AT.of(self) >= config.save_checkpoint_due_time
    if not is_whole and now - _DELTA_AT.of(self) < config.save_delta_checkpoints_secs:
        return None
    step = run_context.session.run(checkpoints.step_tensor_of(self))
    if checkpoints.has_saved_at(self, step):
        return None
    _DELTA_AT.set(self, now)
    if is_whole:
        _WHOLE_AT.set(self, now)
    with part(_WantsDelta).set(not is_whole):
        if checkpoints.save_at(self, run_context.session, step):
            run_context.request_stop()


def _end(self, session):
    with _background.foreground():
        PATCHES["end"].stock(self, session)
    _background.wait()


def _save(self, session, step):
    if not checkpoints.has_listeners(self):
        return PATCHES[checkpoints.HOOK_SAVE].stock(self, session, step)
    with _background.foreground():
        return PATCHES[checkpoints.HOOK_SAVE].stock(self, session, step)


PATCHES = {
    name: Patch(lambda: tf.compat.v1.train.CheckpointSaverHook, name, ours, "the hook has two timers")
    for name, ours in (
        ("after_create_session", _after_create_session),
        ("after_run", _after_run),
        ("end", _end),
        (checkpoints.HOOK_SAVE, _save),
    )
}
