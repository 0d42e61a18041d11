"""MxrecFold: sums the gradient of what a lookup gave of a feature per row."""

from mx_rec._ops import library
from mx_rec._ops.op import Op, gives, reads, told
from mx_rec._ops.place import Pooling
from mx_rec._tf import static_shape


class FoldOp(Op):
    TYPE = "MxrecFold"
    incoming, plan, outgoing = reads(0), reads(1), gives(0)
    table, feature, pooling = told("table"), told("feature"), told("pooled", Pooling)


def build(gradient, rows, place, pooling):
    """Builds the op that sums, per row of `rows`, the gradient of what a lookup gave of a feature."""
    dim = static_shape.size(rows.shape, 1)
    return library.ops().mxrec_fold(gradient=gradient, pooled=bool(pooling), dim=dim, name="fold", **vars(place))


def folds_of(gradient) -> list[FoldOp]:
    """Returns the folds whose sum `gradient` is; nothing if it is something else."""
    ops = [source.op for source in gradient.op.inputs] if gradient.op.type == "AddN" else [gradient.op]
    return [FoldOp(op) for op in ops] if all(op.type == FoldOp.TYPE for op in ops) else []
