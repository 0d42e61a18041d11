"""Whichever file operation of a save fails on one of two ranks, or is its last one: a checkpoint stays whole on both.

`python -m tests.ranks.fault_injection 1` tries every single one.
"""

import subprocess
import sys

import pytest

from tests.ranks import mpi
from tests.shared.paths import ROOT

pytestmark = [pytest.mark.slow, mpi.needed]


def test_no_failing_operation_harms_the_checkpoint_of_several_ranks():
    command = [sys.executable, "-m", "tests.ranks.fault_injection", "12", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("operations;") == 16 and done.stdout.count("jobs;") == 8
