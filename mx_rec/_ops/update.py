"""MxrecUpdate: applies an optimizer's rule to rows of a table, by a gradient for each."""

from mx_rec._ops import library
from mx_rec._ops.op import Op, reads, told
from mx_rec._ops.ranked import among_ranks


class Updating(Op):
    """An op that updates rows."""

    @property
    def settings(self) -> dict[str, object]:
        """`hyper`, the rule's numbers; `rule`; `nonfinite`, what becomes of gradients that are not finite."""
        return {"hyper": self.op.inputs[-1], **{name: self.op.get_attr(name) for name in ("rule", "nonfinite")}}


class UpdateOp(Updating):
    TYPE = "MxrecUpdate"
    handles = reads(slice(0, 1))
    table_name = told("table", lambda name: name.decode())
    parts = property(lambda self: parts_of(*self.op.inputs[:2]))


def build(table_name, handles, gradient, settings, is_unique):
    """Builds the op. `settings` are those of an Updating; `is_unique`: no row is there twice."""
    op = library.ops().mxrec_update(
        handles=handles, gradient=gradient, table=table_name, unique=is_unique, name=f"update_{table_name}", **settings
    )
    return among_ranks(op)


def parts_of(handles, gradient) -> list[tuple[object, object]]:
    """Returns the pairs (handles, gradient), one for each lookup, that a table's gradient was put together from."""
    if handles.op.type != "ConcatV2" or gradient.op.type != "ConcatV2":
        return [(handles, gradient)]
    if len(handles.op.inputs) != len(gradient.op.inputs):
        return [(handles, gradient)]
    return list(zip(handles.op.inputs, gradient.op.inputs))[:-1]  # the last input is the axis
