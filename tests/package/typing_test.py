"""The annotations of the public API, as a type checker sees them in a user's program."""

import ast
import dataclasses
import importlib
import inspect
import os
import re
import subprocess
import sys
from typing import get_type_hints

import pytest

from mx_rec import _config
from mx_rec.util import initialize
from mx_rec.util._init_options import InitOptions
from tests.shared.paths import ROOT
from tests.shared.public_names import public_names

PROGRAMS = ROOT / "tests" / "package" / "typing"


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Runs mypy on a program; returns its lines of errors."""
    pytest.importorskip("mypy")  # a development tool that needs Python 3.10
    folder = tmp_path_factory.mktemp("mypy")
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-tensorflow.*]\nignore_missing_imports = True\n")

    def check(name):
        command = [sys.executable, "-m", "mypy", "--config-file", folder / "mypy.ini", "--cache-dir", folder / "cache",
                   "--follow-imports", "silent", "--no-error-summary", PROGRAMS / name]  # fmt: skip
        # The source tree in the place of an installed package: an editable install is a hook that mypy does not follow.
        result = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "MYPYPATH": str(ROOT)},
        )
        assert result.stderr == ""
        return result.stdout.splitlines()

    return check


@pytest.mark.slow
def test_a_program_of_a_user_passes_mypy_strict(mypy):
    assert mypy("sample.py") == []


@pytest.mark.slow
def test_mistakes_are_found(mypy):
    source = (PROGRAMS / "mistakes.py").read_text().splitlines()
    expected = {number: found[1] for number, line in enumerate(source, 1) if (found := re.search(r"  # (\S+)$", line))}
    errors = [re.search(r"mistakes\.py:(\d+): error: .*\[([a-z-]+)\]$", line) for line in mypy("mistakes.py")]
    assert {int(error[1]): error[2] for error in errors if error} == expected


def test_the_package_tells_type_checkers_that_it_has_annotations():
    assert (ROOT / "mx_rec" / "py.typed").is_file()


def public_functions():
    """(name, function) of every public name, with the methods of public classes."""
    found = {}
    for module, name in public_names():
        value = getattr(importlib.import_module(module), name)
        parts = {"": value}
        if inspect.isclass(value):
            parts = {f".{part}": member for part, member in vars(value).items() if not part.startswith("_")}
            parts[".__init__"] = vars(value).get("__init__")
        for part, member in parts.items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(function) and function.__module__.startswith("mx_rec."):
                found.setdefault(function, f"{module}.{name}{part}")
    return [(name, function) for function, name in found.items()]


@pytest.mark.parametrize("function", [pytest.param(function, id=name) for name, function in public_functions()])
def test_public_functions_say_what_they_take_and_return(function):
    signature = inspect.signature(function)
    kinds = {
        name: parameter.annotation for name, parameter in signature.parameters.items() if name not in ("self", "cls")
    }
    kinds["return"] = signature.return_annotation
    assert [name for name, kind in kinds.items() if kind is inspect.Parameter.empty] == []
    # `object` takes anything and gives nothing.
    assert [
        name for name, kind in kinds.items() if re.search(r"\bobject\b", getattr(kind, "__name__", str(kind)))
    ] == []


def test_the_keywords_of_init_are_those_of_its_type():
    known = {field.name: field.type for field in dataclasses.fields(_config.Config)}
    described = get_type_hints(InitOptions)
    assert set(described) == {*known, *initialize._OLD_NAMES, *initialize._IGNORED}
    for name, kind in known.items():
        assert described[name] == kind or name == "nonfinite_gradients"


def lazy_packages():
    """The files that forward names with `attach`, and the call."""
    for path in sorted((ROOT / "mx_rec").rglob("__init__.py")):
        tree = ast.parse(path.read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "attach"]
        yield from (pytest.param(tree, call, id=str(path.relative_to(ROOT))) for call in calls)


@pytest.mark.parametrize("tree, call", list(lazy_packages()))
def test_a_name_that_a_package_forwards_has_its_type(tree, call):
    # A type checker sees no more than `object` of what __getattr__ returns.
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        for alias in node.names
    }
    assert seen == {name: f"{module}.{name}" for name, module in ast.literal_eval(call.args[1]).items()}
