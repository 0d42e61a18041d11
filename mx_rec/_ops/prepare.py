"""MxrecPrepare makes the plan of a batch; MxrecGroup makes one that was prepared for evaluation fit for training."""

import dataclasses

from mx_rec._ops import library
from mx_rec._ops.op import Op


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which tables a plan has, of each of its features the number of its table, and whether it is grouped. A step can
    train on a grouped plan, which knows how many different ids it holds."""

    tables: tuple[str, ...]
    table_of_feature: tuple[int, ...]
    is_grouped: bool


class PrepareOp(Op):
    TYPE = "MxrecPrepare"
    # Of each feature, and the timestamps of the samples: one tensor or none.
    ids = property(lambda self: self.op.inputs[: self.op.get_attr("F")])
    times = property(lambda self: self.op.inputs[self.op.get_attr("F") :])


def build(ids, layout, times=(), name="prepare"):
    """Builds the op that makes a plan of ids, an int64 tensor for each feature of `layout`, and of timestamps or
    none."""
    tables, owners, is_grouped = dataclasses.astuple(layout)
    return library.ops().mxrec_prepare(
        ids=ids, times=list(times), tables=tables, table_of_feature=owners, grouped=is_grouped, name=name
    )


def group(plan, layout):
    """Builds the op that groups a plan."""
    return library.ops().mxrec_group(plan=plan, tables=layout.tables, name="group")
