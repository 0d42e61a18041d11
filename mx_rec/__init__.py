"""mx_rec: sparse embedding tables for TensorFlow recommendation models, on ordinary CPU machines."""

from mx_rec import _doors
from mx_rec._lazy import attach

_doors.install()

__version__ = "0.1.0"
__getattr__, _lazy_names = attach(__name__, {"reset_tables": "mx_rec.core.reset"})


def __dir__():
    return sorted({*globals(), *_lazy_names()})


def version() -> str:
    """The version of this package."""
    return __version__
