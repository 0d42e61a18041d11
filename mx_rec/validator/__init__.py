"""Checks of arguments, as classes and a decorator that scripts use."""
