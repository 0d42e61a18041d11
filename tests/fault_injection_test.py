"""Whichever file operation of a save fails, or is the last one of its process: a checkpoint stays whole."""

import pathlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("kind", [[], ["deltas"]], ids=["whole", "deltas"])
def test_no_failing_operation_harms_a_checkpoint(kind):
    script = pathlib.Path(__file__).with_name("fault_injection.py")
    done = subprocess.run([sys.executable, str(script), *kind], capture_output=True, text=True, timeout=900)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("operations;") == 6 and done.stdout.count("processes;") == 2
