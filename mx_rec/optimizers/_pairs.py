"""Pairs of a gradient and what it is of, in the forms in which scripts give them to `apply_gradients`."""

import tensorflow as tf


def slices_of(gradient, table, optimizer):
    """Returns (handles, their gradient) of a table's gradient. `optimizer`: its name, for an error."""
    if not isinstance(gradient, tf.IndexedSlices):
        raise NotImplementedError(
            f"{optimizer}: table '{table.table_name}' needs a sparse gradient (tf.IndexedSlices), got "
            f"{type(gradient).__name__}; do not densify it"
        )
    return gradient.indices, gradient.values


def pairs_of(grads_and_vars):
    """Pairs out of [(gradient, variable), ...], or out of [gradients, variables] as some scripts write it: two lists or
    tuples, or one gradient and one variable."""
    entries = list(grads_and_vars)
    if not entries:
        raise ValueError("no gradients given: `grads_and_vars` is empty")
    if len(entries) == 2 and not any(isinstance(entry, (list, tuple)) for entry in entries):
        return [tuple(entries)]
    if _are_columns(entries):
        gradients, variables = entries
        if len(gradients) != len(variables):
            raise ValueError(f"got {len(gradients)} gradients but {len(variables)} variables")
        return list(zip(gradients, variables))
    for entry in entries:
        if not isinstance(entry, (list, tuple)) or len(entry) != 2:
            raise ValueError(
                f"`grads_and_vars` must hold pairs of a gradient and a variable or row addresses, got {entry!r}"
            )
    return entries


def _are_columns(entries):
    """Tells whether two lists are gradients and their variables, and not two pairs."""
    if len(entries) != 2 or not all(isinstance(entry, (list, tuple)) for entry in entries):
        return False
    first, second = ([_is_no_gradient(part) for part in entry] for entry in entries)
    return all(second) and not any(first)


def _is_no_gradient(part):
    return isinstance(part, tf.Variable) or (isinstance(part, tf.Tensor) and part.dtype == tf.int64)
