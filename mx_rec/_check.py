"""Checks of user-given values. Each raises ValueError naming the argument, the rule and the value.

As in the original API a bool is not an int and an int is not a float: `learning_rate=1` is refused, `1.0` is not.
"""

import difflib
import inspect
import numbers
import re

MAX_INT32 = 2147483647


def _fail(name, rule, value):
    raise ValueError(f"`{name}` must be {rule}, got {value!r} ({type(value).__name__})")


def integer(name: str, value, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        _fail(name, f"an int in [{low}, {high}]", value)
    if not low <= value <= high:
        _fail(name, f"in [{low}, {high}]", value)
    return int(value)


def boolean(name: str, value) -> bool:
    if not isinstance(value, bool):
        _fail(name, "True or False", value)
    return value


def text(name: str, value, longest: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        _fail(name, f"a string of 1 to {longest} characters", value)
    return value


def real(name: str, value, low: float, high: float, low_open=False, high_open=False) -> float:
    rule = f"a float in {'(' if low_open else '['}{low}, {high}{')' if high_open else ']'}"
    if isinstance(value, (bool, numbers.Integral)) or not isinstance(value, numbers.Real):
        _fail(name, rule, value)
    inside = (low < value if low_open else low <= value) and (value < high if high_open else value <= high)
    if not inside:  # also for nan
        _fail(name, rule, value)
    return float(value)


def choice(name: str, value, options) -> object:
    if value not in options:
        _fail(name, "one of " + ", ".join(repr(o) for o in options), value)
    return value


def keywords(function: str, given, known) -> None:
    """Raises TypeError if `given` names keywords that are not among `known`; says which one is nearest to the first."""
    unknown = [name for name in given if name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"it takes {', '.join(known)}"
        raise TypeError(f"{function} has no argument {', '.join(f'`{name}`' for name in unknown)}; {hint}")


def nothing_unknown(function, unknown) -> None:
    """Raises TypeError if a function got keywords through its last parameter, `**unknown`; see `keywords`."""
    keywords(function.__name__, unknown, list(inspect.signature(function).parameters)[:-1])


def instance(name: str, value, kinds, rule: str):
    if not isinstance(value, kinds):
        _fail(name, rule, value)
    return value


def table_name(label: str, value) -> str:
    """Returns `value`, the name of a table, checked. It is also the name of a directory in checkpoints, so one rule
    holds for names in scripts and in files."""
    text(label, value, 100)
    if not re.fullmatch(r"[0-9A-Za-z_.]+", value):
        raise ValueError(f"`{label}` of a table may hold letters, digits, '_' and '.', got {value!r}")
    if set(value) == {"."}:
        raise ValueError(
            f"`{label}` of a table must not consist of dots, got {value!r}: it names a directory in checkpoints"
        )
    if value == "key" or value.startswith("manifest.json"):
        raise ValueError(
            f"`{label}` of a table must not be 'key' nor begin with 'manifest.json', got {value!r}: checkpoints have "
            "files of these names"
        )
    return value
