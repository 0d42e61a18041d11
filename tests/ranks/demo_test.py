"""The demo on two ranks trains what it trains on one."""

import re
import subprocess
import sys

import pytest

from tests.ranks import mpi

pytestmark = [pytest.mark.slow, mpi.needed]
STEPS = 60


def demo(directory, *arguments):
    command = [sys.executable, "-m", "mx_rec", "demo", "--steps", str(STEPS), "--dir", str(directory), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(output, pattern):
    return [float(number.replace(",", "")) for number in re.findall(pattern, output, re.MULTILINE)]


def test_two_ranks_reach_what_one_reaches_and_go_on_from_there(tmp_path):
    alone, together = demo(tmp_path / "one"), demo(tmp_path / "two", "--ranks", "2")
    assert all(line.startswith("[0] ") for line in together.splitlines())  # rank 0 speaks for both
    curve = r"^(?:\[0\] )?step .* AUC (\S+)"
    assert len(numbers(together, curve)) == 11
    assert numbers(together, curve) == pytest.approx(numbers(alone, curve), abs=2e-3)
    rows = r"^(?:\[0\] )?\w+_table +(\S+) "
    assert len(numbers(alone, rows)) == 4
    assert numbers(together, rows) == numbers(alone, rows)
    assert "to resume: " not in together.lower()
    again = demo(tmp_path / "two", "--ranks", "2", "--steps", str(2 * STEPS))
    assert f"resuming at step {STEPS} of {2 * STEPS}" in again
