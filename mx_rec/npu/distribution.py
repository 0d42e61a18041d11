"""What scripts do between ranks. With one rank each call gives back what it was given."""

from typing import TypeVar

from mx_rec._config import local_rank_id
from mx_rec.util.communication import hccl_ops

__all__ = ["get_local_rank_id", "npu_allreduce", "npu_distributed_optimizer_wrapper"]

_T = TypeVar("_T")


def get_local_rank_id() -> int:
    """Returns the number of this rank on its machine: 0."""
    return local_rank_id()


def npu_distributed_optimizer_wrapper(optimizer: _T) -> _T:
    """Returns the optimizer itself: gradients of one rank need not be summed over ranks. ValueError for anything that
    is no optimizer."""
    if not callable(getattr(optimizer, "apply_gradients", None)):
        raise ValueError(f"`optimizer` must be an optimizer of TensorFlow, got {optimizer!r}")
    return optimizer


def npu_allreduce(
    values: _T, reduction: str = "mean", fusion: int = 1, fusion_id: int = -1, group: str = "hccl_world_group"
) -> _T:
    """Returns the mean (or sum, prod, max, min) over all ranks of a tensor or of a list of tensors; of None, None.
    `fusion`, `fusion_id` and `group` say how the vendor's hardware bundles messages: without effect."""
    if reduction != "mean":
        hccl_ops.allreduce(None, reduction)  # knows which there are
    return values
