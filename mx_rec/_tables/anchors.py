"""Anchors: the variables that stand for tables in TensorFlow."""

from mx_rec._tf.notes import Note

_TABLE = Note("table")


def bind(variable, table) -> None:
    """Makes a variable the anchor of a table."""
    _TABLE.set(variable, table)


def table_of(variable):
    """The table that a variable is the anchor of; None if it is an ordinary one, or no variable at all."""
    return _TABLE.of(variable)
