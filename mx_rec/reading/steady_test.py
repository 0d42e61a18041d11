"""Reading a checkpoint beside a save that has its directories between two names."""

import pathlib

import pytest

from mx_rec.checkpoint import _manifest
from mx_rec.reading import _steady
from mx_rec.transaction._transaction import Transaction


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


def test_a_checkpoint_that_was_seen_as_another_one_for_an_instant_is_read_again(directory, tmp_path):
    tries = []

    def confirm_between_two_renames(version):
        tries.append(version)
        if len(tries) == 1:
            (directory / "manifest.json").write_text("{}")
            try:
                version.confirm()
            finally:
                (directory / "manifest.json").unlink()
        return read(version)

    assert _steady.steadily(str(tmp_path / "model"), confirm_between_two_renames) == ["t"]
    assert tries[0] == tries[1]


def test_a_share_of_another_rank_that_takes_its_place_while_it_is_read_is_read_there(tmp_path):
    transactions = [Transaction.begin(str(tmp_path / f"model-{rank}")) for rank in (1, 0)]
    for rank, transaction in zip((1, 0), transactions):
        for end in (".data-00000-of-00001", ".index"):
            pathlib.Path(transaction.dense_prefix + end).write_text("dense")
        share = _manifest.Share(rank, 5, ("sparse-model-0", "sparse-model-1"), ())
        transaction.complete(7, {}, None, share)
    tries = []

    def read_the_other(version):
        tries.append(version.shares)
        other = pathlib.Path(version.shares[1])
        if len(tries) == 1:
            transactions[0].install()
        return [path.name for path in other.iterdir()]

    assert _steady.steadily(str(tmp_path / "model-0"), read_the_other) == [_manifest.NAME]
    assert tries[0] != tries[1] and pathlib.Path(tries[1][1]) == tmp_path / "sparse-model-1"
    transactions[1].install()
