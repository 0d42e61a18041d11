"""Package-level names that import their module on first use, so that importing a package costs nothing."""

import importlib
from typing import Callable


def attach(package: str, names: dict[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns (__getattr__, __dir__) for a package; `names` maps a public name to the module that defines it."""

    def __getattr__(name):
        if name not in names:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(importlib.import_module(names[name]), name)

    return __getattr__, lambda: sorted(names)
