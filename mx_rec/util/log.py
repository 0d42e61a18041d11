"""The place where scripts find the package's logger (mx_rec/_log.py)."""

from mx_rec._log import logger

__all__ = ["logger"]
