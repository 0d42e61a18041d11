"""What scripts for the vendor's NPUs import besides mx_rec, under the same names, on ordinary CPUs.

The vendor's packages `npu_bridge`, `npu_device`, `tf_adapter` and `rec_sdk_common` are doors to this room
(mx_rec/_doors.py); what each name does here is in docs/ported_scripts.md.
"""

from mx_rec._lazy import attach

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
