"""SparseOptimizer: what all sparse optimizers share.

A subclass names the core's rule, the slots it keeps in a row, and the numbers the rule needs at each step. The rows,
their slots and the arithmetic are in the core.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from mx_rec import _check, _process
from mx_rec._log import logger
from mx_rec._ops import fold_update, update
from mx_rec._ops.fold import folds_of
from mx_rec._ops.lookup import LookupOp, handles_of, reached
from mx_rec._ops.touched import origin_of
from mx_rec._tables import graphs
from mx_rec._tables.anchors import table_of
from mx_rec.optimizers._pairs import pairs_of, slices_of
from mx_rec.optimizers.base import CustomizedOptimizer


class SparseOptimizer(tf.compat.v1.train.Optimizer, CustomizedOptimizer):
    """Updates table rows. Takes pairs of (tf.IndexedSlices, anchor variable), as `tf.gradients` and
    `compute_gradients` give them for the variables of `get_dense_and_sparse_variable`, and pairs of (gradient Tensor,
    row addresses) of the collections ASCEND_SPARSE_LOOKUP_LOCAL_EMB and ASCEND_SPARSE_LOOKUP_ID_OFFSET, whatever the
    expansion mode. In the place of addresses their rows will do, so that the result of `compute_gradients` for these
    can be passed on.
    """

    rule = None  # name of the core's rule (native/update)
    _has_rule = True

    def __init__(self, name):
        super().__init__(use_locking=False, name=_check.text("name", name, 200))
        self.unique_name = self.base_name = name
        _process.process.optimizer = self

    def _slot_specs(self):
        """[(checkpoint name, initial value)] of the slots in a row."""
        raise NotImplementedError

    @property
    def slot_num(self):
        return len(self._slot_specs())

    def get_slot_init_values(self):
        return [value for _, value in self._slot_specs()]

    def _hyper(self):
        """The rule's numbers for one step: a list of floats and scalar tensors."""
        raise NotImplementedError

    def _after_step(self):
        """Ops to run after all rows are updated."""
        return []

    def compute_gradients(
        self, loss: tf.Tensor, var_list: Iterable[Any] | None = None, *arguments: Any, **keywords: Any
    ) -> list[Any]:
        """As in TensorFlow, but without `var_list`, the gradients of all tables of the graph; so `minimize(loss)`
        trains the tables that feed the loss, and them alone. Dense variables need a TensorFlow optimizer."""
        if var_list is None:
            _process.config()
            tables = graphs.tables_here(f"{self.get_name()}.compute_gradients")
            var_list = [table.variable for table in tables.values()]
            if not var_list:
                raise ValueError(f"{self.get_name()}: there is no table in this graph to compute gradients for")
        return super().compute_gradients(loss, var_list, *arguments, **keywords)

    def minimize(
        self,
        loss: tf.Tensor,
        global_step: tf.Variable | None = None,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = tf.compat.v1.train.Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: tf.Tensor | None = None,
    ) -> tf.Operation:
        """Does what TensorFlow's does, by default for the tables that feed the loss. Logs what is left out."""
        pairs = self.compute_gradients(
            loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )
        step = self.apply_gradients(pairs, global_step, name)
        if var_list is None:
            self._tell(loss, pairs)
        return step

    def _tell(self, loss, pairs):
        names = {True: [], False: []}
        for gradient, variable in pairs:
            names[gradient is not None].append(table_of(variable).table_name)
        dense = len(tf.compat.v1.trainable_variables())
        logger.info(
            "%s: minimize('%s') trains the tables %s%s%s",
            self.get_name(),
            loss.name,
            names[True],
            f"; the tables {names[False]} do not feed it" if names[False] else "",
            f"; {dense} dense variables are left to a TensorFlow optimizer" if dense else "",
        )

    def apply_gradients(
        self, grads_and_vars: Iterable[Any], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Returns an op that updates the rows, then `global_step`. Pairs without a gradient are passed over."""
        nonfinite = _process.config().nonfinite_gradients
        targets = [
            self._target(gradient, variable) for gradient, variable in pairs_of(grads_and_vars) if gradient is not None
        ]
        if not targets:
            raise ValueError(
                f"{self.get_name()}: no gradient for any table. Does the loss depend on a lookup with is_train=True "
                "and is_grad=True?"
            )
        with tf.name_scope(name or self.get_name()):
            hyper = tf.stack([tf.cast(number, tf.float32) for number in self._hyper()])
            updates = self._updates(list(_merge(targets)), hyper, nonfinite)
            with tf.control_dependencies(updates):
                updates += self._after_step()
            if global_step is None:
                return tf.group(*updates, name="apply")
            with tf.control_dependencies(updates):
                return global_step.assign_add(1, read_value=False, name="apply")

    def _updates(self, targets, hyper, nonfinite):
        """Returns the ops that update the tables of `targets`: one for all tables of a batch, where nothing stands
        between the gradients of their embeddings and the rows; one per table otherwise."""
        fused, updates, settings = {}, [], {"hyper": hyper, "rule": self.rule, "nonfinite": nonfinite}
        for table, addresses, gradient in targets:
            table.native.set_slots(self._slot_specs())
            table.optimizer_name = self.get_name()
            graphs.state().updated.add(table.table_name)
            handles, folds = origin_of(addresses), folds_of(gradient)
            lookup = LookupOp.of(handles.op)
            is_unique = lookup is not None and lookup.is_grouped
            if is_unique and folds and all(fold.plan is lookup.plan for fold in folds):
                _, parts = fused.setdefault(graphs.key(lookup.plan), (lookup.plan, []))
                parts.append(fold_update.target_of(table.table_name, handles, folds))
                continue
            updates.append(update.build(table.table_name, addresses, gradient, settings, is_unique))
        updates += [fold_update.build(plan, parts, settings) for plan, parts in fused.values()]
        return updates

    def _target(self, gradient, variable):
        """(table, addresses [n], gradient [n, dim]) of a pair."""
        table = table_of(variable)
        if table is not None:
            return table, *slices_of(gradient, table, self.get_name())
        if not isinstance(variable, tf.Tensor):
            raise ValueError(
                f"{self.get_name()} updates tables only, got {variable!r}; dense variables need a TensorFlow optimizer"
            )
        addresses = handles_of(variable)
        table = graphs.state(addresses.graph).handles.get(graphs.key(addresses))
        if table is None:
            raise KeyError(
                f"{variable.name} ({variable.dtype.name}) does not hold row addresses; take them from the collection "
                "ASCEND_SPARSE_LOOKUP_ID_OFFSET"
            )
        self._check_gradient(gradient, addresses, table.embedding_size)
        return table, reached(addresses, gradient), gradient

    def _check_gradient(self, gradient, addresses, dim):
        what = f"{self.get_name()}: the gradient of the rows at {addresses.name} must be a Tensor"
        if not isinstance(gradient, tf.Tensor):
            raise RuntimeError(f"{what}, got {type(gradient).__name__}")
        if gradient.dtype != tf.float32 or not gradient.shape.is_compatible_with([None, dim]):
            raise ValueError(
                f"{what} of one row of {dim} float32 for each address, got {gradient.dtype.name} of shape "
                f"{gradient.shape}"
            )


def _merge(targets):
    """One target per table: a row's gradients must be summed before the rule sees them.

    They are summed in the order in which the lookups were built, whatever order tf.gradients found them in, so that the
    sum has the same bits however the lookups were prepared.
    """
    by_table = {}
    for table, addresses, gradient in targets:
        by_table.setdefault(table.table_name, (table, []))[1].extend(update.parts_of(addresses, gradient))
    for table, parts in by_table.values():
        if len(parts) > 1:
            order = {key: number for number, key in enumerate(graphs.state(parts[0][0].graph).handles)}
            parts.sort(key=lambda part: order.get(graphs.key(origin_of(part[0])), len(order)))
            yield table, tf.concat([a for a, _ in parts], 0), tf.concat([g for _, g in parts], 0)
        else:
            yield table, *parts[0]


def learning_rate_argument(value):
    """Returns a learning rate, checked: a float in [0, 10], a Tensor, a variable, or a callable giving one of them."""
    if tf.is_tensor(value) or isinstance(value, tf.Variable) or callable(value):
        return value
    return _check.real("learning_rate", value, 0.0, 10.0)


def learning_rate_now(value):
    return value() if callable(value) and not tf.is_tensor(value) and not isinstance(value, tf.Variable) else value
