"""All that `from npu_bridge.npu_init import *` gives."""

import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from mx_rec.npu import npu_plugin, npu_unary_ops, util
from mx_rec.npu.distribution import get_local_rank_id, npu_allreduce, npu_distributed_optimizer_wrapper
from mx_rec.npu.dump_config import DumpConfig
from mx_rec.npu.hooks import NPUBroadcastGlobalVariablesHook, npu_hooks_append
from mx_rec.npu.npu_estimator import NPUEstimator
from mx_rec.npu.npu_run_config import NPURunConfig
from mx_rec.npu.session_config import npu_config_proto
from mx_rec.util.communication import hccl_ops, npu_ops

__all__ = [
    "DumpConfig",
    "NPUBroadcastGlobalVariablesHook",
    "NPUEstimator",
    "NPURunConfig",
    "RewriterConfig",
    "get_local_rank_id",
    "hccl_ops",
    "npu_allreduce",
    "npu_config_proto",
    "npu_distributed_optimizer_wrapper",
    "npu_hooks_append",
    "npu_ops",
    "npu_plugin",
    "npu_unary_ops",
    "tf",
    "util",
]
