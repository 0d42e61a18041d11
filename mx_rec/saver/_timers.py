"""CheckpointSaverHook with two timers: init(is_incremental_checkpoint=True) saves deltas often and everything now and
then, in a MonitoredTrainingSession and in an Estimator.

The hook's own interval has no effect then. What it saves when a session begins or ends is whole. Where its listeners
look at the checkpoint, and at the end, it is in its place before they go on, also with init(is_async_checkpoint=True).
"""

import time

from tensorflow.python.training import basic_session_run_hooks

from mx_rec._process import Scoped, part, process
from mx_rec._tf.patch import Patch
from mx_rec.saver import _background


class _WantsDelta(Scoped):
    default = False


def wants_delta() -> bool:
    """Whether a timer asks for a delta now."""
    return part(_WantsDelta).get()


def _is_incremental():
    return process.config is not None and process.config.is_incremental_checkpoint


def _after_create_session(self, session, coord):
    PATCHES["after_create_session"].stock(self, session, coord)
    self._mx_rec_whole_at = self._mx_rec_delta_at = time.monotonic()


def _after_run(self, run_context, run_values):
    if not _is_incremental():
        return PATCHES["after_run"].stock(self, run_context, run_values)
    config, now = process.config, time.monotonic()
    is_whole = now - self._mx_rec_whole_at >= config.save_checkpoint_due_time
    if not is_whole and now - self._mx_rec_delta_at < config.save_delta_checkpoints_secs:
        return None
    step = run_context.session.run(self._global_step_tensor)
    if step == self._timer.last_triggered_step():
        return None
    self._timer.update_last_triggered_step(step)
    self._mx_rec_delta_at = now
    if is_whole:
        self._mx_rec_whole_at = now
    with part(_WantsDelta).set(not is_whole):
        if self._save(run_context.session, step):
            run_context.request_stop()


def _end(self, session):
    with _background.foreground():
        PATCHES["end"].stock(self, session)
    _background.wait()


def _save(self, session, step):
    if not self._listeners:
        return PATCHES["_save"].stock(self, session, step)
    with _background.foreground():
        return PATCHES["_save"].stock(self, session, step)


PATCHES = {
    name: Patch(lambda: basic_session_run_hooks.CheckpointSaverHook, name, ours, "the hook has two timers")
    for name, ours in (
        ("after_create_session", _after_create_session),
        ("after_run", _after_run),
        ("end", _end),
        ("_save", _save),
    )
}
