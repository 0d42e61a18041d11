"""Notices tables that a model trains on, but that no sparse optimizer updates: their rows are made and never move."""

import re

from mx_rec._log import logger
from mx_rec._ops.fold_update import UPDATES
from mx_rec._ops.lookup import LookupOp
from mx_rec._tables import graphs

_APPLY = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]")


def warn(graph) -> None:
    """Warns of such tables of a graph that is about to run, once. A graph without any optimizer is not training, and
    what only passes through tf.stop_gradient, as with is_grad=False, is not meant to train its table."""
    state = graphs.state(graph)
    suspects = {
        table.table_name
        for table in state.tables.values()
        if table.is_trained_on and table.table_name not in state.updated | state.warned_of
    }
    if not suspects:
        return
    embeddings = {name: [] for name in suspects}
    for lookup in LookupOp.all_in(graphs.outermost(graph)):
        for name, tensors in lookup.inserted():
            if name in suspects:
                embeddings[name] += tensors
    for name in sorted(suspects):
        optimizer = _optimizer_behind(embeddings[name])
        if optimizer is not None:
            state.warned_of.add(name)
            logger.warning(
                "table '%s' gets rows, but nothing trains them: '%s' trains on its lookups, and no sparse optimizer "
                "updates the table. Group the step with "
                "mx_rec.optimizers.lazy_adam.create_hash_optimizer().minimize(loss), or say "
                "sparse_lookup(..., is_grad=False) if its rows shall stay as they are",
                name,
                optimizer,
            )


def _optimizer_behind(tensors):
    """Returns the name of an optimizer's op that one of the tensors reaches as gradients flow; None without one."""
    seen, stack = set(), list(tensors)
    while stack:
        for op in stack.pop().consumers():
            if _APPLY.match(op.type) or op.type in UPDATES:
                return op.name
            if op.name not in seen and op.type != "StopGradient":
                seen.add(op.name)
                stack.extend(tensor for tensor in op.outputs if tensor.dtype.is_floating)
    return None
