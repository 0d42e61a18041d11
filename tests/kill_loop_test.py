"""Checkpoints outlive processes that are killed at any moment. `python tests/kill_loop.py 1000` kills more of them."""

import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_what_a_killed_process_leaves_restores_to_the_bit():
    script = pathlib.Path(__file__).with_name("kill_loop.py")
    done = subprocess.run([sys.executable, str(script), "200"], capture_output=True, text=True, timeout=900)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("rounds") == 4
