"""Checkpoints as files, written by an earlier version (README.md): what they hold is restored, and still written."""

import json
import pathlib

import numpy as np
import pytest

from tests.checkpoint import golden_training as golden

CHECKPOINT = pathlib.Path(__file__).parent / "golden" / "checkpoint"
DIRECTORIES = ("sparse-model-3", "delta-sparse-model-6")


def assert_same(actual, expected, place=""):
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), place
        for name, value in expected.items():
            assert_same(actual[name], value, f"{place}/{name}")
    elif isinstance(expected, list):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6, err_msg=place)
    else:
        assert actual == expected, place


@pytest.mark.parametrize("step", [golden.WHOLE, golden.DELTA])
def test_a_restore_gives_what_was_trained(step, tmp_path):
    actual = golden.resave(str(CHECKPOINT / f"model-{step}"), str(tmp_path))
    assert_same(actual, golden.simulated()[step])


def test_what_is_written_today_has_the_same_files(tmp_path):
    golden.write(str(tmp_path))
    for name in DIRECTORIES:
        assert_same(_files(tmp_path / name), _files(CHECKPOINT / name))
    assert_same(golden.state(tmp_path / DIRECTORIES[0]), golden.state(CHECKPOINT / DIRECTORIES[0]))


def _files(directory):
    """Sizes of a directory's files by name, and what its manifest says apart from checksums and versions."""
    sizes = {str(path.relative_to(directory)): path.stat().st_size for path in directory.rglob("slice.*")}
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    tables = manifest.pop("tables")
    for table in tables.values():
        table["files"] = {name: facts["bytes"] for name, facts in table["files"].items()}
        table["slots"] = dict.fromkeys(table["slots"])
    return {"sizes": sizes, "entries": dict.fromkeys(manifest), "tables": tables}
