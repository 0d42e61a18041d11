"""Patch: a function of TensorFlow that one of ours stands in for, while mx_rec has tables.

Nothing is patched at import. The first table installs all patches, `init` those that scripts see before that
(_tf/patches.py), and `terminate_config_initializer` takes them out.
"""

from typing import Callable, Optional

from mx_rec._log import logger
from mx_rec._process import Part, part


class _Replaced(Part):
    """What stands where: by patch."""

    lasts = True  # the patches themselves are taken out by _tf/patches.py

    def __init__(self):
        self.owners: dict[Patch, object] = {}  # of those that are in
        # TensorFlow's own. Kept after uninstall(), as somebody may hold on to ours.
        self.stock: dict[Patch, Optional[Callable]] = {}


class Patch:
    """Puts `ours` in the place of `owner.name`. `find_owner` returns the class or module, or None if it has not been
    imported. If it has no such name, it gets one. `why`: what TensorFlow would do wrong without it."""

    def __init__(self, find_owner: Callable[[], Optional[object]], name: str, ours: Callable, why: str):
        self._find_owner, self.name, self._ours, self.why = find_owner, name, ours, why

    @property
    def stock(self) -> Optional[Callable]:
        """TensorFlow's own function; None if it has none, or before the patch was first put in."""
        return part(_Replaced).stock.get(self)

    def install(self) -> None:
        """Puts it in. Repeating it changes nothing."""
        owner = None if self in part(_Replaced).owners else self._find_owner()
        if owner is None:
            return
        stock = getattr(owner, self.name, None)
        if stock is not None:
            self._ours.__doc__ = stock.__doc__
        part(_Replaced).owners[self], part(_Replaced).stock[self] = owner, stock
        setattr(owner, self.name, self._ours)

    def uninstall(self) -> None:
        """Takes it out. Repeating it changes nothing. If somebody else has patched the same name since, warns: theirs
        stays, and calls ours, until it is taken out."""
        owner = part(_Replaced).owners.get(self)
        if owner is None:
            return
        if getattr(owner, self.name, None) is not self._ours:
            logger.warning(
                "%s.%s was patched by another library after mx_rec, so mx_rec's own patch stays beneath it; without "
                "tables it only calls TensorFlow's",
                getattr(owner, "__name__", owner),
                self.name,
            )
            return
        if self.stock is None:
            delattr(owner, self.name)
        else:
            setattr(owner, self.name, self.stock)
        del part(_Replaced).owners[self]
