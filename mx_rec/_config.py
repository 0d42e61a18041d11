"""What a process can be told: the keywords of `init`, and the variables of the environment."""

import dataclasses
import os
from typing import Optional

from mx_rec import _check

NOT_INITIALIZED = (
    "Please init the environment for mx_rec at first: call mx_rec.util.initialize.init() before any other API of mx_rec"
)


# The step fails and updates no row; the row is left as it is; it is updated all the same.
NONFINITE_GRADIENTS = ("error", "skip", "allow")


@dataclasses.dataclass(frozen=True)
class Config:
    """The keywords of `init`. Steps are limits that the script announces, never a schedule that must be obeyed.

    Args:
        max_steps, train_steps, eval_steps, save_steps: steps in all, between evaluations, of an evaluation, and between
            saves; -1: not said. They are checked and told by `ConfigInitializer`, and change nothing.
        if_load: whether the script restores a checkpoint; told by `ConfigInitializer`.
        use_dynamic: False: static shape, where every lookup needs a `send_count` (docs/shapes_and_addresses.md).
        use_dynamic_expansion: True: tables grow without limit, whatever their vocabulary sizes say.
        bind_cpu, use_lccl: of the vendor's hardware; without effect.
        is_async_checkpoint: True: saves return before the tables are written (docs/checkpoints.md).
        is_incremental_checkpoint: True: sessions save on two timers, whole checkpoints and deltas, which the next two
            set (docs/checkpoints.md).
        save_checkpoint_due_time: seconds between whole checkpoints.
        save_delta_checkpoints_secs: seconds between deltas.
        restore_model_version: the step that restores take instead of the one in the name they are given.
        recent_key_count_threshold: of the original; warned of above 0, without effect.
        nonfinite_gradients: what becomes of rows whose gradient holds NaN or infinity. "error": the step fails and
            updates no row; "skip": such rows stay as they are; "allow": they are updated (docs/tuning.md).
    """

    max_steps: int = -1
    train_steps: int = -1
    eval_steps: int = -1
    save_steps: int = -1
    if_load: bool = False
    use_dynamic: bool = True
    use_dynamic_expansion: bool = False
    bind_cpu: bool = True
    is_async_checkpoint: bool = False
    is_incremental_checkpoint: bool = False
    save_checkpoint_due_time: Optional[int] = None
    save_delta_checkpoints_secs: Optional[int] = None
    restore_model_version: Optional[int] = None
    recent_key_count_threshold: int = 0
    use_lccl: bool = False
    nonfinite_gradients: str = "error"  # a row whose gradient holds NaN or infinity; one of NONFINITE_GRADIENTS

    def __post_init__(self):
        for name in ("max_steps", "train_steps", "eval_steps", "save_steps"):
            _check.integer(name, getattr(self, name), -1, _check.MAX_INT32)
        for field in dataclasses.fields(self):
            if field.type is bool:
                _check.boolean(field.name, getattr(self, field.name))
        for name, low in (
            ("save_checkpoint_due_time", 1),
            ("save_delta_checkpoints_secs", 1),
            ("restore_model_version", 0),
            ("recent_key_count_threshold", 0),
        ):
            if getattr(self, name) is not None:
                _check.integer(name, getattr(self, name), low, _check.MAX_INT32)
        _check.choice("nonfinite_gradients", self.nonfinite_gradients, NONFINITE_GRADIENTS)
        if self.max_steps == self.train_steps == self.eval_steps == 0:
            raise ValueError("`max_steps`, `train_steps` and `eval_steps` must not all be 0: nothing would run")
        if self.is_incremental_checkpoint and None in (self.save_checkpoint_due_time, self.save_delta_checkpoints_secs):
            raise ValueError(
                "`is_incremental_checkpoint=True` needs `save_checkpoint_due_time` and `save_delta_checkpoints_secs`"
            )


def exchange_patience() -> tuple[float, float]:
    """Seconds after which a rank that waits for others says so, and after which it gives up."""
    limit = _seconds("MX_REC_EXCHANGE_TIMEOUT", 600.0)
    return min(30.0, limit / 2), limit


def _seconds(variable, default):
    value = os.environ.get(variable)
    try:
        seconds = default if value is None else float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise ValueError(f"environment variable {variable} must be a number of seconds above 0, got {value!r}")
    return seconds


# Variables that ported launch scripts set. Checked, because a typo there was an error too; most steer hardware that
# does not exist here.
_ENVIRONMENT = {
    "KEY_PROCESS_THREAD_NUM": (1, 10),
    "MAX_UNIQUE_THREAD_NUM": (1, 8),
    "FAST_UNIQUE": (0, 1),
    "USE_COMBINE_FAAE": (0, 1),
    "RECORD_KEY_COUNT": (0, 1),
    "USE_SHM_SWAP": (0, 1),
    "HUGE_TLB_ENABLE": (0, 1),
    "LCCL_DETERMINISTIC": (0, 1),
    "HOT_EMB_UPDATE_STEP": (1, 1000),
    "HD_CHANNEL_SIZE": (2, 8192),
    "AclTimeout": (-1, _check.MAX_INT32),
    "SSD_SAVE_COMPACT_LEVEL": (0, 2),
    "GLOG_stderrthreshold": (-2, 2),
    "CM_WORKER_SIZE": (0, 512),
}
_ENVIRONMENT_WORDS = {
    "MXREC_LOG_LEVEL": ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    "TF_DEVICE": ("NPU", "GPU", "CPU", "NONE"),
}


def check_environment() -> None:
    """Raises ValueError if a known variable of the environment has a value outside its range."""
    for variable, (low, high) in _ENVIRONMENT.items():
        value = os.environ.get(variable)
        if value is None:
            continue
        try:
            number = int(value)
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            raise ValueError(
                f"environment variable {variable} must be a whole number in [{low}, {high}], got {value!r}; "
                "unset or correct it"
            )
    for variable, words in _ENVIRONMENT_WORDS.items():
        value = os.environ.get(variable)
        if value is not None and value not in words:
            raise ValueError(
                f"environment variable {variable} must be one of {', '.join(words)}, got {value!r}; unset or correct it"
            )
