"""mx_rec: sparse embedding tables for TensorFlow recommendation models, on ordinary CPU machines."""

__version__ = "0.1.0"


def version() -> str:
    """The version of this package."""
    return __version__
