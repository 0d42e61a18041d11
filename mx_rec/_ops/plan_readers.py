"""The ops that know the numbering of a plan."""

from mx_rec._ops.fold_update import FoldUpdateOp
from mx_rec._ops.lookup import LookupOp
from mx_rec._ops.touched import TouchedOp
from mx_rec._tf.attributes import set_attributes
from mx_rec._tf.editing import replace_input

_OF_FEATURES = ("MxrecEmbeddings", "MxrecFold", "MxrecHasRow", "MxrecPadding")
_ALL = (*_OF_FEATURES, LookupOp.TYPE, TouchedOp.TYPE, FoldUpdateOp.TYPE)


def are_known(plan) -> bool:
    """Whether no other op reads a plan, which then has to keep its numbers."""
    return all(op.type in _ALL for op in plan.consumers())


def move(plan, new, table, feature) -> None:
    """Makes all but the lookup that read `plan`, of one feature, read the plan `new`, where it has these numbers."""
    for op in plan.consumers():
        if op.type in _OF_FEATURES:
            set_attributes(op, table=table, feature=feature)
        elif op.type == TouchedOp.TYPE:
            set_attributes(op, table=table, features=[feature])
        elif op.type == FoldUpdateOp.TYPE:
            set_attributes(op, table_in_plan=[table], feature_of_gradient=[feature])
        if op.type != LookupOp.TYPE:
            replace_input(op, plan, new)
