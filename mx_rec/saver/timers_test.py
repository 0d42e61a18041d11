"""A MonitoredTrainingSession with init(is_incremental_checkpoint=True): what its hook saves, and when, by a clock that
the test turns."""

import types

import pytest
import tensorflow as tf

from mx_rec._sessions import shared_clock
from mx_rec._tf import patches
from mx_rec.saver import wait
from mx_rec.util.initialize import init, terminate_config_initializer
from tests.shared.checkpoint_files import kinds
from tests.shared.saver_model import Model, assert_restores, contents, fill

v1 = tf.compat.v1
pytestmark = [pytest.mark.border, pytest.mark.usefixtures("installed")]
WHOLE, DELTA = 100, 30  # seconds


@pytest.fixture(params=[False, True], ids=["between_steps", "while_training"])
def incremental(request):
    init(
        is_incremental_checkpoint=True,
        save_checkpoint_due_time=WHOLE,
        save_delta_checkpoints_secs=DELTA,
        is_async_checkpoint=request.param,
    )
    patches.install()
    yield
    terminate_config_initializer()


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(shared_clock, "time", types.SimpleNamespace(monotonic=lambda: now.seconds))
    return now


class Trained(Model):
    """A model whose step n writes row 100 + n."""

    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.step = v1.train.get_or_create_global_step()
            self.advance = self.step.assign_add(1)

    def train(self, directory, clock, seconds, **options):
        """Runs a session with a step at each of `seconds` of the clock, from where the directory's latest checkpoint
        was. Returns {step: contents}, from the step it began with."""
        with self.graph.as_default():
            scaffold = v1.train.Scaffold(saver=v1.train.Saver(max_to_keep=100))
            options = {"checkpoint_dir": str(directory), "scaffold": scaffold, "log_step_count_steps": None, **options}
            with v1.train.MonitoredTrainingSession(save_summaries_steps=None, **options) as session:
                step = int(session.run(self.step))
                states = {step: contents(self)}
                for clock.seconds in seconds:
                    step += 1
                    fill(self.anchors["user"], [100 + step], float(step))
                    states[step] = contents(self)
                    session.run(self.advance)
        return states


def steps(directory):
    """(steps with all rows, steps with what changed)."""
    found = [name.rpartition("-") for name in kinds(directory)]
    whole, deltas = (
        sorted(int(step) for kind, _, step in found if kind == f"{prefix}sparse-model.ckpt")
        for prefix in ("", "delta-")
    )
    return whole, deltas


def test_deltas_often_and_all_rows_now_and_then(incremental, clock, tmp_path):
    model = Trained()
    #                                      1   2   3   4   5   6    7    8    9   10   11
    states = model.train(tmp_path, clock, (1, 29, 30, 31, 61, 95, 101, 130, 131, 160, 205))
    # All rows when it begins, and after 100 seconds, though a delta is due as well; else what changed, after 30.
    assert steps(tmp_path) == ([0, 7, 11], [3, 5, 6, 9])
    for step in (0, 3, 5, 6, 7, 9, 11):
        assert_restores(tmp_path / f"model.ckpt-{step}", expected=states[step])


def test_the_end_is_whole(incremental, clock, tmp_path):
    states = Trained().train(tmp_path, clock, (31, 32))
    assert steps(tmp_path) == ([0, 2], [1])
    assert v1.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-2")
    assert_restores(tmp_path / "model.ckpt-2", expected=states[2])


def test_no_step_is_saved_twice(incremental, clock, tmp_path):
    """Evaluations run the session, too."""
    model = Trained()
    with model.graph.as_default(), v1.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
        for clock.seconds in (31, 62, 93, 124):
            session.run(model.dense)
    assert steps(tmp_path) == ([0], [])


def test_a_session_resumes_from_a_delta(incremental, clock, tmp_path):
    def seconds():
        yield from (10, 31, 62, 70)
        raise KeyError("the end of the world")

    with pytest.raises(KeyError):
        Trained().train(tmp_path, clock, seconds())
    wait()
    assert steps(tmp_path) == ([0], [2, 3])
    model = Trained()
    model.set(77.0)
    states = model.train(tmp_path, clock, ())
    assert list(states) == [3]
    assert set(states[3]["user"]) == {101, 102, 103}
    assert steps(tmp_path) == ([0, 3], [2])  # what a session begins with, it saves whole


class Listener(v1.train.CheckpointSaverListener):
    """Looks at the checkpoint as soon as it is told of it."""

    def __init__(self, directory):
        self.directory, self.seen = directory, []

    def after_save(self, session, global_step_value):
        latest = v1.train.latest_checkpoint(str(self.directory))
        assert latest == str(self.directory / f"model.ckpt-{global_step_value}")
        (tables,) = self.directory.glob(f"*sparse-model.ckpt-{global_step_value}")
        assert (tables / "manifest.json").exists()
        self.seen.append(int(global_step_value))


def test_listeners_see_checkpoints_in_their_place(incremental, clock, tmp_path):
    model, listener = Trained(), Listener(tmp_path)
    with model.graph.as_default():
        saver_ = v1.train.Saver(max_to_keep=100)
        scaffold = v1.train.Scaffold(saver=saver_)
        hook = v1.train.CheckpointSaverHook(str(tmp_path), save_secs=1, saver=saver_, listeners=[listener])
        options = {"checkpoint_dir": str(tmp_path), "scaffold": scaffold, "save_checkpoint_secs": None}
        with v1.train.MonitoredTrainingSession(**options, chief_only_hooks=[hook]) as session:
            for clock.seconds in (31, 62, 101, 102):
                session.run(model.advance)
    assert steps(tmp_path) == ([0, 3, 4], [1, 2])
    assert listener.seen == [0, 1, 2, 3, 4]


def test_without_it_the_hook_keeps_its_own_interval(clock, tmp_path):
    init()
    try:
        patches.install()
        Trained().train(tmp_path, clock, (1000, 2000, 3000, 4000), save_checkpoint_steps=2)
    finally:
        terminate_config_initializer()
    assert steps(tmp_path) == ([0, 2, 4], [])
