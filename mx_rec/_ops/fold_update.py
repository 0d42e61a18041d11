"""MxrecFoldUpdate: sums the gradients of a batch's keys and updates the rows of all its tables at once."""

import dataclasses
from typing import Union

from mx_rec._ops import library
from mx_rec._ops.columns import columns_of
from mx_rec._ops.op import Op
from mx_rec._ops.pooling import Pooling
from mx_rec._ops.update import UpdateOp
from mx_rec._tf.attributes import set_attributes


@dataclasses.dataclass(frozen=True)
class Gradient:
    """What one lookup adds to the gradient of a table: columns of `tensor`."""

    tensor: object
    column: int
    feature: int  # of the plan
    pooling: Pooling


@dataclasses.dataclass(frozen=True)
class Target:
    """A table to update: the handles of the keys of its part of a plan, and gradients to be summed in this order."""

    table_name: str
    table: int  # of the plan
    handles: object
    gradients: list[Gradient]


class FoldUpdateOp(Op):
    TYPE = "MxrecFoldUpdate"

    @property
    def plan(self):
        return self.op.inputs[0]

    @property
    def handles(self) -> list[object]:
        """Of each table."""
        return list(self.op.inputs)[1 : 1 + self.op.get_attr("T")]

    @property
    def settings(self) -> tuple[object, str, str]:
        """(the rule's numbers, rule, what becomes of gradients that are not finite)"""
        return list(self.op.inputs)[-1], self.op.get_attr("rule"), self.op.get_attr("nonfinite")

    @property
    def targets(self) -> list[Target]:
        """What it was built with."""
        names = ("columns", "feature_of_gradient", "pooled")
        gradients = [
            Gradient(tensor, column, feature, Pooling(pooled))
            for tensor, column, feature, pooled in zip(
                list(self.op.inputs)[1 + self.op.get_attr("T") : -1], *map(self.op.get_attr, names)
            )
        ]
        owners = self.op.get_attr("table_of_gradient")
        tables = zip(self.op.get_attr("tables"), self.op.get_attr("table_in_plan"), self.handles)
        return [
            Target(name.decode(), number, handles, [g for g, owner in zip(gradients, owners) if owner == t])
            for t, (name, number, handles) in enumerate(tables)
        ]

    def move(self, table, feature) -> None:
        """Means another place of a plan, of one feature."""
        set_attributes(self.op, table_in_plan=[table], feature_of_gradient=[feature])


def update_of(op) -> Union[FoldUpdateOp, UpdateOp, None]:
    """An op that updates rows, one way or the other; None if it does not."""
    return FoldUpdateOp.of(op) or UpdateOp.of(op)


def all_updates_in(graph) -> list[Union[FoldUpdateOp, UpdateOp]]:
    """The ops of a graph that update rows."""
    return [update for update in map(update_of, graph.get_operations()) if update is not None]


def target_of(table_name, handles, folds) -> Target:
    """The target that sums the gradients of folds, in the order of the features."""
    folds = sorted(folds, key=lambda fold: fold.feature)
    gradients = [Gradient(*columns_of(fold.incoming), fold.feature, fold.pooling) for fold in folds]
    return Target(table_name, folds[0].table, handles, gradients)


def build(plan, targets, settings):
    """The op. `settings` as above."""
    hyper, rule, nonfinite = settings
    gradients = [(t, gradient) for t, target in enumerate(targets) for gradient in target.gradients]
    return library.ops().mxrec_fold_update(
        plan=plan,
        handles=[target.handles for target in targets],
        gradients=[gradient.tensor for _, gradient in gradients],
        hyper=hyper,
        tables=[target.table_name for target in targets],
        table_in_plan=[target.table for target in targets],
        table_of_gradient=[t for t, _ in gradients],
        feature_of_gradient=[gradient.feature for _, gradient in gradients],
        pooled=[int(gradient.pooling) for _, gradient in gradients],
        columns=[gradient.column for _, gradient in gradients],
        rule=rule,
        nonfinite=nonfinite,
        name="fold_update",
    )
