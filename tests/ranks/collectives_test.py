"""Collectives, their gradients, and the dense part of a model, against NumPy."""

import pytest

from tests.ranks import mpi

pytestmark = [pytest.mark.slow, mpi.needed]


@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_are_what_numpy_says(ranks):
    output = mpi.run("tests.ranks.collectives", ranks)
    assert output.count("all cases passed") == ranks
