"""Checkpoints outlive processes that are killed at any moment.

`python -m tests.checkpoint.kill_loop 1000` kills more of them.
"""

import subprocess
import sys

import pytest

from tests.shared.paths import ROOT

pytestmark = pytest.mark.slow


def test_what_a_killed_process_leaves_restores_to_the_bit():
    command = [sys.executable, "-m", "tests.checkpoint.kill_loop", "200"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("rounds") == 4
