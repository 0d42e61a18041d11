"""Versions that several files name are the same in all of them."""

import re
import sys

import pytest
from packaging.requirements import Requirement

from tests.shared.paths import ROOT

sys.path.insert(0, str(ROOT / "packaging_support"))
import tensorflow_pin

try:
    import tomllib
except ImportError:  # before Python 3.11
    from pip._vendor import tomli as tomllib

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("python", [(3, 9), (3, 11), (3, 12), (3, 14)])
def test_a_build_requires_the_default_tensorflow(python, monkeypatch):
    monkeypatch.setattr(sys, "version_info", python)
    required = [Requirement(text) for text in PYPROJECT["build-system"]["requires"] if text.startswith("tensorflow")]
    environment = {"python_version": ".".join(map(str, python))}
    found = [(one.name, f"{one.specifier}") for one in required if one.marker.evaluate(environment)]
    name, version = tensorflow_pin.default()
    assert found == [(name, f"=={version}")]


def test_tools_that_two_extras_pin_are_the_same():
    pins = {}
    for requirements in PYPROJECT["project"]["optional-dependencies"].values():
        for one in map(Requirement, requirements):
            pins.setdefault(one.name, set()).add(str(one.specifier))
    assert {name: found for name, found in pins.items() if len(found) > 1} == {}


def test_pages_name_the_versions_that_the_makefile_knows():
    newer = re.search(r"^NEWER_TF := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1).split()
    known = {*newer, tensorflow_pin.default()[1]} | {"2.15.1"}  # before Python 3.12
    for page in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"(?:TF=|TensorFlow |^\| )(2\.\d+\.\d+)\b", (ROOT / page).read_text(), re.MULTILINE)
        assert named and set(named) <= known, page
    assert newer[-1] in (ROOT / "README.md").read_text()
