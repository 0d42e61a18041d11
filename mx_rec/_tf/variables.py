"""Dense variables of a graph, read and written through a session whose graph can be changed no more."""

import numpy as np
import tensorflow as tf


def of_graph(graph) -> list[object]:
    """The global variables of a graph that hold numbers."""
    found = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    return [variable for variable in found if hasattr(variable, "initializer") and _is_numeric(variable)]


def _is_numeric(variable):
    dtype = variable.dtype.base_dtype
    return dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex


def read(session, variables) -> dict[str, object]:
    """Returns the values of {name: variable} by name; None for those that are not initialized."""
    try:
        return {name: np.asarray(value) for name, value in session.run(variables).items()}
    except tf.errors.FailedPreconditionError:
        pass
    values = {}
    for name, variable in variables.items():
        try:
            values[name] = np.asarray(session.run(variable))
        except tf.errors.FailedPreconditionError:
            values[name] = None
    return values


def load(session, variable, value) -> None:
    """Sets a variable, by the op that initializes it."""
    session.run(variable.initializer, {variable.initializer.inputs[1]: value})
