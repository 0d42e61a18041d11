"""Dense variables of several ranks: gradients that are averaged over them, and initial values that are the same.

With one rank nothing here does anything.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable
from typing import Any, TypeVar

import tensorflow as tf

from mx_rec import _check, _ranks
from mx_rec._ops import collectives
from mx_rec._tables.anchors import table_of
from mx_rec._tf import static_shape, variables
from mx_rec._tf.notes import Note

__all__ = ["BroadcastVariablesHook", "average_gradients", "broadcast_variables", "distributed_optimizer"]

v1 = tf.compat.v1
_T = TypeVar("_T")

# Of an optimizer: {graph: names of variables whose gradients `compute_gradients` has averaged}.
_AVERAGED = Note("averaged")

# Gradients travel in messages of about this size, each as soon as its own are there: later layers' gradients are under
# way while those of earlier layers are computed. Below a megabyte the messages' latency outweighs that.
_MESSAGE_BYTES = 4 << 20


def distributed_optimizer(optimizer: _T) -> _T:
    """Returns an optimizer for dense variables that averages their gradients over all ranks before it applies them.

    It is a copy that shares its slots with `optimizer`, of a class derived from that one's, a
    `tf.compat.v1.train.Optimizer` or a Keras optimizer that is used in graph mode. Gradients are averaged once, by
    `compute_gradients`, so that what clips them afterwards sees the averages; those that come from elsewhere, by
    `apply_gradients`. Gradients of a stock variable that are `tf.IndexedSlices` are gathered from all ranks. Those of
    tables are left alone: the ranks that own the rows add them up. A loss that is a mean over each rank's part of the
    batch therefore goes with `create_table(all2all_gradients_op="sum_gradients_and_div_by_ranksize")`.

    With one rank it is `optimizer` itself. ValueError for anything that is no optimizer.
    """
    if not callable(getattr(optimizer, "apply_gradients", None)):
        raise ValueError(f"`optimizer` must be an optimizer of TensorFlow, got {optimizer!r}")
    if not _ranks.are_several() or isinstance(optimizer, _Averaging):
        return optimizer
    made = copy.copy(optimizer)
    made.__class__ = type(type(optimizer).__name__, (_Averaging, type(optimizer)), {})
    _AVERAGED.set(made, weakref.WeakKeyDictionary())
    return made


def average_gradients(gradients_and_variables: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Returns the pairs of (gradient, variable) with the gradients' means over all ranks; None and those of tables stay
    what they are."""
    pairs = list(gradients_and_variables)
    if not _ranks.are_several():
        return pairs
    results = [gradient for gradient, _ in pairs]
    dense = []
    for number, (gradient, variable) in enumerate(pairs):
        if gradient is None or not _is_dense(variable):
            continue
        if isinstance(gradient, tf.IndexedSlices):
            results[number] = tf.IndexedSlices(
                collectives.all_gather(gradient.values) / _ranks.facts().size,
                collectives.all_gather(gradient.indices),
                gradient.dense_shape,
            )
        else:
            dense.append(number)
    for numbers in _messages(dense, results):
        for number, mean in zip(numbers, collectives.all_reduce([results[n] for n in numbers], "mean")):
            results[number] = mean
    return [(result, variable) for result, (_, variable) in zip(results, pairs)]


def _messages(numbers, gradients):
    """Yields lists of the numbers of gradients that travel together: those of the last layers, which are there first,
    come first."""
    together, size = [], 0
    for number in reversed(numbers):
        gradient = gradients[number]
        together.append(number)
        size += gradient.dtype.size * (static_shape.count(gradient.shape) or 0)
        if size >= _MESSAGE_BYTES:
            yield together
            together, size = [], 0
    if together:
        yield together


class _Averaging:
    """What distributed_optimizer adds to the class of an optimizer."""

    def compute_gradients(self, *arguments, **keywords):
        pairs = average_gradients(super().compute_gradients(*arguments, **keywords))
        for _, variable in pairs:
            _AVERAGED.of(self).setdefault(_graph_of(variable), set()).add(variable.name)
        return pairs

    def apply_gradients(self, grads_and_vars, *arguments, **keywords):
        pairs = list(grads_and_vars)
        done = [
            _is_dense(variable) and variable.name in _AVERAGED.of(self).get(_graph_of(variable), ())
            for _, variable in pairs
        ]
        averaged = iter(average_gradients(pair for pair, is_done in zip(pairs, done) if not is_done))
        pairs = [pair if is_done else next(averaged) for pair, is_done in zip(pairs, done)]
        return super().apply_gradients(pairs, *arguments, **keywords)


def _is_dense(variable):
    """Whether it is a variable, and neither the anchor of a table nor addresses of rows."""
    return table_of(variable) is None and not isinstance(variable, tf.Tensor)


def _graph_of(variable):
    return getattr(variable, "graph", None) or v1.get_default_graph()


def broadcast_variables(variable_list: Iterable[Any] | None = None, root_rank: int = 0) -> tf.Operation:
    """Returns an op that gives every rank the values that rank `root_rank` has of variables: by default of all global
    ones of the default graph, but for tables. All ranks must run it."""
    _check.integer("root_rank", root_rank, 0, _ranks.facts().size - 1)
    graph = v1.get_default_graph()
    chosen = variables.of_graph(graph) if variable_list is None else list(variable_list)
    chosen = [variable for variable in chosen if table_of(variable) is None]
    if not chosen or not _ranks.are_several():
        return tf.no_op("broadcast_variables")
    values = collectives.broadcast([variable.read_value() for variable in chosen], root_rank)
    with tf.control_dependencies(values):  # all are read before the first is written
        assigned = [variable.assign(value, read_value=False) for variable, value in zip(chosen, values)]
    return tf.group(assigned, name="broadcast_variables")


class BroadcastVariablesHook(v1.train.SessionRunHook):
    """Gives all ranks the variables that rank `root_rank` has when a session begins, initialized or restored. It is
    needed for another rank than 0 alone: sessions of graphs with tables begin with the values of rank 0 by themselves.
    """

    def __init__(self, root_rank: int = 0) -> None:
        self._root_rank = _check.integer("root_rank", root_rank, 0, _ranks.facts().size - 1)
        self._op = None

    def begin(self) -> None:
        self._op = broadcast_variables(root_rank=self._root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        del coord
        session.run(self._op)
