"""The keywords of `init`, for type checkers; `mx_rec._config.Config` has their ranges, defaults and meaning."""

from typing import Literal, Optional, TypedDict


class InitOptions(TypedDict, total=False):
    max_steps: int
    train_steps: int
    eval_steps: int
    save_steps: int
    if_load: bool
    use_dynamic: bool
    use_dynamic_expansion: bool
    bind_cpu: bool
    is_async_checkpoint: bool
    is_incremental_checkpoint: bool
    save_checkpoint_due_time: Optional[int]
    save_delta_checkpoints_secs: Optional[int]
    restore_model_version: Optional[int]
    recent_key_count_threshold: int
    use_lccl: bool
    nonfinite_gradients: Literal["error", "skip", "allow"]

    # Of older scripts.
    train_interval: int
    rank_id: int
    rank_size: int
    prefetch_batch_number: int
    use_hot: bool
    use_mpi: bool
    use_shm_swap: bool
    use_faae: bool
    iterations_per_loop: int
