"""mx_rec: sparse embedding tables for TensorFlow recommendation models, on ordinary CPU machines."""

from typing import TYPE_CHECKING

from mx_rec import _doors, _version
from mx_rec._lazy import attach

if TYPE_CHECKING:
    from mx_rec.core.reset import reset_tables as reset_tables

_doors.install()

__version__ = _version.VERSION
__getattr__, _lazy_names = attach(__name__, {"reset_tables": "mx_rec.core.reset"})


def __dir__():
    return sorted({*globals(), *_lazy_names()})


def version() -> str:
    """Returns the version of this package."""
    return __version__
