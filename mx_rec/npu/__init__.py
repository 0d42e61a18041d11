"""What scripts for the vendor's NPUs import besides mx_rec, under the same names, on ordinary CPUs.

The vendor's packages `npu_bridge`, `npu_device`, `tf_adapter` and `rec_sdk_common` are doors to this room
(mx_rec/_doors.py); what each name does here is in docs/ported_scripts.md.
"""

from typing import TYPE_CHECKING

from mx_rec._lazy import attach

if TYPE_CHECKING:
    from mx_rec.npu.distribution import get_local_rank_id as get_local_rank_id
    from mx_rec.npu.distribution import npu_allreduce as npu_allreduce
    from mx_rec.npu.distribution import npu_distributed_optimizer_wrapper as npu_distributed_optimizer_wrapper
    from mx_rec.npu.dump_config import DumpConfig as DumpConfig
    from mx_rec.npu.hooks import NPUBroadcastGlobalVariablesHook as NPUBroadcastGlobalVariablesHook
    from mx_rec.npu.hooks import npu_hooks_append as npu_hooks_append
    from mx_rec.npu.iterations import set_iteration_per_loop as set_iteration_per_loop
    from mx_rec.npu.npu_estimator import NPUEstimator as NPUEstimator
    from mx_rec.npu.npu_plugin import set_device_sat_mode as set_device_sat_mode
    from mx_rec.npu.npu_run_config import NPURunConfig as NPURunConfig
    from mx_rec.npu.session_config import npu_config_proto as npu_config_proto

__getattr__, __dir__ = attach(
    __name__,
    {
        "DumpConfig": "mx_rec.npu.dump_config",
        "NPUBroadcastGlobalVariablesHook": "mx_rec.npu.hooks",
        "NPUEstimator": "mx_rec.npu.npu_estimator",
        "NPURunConfig": "mx_rec.npu.npu_run_config",
        "get_local_rank_id": "mx_rec.npu.distribution",
        "npu_allreduce": "mx_rec.npu.distribution",
        "npu_config_proto": "mx_rec.npu.session_config",
        "npu_distributed_optimizer_wrapper": "mx_rec.npu.distribution",
        "npu_hooks_append": "mx_rec.npu.hooks",
        "set_device_sat_mode": "mx_rec.npu.npu_plugin",
        "set_iteration_per_loop": "mx_rec.npu.iterations",
    },
)
