"""MxrecFoldUpdate: sums the gradients of a batch's keys and updates the rows of all its tables at once."""

import dataclasses

from mx_rec._ops import library
from mx_rec._ops.columns import columns_of
from mx_rec._ops.op import reads
from mx_rec._ops.place import Pooling
from mx_rec._ops.ranked import among_ranks
from mx_rec._ops.update import UpdateOp, Updating


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


class FoldUpdateOp(Updating):
    TYPE = "MxrecFoldUpdate"
    plan = reads(0)
    handles = property(lambda self: self.op.inputs[1 : 1 + self.op.get_attr("T")])  # of each table

    @property
    def targets(self) -> list[Target]:
        """The targets that it was built with."""
        tensors = self.op.inputs[1 + self.op.get_attr("T") : -1]
        told = map(self.op.get_attr, ("columns", "feature_of_gradient", "pooled"))
        gradients = [
            Gradient(tensor, column, feature, Pooling(pooled))
            for tensor, column, feature, pooled in zip(tensors, *told)
        ]
        owners = self.op.get_attr("table_of_gradient")
        tables = zip(self.op.get_attr("tables"), self.op.get_attr("table_in_plan"), self.handles)
        return [
            Target(name.decode(), number, handles, [g for g, owner in zip(gradients, owners) if owner == t])
            for t, (name, number, handles) in enumerate(tables)
        ]


UPDATES = {kind.TYPE: kind for kind in (UpdateOp, FoldUpdateOp)}


def updates_in(graph) -> list[Updating]:
    """Returns the ops of a graph that update rows, MxrecUpdate and MxrecFoldUpdate."""
    return [UPDATES[op.type](op) for op in graph.get_operations() if op.type in UPDATES]


def target_of(table_name, handles, folds) -> Target:
    """Returns the target that sums the gradients of folds, in the order of the features."""
    folds = sorted(folds, key=lambda fold: fold.feature)
    gradients = [Gradient(*columns_of(fold.incoming), fold.feature, fold.pooling) for fold in folds]
    return Target(table_name, folds[0].table, handles, gradients)


def build(plan, targets, settings):
    """Builds the op for these targets. `settings` are those of an Updating."""
    gradients = [(t, gradient) for t, target in enumerate(targets) for gradient in target.gradients]
    op = library.ops().mxrec_fold_update(
        plan=plan,
        handles=[target.handles for target in targets],
        gradients=[gradient.tensor for _, gradient in gradients],
        tables=[target.table_name for target in targets],
        table_in_plan=[target.table for target in targets],
        table_of_gradient=[t for t, _ in gradients],
        feature_of_gradient=[gradient.feature for _, gradient in gradients],
        pooled=[int(gradient.pooling) for _, gradient in gradients],
        columns=[gradient.column for _, gradient in gradients],
        name="fold_update",
        **settings,
    )
    return among_ranks(op)
