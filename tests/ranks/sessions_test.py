"""Sessions of several ranks: what they agree on, uneven data, errors of one, hooks that act on all."""

import pytest

from tests.ranks import mpi

pytestmark = [pytest.mark.slow, mpi.needed]


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_begin_fail_and_end_together(ranks, tmp_path):
    output = mpi.run("tests.ranks.sessions", ranks, tmp_path)
    assert output.count("all cases passed") == ranks


def test_estimators_of_ranks_share_a_directory(tmp_path):
    output = mpi.run("tests.ranks.estimators", 2, tmp_path)
    assert output.count("all cases passed") == 2
