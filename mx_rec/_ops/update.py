"""MxrecUpdate: applies an optimizer's rule to rows of a table, by a gradient for each."""

from mx_rec._ops import library
from mx_rec._ops.op import Op


class UpdateOp(Op):
    TYPE = "MxrecUpdate"

    @property
    def table_name(self) -> str:
        return self.op.get_attr("table").decode()

    @property
    def handles(self) -> list[object]:
        return [self.op.inputs[0]]

    @property
    def gradients(self) -> list[tuple[object, object]]:
        """As of `parts_of`."""
        return parts_of(self.op.inputs[0], self.op.inputs[1])

    @property
    def settings(self) -> tuple[object, str, str]:
        """(the rule's numbers, rule, what becomes of gradients that are not finite)"""
        return self.op.inputs[2], self.op.get_attr("rule"), self.op.get_attr("nonfinite")


def build(table_name, handles, gradient, settings, is_unique):
    """The op. `settings` as above; `is_unique`: whether no row is there twice."""
    hyper, rule, nonfinite = settings
    return library.ops().mxrec_update(
        handles=handles,
        gradient=gradient,
        hyper=hyper,
        table=table_name,
        rule=rule,
        unique=is_unique,
        nonfinite=nonfinite,
        name=f"update_{table_name}",
    )


def parts_of(handles, gradient) -> list[tuple[object, object]]:
    """[(handles, gradient)] of the lookups that a table's gradient was put together from, one after another."""
    if handles.op.type != "ConcatV2" or gradient.op.type != "ConcatV2":
        return [(handles, gradient)]
    if len(handles.op.inputs) != len(gradient.op.inputs):
        return [(handles, gradient)]
    return list(zip(handles.op.inputs, gradient.op.inputs))[:-1]  # the last input is the axis
