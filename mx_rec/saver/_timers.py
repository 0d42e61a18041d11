"""CheckpointSaverHook with two timers: init(is_incremental_checkpoint=True) saves deltas often and everything now and
then, in a MonitoredTrainingSession and in an Estimator.

The hook's own interval has no effect then. What it saves when a session begins or ends is whole. Where its listeners
look at the checkpoint, and at the end, it is in its place before they go on, also with init(is_async_checkpoint=True).
"""

import tensorflow as tf

from mx_rec._process import Scoped, part, process
from mx_rec._sessions.shared_clock import SharedClock
from mx_rec._tf import checkpoints
from mx_rec._tf.notes import Note
from mx_rec._tf.patch import Patch
from mx_rec.saver import _background

# Clocks since a hook last began a whole save, and since it began any.
_SINCE_WHOLE, _SINCE_ANY = Note("since_whole"), Note("since_any")


class _WantsDelta(Scoped):
    default = False


def wants_delta() -> bool:
    """Whether a timer asks for a delta now."""
    return part(_WantsDelta).get()


def _is_incremental():
    return process.config is not None and process.config.is_incremental_checkpoint


def _after_create_session(self, session, coord):
    PATCHES["after_create_session"].stock(self, session, coord)
    _SINCE_WHOLE.set(self, SharedClock("whole checkpoints"))
    _SINCE_ANY.set(self, SharedClock("checkpoints"))


def _after_run(self, run_context, run_values):
    if not _is_incremental():
        return PATCHES["after_run"].stock(self, run_context, run_values)
    config = process.config
    is_whole = _SINCE_WHOLE.of(self).has_passed(config.save_checkpoint_due_time)
    if not is_whole and not _SINCE_ANY.of(self).has_passed(config.save_delta_checkpoints_secs):
        return None
    step = run_context.session.run(checkpoints.step_tensor_of(self))
    if checkpoints.has_saved_at(self, step):
        return None
    _SINCE_ANY.of(self).restart()
    if is_whole:
        _SINCE_WHOLE.of(self).restart()
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
