"""A rank that fails, or does something alone: the others end, too, in bounded time, say why, and leave no process."""

import pathlib
import time
import uuid

import pytest

from tests.ranks import mpi

pytestmark = [pytest.mark.slow, mpi.needed]

# What ends the last rank, and what the others' errors say of it, if MPI lets them.
FAULTS = {
    "raises_between_steps": "the script of this rank had enough",
    "is_killed": None,
    "is_killed_inside_a_step": None,
    "has_a_gradient_that_is_not_finite": "finite",
    "fills_its_table": "is full",
    "ends_without_an_error": "rank 1 has ended",
    "evaluates_alone": "rank 0 has waited for rank 1 for 6 s, at",
    "saves_alone": "rank 0 has waited for rank 1 for 6 s, at 'save'",
    "reads_rows_alone": "rank 0 has waited for rank 1 for 6 s, at 'reading table 'user': keys'",
}


def processes_with(mark):
    """The command lines of processes that were started with an argument."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if mark in words:
            found.append(" ".join(words))
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rank_that_fails_ends_the_others(fault, monkeypatch):
    monkeypatch.setenv("MX_REC_EXCHANGE_TIMEOUT", "6")
    mark = uuid.uuid4().hex
    output = mpi.run("tests.ranks.faults", 2, fault, mark, seconds=100, fails=True)
    assert "the ranks train" in output and "it goes on" not in output
    if FAULTS[fault] is not None:
        assert FAULTS[fault] in output, output[-4000:]
    deadline = time.monotonic() + 10
    while processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not processes_with(mark)
