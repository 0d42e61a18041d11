"""MxrecFold: sums the gradient of what a lookup gave of a feature per row."""

from mx_rec._ops import library
from mx_rec._ops.op import Op
from mx_rec._ops.pooling import Pooling
from mx_rec._tf import static_shape
from mx_rec._tf.attributes import set_attributes


class FoldOp(Op):
    TYPE = "MxrecFold"

    @property
    def incoming(self):
        """The gradient that is summed."""
        return self.op.inputs[0]

    @property
    def plan(self):
        return self.op.inputs[1]

    @property
    def outgoing(self):
        """The gradient of the rows."""
        return self.op.outputs[0]

    @property
    def table(self) -> int:
        """The number of the plan's table."""
        return self.op.get_attr("table")

    @property
    def feature(self) -> int:
        """The number of the plan's feature."""
        return self.op.get_attr("feature")

    @property
    def pooling(self) -> Pooling:
        return Pooling(self.op.get_attr("pooled"))

    def move(self, table, feature) -> None:
        """Means another place of a plan."""
        set_attributes(self.op, table=table, feature=feature)


def build(gradient, rows, plan, table, feature, pooling):
    """The gradient of `rows`, out of that of what a lookup of a feature gave."""
    return library.ops().mxrec_fold(
        gradient=gradient,
        plan=plan,
        table=table,
        feature=feature,
        pooled=bool(pooling),
        dim=static_shape.size(rows.shape, 1),
        name="fold",
    )


def folds_of(gradient) -> list[FoldOp]:
    """The folds whose sum `gradient` is, or nothing if it is something else."""
    ops = [source.op for source in gradient.op.inputs] if gradient.op.type == "AddN" else [gradient.op]
    return [FoldOp(op) for op in ops] if all(op.type == FoldOp.TYPE for op in ops) else []
