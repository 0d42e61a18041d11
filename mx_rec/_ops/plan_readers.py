"""The ops that know the numbering of a plan."""

from mx_rec._ops.embeddings import EmbeddingsOp, HasRowOp, PaddingOp
from mx_rec._ops.fold import FoldOp
from mx_rec._ops.fold_update import FoldUpdateOp
from mx_rec._ops.lookup import LookupOp
from mx_rec._ops.touched import TouchedOp
from mx_rec._tf.editing import replace_input

_KINDS = {kind.TYPE: kind for kind in (EmbeddingsOp, FoldOp, FoldUpdateOp, HasRowOp, PaddingOp, TouchedOp)}


def are_known(plan) -> bool:
    """Whether no other op reads a plan, which then has to keep its numbers."""
    return all(op.type in _KINDS or op.type == LookupOp.TYPE for op in plan.consumers())


def move(plan, new, table, feature) -> None:
    """Makes all but the lookup that read `plan`, of one feature, read the plan `new`, where it has these numbers."""
    for op in plan.consumers():
        if op.type in _KINDS:
            _KINDS[op.type](op).move(table, feature)
            replace_input(op, plan, new)
