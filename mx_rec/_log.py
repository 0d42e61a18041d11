"""The package's logger, "mx_rec": it belongs to the application.

As long as the application has configured no handler for it, its lines from INFO on go to stderr, so that a plain script
sees them. Once there is one, here or at a logger above, records go there alone, and the level is what the application
has set: of this logger, or of the next above that has one. The environment variable MXREC_LOG_LEVEL sets the level when
this module is imported, unless the application was first; what it sets later holds, too.
"""

import logging
import os
import sys

__all__ = ["logger"]

logger = logging.getLogger("mx_rec")


class _Nobodys(int):
    """A level that nobody has asked for: another object than the same number set by an application."""


_LEVEL = _Nobodys(logging.INFO)


class _Stderr(logging.StreamHandler):
    """Writes to stderr while there is no other handler."""

    def __init__(self):
        super().__init__()
        self.setFormatter(logging.Formatter("[mx_rec] %(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))

    def emit(self, record):
        if sys.stderr is not None and not _is_configured():
            self.stream = sys.stderr  # of now: it may be another one than at the import
            super().emit(record)


def _is_configured():
    """Tells whether a record reaches a handler of the application."""
    at = logger
    while at is not None:
        if any(not isinstance(handler, (_Stderr, logging.NullHandler)) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


def _is_wanted(record):
    if logger.level is not _LEVEL or not _is_configured():
        return True
    return record.levelno >= logger.parent.getEffectiveLevel()


logger.addHandler(_Stderr())
logger.addFilter(_is_wanted)
if logger.level == logging.NOTSET:
    # A bad value is reported by init(); an import must not fail over it.
    logger.setLevel(getattr(logging, os.environ.get("MXREC_LOG_LEVEL", ""), _LEVEL))
