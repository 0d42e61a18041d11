"""The ops that read a plan and know its tables and features by number."""

from mx_rec._tf.attributes import set_attributes
from mx_rec._tf.editing import replace_input

# By type, how an op is told its place: one feature, where it may mean several. The lookup is told nothing.
_TOLD = {
    **dict.fromkeys(
        ("MxrecEmbeddings", "MxrecFold", "MxrecHasRow", "MxrecPadding"), lambda t, f: {"table": t, "feature": f}
    ),
    "MxrecTouched": lambda t, f: {"table": t, "features": [f]},
    "MxrecFoldUpdate": lambda t, f: {"table_in_plan": [t], "feature_of_gradient": [f]},
    "MxrecLookup": None,
}


def are_known(plan) -> bool:
    """Tells whether only these ops read a plan. If others do, it has to keep its numbers."""
    return all(op.type in _TOLD for op in plan.consumers())


def move(plan, new, table, feature) -> None:
    """Makes all readers of `plan`, which has one feature, read the plan `new` instead, where that feature has these
    numbers; but not the lookup."""
    for op in plan.consumers():
        if _TOLD[op.type] is not None:
            set_attributes(op, **_TOLD[op.type](table, feature))
            replace_input(op, plan, new)
