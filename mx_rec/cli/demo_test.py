"""The demo, as a user runs it: in a process of its own."""

import os
import re
import signal
import subprocess
import sys
import types

import numpy as np
import pytest

from mx_rec import __main__
from mx_rec.demo import _clicks, _run_directory

_STEPS = 120


def _command(directory, *arguments):
    return [sys.executable, "-m", "mx_rec", "demo", "--dir", str(directory), *map(str, arguments)]


def _demo(directory, *arguments):
    """What a run prints; fails unless it succeeds and prints nothing on stderr."""
    result = subprocess.run(_command(directory, *arguments), capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout


def _reached(output):
    return float(re.search(r"^AUC reached +(\S+)", output, re.MULTILINE).group(1))


def _summaries(logs):
    """{tag: {step: value}} of the event files: a number, or a histogram."""
    import tensorflow as tf

    summaries = {}
    for name in sorted(os.listdir(logs)):
        for event in tf.compat.v1.train.summary_iterator(os.path.join(logs, name)):
            for value in event.summary.value:
                summaries.setdefault(value.tag, {})[event.step] = getattr(value, value.WhichOneof("value"))
    return summaries


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(directory, output) of a run from beginning to end."""
    directory = tmp_path_factory.mktemp("demo") / "run"
    return directory, _demo(directory, "--steps", _STEPS)


@pytest.mark.slow
def test_learns_and_says_what_was_reachable(finished):
    _, output = finished
    best = float(re.search(r"^best reachable AUC +(\S+)", output, re.MULTILINE).group(1))
    curve = [float(auc) for auc in re.findall(r"^step .* AUC (\S+)", output, re.MULTILINE)]
    assert len(curve) == 11
    assert curve[0] == 0.5
    assert curve[-1] == _reached(output)
    assert 0.65 < curve[-1] < best
    assert "samples/s" in output
    assert re.search(r"^user_table +[1-9]", output, re.MULTILINE)


@pytest.mark.slow
def test_output_without_a_terminal_is_short(finished):
    _, output = finished
    assert len(output.splitlines()) < 40
    assert "\r" not in output


@pytest.mark.slow
def test_keeps_three_checkpoints_of_both_parts(finished):
    directory, _ = finished
    for step in (_STEPS * 3 // 5, _STEPS * 4 // 5, _STEPS):
        assert (directory / f"model-{step}.index").exists()
        assert (directory / f"sparse-model-{step}" / "user_table").is_dir()
    assert len(list(directory.glob("model-*.index"))) == len(list(directory.glob("sparse-model-*"))) == 3


@pytest.mark.slow
def test_logs_for_tensorboard(finished):
    directory, output = finished
    command = re.search(r"^watch +(.*)$", output, re.MULTILINE).group(1)
    assert command.endswith(f"--logdir {directory}/tensorboard")
    summaries = _summaries(directory / "tensorboard")
    assert summaries["auc"][_STEPS] == pytest.approx(_reached(output), abs=1e-4)
    assert summaries["loss"][_STEPS] < summaries["loss"][10]
    assert summaries["samples_per_second"][_STEPS] > 0
    for table in ("user_table", "item_table", "segment_table", "category_table"):
        rows, size = summaries[f"mx_rec/{table}/rows"], summaries[f"mx_rec/{table}/bytes"]
        assert rows[0] == 0 < rows[_STEPS]
        assert size[_STEPS] >= rows[_STEPS] * 16 * 4
        norms = summaries[f"mx_rec/{table}/norm"][_STEPS]
        assert norms.num == min(rows[_STEPS], 4096) == sum(norms.bucket)  # of a sample
        assert 0 < norms.min <= norms.sum / norms.num <= norms.max


@pytest.mark.slow
def test_finished_run_is_evaluated_again_and_tells_how_to_start_over(finished):
    directory, output = finished
    again = _demo(directory, "--steps", _STEPS)
    assert "already finished" in again
    assert "--fresh" in again
    assert _reached(again) == _reached(output)


@pytest.mark.slow
def test_interrupted_run_resumes_at_its_step_and_ends_as_if_nothing_happened(finished, tmp_path):
    with subprocess.Popen(
        _command(tmp_path, "--steps", _STEPS), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        printed = ""
        for line in process.stdout:
            printed += line
            if line.startswith("step") and "loss" in line and process.poll() is None:
                process.send_signal(signal.SIGINT)
                break
        printed += process.stdout.read()
        assert process.wait(timeout=60) == 128 + signal.SIGINT, printed
    step = int(re.search(r"model-(\d+)$", printed, re.MULTILINE).group(1))
    assert 0 < step < _STEPS
    assert "Interrupted and saved. To resume: " in printed

    output = _demo(tmp_path, "--steps", _STEPS)
    assert f"resuming at step {step} of {_STEPS}" in output
    assert f"{_STEPS - step} steps" in output
    # Data, learning rate, moments and rows all continue; only the order of parallel float sums is free.
    assert _reached(output) == pytest.approx(_reached(finished[1]), abs=2e-3)


@pytest.mark.slow
def test_forgetting_saves_rows_and_tells_what_it_cost(tmp_path):
    output = _demo(tmp_path, "--steps", 60, "--forget")
    forgetful, everything = re.search(r"^--forget +(\S+) .*\nevery row kept +(\S+) ", output, re.MULTILINE).groups()
    assert 0 < int(forgetful.replace(",", "")) < int(everything.replace(",", ""))
    assert re.search(r"^table +rows +dim +memory +seen +refused +evicted$", output, re.MULTILINE)
    assert re.search(r"Forgetting saved \d+% of the rows and -?\d+% of the memory; the AUC changed by", output)
    assert "--forget" in re.search(r"^To train on: (.*)$", output, re.MULTILINE).group(1)
    again = _demo(tmp_path, "--steps", 60, "--forget")
    assert again.count("already finished") == 2
    with pytest.raises(AssertionError, match="was started with --seed 1 --batch-size 2048 --forget"):
        _demo(tmp_path, "--steps", 60)


def test_refuses_to_resume_with_other_data(tmp_path, capsys):
    (tmp_path / "demo.json").write_text('{"seed": 1, "batch_size": 64}')
    assert __main__.main(["demo", "--dir", str(tmp_path)]) == 2
    assert "was started with --seed 1 --batch-size 64" in capsys.readouterr().err


def test_refuses_a_file_as_directory(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert __main__.main(["demo", "--dir", str(tmp_path / "file")]) == 2
    assert "give another --dir" in capsys.readouterr().err


def test_fresh_removes_the_run_and_nothing_else(tmp_path):
    for name in ("demo.json", "checkpoint", "model-5.index", "model.py", "notes.txt"):
        (tmp_path / name).write_text("{}")
    for name in ("sparse-model-5", "tensorboard", "data"):
        (tmp_path / name).mkdir()
    _run_directory.open_run(_options(tmp_path, fresh=True))
    assert sorted(os.listdir(tmp_path)) == ["data", "demo.json", "model.py", "notes.txt"]


def _options(directory, **changes):
    usual = {"dir": str(directory), "fresh": False, "seed": 1, "batch_size": 2048, "forget": False}
    return types.SimpleNamespace(**{**usual, **changes})


def test_help_and_version(capsys):
    assert __main__.main([]) == 0
    assert "demo" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        __main__.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("mx_rec ")


@pytest.mark.parametrize("arguments", [["--steps", "0"], ["--steps", "many"], ["--seed", "-1"]])
def test_bad_numbers_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        __main__.main(["demo", *arguments])
    assert end.value.code == 2
    assert "must be a whole number" in capsys.readouterr().err


def test_refuses_what_cannot_be_shared_by_ranks(tmp_path, capsys, monkeypatch):
    arguments = ["demo", "--dir", str(tmp_path), "--ranks", "2", "--batch-size", "1"]
    assert __main__.main(arguments) == 2
    assert "--batch-size must be at least --ranks, 2, got 1" in capsys.readouterr().err
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert __main__.main(["demo", "--dir", str(tmp_path)]) == 2
    assert "several ranks are started by --ranks N" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_steps_follow_from_seed_and_number_alone():
    whole, part = _clicks.Clicks(3).log(0, 9, 500), _clicks.Clicks(3).log(7, 9, 500)
    for name in ("user", "item", "label"):
        np.testing.assert_array_equal(getattr(whole, name)[7:], getattr(part, name))
    assert not np.array_equal(part.user[0], part.user[1])
    assert not np.array_equal(part.user, _clicks.Clicks(4).log(7, 9, 500).user)
    assert _clicks.Clicks(3).log(5, 5, 500).user.shape == (0, 500)


def test_a_user_brings_the_same_ids_wherever_he_appears():
    features = _clicks.Clicks(3).evaluation(5000).features
    for name in ("segments", "history"):
        rows = {}
        for user, ids in zip(features["user"].tolist(), features[name].tolist()):
            assert rows.setdefault(user, ids) == ids
    assert features["segments"].shape == (5000, _clicks.SEGMENTS_PER_USER)
    assert features["history"].shape == (5000, _clicks.HISTORY)


def test_ids_are_hashed_one_to_one_and_of_either_sign():
    ids = np.concatenate([_clicks._ids(kind, np.arange(50_000)) for kind in ("user", "item", "segment", "category")])
    assert len(np.unique(ids)) == ids.size
    assert 0.49 < (ids < 0).mean() < 0.51


def test_popularity_follows_a_power_law():
    users = _clicks.Clicks(1).log(0, 1, 100_000).user
    counts = np.sort(np.unique(users, return_counts=True)[1])[::-1]
    share = counts[: len(counts) // 100].sum() / counts.sum()
    assert 0.05 < share < 0.5  # of the busiest 1 %


def test_auc_is_the_share_of_pairs_in_order():
    rng = np.random.default_rng(0)
    label, score = rng.random(300) < 0.3, rng.integers(0, 20, 300)  # many ties
    pairs = score[label][:, None] - score[~label][None, :]
    assert _clicks.auc(label, score) == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    assert _clicks.auc(label, label) == 1.0
    with pytest.raises(ValueError, match="needs clicks and non-clicks"):
        _clicks.auc(np.ones(3), np.ones(3))
