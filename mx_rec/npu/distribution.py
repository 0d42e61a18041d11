"""What the vendor's scripts do between ranks (mx_rec/core/distributed.py). With one rank each call gives back what it
was given."""

from typing import Optional, TypeVar

from mx_rec import _check
from mx_rec._ranks import facts

__all__ = ["NPUDistributedOptimizer", "get_local_rank_id", "npu_allreduce", "npu_distributed_optimizer_wrapper"]

_T = TypeVar("_T")


def get_local_rank_id() -> int:
    """Returns the number of this rank on its machine."""
    return facts().local_rank


def npu_distributed_optimizer_wrapper(optimizer: _T) -> _T:
    """Returns an optimizer that averages the gradients of dense variables over all ranks; see `distributed_optimizer`.
    ValueError for anything that is no optimizer."""
    from mx_rec.core.distributed import distributed_optimizer

    return distributed_optimizer(optimizer)


def NPUDistributedOptimizer(optimizer: _T, is_weight_update_sharding: bool = False, name: Optional[str] = None) -> _T:
    """Returns what `npu_distributed_optimizer_wrapper` returns. The other arguments are of the vendor's hardware: no
    effect here."""
    del is_weight_update_sharding, name
    return npu_distributed_optimizer_wrapper(optimizer)


def npu_allreduce(
    values: _T, reduction: str = "mean", fusion: int = 1, fusion_id: int = -1, group: str = "hccl_world_group"
) -> _T:
    """Returns the mean (or sum, prod, max, min) over all ranks of a tensor or of a list of tensors; of None, None.
    `fusion`, `fusion_id` and `group` say how the vendor's hardware bundles messages: without effect."""
    _check.choice("reduction", reduction, ("mean", "sum", "prod", "max", "min"))
    if facts().size == 1 or values is None:
        return values
    from mx_rec._ops import collectives

    if not isinstance(values, (list, tuple)):
        return collectives.all_reduce([values], reduction)[0]
    given = [value for value in values if value is not None]
    reduced = iter(collectives.all_reduce(given, reduction))
    return [None if value is None else next(reduced) for value in values]
