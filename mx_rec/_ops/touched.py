"""MxrecTouched: those handles of a table's keys that some features of the batch hold."""

from mx_rec._ops import library
from mx_rec._ops.op import Op
from mx_rec._tf.attributes import set_attributes


class TouchedOp(Op):
    TYPE = "MxrecTouched"

    def move(self, table, feature) -> None:
        """Means another place of a plan, of one feature."""
        set_attributes(self.op, table=table, features=[feature])


def build(handles, plan, table, features, name=None):
    """The handles. `table` and `features` are numbers of the plan."""
    return library.ops().mxrec_touched(handles=handles, plan=plan, table=table, features=features, name=name)


def origin_of(handles):
    """The handles of the lookup that `handles` are some of."""
    return handles.op.inputs[0] if handles.op.type == TouchedOp.TYPE else handles
