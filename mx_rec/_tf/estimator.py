"""`estimator`: the module tf.estimator, wherever it comes from.

TensorFlow lost it in version 2.16. The package tensorflow-estimator 2.15 still has it, and works with later versions
once the modules that TensorFlow deleted with it can be imported: TPUs and the distribution coordinator, which are not
used without a cluster. Then `tf.estimator` and `tf.compat.v1.estimator` are what they were. This is the only file that
knows of it.
"""

import importlib.util
import sys
import types

import tensorflow as tf

_PARAMETERS = ("Adagrad", "Adam", "Ftrl", "Momentum", "ProximalAdagrad", "RMSProp", "StochasticGradientDescent")
# Modules that tensorflow-estimator imports, with what it reads of them at import or on a path that is walked here.
_DELETED = {
    "tensorflow.python.distribute.estimator_training": {
        "should_run_distribute_coordinator": lambda config: False,
        "init_run_config": lambda config, tf_config: None,
        "estimator_train": None,
        "estimator_evaluate": None,
        "train_and_evaluate": None,
    },
    "tensorflow.python.tpu.session_support": {},
    "tensorflow.python.tpu.tpu_embedding_gradient": {},
    "tensorflow.python.tpu.tpu_embedding": {
        **{f"{name}Parameters": type(f"{name}Parameters", (), {}) for name in _PARAMETERS},
        "FeatureConfig": object,
        "TableConfig": object,
    },
}


def _bring_back():
    for name, contents in _DELETED.items():
        if importlib.util.find_spec(name) is None:
            module = types.ModuleType(name, "Stands in for a module that this TensorFlow does not have.")
            vars(module).update(contents)
            sys.modules[name] = module
            parent, _, leaf = name.rpartition(".")
            setattr(importlib.import_module(parent), leaf, module)
    from tensorflow.python.util import tf_export

    if not hasattr(tf_export, "ESTIMATOR_API_NAME"):
        tf_export.ESTIMATOR_API_NAME = "estimator"
        for table, suffix in ((tf_export.API_ATTRS, ""), (tf_export.API_ATTRS_V1, "_v1")):
            names = tf_export._Attributes(f"_estimator_api_names{suffix}", f"_estimator_api_constants{suffix}")
            table["estimator"] = names
    try:
        tf.estimator = importlib.import_module("tensorflow_estimator.python.estimator.api._v2.estimator")
        v1 = importlib.import_module("tensorflow_estimator.python.estimator.api._v1.estimator")
        # The first `import tensorflow.compat.v1` makes another module than `tf.compat.v1` was, and replaces that. A
        # script may hold either.
        for name in ("tensorflow._api.v2.compat.v1", "tensorflow.compat.v1"):
            importlib.import_module(name).estimator = v1
    except ImportError as error:
        raise ImportError(
            f"TensorFlow {tf.__version__} has no Estimator, and the one of the package tensorflow-estimator cannot be "
            f"imported ({error}); pip install 'tensorflow-estimator>=2.15,<2.16'"
        ) from error


if not hasattr(tf, "estimator"):
    _bring_back()
estimator = tf.estimator
