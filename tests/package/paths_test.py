"""Files that comments, docstrings and pages name are there."""

import ast
import io
import re
import tokenize

from tests.shared.paths import ROOT

FOLDERS = ("native", "mx_rec", "tests", "benchmarks", "docs", "examples", "packaging_support")
SUFFIXES = (".py", ".h", ".cc", ".c", ".md", ".toml", ".css")
FILES = [
    *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES),
    *(path for path in sorted(ROOT.iterdir()) if path.suffix in SUFFIXES or path.name == "Makefile"),
]
# A path with a folder. What make puts into dist/ is no file of the repository, nor are headers of the system.
NAMED = re.compile(r"(?<![\w/.<>*{}$~-])(?!dist/|linux/|sys/)((?:[\w-]+/)+[\w-]+\.(?:py|h|cc|c|md|css|toml))\b")
# Where paths in the repository are told from: a room of the package or the core is named without these.
STARTS = (ROOT, ROOT / "mx_rec", ROOT / "native")


def python_prose(source):
    """Comments and docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


def prose(path):
    text = path.read_text()
    if path.suffix == ".py":
        return "\n".join(python_prose(text))
    if path.suffix in (".h", ".cc", ".c"):
        return "\n".join(re.findall(r"(?<!:)//.*|/\*(?s:.*?)\*/", text))
    return re.sub(r"\[[^]]*\]\(", "", text)  # not the words of a link; docs_test.py follows it


def test_every_path_that_a_file_names_is_there():
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        for name in sorted(set(NAMED.findall(prose(path))))
        if not any((start / name).is_file() for start in (*STARTS, path.parent))
    ]
    assert missing == []
