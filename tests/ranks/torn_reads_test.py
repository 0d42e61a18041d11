"""Ranks that restore beside others that save under the same name get one save's state on all of them."""

import subprocess
import sys

import pytest

from tests.ranks import mpi
from tests.shared.paths import ROOT

pytestmark = [pytest.mark.slow, mpi.needed]


def test_a_restore_beside_ranks_that_save_gives_one_save():
    command = [sys.executable, "-m", "tests.ranks.torn_reads", "20"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("restores") == 2
