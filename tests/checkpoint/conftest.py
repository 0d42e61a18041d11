"""What the tests of the command line's tools share: checkpoints, made once for a file of tests, and copies."""

import shutil

import pytest


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A directory with the checkpoints of tool_checkpoints.STEPS, and the rows of each as they were in memory."""
    from tests.shared import tool_checkpoints

    directory = tmp_path_factory.mktemp("run")
    return directory, tool_checkpoints.save_run(directory)


@pytest.fixture
def run(original, tmp_path):
    """A copy of that directory. Its state file names the place where it was made, as after any copy."""
    shutil.copytree(original[0], tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def counted_original(tmp_path_factory):
    """A directory with a checkpoint of table `t`, which counts its keys; what it knows of them; and which have rows."""
    from tests.shared import tool_checkpoints

    directory = tmp_path_factory.mktemp("counted")
    return (directory, *tool_checkpoints.save_counted(directory))


@pytest.fixture
def counted(counted_original, tmp_path):
    shutil.copytree(counted_original[0], tmp_path / "counted")
    return (tmp_path / "counted", *counted_original[1:])
