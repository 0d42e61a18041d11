"""Sparse optimizers of scripts that compute the update themselves, with TensorFlow's ops on a variable.

    class Decayed(GradientDescentOptimizer, CustomizedOptimizer):
        def _apply_sparse_duplicate_indices(self, grad, var): ...

The rows of a table are in no variable. So the optimizer gets one that holds the rows of the batch, each once, and
gradients whose indices are rows of that; what it has changed then goes back to the table. Slots would have to live as
long as the table, which TensorFlow's ops cannot know of: optimizers that have some are refused.
"""

import contextlib

import tensorflow as tf

from mx_rec import _process
from mx_rec._ops import update
from mx_rec._ops.lookup import give_rows
from mx_rec._ops.touched import origin_of
from mx_rec._tables import graphs
from mx_rec._tables.anchors import table_of
from mx_rec._tf import optimizers
from mx_rec.optimizers._pairs import pairs_of, slices_of


def adopt(cls) -> None:
    """Lets `cls`, which derives from CustomizedOptimizer and knows nothing of tables, update them if it is an optimizer
    of TensorFlow."""
    if issubclass(cls, tf.compat.v1.train.Optimizer) and optimizers.written(cls, "apply_gradients") is None:

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            """Does what TensorFlow's does, for tables and variables."""
            return _apply(self, super(cls, self).apply_gradients, grads_and_vars, global_step, name)

        cls.apply_gradients = apply_gradients


def _apply(optimizer, stock, grads_and_vars, global_step, name):
    pairs = pairs_of(grads_and_vars)
    of_tables = [(g, v) for g, v in pairs if table_of(v) is not None]
    if not of_tables:
        return stock(pairs, global_step, name)
    nonfinite = _process.config().nonfinite_gradients
    _check_slots(optimizer)
    label = type(optimizer).__name__
    by_table = {}
    for gradient, variable in of_tables:
        if gradient is not None:
            table = table_of(variable)
            parts = update.parts_of(*slices_of(gradient, table, label))
            by_table.setdefault(table.table_name, (table, []))[1].extend(parts)
    if not by_table:
        raise ValueError(f"{label}: no gradient for any table. Does the loss depend on a lookup with is_train=True?")
    with tf.name_scope(name or optimizer.get_name()):
        optimizers.prepare(optimizer)
        updates = [_update(optimizer, table, parts, nonfinite) for table, parts in by_table.values()]
    others = [(g, v) for g, v in pairs if table_of(v) is None]
    if any(gradient is not None for gradient, _ in others):
        updates.append(stock(others))
    if global_step is None:
        return tf.group(*updates)
    with tf.control_dependencies(updates):
        return global_step.assign_add(1, read_value=False)


def _check_slots(optimizer):
    try:
        slots = optimizer.get_slot_init_values()
    except NotImplementedError:
        slots = None
    if slots is None or len(slots) > 0:
        raise NotImplementedError(
            f"{type(optimizer).__name__} keeps {'slots that it does not tell of' if slots is None else slots} beside "
            "each row and computes updates itself, which tables do not support; derive it from an optimizer of "
            "mx_rec.optimizers, or let get_slot_init_values() return [] if it has none"
        )


def _update(optimizer, table, parts, nonfinite):
    """Returns the op that lets `optimizer` update the rows of a table by its gradients, pairs of handles and values."""
    table.native.set_slots([])
    table.optimizer_name = optimizer.get_name()
    graphs.state().updated.add(table.table_name)
    handles = tf.concat([handles for handles, _ in parts], 0)
    handles, place = tf.unique(handles, tf.int64)
    count = tf.size(handles, tf.int64)
    gradient = tf.math.unsorted_segment_sum(tf.concat([values for _, values in parts], 0), place, count)
    # A row that several lookups give is the same in all of them.
    before = tf.math.unsorted_segment_max(
        tf.concat([give_rows(origin_of(handles)) for handles, _ in parts], 0), place, count
    )
    with _outside():
        copy = tf.compat.v1.Variable(
            lambda: tf.zeros([0, table.embedding_size]),
            trainable=False,
            collections=[],
            validate_shape=False,
            use_resource=True,
            shape=tf.TensorShape([None, table.embedding_size]),
            name=f"rows_of_{table.table_name}",
        )
    with tf.control_dependencies([copy.assign(before, read_value=False)]):
        slices = tf.IndexedSlices(tf.identity(gradient), tf.range(count))
        done = optimizers.apply_sparse(optimizer, slices, copy)
    with tf.control_dependencies([done]):
        change = before - copy.read_value()
    # Gradient descent at rate 1 without decay subtracts.
    settings = {"hyper": tf.constant([1.0, 0.0]), "rule": "gradient_descent", "nonfinite": nonfinite}
    return update.build(table.table_name, handles, change, settings, is_unique=True)


@contextlib.contextmanager
def _outside():
    with tf.name_scope(""), tf.control_dependencies(None):
        yield
