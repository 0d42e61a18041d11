"""Scripts in the manner of the original's demos run without a change, by `python script.py` and by `mx_rec run`."""

import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPTS = pathlib.Path(__file__).parent / "ported"
PLAIN, RUN = [], ["-m", "mx_rec", "run"]
each_command = pytest.mark.parametrize(
    "command", [pytest.param(PLAIN, id="python"), pytest.param(RUN, id="mx_rec", marks=pytest.mark.border)]
)
# What leaves a checkpoint stands before what loads it.
LITTLE = """
    train load_and_train predict modify load_and_train+modify predict+modify predict one_shot one_shot+modify
    static static+modify expansion expansion+modify timestamp timestamp+modify many many+modify padding padding+modify
    tuple tuple+modify dp dp+modify host host+modify disk disk+modify static+expansion+modify+one_shot
    disk+timestamp+modify many+expansion+modify
""".split()


def run(command, script, directory, *arguments):
    environment = {name: value for name, value in os.environ.items() if "RANK" not in name and "OMPI" not in name}
    done = subprocess.run(
        [sys.executable, *command, str(SCRIPTS / script), *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done


@each_command
def test_little_demo(command, tmp_path):
    done = run(command, "little_demo.py", tmp_path, *LITTLE)
    assert done.stdout.splitlines() == [f"{mode} done" for mode in LITTLE]
    assert "stayed: lookup" not in done.stderr


@each_command
def test_estimator_demo(command, tmp_path):
    modes = ["spec", "modify", "slice"]
    done = run(command, "estimator_demo.py", tmp_path, *modes)
    assert done.stdout.splitlines() == [f"{mode} done" for mode in modes]
    assert "whose dataset is not in the graph" not in done.stderr


@pytest.mark.border
@pytest.mark.parametrize("script", ["session_2023", "dlrm", "mmoe"])
def test_scripts_for_tensorflow_1(script, tmp_path):
    assert run(RUN, f"{script}.py", tmp_path).stdout.splitlines()[-1].endswith("done")
