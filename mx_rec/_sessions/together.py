"""What monitored sessions and Estimators do together on all ranks, and what rank 0 does alone.

All ranks save at the same steps, because each writes its share of the tables: what a MonitoredTrainingSession saves
where and when is what rank 0 was told, and a timer is rank 0's (_sessions/shared_clock.py). Rank 0 alone writes events
for TensorBoard into the common directory.
"""

import inspect
import json

import tensorflow as tf

from mx_rec import _ranks
from mx_rec._log import logger
from mx_rec._sessions.shared_clock import SharedClock
from mx_rec._tables import graphs
from mx_rec._tf import checkpoints, loaded_estimator
from mx_rec._tf.patch import Patch

v1 = tf.compat.v1

# What rank 0 decides of a MonitoredTrainingSession.
_SAVING = ("checkpoint_dir", "save_checkpoint_secs", "save_checkpoint_steps")


class _SharedTimer(v1.train.SecondOrStepTimer):
    """A timer that goes off on all ranks at the same step."""

    def __init__(self, name, every_secs):
        super().__init__(every_secs=every_secs)
        self._seconds = every_secs
        self._clock = SharedClock(name)

    def should_trigger_for_step(self, step):
        last = self.last_triggered_step()
        if last is None or last == step:
            return last is None
        return self._clock.has_passed(self._seconds)

    def update_last_triggered_step(self, step):
        self._clock.restart()
        return super().update_last_triggered_step(step)


def _monitored_training_session(*arguments, **keywords):
    stock = PATCHES[0].stock
    if not graphs.state(v1.get_default_graph()).tables:
        return stock(*arguments, **keywords)
    given = inspect.signature(stock).bind(*arguments, **keywords).arguments
    told = {name: given[name] for name in _SAVING if name in given}
    first = json.loads(_ranks.gather("a MonitoredTrainingSession", json.dumps(told, default=str).encode())[0])
    if first != told:
        logger.info(
            "this session saves as that of rank 0, with %s, as every rank writes its share of the tables", first
        )
    for name in _SAVING:
        given.pop(name, None)
    if _ranks.facts().rank > 0:
        # Sessions of ranks are their own: each initializes its variables, and none waits for another's chief.
        savers = [
            hook for hook in given.get("chief_only_hooks") or () if isinstance(hook, v1.train.CheckpointSaverHook)
        ]
        given["chief_only_hooks"] = savers
    return stock(**{**given, **first, "is_chief": True})


def _begin_saver_hook(self):
    PATCHES[1].stock(self)
    seconds = checkpoints.seconds_of(self)
    if seconds:
        checkpoints.set_timer(self, _SharedTimer("CheckpointSaverHook", seconds))


def _begin_evaluations(self):
    PATCHES[2].stock(self)
    seconds = checkpoints.throttle_of(self)
    if seconds:
        checkpoints.set_timer(self, _SharedTimer("EvalSpec.throttle_secs", seconds))


class _Unwritten:
    """A writer of events that writes none."""

    def __init__(self, directory):
        self._directory = directory

    def get_logdir(self):
        return self._directory

    def add_summary(self, *arguments, **keywords):
        """Writes nothing, like the others."""

    add_event = add_graph = add_meta_graph = add_run_metadata = add_session_log = add_summary
    flush = close = reopen = add_summary


def _event_writer(logdir):
    return PATCHES[3].stock(logdir) if _ranks.facts().rank == 0 else _Unwritten(logdir)


def _among_ranks(find):
    return lambda: find() if _ranks.are_several() else None


PATCHES = [
    Patch(
        _among_ranks(lambda: v1.train),
        "MonitoredTrainingSession",
        _monitored_training_session,
        "all ranks must save at the same steps",
    ),
    Patch(
        _among_ranks(lambda: v1.train.CheckpointSaverHook),
        "begin",
        _begin_saver_hook,
        "timers must go off on all ranks",
    ),
    Patch(
        _among_ranks(loaded_estimator.evaluation_listener),
        "begin",
        _begin_evaluations,
        "all ranks must evaluate at the same steps",
    ),
    Patch(
        _among_ranks(lambda: v1.summary.FileWriterCache),
        "get",
        _event_writer,
        "events of several ranks in one file would be damaged",
    ),
]
