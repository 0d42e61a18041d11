"""The hooks that the vendor's hardware needs besides the script's own."""

from collections.abc import Iterable
from typing import Any, Optional

from mx_rec import _check
from mx_rec.core.distributed import BroadcastVariablesHook

__all__ = ["NPUBroadcastGlobalVariablesHook", "npu_hooks_append"]


def npu_hooks_append(hooks_list: Optional[Iterable[Any]] = None) -> list[Any]:
    """Returns the hooks of the list, in their order."""
    return list(hooks_list or [])


class NPUBroadcastGlobalVariablesHook(BroadcastVariablesHook):
    """Gives all ranks the variables of rank `root_rank` when a session begins. `index` is of the vendor's hardware: no
    effect here."""

    def __init__(self, root_rank: int = 0, index: int = 0) -> None:
        super().__init__(root_rank)
        _check.integer("index", index, 0, _check.MAX_INT32)
