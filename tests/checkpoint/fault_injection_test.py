"""Whichever file operation of a save fails, or is the last one of its process: a checkpoint stays whole."""

import subprocess
import sys

import pytest

from tests.shared.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "kind, failing, killed", [([], 6, 2), (["deltas"], 6, 2), (["large"], 2, 0)], ids=["whole", "deltas", "large"]
)
def test_no_failing_operation_harms_a_checkpoint(kind, failing, killed):
    command = [sys.executable, "-m", "tests.checkpoint.fault_injection", *kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("operations;") == failing and done.stdout.count("processes;") == killed
