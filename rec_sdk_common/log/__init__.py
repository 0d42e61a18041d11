"""The logger."""

from mx_rec.util.log import logger

__all__ = ["logger"]
