"""MxrecTouched: those handles of a table's keys that some features of the batch hold."""

from mx_rec._ops import library
from mx_rec._ops.op import Op, reads


class TouchedOp(Op):
    TYPE = "MxrecTouched"
    handles = reads(0)


def build(handles, plan, table, features, name=None):
    """Builds the op that gives those handles; `table` and `features` are numbers of the plan."""
    return library.ops().mxrec_touched(handles=handles, plan=plan, table=table, features=features, name=name)


def origin_of(handles):
    """Returns the handles of the lookup that `handles` were picked from."""
    some = TouchedOp.of(handles.op)
    return handles if some is None else some.handles
