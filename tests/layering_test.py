"""Rules about who may know whom, which no compiler checks."""

import pathlib
import re
import subprocess
import sys
import tokenize

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
NATIVE = sorted(p for p in (ROOT / "native").rglob("*") if p.suffix in (".h", ".cc"))
PYTHON = sorted(p for p in (ROOT / "mx_rec").rglob("*.py") if not p.name.endswith("_test.py"))


def test_only_native_tf_includes_tensorflow():
    include = re.compile(r'^\s*#\s*include\s*["<]tensorflow/', re.MULTILINE)
    including = {p.relative_to(ROOT).parts[:2] for p in NATIVE if include.search(p.read_text())}
    assert including <= {("native", "tf")}


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
