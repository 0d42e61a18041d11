"""Patch: a function of TensorFlow that one of ours stands in for, while mx_rec has tables.

Nothing is patched at import. The first table installs all patches, `init` those that scripts see before that
(_tf/patches.py), and `terminate_config_initializer` takes them out.
"""

from typing import Callable, Optional

from mx_rec._log import logger


class Patch:
    """Puts `ours` in the place of `owner.name`. `find_owner` returns the class or module, or None if it has not been
    imported. If it has no such name, it gets one. `why`: what TensorFlow would do wrong without it."""

    def __init__(self, find_owner: Callable[[], Optional[object]], name: str, ours: Callable, why: str):
        self._find_owner, self.name, self._ours, self.why = find_owner, name, ours, why
        self._owner = None
        # TensorFlow's own. Kept after uninstall(), as somebody may hold on to ours.
        self.stock: Optional[Callable] = None

    def install(self) -> None:
        """Puts it in. Repeating it changes nothing."""
        if self._owner is not None:
            return
        self._owner = self._find_owner()
        if self._owner is not None:
            self.stock = getattr(self._owner, self.name, None)
            if self.stock is not None:
                self._ours.__doc__ = self.stock.__doc__
            setattr(self._owner, self.name, self._ours)

    def uninstall(self) -> None:
        """Takes it out. Repeating it changes nothing. If somebody else has patched the same name since, warns: theirs
        stays, and calls ours, until it is taken out."""
        if self._owner is None:
            return
        if getattr(self._owner, self.name, None) is not self._ours:
            logger.warning(
                "%s.%s was patched by another library after mx_rec, so mx_rec's own patch stays beneath it; without "
                "tables it only calls TensorFlow's",
                getattr(self._owner, "__name__", self._owner),
                self.name,
            )
            return
        if self.stock is None:
            delattr(self._owner, self.name)
        else:
            setattr(self._owner, self.name, self.stock)
        self._owner = None
