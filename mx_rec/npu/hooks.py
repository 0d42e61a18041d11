"""The hooks that the vendor's hardware needs besides the script's own. Here, none has work to do."""

from collections.abc import Iterable
from typing import Any, Optional

import tensorflow as tf

from mx_rec import _check

__all__ = ["NPUBroadcastGlobalVariablesHook", "npu_hooks_append"]


def npu_hooks_append(hooks_list: Optional[Iterable[Any]] = None) -> list[Any]:
    """Returns the hooks of the list, in their order."""
    return list(hooks_list or [])


class NPUBroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks the variables of rank `root_rank`. There is one rank, so it does nothing."""

    def __init__(self, root_rank: int = 0, index: int = 0) -> None:
        _check.integer("root_rank", root_rank, 0, 0)
        _check.integer("index", index, 0, _check.MAX_INT32)
