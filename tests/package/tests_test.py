"""Rules about the tests themselves."""

import ast
import collections
import re

import pytest

from tests.shared.paths import ROOT

FILES = [ROOT / "conftest.py", *sorted(p for folder in ("mx_rec", "tests") for p in (ROOT / folder).rglob("*.py"))]
IMPORT = re.compile(
    r"^\s*(?:import\s.*\b\w+_test\b|from\s+[\w.]+_test\s+import\b|from\s+[\w.]+\s+import\s.*\b\w+_test\b)", re.MULTILINE
)


def imports_of_tests(source):
    """Those in the program, and those in the scripts that it keeps as strings."""
    texts = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            texts.append(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
    return [match.group().strip() for text in texts for match in IMPORT.finditer(text)]


def test_nothing_imports_a_test():
    """What several tests use is a module of tests/shared."""
    found = {str(path.relative_to(ROOT)): imports_of_tests(path.read_text()) for path in FILES}
    assert {path: imports for path, imports in found.items() if imports} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import THIS",
        "import os, tests.THIS as a",
        "def f():\n    from tests.laws.THIS import KEYS",
        "from tests.laws import (\n    other,\n    THIS,\n)",
        "SCRIPT = '''\nimport sys\nimport THIS\n'''",
        "SCRIPT = f'''\nprint({1})\nfrom tests import THIS\n'''",
    ],
)
def test_an_import_of_a_test_is_found_wherever_it_is(source):
    assert len(imports_of_tests(source.replace("THIS", "a_test"))) == 1


def test_what_ships_knows_no_tests():
    statement = re.compile(r"^\s*(?:import|from)\s+tests\b", re.MULTILINE)
    shipped = [p for p in FILES if p.is_relative_to(ROOT / "mx_rec") and not p.name.endswith("_test.py")]
    assert [str(p.relative_to(ROOT)) for p in shipped if statement.search(p.read_text())] == []


def test_every_folder_of_tests_is_told_of():
    told = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert {p.parent.name for p in (ROOT / "tests").rglob("*_test.py")} <= told


def test_no_test_file_gives_a_name_twice():
    """The later one would silently take the place of the earlier: marks, cases, or a whole test."""
    twice = []
    for path in (p for p in FILES if p.name.endswith("_test.py")):
        names = collections.Counter()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names[node.name] += 1
        twice += [f"{path.relative_to(ROOT)}: {name}" for name, count in names.items() if count > 1]
    assert twice == []
