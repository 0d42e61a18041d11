"""Validators: checks of arguments under the names that scripts import, for optimizers and functions of their own.

    @para_checker_decorator([("rate", FloatValidator, {"min_value": 0.0, "max_value": 1.0}, ["check_value"])])
    def make(rate): ...

mx_rec itself checks with `mx_rec._check`.
"""

import functools
import inspect
import re

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


def para_checker_decorator(check_option_list, output_log=True):
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

    def __init__(self, name, value, msg="value is invalid"):
        self.name, self.value, self.msg = name, value, msg
        self.checkers = []

    def register_checker(self, checker, msg=None):
        """Adds a check: a function without arguments that returns whether the value is good."""
        self.checkers.append((checker, msg or self.msg))

    def check(self):
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

    def __init__(self, name, value, classes):
        super().__init__(name, value)
        kinds = classes if isinstance(classes, tuple) else (classes,)
        self._require(lambda: isinstance(value, kinds), f"of {', '.join(kind.__name__ for kind in kinds)}")


class OptionValidator(Validator):
    """One of `options`."""

    def __init__(self, name, value, options):
        super().__init__(name, value)
        self._require(lambda: value in options, f"one of {list(options)}")


class NumValidator(Validator):
    """A number; the `check_value…` methods compare it with its limits."""

    kinds = (int, float)

    def __init__(self, name, value, min_value=None, max_value=None, invalid_options=None, constrained_options=None):
        super().__init__(name, value)
        self.min_value, self.max_value = min_value, max_value
        is_number = isinstance(value, self.kinds) and not isinstance(value, bool)
        self._require(lambda: is_number, " or ".join(f"of type {kind.__name__}" for kind in self.kinds))
        if invalid_options is not None:
            self._require(lambda: value not in invalid_options, f"none of {invalid_options}")
        if constrained_options is not None:
            self._require(lambda: value in constrained_options, f"one of {constrained_options}")

    def check_value(self):
        """Checks the value; both limits are good values."""
        return self._within(lambda low, value: low <= value, lambda value, high: value <= high, "[]")

    def check_value_for_open_interval(self):
        """Checks the value; neither limit is a good value."""
        return self._within(lambda low, value: low < value, lambda value, high: value < high, "()")

    def check_value_for_left_open_interval(self):
        """Checks the value; the upper limit is a good value."""
        return self._within(lambda low, value: low < value, lambda value, high: value <= high, "(]")

    def _within(self, is_above, is_below, brackets):
        low, high, value = self.min_value, self.max_value, self.value
        return self._require(
            lambda: (low is None or is_above(low, value)) and (high is None or is_below(value, high)),
            f"in {brackets[0]}{low}, {high}{brackets[1]}",
        )


class IntValidator(NumValidator):
    kinds = (int,)


class FloatValidator(NumValidator):
    kinds = (float,)


class OptionalIntValidator(IntValidator):
    """An int, or None, which passes every check."""

    def check(self):
        return self if self.value is None else super().check()


class StringValidator(Validator):
    """A string."""

    def __init__(self, name, value, max_len=None, min_len=0, element=None, msg=""):
        super().__init__(name, value)
        self.max_len, self.min_len, self.element = max_len, min_len, element
        self.register_checker(lambda: isinstance(value, str), msg or f"`{name}` must be a string, got {value!r}")

    def check_string_length(self):
        low, high = self.min_len or 0, float("inf") if self.max_len is None else self.max_len
        return self._require(lambda: low <= len(self.value) <= high, f"a string of {low} to {high} characters")

    def check_not_contain_black_element(self):
        return self._require(
            lambda: not self.element or self.element not in self.value, f"a string without {self.element!r}"
        )

    def check_whitelist(self):
        return self._require(
            lambda: re.fullmatch("[0-9A-Za-z_.]+", self.value) is not None, "of letters, digits, '_' and '.'"
        )


class OptionalStringValidator(StringValidator):
    """A string, or None, which passes every check."""

    def check(self):
        return self if self.value is None else super().check()


class ListValidator(Validator):
    """A list or tuple whose elements pass `sub_checker`, a Validator class, with `sub_args` and the methods of
    `optional_check_list`."""

    def __init__(
        self,
        name,
        value,
        sub_checker,
        optional_check_list=None,
        list_max_length=2**31 - 1,
        list_min_length=1,
        sub_args=None,
    ):
        super().__init__(name, value)
        self.list_min_length, self.list_max_length = list_min_length, list_max_length
        self._require(lambda: isinstance(value, (list, tuple)), "a list")
        self.register_checker(
            lambda: all(
                _build(f"element of {name}", element, sub_checker, sub_args, optional_check_list).check()
                for element in value
            )
        )

    def check_list_length(self):
        low, high = self.list_min_length, self.list_max_length
        return self._require(lambda: low <= len(self.value) <= high, f"a list of {low} to {high} elements")


class OrValidator(Validator):
    """A value that one of `options` accepts: tuples of a Validator class, its arguments, its methods."""

    def __init__(self, name, value, options):
        super().__init__(name, value)
        self._options = options

    def check(self):
        reasons = []
        for option in self._options:
            try:
                _build(self.name, self.value, *option).check()
                return self
            except ValueError as reason:
                reasons.append(str(reason))
        raise ValueError("; or: ".join(reasons))
