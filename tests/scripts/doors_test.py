"""The vendor's packages: doors to mx_rec, there before mx_rec is imported, and never before a real package."""

import subprocess
import sys

import pytest
import tensorflow as tf

from mx_rec._doors import DOORS

pytestmark = pytest.mark.border


def run(script, folder, *options):
    """Runs a script file in `folder`, as users do, in a new process."""
    (folder / "script.py").write_text(script)
    done = subprocess.run([sys.executable, *options, "script.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", ["npu_bridge.npu_init", "npu_device.compat.v1.npu_init"])
def test_a_script_may_begin_with_the_star_import(package, tmp_path):
    script = f"""
from {package} import *
assert tf.__version__ and RewriterConfig.OFF
assert issubclass(NPUEstimator, tf.estimator.Estimator)
config = NPURunConfig(iterations_per_loop=1, dump_config=DumpConfig(enable_dump=False))
assert npu_hooks_append([1]) == [1]
npu_plugin.set_device_sat_mode(0)
assert hccl_ops.allreduce(1.0, "sum") == npu_allreduce(1.0) == 1.0
assert get_local_rank_id() == 0
NPUBroadcastGlobalVariablesHook(0, get_local_rank_id())
assert npu_ops.dropout and npu_unary_ops.gelu
opt = tf.compat.v1.train.GradientDescentOptimizer(0.1)
assert npu_distributed_optimizer_wrapper(opt) is opt
assert util.set_iteration_per_loop(None, "op", 1) == "op"
npu_config_proto(config_proto=tf.compat.v1.ConfigProto())
"""
    run(script, tmp_path)


def test_all_doors_open_whichever_is_first(tmp_path):
    run("\n".join(f"import {name}" for name in DOORS), tmp_path)
    run("\n".join(f"import {name}" for name in reversed(DOORS)), tmp_path)


def test_modules_of_a_door_are_the_modules_of_mx_rec(tmp_path):
    script = """
import npu_device
npu_device.compat.enable_v1()
import tensorflow as tf
assert not tf.executing_eagerly() and not tf.compat.v1.resource_variables_enabled()
from npu_device.compat.v1.hccl import hccl_ops
from npu_bridge.estimator import npu_ops
from npu_bridge.estimator.npu.npu_config import NPURunConfig
from rec_sdk_common.util.tf_adapter import hccl_ops as other
from tf_adapter import NPURunConfig as third
from mx_rec.npu import NPURunConfig as ours
assert hccl_ops.allreduce is other.allreduce and NPURunConfig is third is ours
try:
    npu_device.nothing
except AttributeError as error:
    assert "docs/ported_scripts.md" in str(error)
else:
    raise AssertionError
"""
    run(script, tmp_path)


@pytest.mark.parametrize("first", ["from npu_bridge.npu_init import *", "import tensorflow.compat.v1 as v1"])
def test_tensorflow_has_its_estimator_wherever_a_script_looks(first, tmp_path):
    script = f"""
import tensorflow as tf
attribute = tf.compat.v1
{first}
from npu_bridge.npu_init import *
import tensorflow.compat.v1 as module
stock = module.estimator.Estimator
assert attribute.estimator.Estimator is tf.compat.v1.estimator.Estimator is stock
assert issubclass(NPUEstimator, stock) and issubclass(tf.estimator.Estimator, stock)
"""
    run(script, tmp_path)


def test_a_file_beside_the_script_is_found_first(tmp_path):
    (tmp_path / "tf_adapter.py").write_text("from npu_bridge.npu_init import *\nORIGIN = 'script'\n")
    script = "from tf_adapter import ORIGIN, NPURunConfig\nimport mx_rec.npu\nprint(ORIGIN)\n"
    assert run(script, tmp_path) == "script\n"


def test_a_real_package_is_found_first_and_gets_no_module_of_ours(tmp_path):
    (tmp_path / "npu_bridge").mkdir()
    (tmp_path / "npu_bridge" / "__init__.py").write_text("REAL = True\n")
    script = """
import mx_rec
from npu_bridge import REAL
try:
    import npu_bridge.npu_init
except ModuleNotFoundError as error:
    assert error.name == "npu_bridge.npu_init"
else:
    raise AssertionError("a module of ours in a package that is not")
from npu_device.compat.v1.npu_init import NPUEstimator
"""
    run(script, tmp_path)


def test_without_site_packages_files_the_import_of_mx_rec_opens_the_doors(tmp_path):
    script = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") != "MxRecDoors"]
import importlib.util
assert importlib.util.find_spec("rec_sdk_common") is None
import mx_rec
from rec_sdk_common.log import logger
assert type(sys.meta_path[-1]).__module__ == "mx_rec._doors"
assert "tensorflow" not in sys.modules
"""
    run(script, tmp_path)


def test_starting_python_imports_nothing_of_mx_rec(tmp_path):
    assert (
        run("import sys\nprint([name for name in sys.modules if name.split('.')[0] == 'mx_rec'])", tmp_path) == "[]\n"
    )


def test_several_iterations_per_run_are_refused():
    from npu_bridge.estimator.npu import util

    with pytest.raises(ValueError, match="must be 1 on this machine, got 10.*run the op 10 times as often"):
        util.set_iteration_per_loop(None, None, 10)


def test_a_session_s_configuration_loses_the_vendor_s_pass_alone():
    from npu_bridge.npu_init import RewriterConfig, npu_config_proto

    given = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    given.graph_options.rewrite_options.remapping = RewriterConfig.OFF
    for name in ("NpuOptimizer", "other"):
        given.graph_options.rewrite_options.custom_optimizers.add().name = name
    config = npu_config_proto(config_proto=given)
    assert config.allow_soft_placement and config.graph_options.rewrite_options.remapping == RewriterConfig.OFF
    assert [one.name for one in config.graph_options.rewrite_options.custom_optimizers] == ["other"]
    assert len(given.graph_options.rewrite_options.custom_optimizers) == 2
    assert npu_config_proto() == tf.compat.v1.ConfigProto()


def test_a_session_runs_with_the_vendor_s_pass_in_its_configuration():
    config = tf.compat.v1.ConfigProto()
    custom = config.graph_options.rewrite_options.custom_optimizers.add()
    custom.name = "NpuOptimizer"
    custom.parameter_map["precision_mode"].s = b"allow_mix_precision"
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        assert session.run(tf.constant(1.0) + tf.random.uniform([]) * 0.0) == 1.0


def test_gelu_and_dropout_are_tensorflow_s():
    from npu_bridge.npu_init import npu_ops, npu_unary_ops

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant([-1.0, 0.0, 2.0])
        gelu, expected = session.run([npu_unary_ops.gelu(x), tf.nn.gelu(x, approximate=True)])
        assert gelu.tolist() == expected.tolist()
        assert session.run(npu_ops.dropout(x, keep_prob=1.0)).tolist() == [-1.0, 0.0, 2.0]


def test_bad_arguments_of_the_vendor_s_functions_are_errors():
    from npu_bridge.npu_init import (
        NPUBroadcastGlobalVariablesHook,
        npu_allreduce,
        npu_config_proto,
        npu_distributed_optimizer_wrapper,
        npu_plugin,
    )

    for call, argument in (
        (npu_plugin.set_device_sat_mode, 2),
        (NPUBroadcastGlobalVariablesHook, 1),
        (npu_distributed_optimizer_wrapper, "adam"),
        (npu_config_proto, {}),
        (lambda reduction: npu_allreduce(1.0, reduction), "median"),
    ):
        with pytest.raises(ValueError, match=r"must be .*got"):
            call(argument)
