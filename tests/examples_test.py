"""Every script in examples/ runs, in a directory of its own."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = sorted((pathlib.Path(__file__).parent.parent / "examples").glob("*.py"))


def run(script, directory):
    done = subprocess.run([sys.executable, str(script)], cwd=directory, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_runs(script, tmp_path):
    run(script, tmp_path)


def test_session_example_saves_and_restarts_from_its_step_0(tmp_path):
    script = next(path for path in EXAMPLES if path.stem == "session_feature_spec")
    first = run(script, tmp_path)
    assert "restored step 0" not in first
    assert "Encounter the end of Sequence" in first and "Demo done!" in first
    saved = sorted(path.name for path in (tmp_path / "saved-model").glob("sparse-model-0-*"))
    assert saved == [
        "sparse-model-0-0",
        "sparse-model-0-100",
        "sparse-model-0-30",
        "sparse-model-0-60",
        "sparse-model-0-90",
    ]
    assert "restored step 0" in run(script, tmp_path)
