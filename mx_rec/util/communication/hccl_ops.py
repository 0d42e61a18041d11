"""Collective operations, under the names that scripts of the original use. With one rank each is the identity.

All are differentiable. `fusion`, `fusion_id` and `group` are for the hardware of the original: no effect here.
"""

from typing import TypeVar

from mx_rec import _check
from mx_rec._ranks import facts

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "get_device_id",
    "get_local_rank_size",
    "get_rank_id",
    "get_rank_size",
    "reduce_scatter",
]

facts()  # whoever imports this wants to know of ranks; a script that deletes old files first must not get to it

_WORLD = "hccl_world_group"
_T = TypeVar("_T")
_REDUCTIONS = ("sum", "prod", "max", "min")


def get_rank_id() -> int:
    """Returns this process's rank: what the MPI launcher says, or 0."""
    return facts().rank


def get_rank_size() -> int:
    """Returns the number of ranks: what the MPI launcher says, or 1."""
    return facts().size


def get_device_id() -> int:
    """Returns the rank's number on its host: the device an accelerator script would bind to."""
    return facts().local_rank


def get_local_rank_size() -> int:
    """Returns the number of ranks on this machine: what the MPI launcher says, or 1."""
    return facts().local_size


def allreduce(tensor: _T, reduction: str = "sum", fusion: int = 1, fusion_id: int = -1, group: str = _WORLD) -> _T:
    """Returns the sum (or prod, max, min) of `tensor` over all ranks."""
    _check.choice("reduction", reduction, _REDUCTIONS)
    if facts().size == 1:
        return tensor
    from mx_rec._ops import collectives

    return collectives.all_reduce([tensor], reduction)[0]


def broadcast(tensors: _T, root_rank: int = 0, fusion: int = 2, fusion_id: int = 0, group: str = _WORLD) -> _T:
    """Returns the tensors of rank `root_rank`, on every rank: a list as it was given, or one tensor."""
    _check.integer("root_rank", root_rank, 0, facts().size - 1)
    if facts().size == 1:
        return tensors
    from mx_rec._ops import collectives

    if isinstance(tensors, (list, tuple)):
        return collectives.broadcast(list(tensors), root_rank)
    return collectives.broadcast([tensors], root_rank)[0]


def allgather(tensor: _T, rank_size: int = 1, group: str = _WORLD, fusion: int = 0, fusion_id: int = -1) -> _T:
    """Returns the ranks' tensors, concatenated along the first axis, which may differ in length."""
    if facts().size == 1:
        return tensor
    from mx_rec._ops import collectives

    return collectives.all_gather(tensor)


def reduce_scatter(
    tensor: _T, reduction: str = "sum", rank_size: int = 1, group: str = _WORLD, fusion: int = 0, fusion_id: int = -1
) -> _T:
    """Returns this rank's part of the sum (or prod, max, min) of `tensor` over all ranks: the first axis is dealt out
    in equal parts."""
    _check.choice("reduction", reduction, _REDUCTIONS)
    if facts().size == 1:
        return tensor
    from mx_rec._ops import collectives

    return collectives.reduce_scatter(tensor, reduction, facts().rank, facts().size)


def alltoall(tensor: _T, rank_size: int = 1, group: str = _WORLD, fusion: int = 0, fusion_id: int = -1) -> _T:
    """Returns the parts that all ranks have for this one, in their order: each deals the first axis of its `tensor` out
    in equal parts. All give tensors of the same shape."""
    if facts().size == 1:
        return tensor
    from mx_rec._ops import collectives

    return collectives.all_to_all(tensor)
