"""The package's logger: one line to stderr per event, level from MXREC_LOG_LEVEL (default INFO)."""

import logging
import os

__all__ = ["logger"]

logger = logging.getLogger("mx_rec")

if not logger.handlers:
    _handler = logging.StreamHandler()
    _handler.setFormatter(logging.Formatter("[mx_rec] %(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    logger.addHandler(_handler)
    logger.propagate = False
    # A bad value is reported by init(); an import must not fail over it.
    logger.setLevel(getattr(logging, os.environ.get("MXREC_LOG_LEVEL", "INFO"), logging.INFO))
