"""Estimators under the names that scripts for the vendor's hardware import.

``from tf_adapter import NPUEstimator``: a tf.estimator.Estimator that takes the vendor's run configuration. Importing
the package also makes `tf.estimator` available where TensorFlow no longer has it (2.16 and later).
"""

from tf_adapter.dump_config import DumpConfig
from tf_adapter.hooks import npu_hooks_append
from tf_adapter.npu_estimator import NPUEstimator
from tf_adapter.npu_run_config import NPURunConfig

__all__ = ["DumpConfig", "NPUEstimator", "NPURunConfig", "npu_hooks_append"]
