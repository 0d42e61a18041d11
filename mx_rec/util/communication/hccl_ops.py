"""Collective operations under the names that ported scripts use. With one rank each is the identity."""

from typing import TypeVar

from mx_rec._config import check_ranks, local_rank_id, local_rank_size, rank_id, rank_size

__all__ = [
    "allgather",
    "allreduce",
    "broadcast",
    "get_device_id",
    "get_local_rank_size",
    "get_rank_id",
    "get_rank_size",
]

check_ranks()  # whoever imports this wants to know of ranks; a script that deletes old files first must not get to it

# The numbers and names of groups say how the vendor's hardware bundles its messages: without effect here.
_WORLD = "hccl_world_group"
_T = TypeVar("_T")
_REDUCTIONS = ("sum", "prod", "max", "min")


def get_rank_id() -> int:
    """This process's rank: what the MPI launcher says, or 0."""
    return rank_id()


def get_rank_size() -> int:
    """Returns the number of ranks: what the MPI launcher says, or 1."""
    return rank_size()


def get_device_id() -> int:
    """Returns the rank's number on its host: the device an accelerator script would bind to."""
    return local_rank_id()


def get_local_rank_size() -> int:
    """Returns the number of ranks on this machine: what the MPI launcher says, or 1."""
    return local_rank_size()


def allreduce(tensor: _T, reduction: str = "sum", fusion: int = 1, fusion_id: int = -1, group: str = _WORLD) -> _T:
    """Returns the sum (or prod, max, min) of `tensor` over all ranks."""
    if reduction not in _REDUCTIONS:
        raise ValueError(f"`reduction` must be one of {', '.join(_REDUCTIONS)}, got {reduction!r}")
    check_ranks()
    return tensor


def broadcast(tensors: _T, root_rank: int = 0, fusion: int = 2, fusion_id: int = 0, group: str = _WORLD) -> _T:
    """Returns the tensors of rank `root_rank`, on every rank."""
    if not 0 <= root_rank < rank_size():
        raise ValueError(f"`root_rank` must be in [0, {rank_size() - 1}], got {root_rank!r}")
    return tensors


def allgather(tensor: _T, rank_size: int = 1, group: str = _WORLD, fusion: int = 0, fusion_id: int = -1) -> _T:
    """Returns the ranks' tensors, concatenated along the first axis."""
    check_ranks()
    return tensor
