"""Values of JSON files that may hold anything: each function returns its value, or raises a ValueError that names the
field, the rule and what was found."""

import os
import re
from typing import Optional


def mapping(label: str, value) -> dict:
    return value if isinstance(value, dict) else _fail(label, "an object", value)


def sequence(label: str, value) -> list:
    return value if isinstance(value, list) else _fail(label, "a list", value)


def integer(label: str, value, low: int, high: int = 2**63 - 1) -> int:
    is_fine = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    return value if is_fine else _fail(label, f"an integer in [{low}, {high}]", value)


def text(label: str, value) -> str:
    return value if isinstance(value, str) and len(value) <= 1000 else _fail(label, "a string", value)


def component(label: str, value) -> str:
    """Returns a name of one file or directory, which cannot lead anywhere else."""
    is_fine = isinstance(value, str) and value not in ("", ".", "..") and not re.search("[/\0\ud800-\udfff]", value)
    return value if is_fine and len(value.encode()) <= 255 else _fail(label, "the name of a file", value)


def path(label: str, value) -> str:
    """Returns a path that is relative to somewhere, and names a file or directory below or beside that."""
    is_fine = isinstance(value, str) and not os.path.isabs(value) and os.path.normpath(value) == value
    if is_fine and len(value.encode("utf-8", "replace")) <= 4096:
        for name in value.removeprefix("../").split("/"):
            component(label, name)
        return value
    return _fail(label, "a relative path", value)


def crc32c(label: str, value, is_optional: bool = True) -> Optional[int]:
    if value is None and is_optional:
        return None
    is_fine = isinstance(value, str) and re.fullmatch("[0-9a-f]{8}", value)
    return int(value, 16) if is_fine else _fail(label, "8 hexadecimal digits", value)


def _fail(label, rule, value):
    raise ValueError(f"{label[:300]} must be {rule}, got {repr(value)[:300]}")
