"""The validators, as scripts use them."""

import pytest

from mx_rec.validator.validator import (
    ClassValidator,
    FloatValidator,
    IntValidator,
    ListValidator,
    OptionalIntValidator,
    OptionalStringValidator,
    OptionValidator,
    OrValidator,
    StringValidator,
    Validator,
    para_checker_decorator,
)


@para_checker_decorator(
    check_option_list=[
        ("rate", FloatValidator, {"min_value": 0.0, "max_value": 10.0}, ["check_value"]),
        ("name", StringValidator, {"min_len": 1, "max_len": 5}, ["check_string_length"]),
        ("flag", ClassValidator, {"classes": (bool,)}),
        ("power", FloatValidator, {"max_value": 0.0}, ["check_value"]),
        (["low", "high"], ListValidator, {"sub_checker": IntValidator}),
    ],
    output_log=False,
)
def make(rate=0.5, *, name="n", flag=False, low=1, high=2, **others):
    return rate, name, flag, others


def test_good_arguments_reach_the_function():
    assert make() == (0.5, "n", False, {})
    assert make(10.0, name="names", flag=True, power=-0.5) == (10.0, "names", True, {"power": -0.5})
    assert make.__name__ == "make"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"rate": 11.0}, r"`rate` must be in \[0.0, 10.0\], got 11.0"),
        ({"rate": 1}, "`rate` must be of type float, got 1"),
        ({"name": ""}, "`name` must be a string of 1 to 5 characters, got ''"),
        ({"name": 7}, "`name` must be a string, got 7"),
        ({"flag": 1}, "`flag` must be of bool, got 1"),
        ({"power": 0.5}, r"`power` must be in \[None, 0.0\], got 0.5"),
        ({"low": "1"}, "`element of .*` must be of type int, got '1'"),
    ],
)
def test_bad_arguments_are_errors_that_name_them(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_limits_may_be_open():
    for value in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"in \(0.0, 1.0\)"):
            FloatValidator("x", value, 0.0, 1.0).check_value_for_open_interval().check()
    FloatValidator("x", 1.0, 0.0, 1.0).check_value_for_left_open_interval().check()
    with pytest.raises(ValueError, match=r"in \(0.0, 1.0\]"):
        FloatValidator("x", 0.0, 0.0, 1.0).check_value_for_left_open_interval().check()


def test_a_bool_is_no_number():
    with pytest.raises(ValueError, match="of type int, got True"):
        IntValidator("x", True).check()


def test_optional_values_may_be_missing():
    assert OptionalIntValidator("x", None, 1, 2).check_value().is_valid()
    assert OptionalStringValidator("x", None, max_len=2).check_string_length().is_valid()
    for validator in (OptionalIntValidator("x", 3, 1, 2).check_value(), OptionalStringValidator("x", 3)):
        with pytest.raises(ValueError, match="`x` must be"):
            validator.check()


def test_words_lists_and_alternatives():
    OptionValidator("x", "a", ("a", "b")).check()
    ListValidator("x", ["a", "b_.1"], StringValidator, ["check_whitelist"]).check_list_length().check()
    either = [(IntValidator, {"min_value": 1}, ["check_value"]), (StringValidator,)]
    OrValidator("x", 3, either).check()
    OrValidator("x", "a", either).check()
    for validator, message in (
        (OptionValidator("x", "c", ("a", "b")), "one of"),
        (ListValidator("x", ["a b"], StringValidator, ["check_whitelist"]), "of letters, digits"),
        (ListValidator("x", [], StringValidator).check_list_length(), "a list of 1 to"),
        (OrValidator("x", 0, either), r"in \[1, None\].*; or: .*a string"),
        (StringValidator("x", "a/b", element="/").check_not_contain_black_element(), "without '/'"),
    ):
        with pytest.raises(ValueError, match=message):
            validator.check()


def test_checks_of_a_script_run_in_their_order():
    validator = Validator("x", 3)
    validator.register_checker(lambda: validator.value > 2)
    validator.register_checker(lambda: validator.value > 3, "larger")
    with pytest.raises(ValueError, match="larger"):
        validator.is_valid()
