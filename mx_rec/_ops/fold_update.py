"""The op that sums the gradients of a batch's keys and updates the rows of all its tables at once."""

import dataclasses

from mx_rec._ops import library
from mx_rec._ops.columns import columns_of


@dataclasses.dataclass(frozen=True)
class Gradient:
    """What one lookup adds to the gradient of a table: columns of `tensor`."""

    tensor: object
    column: int
    feature: int  # of the plan
    is_pooled: bool


@dataclasses.dataclass(frozen=True)
class Target:
    """A table to update: the handles of the keys of its part of a plan, and gradients to be summed in this order."""

    table_name: str
    table: int  # of the plan
    handles: object
    gradients: list[Gradient]


def target_of(table_name, handles, folds) -> Target:
    """The target that sums the gradients of MxrecFold ops, in the order of the features."""
    folds = sorted(folds, key=lambda fold: fold.get_attr("feature"))
    gradients = [
        Gradient(*columns_of(fold.inputs[0]), fold.get_attr("feature"), fold.get_attr("pooled")) for fold in folds
    ]
    return Target(table_name, folds[0].get_attr("table"), handles, gradients)


def targets_of(op) -> list[Target]:
    """The targets that an op was built with."""
    names = [name.decode() for name in op.get_attr("tables")]
    handles, tensors = list(op.inputs)[1 : 1 + len(names)], list(op.inputs)[1 + len(names) : -1]
    gradients = [
        Gradient(tensor, column, feature, bool(pooled))
        for tensor, column, feature, pooled in zip(
            tensors, op.get_attr("columns"), op.get_attr("feature_of_gradient"), op.get_attr("pooled")
        )
    ]
    owners, numbers = op.get_attr("table_of_gradient"), op.get_attr("table_in_plan")
    return [
        Target(name, numbers[t], handles[t], [g for g, owner in zip(gradients, owners) if owner == t])
        for t, name in enumerate(names)
    ]


def build(plan, targets, hyper, rule, nonfinite):
    """The op."""
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
        pooled=[int(gradient.is_pooled) for _, gradient in gradients],
        columns=[gradient.column for _, gradient in gradients],
        rule=rule,
        nonfinite=nonfinite,
        name="fold_update",
    )
