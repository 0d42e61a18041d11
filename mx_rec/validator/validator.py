"""Validators: checks of arguments under the names that scripts import, for optimizers and functions of their own.

    @para_checker_decorator([("rate", FloatValidator, {"min_value": 0.0, "max_value": 1.0}, ["check_value"])])
    def make(rate): ...

mx_rec itself checks with `mx_rec._check`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Sequence
from typing import Any, Callable, TypeVar

__all__ = [
    "ClassValidator",
    "FloatValidator",
    "IntValidator",
    "ListValidator",
    "NumValidator",
    "OptionValidator",
    "OptionalIntValidator",
    "OptionalStringValidator",
    "OrValidator",
    "StringValidator",
    "Validator",
    "para_checker_decorator",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Self = TypeVar("_Self", bound="Validator")


def para_checker_decorator(
    check_option_list: Sequence[tuple[Any, ...]], output_log: bool = True
) -> Callable[[_Function], _Function]:
    """Returns a decorator that checks the arguments of a function at each call; ValueError for a bad one.

    Args:
        check_option_list: tuples of the argument's name (or a list of names, whose values are checked as a list), a
            Validator class, its further arguments as a dict, and the names of methods that choose what is checked; the
            last two may be missing.
        output_log: accepted, without effect: a failed check is an error, and others are not worth a line.
    """
    del output_log

    def decorate(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = dict(bound.arguments)
            for name, parameter in signature.parameters.items():
                if parameter.kind is parameter.VAR_KEYWORD:
                    values.update(values.pop(name))
            for names, *option in check_option_list:
                names = names if isinstance(names, list) else [names]
                given = [name for name in names if name in values]
                if given:
                    found = [values[name] for name in given]
                    one = len(names) == 1
                    _build(names[0] if one else names, found[0] if one else found, *option).check()
            return function(*args, **kwargs)

        return checked

    return decorate


def _build(name, value, kind, arguments=None, methods=()):
    validator = kind(name=name, value=value, **(arguments or {}))
    for method in methods or ():
        getattr(validator, method)()
    return validator


class Validator:
    """A value and the checks it must pass."""

    def __init__(self, name: str, value: Any, msg: str = "value is invalid") -> None:
        self.name, self.value, self.msg = name, value, msg
        self.checkers = []

    def register_checker(self, checker: Callable[[], bool], msg: str | None = None) -> None:
        """Adds a check: a function without arguments that returns whether the value is good."""
        self.checkers.append((checker, msg or self.msg))

    def check(self: _Self) -> _Self:
        """Runs the checks in their order; ValueError at the first that fails."""
        for checker, msg in self.checkers:
            if not checker():
                raise ValueError(msg)
        return self

    def is_valid(self) -> bool:
        """Returns True; ValueError if a check fails."""
        self.check()
        return True

    def _require(self, is_good, rule):
        self.register_checker(
            is_good, f"`{self.name}` must be {rule}, got {self.value!r} ({type(self.value).__name__})"
        )
        return self


class ClassValidator(Validator):
    """A value of one of `classes`."""

    def __init__(self, name: str, value: Any, classes: type | tuple[type, ...]) -> None:
        super().__init__(name, value)
        kinds = classes if isinstance(classes, tuple) else (classes,)
        self._require(lambda: isinstance(value, kinds), f"of {', '.join(kind.__name__ for kind in kinds)}")


class OptionValidator(Validator):
    """One of `options`."""

    def __init__(self, name: str, value: Any, options: Sequence[Any]) -> None:
        super().__init__(name, value)
        self._require(lambda: value in options, f"one of {list(options)}")


class NumValidator(Validator):
    """A number; the `check_value…` methods compare it with its limits."""

    kinds: tuple[type, ...] = (int, float)

    def __init__(
        self,
        name: str,
        value: Any,
        min_value: float | None = None,
        max_value: float | None = None,
        invalid_options: Sequence[float] | None = None,
        constrained_options: Sequence[float] | None = None,
    ) -> None:
        super().__init__(name, value)
        self.min_value, self.max_value = min_value, max_value
        is_number = isinstance(value, self.kinds) and not isinstance(value, bool)
        self._require(lambda: is_number, " or ".join(f"of type {kind.__name__}" for kind in self.kinds))
        if invalid_options is not None:
            self._require(lambda: value not in invalid_options, f"none of {invalid_options}")
        if constrained_options is not None:
            self._require(lambda: value in constrained_options, f"one of {constrained_options}")

    def check_value(self: _Self) -> _Self:
        """Checks the value; both limits are good values."""
        return self._within(lambda low, value: low <= value, lambda value, high: value <= high, "[]")

    def check_value_for_open_interval(self: _Self) -> _Self:
        """Checks the value; neither limit is a good value."""
        return self._within(lambda low, value: low < value, lambda value, high: value < high, "()")

    def check_value_for_left_open_interval(self: _Self) -> _Self:
        """Checks the value; the upper limit is a good value."""
        return self._within(lambda low, value: low < value, lambda value, high: value <= high, "(]")

    def _within(self, is_above, is_below, brackets):
        low, high, value = self.min_value, self.max_value, self.value
        return self._require(
            lambda: (low is None or is_above(low, value)) and (high is None or is_below(value, high)),
            f"in {brackets[0]}{low}, {high}{brackets[1]}",
        )


class IntValidator(NumValidator):
    """An int."""

    kinds = (int,)


class FloatValidator(NumValidator):
    """A float."""

    kinds = (float,)


class OptionalIntValidator(IntValidator):
    """An int, or None, which passes every check."""

    def check(self: _Self) -> _Self:
        return self if self.value is None else super().check()


class StringValidator(Validator):
    """A string."""

    def __init__(
        self,
        name: str,
        value: Any,
        max_len: int | None = None,
        min_len: int | None = 0,
        element: str | None = None,
        msg: str = "",
    ) -> None:
        super().__init__(name, value)
        self.max_len, self.min_len, self.element = max_len, min_len, element
        self.register_checker(lambda: isinstance(value, str), msg or f"`{name}` must be a string, got {value!r}")

    def check_string_length(self: _Self) -> _Self:
        """Checks that the string is neither shorter than `min_len` nor longer than `max_len`."""
        low, high = self.min_len or 0, float("inf") if self.max_len is None else self.max_len
        return self._require(lambda: low <= len(self.value) <= high, f"a string of {low} to {high} characters")

    def check_not_contain_black_element(self: _Self) -> _Self:
        """Checks that the string does not contain `element`."""
        return self._require(
            lambda: not self.element or self.element not in self.value, f"a string without {self.element!r}"
        )

    def check_whitelist(self: _Self) -> _Self:
        """Checks that the string is made of letters, digits, '_' and '.' alone."""
        return self._require(
            lambda: re.fullmatch("[0-9A-Za-z_.]+", self.value) is not None, "of letters, digits, '_' and '.'"
        )


class OptionalStringValidator(StringValidator):
    """A string, or None, which passes every check."""

    def check(self: _Self) -> _Self:
        return self if self.value is None else super().check()


class ListValidator(Validator):
    """A list or tuple whose elements pass `sub_checker`, a Validator class, with `sub_args` and the methods of
    `optional_check_list`."""

    def __init__(
        self,
        name: str,
        value: Any,
        sub_checker: type[Validator],
        optional_check_list: Sequence[str] | None = None,
        list_max_length: int = 2**31 - 1,
        list_min_length: int = 1,
        sub_args: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name, value)
        self.list_min_length, self.list_max_length = list_min_length, list_max_length
        self._require(lambda: isinstance(value, (list, tuple)), "a list")
        self.register_checker(
            lambda: all(
                _build(f"element of {name}", element, sub_checker, sub_args, optional_check_list).check()
                for element in value
            )
        )

    def check_list_length(self: _Self) -> _Self:
        """Checks that the list has `list_min_length` to `list_max_length` elements."""
        low, high = self.list_min_length, self.list_max_length
        return self._require(lambda: low <= len(self.value) <= high, f"a list of {low} to {high} elements")


class OrValidator(Validator):
    """A value that one of `options` accepts: tuples of a Validator class, its arguments, its methods."""

    def __init__(self, name: str, value: Any, options: Sequence[tuple[Any, ...]]) -> None:
        super().__init__(name, value)
        self._options = options

    def check(self: _Self) -> _Self:
        """Asks each of the options; ValueError with all their reasons if none accepts the value."""
        reasons = []
        for option in self._options:
            try:
                _build(self.name, self.value, *option).check()
                return self
            except ValueError as reason:
                reasons.append(str(reason))
        raise ValueError("; or: ".join(reasons))
