"""Rules about who may know whom, which no compiler checks."""

import ast
import re
import subprocess
import sys
import tokenize

import pytest

from tests.shared.paths import ROOT

NATIVE = sorted(p for p in (ROOT / "native").rglob("*") if p.suffix in (".h", ".cc"))
PYTHON = sorted(p for p in (ROOT / "mx_rec").rglob("*.py") if not p.name.endswith("_test.py"))


def test_only_native_tf_includes_tensorflow():
    include = re.compile(r'^\s*#\s*include\s*["<]tensorflow/', re.MULTILINE)
    including = {p.relative_to(ROOT).parts[:2] for p in NATIVE if include.search(p.read_text())}
    assert including <= {("native", "tf")}


# The rooms of the package, each with what lies beneath it: a module imports only modules of its own room and of rooms
# further up in this list. Where a room means files beside the package's __init__, it is their names.
ROOMS = (
    ("_version", "_lazy", "_log", "_doors"),
    ("__init__",),
    ("_check", "constants"),
    ("_config",),
    ("_process",),  # all that changes
    ("_native",),  # the C interface of the core
    ("checkpoint",),
    ("transaction",),
    ("reading",),
    ("_tf",),  # the border to TensorFlow
    ("_ops",),
    ("_tables",),
    ("_lowering",),
    ("_sessions",),
    ("saver",),
    ("core",),
    ("optimizers",),
    ("graph",),
    ("util",),
    ("serving", "validator", "npu"),
    ("demo",),
    ("cli",),
    ("__main__",),
)
# What imports no TensorFlow, so that tools start in a moment and need none.
WITHOUT_TENSORFLOW = ("_check", "_config", "_process", "_native", "checkpoint", "transaction", "reading")


def _room(module):
    """The name of a module's room: of a folder of mx_rec, or of a file beside its __init__."""
    return (module.split(".") + ["__init__"])[1]


def _imports(path):
    """The modules of mx_rec that a file imports, anywhere in it, but for type checkers."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module.split(".")[0] == "mx_rec":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "mx_rec")


def test_every_room_knows_only_those_beneath_it():
    level = {name: number for number, names in enumerate(ROOMS) for name in names}
    wrong = []
    for path in PYTHON:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for imported in _imports(path):
            here, there = _room(module), _room(imported)
            if there == "version":  # mx_rec.version()
                continue
            if here != there and level[here] <= level[there]:
                wrong.append(f"{module} imports {imported}: '{there}' does not lie beneath '{here}'")
    assert not wrong, "\n".join(wrong)


def _is_op_knowledge(node):
    """Whether an expression counts an op's inputs or outputs, edits them or its attributes, or names an op of ours."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith("Mxrec")
    if isinstance(node, ast.Attribute):
        return node.attr in ("get_attr", "_set_attr", "_update_input")
    if isinstance(node, ast.Subscript):
        counted = ast.walk(node.value)
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        counted = [node.value]
    else:
        return False
    return any(isinstance(inner, ast.Attribute) and inner.attr in ("inputs", "outputs") for inner in counted)


def test_only_ops_and_tf_know_the_places_in_an_op():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in PYTHON
        if _room(".".join(path.relative_to(ROOT).with_suffix("").parts)) not in ("_ops", "_tf")
        for node in ast.walk(ast.parse(path.read_text()))
        if _is_op_knowledge(node)
    ]
    assert not found, "\n".join(found)


def test_rooms_for_files_alone_import_no_tensorflow():
    found = [
        str(path.relative_to(ROOT))
        for path in PYTHON
        if _room(".".join(path.relative_to(ROOT).with_suffix("").parts)) in WITHOUT_TENSORFLOW
        and "import tensorflow" in path.read_text()
    ]
    assert found == []


def test_no_python_runs_inside_a_training_step():
    # A Python function in the graph holds the interpreter lock and dies with the process that made the graph.
    forbidden = {"py_func", "py_function", "numpy_function", "eager_py_func"}
    found = []
    for path in PYTHON:
        with tokenize.open(path) as source:
            for token in tokenize.generate_tokens(source.readline):
                if token.type == tokenize.NAME and token.string in forbidden:
                    found.append(f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}")
    assert found == []


def test_the_package_never_imports_the_vendor_s_names():
    # A script may bring a file tf_adapter.py of its own, which stands in for ours.
    statement = re.compile(r"^\s*(?:from|import)\s+(?:npu_bridge|npu_device|rec_sdk_common|tf_adapter)\b", re.MULTILINE)
    assert [str(p.relative_to(ROOT)) for p in PYTHON if statement.search(p.read_text())] == []


def test_functions_that_share_a_name_with_a_module_are_functions():
    script = """
import mx_rec.saver.saver, mx_rec.saver
for name in dir(mx_rec.saver) + ["lenient"]:
    assert name.startswith("_") or type(getattr(mx_rec.saver, name)).__name__ == "function", name
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "import mx_rec",
        "from mx_rec.core.asc.feature_spec import FeatureSpec",
        "from mx_rec.util.initialize import init, get_rank_id",
        "from rec_sdk_common.communication.hccl.hccl_info import get_rank_id",
        "from rec_sdk_common.log import logger",
        "import npu_bridge, npu_device",
    ],
)
def test_light_imports_do_not_import_tensorflow(statement):
    script = f"import sys\n{statement}\nassert 'tensorflow' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
