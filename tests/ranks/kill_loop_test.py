"""Checkpoints of several ranks outlive any of them that is killed at any moment.

`python -m tests.ranks.kill_loop 1000` kills more of them.
"""

import subprocess
import sys

import pytest

from tests.ranks import mpi
from tests.shared.paths import ROOT

pytestmark = [pytest.mark.slow, mpi.needed]


def test_what_killed_ranks_leave_restores_to_the_bit():
    command = [sys.executable, "-m", "tests.ranks.kill_loop", "54"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("rounds") == 6
