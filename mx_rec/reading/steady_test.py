"""Reading a checkpoint beside a save that has its directories between two names."""

import pathlib

import pytest

from mx_rec.reading import _steady


@pytest.fixture
def directory(tmp_path):
    """The tables of checkpoint tmp_path/model."""
    path = tmp_path / "sparse-model"
    (path / "t" / "key").mkdir(parents=True)
    return path


def read(version):
    return sorted(path.name for path in pathlib.Path(version.location.sparse).iterdir())


def test_a_checkpoint_without_a_name_for_an_instant_is_read_later(directory, tmp_path, monkeypatch):
    aside, slept = directory.rename(tmp_path / "aside"), []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == _steady.LOOKS - 1:
            aside.rename(directory)

    monkeypatch.setattr(_steady.time, "sleep", sleep)
    assert _steady.steadily(str(tmp_path / "model"), read) == ["t"]


def test_a_checkpoint_that_stays_away_is_an_error_soon(directory, tmp_path, monkeypatch):
    directory.rename(tmp_path / "aside")
    slept = []
    monkeypatch.setattr(_steady.time, "sleep", slept.append)
    with pytest.raises(FileNotFoundError):
        _steady.steadily(str(tmp_path / "model"), read)
    assert sum(slept) <= 0.1


def test_an_error_of_a_checkpoint_that_stays_is_raised_at_once(directory, tmp_path, monkeypatch):
    monkeypatch.setattr(_steady.time, "sleep", lambda _: pytest.fail("there is nothing to wait for"))

    def damaged(version):
        raise ValueError(read(version))

    with pytest.raises(ValueError, match="t"):
        _steady.steadily(str(tmp_path / "model"), damaged)
