"""Ops that work together with those of other ranks: kernels that bear the label "ranks" (native/tf/ranked_kernel.h)."""

from mx_rec import _ranks
from mx_rec._ops.op import nodes_of
from mx_rec._tf import patches
from mx_rec._tf.attributes import set_text

_LABEL = "_kernel"  # TensorFlow's attribute for the label of a kernel
# The exchanges of each, by the type of op: what a kernel's messages are named by, after the op.
_STAGES = {
    "MxrecLookup": ("keys", "rows"),
    "MxrecFoldUpdate": ("gradients",),
    "MxrecUpdate": ("gradients",),
    "MxrecAllReduce": ("values", "reduced"),
    "MxrecAllGather": ("values",),
    "MxrecBroadcast": ("values",),
    "MxrecAllToAll": ("values",),
}


def among_ranks(op):
    """Gives `op` the kernel for several ranks, if there are several; returns it."""
    if _ranks.are_several():
        patches.install_early()  # a graph may have collectives and no table
        set_text(op, _LABEL, "ranks")
    return op


def fit(graph_def) -> None:
    """Gives the nodes of a GraphDef the kernels for as many ranks as there are: those of one rank, or of several."""
    for node in nodes_of(graph_def):
        node.attr.pop(_LABEL, None)
        if node.op in _STAGES and _ranks.are_several():
            node.attr[_LABEL].s = b"ranks"


def strip(graph_def) -> None:
    """Takes out of a GraphDef how many ranks it was built on."""
    for node in nodes_of(graph_def):
        node.attr.pop(_LABEL, None)


def streams_of(op) -> list[str]:
    """The names of the exchanges with other ranks that an op takes part in."""
    return [f"{op.name}/{stage}" for stage in _STAGES.get(op.type, ())]
