"""npu_hooks_append: the hooks that the vendor's hardware needs besides the script's own. Here, none."""


def npu_hooks_append(hooks_list=None) -> list:
    """The hooks of the list, in their order."""
    return list(hooks_list or [])
