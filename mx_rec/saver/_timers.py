"""CheckpointSaverHook with two timers: init(is_incremental_checkpoint=True) saves deltas often and everything now and
then, in a MonitoredTrainingSession and in an Estimator.

The hook's own interval has no effect then. What it saves when a session begins or ends is whole. Where its listeners
look at the checkpoint, and at the end, it is in its place before they go on, also with init(is_async_checkpoint=True).
"""

import contextvars
import time

from tensorflow.python.training import basic_session_run_hooks

from mx_rec._config import process
from mx_rec.saver import _background

_Hook = basic_session_run_hooks.CheckpointSaverHook
_wants_delta: contextvars.ContextVar[bool] = contextvars.ContextVar("mx_rec_wants_delta", default=False)
_stock = {}


def wants_delta() -> bool:
    """Whether a timer asks for a delta now."""
    return _wants_delta.get()


def install() -> None:
    for name, ours in (("after_create_session", _after_create_session), ("after_run", _after_run), ("end", _end),
                       ("_save", _save)):  # fmt: skip
        _stock[name] = getattr(_Hook, name)
        ours.__doc__ = _stock[name].__doc__
        setattr(_Hook, name, ours)


def uninstall() -> None:
    for name, stock in _stock.items():
        setattr(_Hook, name, stock)


def _is_incremental():
    return process.config is not None and process.config.is_incremental_checkpoint


def _after_create_session(self, session, coord):
    _stock["after_create_session"](self, session, coord)
    self._mx_rec_whole_at = self._mx_rec_delta_at = time.monotonic()


def _after_run(self, run_context, run_values):
    if not _is_incremental():
        return _stock["after_run"](self, run_context, run_values)
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
    token = _wants_delta.set(not is_whole)
    try:
        if self._save(run_context.session, step):
            run_context.request_stop()
    finally:
        _wants_delta.reset(token)


def _end(self, session):
    with _background.foreground():
        _stock["end"](self, session)
    _background.wait()


def _save(self, session, step):
    if not self._listeners:
        return _stock["_save"](self, session, step)
    with _background.foreground():
        return _stock["_save"](self, session, step)
