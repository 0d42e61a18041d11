"""NPURunConfig: tf.estimator.RunConfig with the keywords of the vendor's hardware."""

from typing import Any, Optional

from mx_rec import _check
from mx_rec._log import logger
from mx_rec._tf.estimator import estimator
from mx_rec.npu.dump_config import DumpConfig

__all__ = ["NPURunConfig"]

# They steer compilers, memory, collectives and profilers of hardware that does not exist here.
_WITHOUT_EFFECT = frozenset(
    """
    HCCL_algorithm aoe_config_file aoe_mode auto_tune_mode buffer_optimize compress_weight_conf customize_dtypes
    debug_dir deterministic device_type distribute distribute_config dump_config dynamic_graph_execute_mode
    dynamic_input dynamic_input_config dynamic_inputs_shape_range enable_compress_weight enable_data_pre_proc
    enable_exception_dump enable_reduce_precision enable_scope_fusion_passes enable_small_channel es_cluster_config
    eval_distribute event_sync_timeout experimental_config external_weight frozen_variable fusion_switch_file
    graph_memory_max_size graph_run_mode hccl_timeout hcom_multi_mode hcom_parallel horovod_mode insert_op_file
    is_tailing_optimization jit_compile local_device_list local_rank_id memory_config mix_compile_mode
    modify_mixlist op_compiler_cache_dir op_compiler_cache_mode op_debug_config op_debug_level op_execute_timeout
    op_precision_mode op_select_implmode op_wait_timeout optypelist_for_implmode precision_mode precision_mode_v2
    profiling_config session_device_id soc_config stream_max_parallel_num stream_sync_timeout topo_sorting_mode
    train_distribute variable_format_optimize variable_memory_max_size variable_placement work_path
    """.split()
)
_OWN = (
    "model_dir",
    "tf_random_seed",
    "save_summary_steps",
    "save_checkpoints_steps",
    "save_checkpoints_secs",
    "session_config",
    "keep_checkpoint_max",
    "keep_checkpoint_every_n_hours",
    "log_step_count_steps",
    "experimental_max_worker_delay_secs",
    "session_creation_timeout_secs",
    "checkpoint_save_graph_def",
)
_SAVE_STEPS = 100  # the vendor's default, if nothing says when to save


class NPURunConfig(estimator.RunConfig):
    """How an NPUEstimator, or any other Estimator, runs.

    Args:
        iterations_per_loop: an int from 1. Each run of the session is one step, whatever it says; but
            NPUEstimator.train refuses a number of steps that is no multiple of it, as the vendor's hardware would.
        model_dir, tf_random_seed, save_checkpoints_steps, save_checkpoints_secs, session_config, keep_checkpoint_max,
            keep_checkpoint_every_n_hours, log_step_count_steps, experimental_max_worker_delay_secs,
            session_creation_timeout_secs, checkpoint_save_graph_def: as in tf.estimator.RunConfig. If nothing says when
            to save, every 100 steps.
        save_summary_steps: the same, but 0 by default: no summaries.
        others: the vendor's keywords, such as precision_mode, enable_data_pre_proc, mix_compile_mode, HCCL_algorithm,
            deterministic, dump_config, distribute: accepted, and without effect.

    Raises TypeError for any other keyword, ValueError for a bad value.
    """

    def __init__(self, iterations_per_loop: int = 1, *, save_summary_steps: Optional[int] = 0, **others: Any) -> None:
        self.iterations_per_loop = _check.integer("iterations_per_loop", iterations_per_loop, 1, _check.MAX_INT32)
        _check.keywords("NPURunConfig", others, ["iterations_per_loop", *_OWN, *sorted(_WITHOUT_EFFECT)])
        if others.get("dump_config") is not None:
            _check.instance("dump_config", others["dump_config"], DumpConfig, "a DumpConfig")
        ignored = sorted(name for name, value in others.items() if name in _WITHOUT_EFFECT and value is not None)
        if ignored:
            logger.info("NPURunConfig: without effect on this machine: %s", ", ".join(ignored))
        own = {name: value for name, value in others.items() if name in _OWN}
        if own.get("save_checkpoints_steps") is None and own.get("save_checkpoints_secs") is None:
            own["save_checkpoints_steps"] = _SAVE_STEPS
        super().__init__(save_summary_steps=save_summary_steps, **own)
