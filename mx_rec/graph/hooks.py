"""Hooks that prepare a graph for its modification. They stand before GraphModifierHook among the hooks."""

from collections.abc import Sequence

import tensorflow as tf

from mx_rec import _check
from mx_rec._log import logger
from mx_rec._lowering import finding, pipelines
from mx_rec._tables import graphs
from mx_rec._tf import editing, walking
from mx_rec._tf.copying import Copier
from mx_rec._tf.iterators import GET_NEXT, iterator_of


class LookupSubgraphSlicerHook(tf.compat.v1.train.SessionRunHook):
    """Moves ops of some types, where the ids of lookups depend on them, from the step into the dataset, with what they
    need themselves. No value changes.

    Graph modification moves all that computes the ids of a lookup, so this is for lookups that must stay in the step:
    because their ids also depend on a variable or a placeholder, say. Ops that depend on such a thing themselves stay.

    Args:
        op_types: types of ops, such as "StringToHashBucketFast"; at least one.
    """

    def __init__(self, op_types: Sequence[str]) -> None:
        _check.instance("op_types", op_types, (list, tuple), "a list of types of ops")
        if not op_types:
            raise ValueError("`op_types` must name at least one type of ops, got an empty list")
        for op_type in op_types:
            _check.instance("op_types", op_type, str, "a list of strings")
        self._op_types = frozenset(op_types)

    def begin(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        slices = {}
        for lookup in graphs.state(graph).tensor_lookups:
            if lookup.plan.graph is not graph:
                continue  # inside a branch
            for op in walking.ancestors([lookup.ids.op], lambda op: op.type in GET_NEXT):
                if op.type in self._op_types and op.type not in GET_NEXT and op.name not in slices:
                    try:
                        found = finding.trace_ops([op], f"lookup '{lookup.name}'")
                        pipelines.Source([found.get_next]).check()
                        slices[op.name] = (op, found)
                    except finding.Stays as reason:
                        logger.info("slicing: %s (%s) stays in the step: %s", op.name, op.type, reason)
        sources = {}
        for op, found in slices.values():
            sources.setdefault(iterator_of(found.get_next), {}).setdefault(found.get_next, []).append((op, found))
        for batches in sources.values():
            _move(batches)


class OrphanLookupKeySlicerHook(tf.compat.v1.train.SessionRunHook):
    """For lookups of ids that come from no dataset, such as constants. They are prepared in the step, with this hook or
    without; it is accepted so that scripts need not change."""


def _move(batches):
    """Moves ops into the dataset behind an iterator. `batches`: for its get_next ops, the ops with their slices."""
    batches = [_Batch(get_next, slices) for get_next, slices in batches.items()]
    source = pipelines.Source([batch.get_next for batch in batches])
    for batch, tensors in zip(batches, pipelines.extend(source, [batch.copies for batch in batches], limit=0)):
        for old, new in zip(batch.wanted, tensors):
            new.set_shape(old.shape)
            editing.replace(old, new)
        logger.info(
            "slicing: moved %d ops from the step into the dataset behind %s", len(batch.moved), batch.get_next.name
        )


class _Batch:
    """A get_next op, and what moves of the ops that read its batch; `slices` are pairs of an op and its slice."""

    def __init__(self, get_next, slices):
        self.get_next = get_next
        self.moved = {name for _, found in slices for name in found.ops}
        # What only ops that move themselves read need not leave the dataset.
        self.wanted = [
            output
            for op, _ in slices
            for output in op.outputs
            if any(reader.name not in self.moved for reader in output.consumers())
        ]
        who = f"the ops {sorted(op.name for op, _ in slices)}"
        self._copier = Copier(get_next, self.wanted, who, [found for _, found in slices])

    def copies(self, flat):
        """Computes what is wanted from the tensors of a batch."""
        return list(self._copier(flat).values())
