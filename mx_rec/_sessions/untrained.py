"""Notices tables that a model trains on, but that no sparse optimizer updates: their rows are made and never move."""

import re

from mx_rec._log import logger
from mx_rec._tables import graphs

_APPLY = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]|MxrecUpdate|MxrecFoldUpdate")
_INSERT = 2  # of the modes of a lookup (native/tf/lookup.cc)


def warn(graph) -> None:
    """Warns of such tables of a graph that is about to run, once. A graph without any optimizer is not training, and
    what only passes through tf.stop_gradient, as with is_grad=False, is not meant to train its table."""
    state = graphs.state(graph)
    asked = {
        table.table_name
        for table in state.tables.values()
        if table.is_trained_on and table.table_name not in state.updated | state.warned_of
    }
    if not asked:
        return
    embeddings = {name: [] for name in asked}
    for op in graphs.outermost(graph).get_operations():
        if op.type == "MxrecLookup":
            for name, tensors in _inserted(op):
                if name in asked:
                    embeddings[name] += tensors
    for name in sorted(asked):
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


def _inserted(op):
    """(table, embeddings) of each table that a lookup op inserts into."""
    modes, owners = op.get_attr("modes"), op.get_attr("table_of_feature")
    for t, name in enumerate(op.get_attr("tables")):
        if modes[t] == _INSERT:
            first = 2 * len(modes)
            features = [op.outputs[first + f] for f, owner in enumerate(owners) if owner == t]
            yield name.decode(), [op.outputs[t], *features]


def _optimizer_behind(tensors):
    """The name of an optimizer's op that needs one of the tensors, through what gradients flow through; or None."""
    seen, stack = set(), list(tensors)
    while stack:
        for op in stack.pop().consumers():
            if _APPLY.match(op.type):
                return op.name
            if op.name not in seen and op.type != "StopGradient":
                seen.add(op.name)
                stack.extend(tensor for tensor in op.outputs if tensor.dtype.is_floating)
    return None
