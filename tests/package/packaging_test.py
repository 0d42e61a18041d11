"""The wheel, as a user gets it: what is in it, and that it works in an environment that has never seen this tree."""

import fcntl
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

from tests.shared.paths import ROOT

pytestmark = pytest.mark.slow

TENSORFLOW = next(
    d
    for d in importlib.metadata.distributions()
    if d.metadata["Name"] in ("tensorflow", "tensorflow-cpu", "tensorflow_cpu")
)


def run(*command, **options):
    result = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if result.returncode != 0:
        pytest.fail(result.stdout, pytrace=False)
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    # In the build directory of `make setup`, where all objects are up to date: seconds instead of minutes.
    build_dir = ROOT / "build" / f"tf-{TENSORFLOW.version}"
    build_dir.mkdir(parents=True, exist_ok=True)
    target = tmp_path_factory.mktemp("wheel")
    with open(build_dir / ".packaging_test.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
            "-C", f"build-dir={build_dir}", "-w", target, ROOT)  # fmt: skip
    (path,) = target.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of a new environment: the wheel, and TensorFlow with what it needs from ours."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False)
    interpreter = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-deps", "--no-index", wheel)
    # A plain path line: packages are found there after the environment's own, and the .pth file by which our own
    # editable install hooks into imports is not read.
    (site_packages,) = environment.glob("lib/python*/site-packages")
    (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return interpreter


def run_script(python, script, cwd):
    return run(python, "-c", script, cwd=cwd, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})


def test_the_wheel_holds_both_libraries_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "mx_rec/_native/libmxrec_core.so" in names
    assert "mx_rec/_native/_mxrec_ops.so" in names
    assert "mx_rec/_native/_build_info.py" in names
    assert "mx_rec/cli/_page.css" in names
    assert "mx_rec/py.typed" in names
    assert [n for n in names if n.endswith("_test.py")] == []
    assert {n.split("/")[0].split("-")[0] for n in names} <= {"mx_rec", "mx_rec_doors.pth"}


def test_the_wheel_serves_any_python_and_pins_its_tensorflow(wheel):
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    pinned = f"Requires-Dist: {TENSORFLOW.metadata['Name'].replace('_', '-')}=={TENSORFLOW.version}"
    assert pinned in metadata.splitlines()
    assert "Requires-Dist: tensorflow-estimator<2.16,>=2.15" in metadata.splitlines()


def test_the_installed_package_loads_its_ops_outside_the_source_tree(python, tmp_path):
    script = """
import sys
import mx_rec
assert mx_rec.__file__.startswith(sys.prefix), mx_rec.__file__
assert "tensorflow" not in sys.modules
from mx_rec._native import _build_info, library
assert _build_info.PACKAGE_VERSION == mx_rec.__version__
library.core()
assert "tensorflow" not in sys.modules
from mx_rec._ops.library import ops
ops()
"""
    run_script(python, script, tmp_path)


def test_the_installed_package_passes_the_smoke_test_of_make_wheels(python, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = run(python, ROOT / "packaging_support" / "smoke.py", cwd=tmp_path, env=environment)
    assert f"TensorFlow {TENSORFLOW.version}" in found.splitlines()[-1]


def test_the_installed_package_has_a_console_script(python, tmp_path):
    script = python.parent / "mx_rec"
    assert "usage: mx_rec " in run(script, "--help", cwd=tmp_path)
    assert "complete -o filenames -F _mx_rec mx_rec" in run(script, "completion", "bash", cwd=tmp_path)


def test_the_installed_package_has_the_vendor_s_names_before_mx_rec_is_imported(python, tmp_path):
    script = """
import sys
from npu_bridge.npu_init import *
from tf_adapter import NPUEstimator as Door
from mx_rec.npu import npu_estimator
assert Door is NPUEstimator is npu_estimator.NPUEstimator
assert npu_estimator.__file__.startswith(sys.prefix), npu_estimator.__file__
assert issubclass(NPUEstimator, tf.estimator.Estimator)
"""
    run_script(python, script, tmp_path)


def test_a_tf_adapter_beside_the_script_stands_in_for_the_installed_one(python, tmp_path):
    (tmp_path / "tf_adapter.py").write_text("from npu_bridge.npu_init import *\nMINE = True\n")
    (tmp_path / "script.py").write_text(
        "from tf_adapter import MINE, NPUEstimator\n"
        "from mx_rec.npu import NPUEstimator as ours\n"
        "assert MINE and NPUEstimator is ours\n"
    )
    run(python, tmp_path / "script.py", cwd=tmp_path)


def test_another_tensorflow_than_at_build_time_is_refused_with_the_remedy(python, tmp_path):
    script = f"""
from mx_rec._native import _build_info
from mx_rec._ops.library import ops
_build_info.TF_VERSION = "1.2.3"  # as if the libraries had been built for it
try:
    ops()
except ImportError as error:
    assert "1.2.3" in str(error) and "{TENSORFLOW.version}" in str(error) and "pip install" in str(error), error
else:
    raise AssertionError("loaded into a TensorFlow it was not built for")
"""
    run_script(python, script, tmp_path)
