"""What interrupted saves of several ranks to paths of their own leave: the shares of one save count together, and the
next save keeps all of them or none."""

import os
import subprocess
import sys

import pytest

from mx_rec.checkpoint import _layout, _manifest, _owner
from mx_rec.transaction import _recovery
from mx_rec.transaction._pair import Pair
from mx_rec.transaction._transaction import Transaction
from tests.shared.checkpoint_files import hidden_names


@pytest.fixture(scope="module")
def owner():
    """A process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return f"{_owner.host()}-{process.pid}"


class Rank:
    """A rank of two that saves model-<rank>-7."""

    def __init__(self, directory, rank, owner):
        self.prefix, self._rank = str(directory / f"model-{rank}-7"), rank
        self._owner = owner

    def complete(self, save):
        """The rank's share of a save, under hidden names; what was in the dense part's index tells which save it is."""
        pair = Pair(self.prefix, self._owner)
        replaces = _manifest.Replaced(
            _manifest.identity(_recovery.locate(self.prefix).sparse), _layout.dense_crc32c(self.prefix)
        )
        pair.make()
        for end in (".data-00000-of-00001", ".index"):
            with open(pair.dense_prefix + end, "w") as file:
                file.write(f"{save}")
        share = _manifest.Share(self._rank, save, ("sparse-model-0-7", "sparse-model-1-7"), ())
        dense = _layout.dense_crc32c(pair.dense_prefix)
        pair.complete(_manifest.Manifest(7, dense, {}, replaces, None, share))
        return pair

    def found(self):
        """The save that a restore finds; None: it finds nothing."""
        location = _recovery.locate(self.prefix)
        if not os.path.isdir(location.sparse):
            return None
        with open(location.dense + ".index") as file:
            dense = int(file.read())
        assert _manifest.read(location.sparse).share.save == dense
        return dense


@pytest.fixture
def ranks(tmp_path, owner):
    yield [Rank(tmp_path, rank, owner) for rank in range(2)]


def found(ranks):
    return [rank.found() for rank in ranks]


def settle(directory, name):
    """What a process does that is about to save that name."""
    Transaction.prepare(str(directory / name))


def test_a_share_counts_when_rank_0s_is_complete(ranks, tmp_path):
    for rank in ranks:
        rank.complete(1).install()
    ranks[1].complete(2)
    assert found(ranks) == [1, 1]
    ranks[0].complete(2)
    assert found(ranks) == [2, 2]


def test_shares_that_do_not_count_go(ranks, tmp_path):
    for rank in ranks:
        rank.complete(1).install()
    ranks[1].complete(2)
    settle(tmp_path, "model-0-8")
    assert found(ranks) == [1, 1] and not hidden_names(tmp_path)


@pytest.mark.parametrize("before", [(0,), (1,), (0, 1)], ids=["of rank 0", "of rank 1", "of both"])
def test_shares_stay_if_any_has_replaced_one(ranks, tmp_path, before):
    for rank in before:
        ranks[rank].complete(1).install()
    for rank in reversed(ranks):
        rank.complete(2)
    assert found(ranks) == [2, 2]
    settle(tmp_path, "model-0-8")
    assert found(ranks) == [2, 2] and not hidden_names(tmp_path)


@pytest.mark.parametrize("installed", [0, 1])
def test_shares_stay_if_any_is_in_its_place(ranks, tmp_path, installed):
    pairs = [rank.complete(2) for rank in reversed(ranks)][::-1]
    pairs[installed].install()
    assert found(ranks) == [2, 2]
    settle(tmp_path, "model-0-8")
    assert found(ranks) == [2, 2] and not hidden_names(tmp_path)


def test_shares_that_nobody_was_told_of_go(ranks, tmp_path):
    for rank in reversed(ranks):
        rank.complete(2)
    settle(tmp_path, "model-0-8")
    assert found(ranks) == [None, None] and os.listdir(tmp_path) == [".mx_rec-lock"]


def test_shares_stay_that_the_next_save_replaces(ranks, tmp_path):
    for rank in reversed(ranks):
        rank.complete(2)
    settle(tmp_path, "model-0-7")
    assert found(ranks) == [2, 2] and not hidden_names(tmp_path)


def test_a_share_that_may_count_outlives_its_failure(ranks, tmp_path):
    """Rank 1 has completed its share when the exchange fails, and cannot know whether rank 0 has."""
    for rank in ranks:
        rank.complete(1).install()
    transaction = Transaction.begin(ranks[1].prefix)
    pair = Pair(ranks[1].prefix, _owner.name())
    for end in (".data-00000-of-00001", ".index"):
        with open(pair.dense_prefix + end, "w") as file:
            file.write("2")
    share = _manifest.Share(1, 2, ("sparse-model-0-7", "sparse-model-1-7"), ())
    transaction.complete(7, {}, share=share)
    transaction.abort()
    assert found(ranks) == [1, 1]
    ranks[0].complete(2)
    assert found(ranks) == [2, 2]
