"""Ranks that do not save the same get an error each, and checkpoints stay; a session keeps as many as it should."""

import pytest

from tests.ranks import mpi

pytestmark = [pytest.mark.slow, mpi.needed]


def test_saves_that_differ_are_refused_on_all_ranks(tmp_path):
    output = mpi.run("tests.ranks.save_errors", 3, tmp_path, MX_REC_EXCHANGE_TIMEOUT="20")
    assert output.count("all cases passed") == 3
