"""Patch: a function of TensorFlow that one of ours stands in for, while mx_rec has tables.

Nothing is patched at import. The first table installs all patches, `init` those that scripts see before that
(_tf/patches.py), and `terminate_config_initializer` takes them out.
"""

from typing import Callable, Optional


class Patch:
    """`owner.name` becomes `ours`. `find_owner` returns the class or module, or None if it has not been imported. If it
    has no such name, it gets one."""

    def __init__(self, find_owner: Callable[[], Optional[object]], name: str, ours: Callable):
        self._find_owner, self._name, self._ours = find_owner, name, ours
        self._owner = None
        # TensorFlow's own. Kept after uninstall(), as somebody may hold on to ours.
        self.stock: Optional[Callable] = None

    def install(self) -> None:
        """Repeating it changes nothing."""
        if self._owner is not None:
            return
        self._owner = self._find_owner()
        if self._owner is not None:
            self.stock = getattr(self._owner, self._name, None)
            if self.stock is not None:
                self._ours.__doc__ = self.stock.__doc__
            setattr(self._owner, self._name, self._ours)

    def uninstall(self) -> None:
        """Repeating it changes nothing."""
        if self._owner is not None:
            if self.stock is None:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self.stock)
            self._owner = None
