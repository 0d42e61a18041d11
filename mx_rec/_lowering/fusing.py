"""Fusing what a script does to embeddings into the lookup that gives them.

Two patterns are known: the sum (or the mean of 2, 4 or 8) along the last axis of the ids, which the lookup then pools;
and the concatenation of embeddings along their last axis, which the lookup then writes side by side. The values are the
same to the bit. What else may read the single embeddings reads them from a lookup of its own, which no step runs unless
it is asked for them.
"""

import dataclasses

import tensorflow as tf

from mx_rec._lowering.reports import Fused
from mx_rec._ops import embeddings, fold, fold_update
from mx_rec._ops.columns import columns_of
from mx_rec._ops.place import Pooling
from mx_rec._tables import graphs
from mx_rec._tf import static_shape, sums, walking
from mx_rec._tf.editing import replace, replace_control, replace_input, run_after, run_after_the_same

# Ops without a reader that only a script that fetches them runs: updates that were replaced, and what tf.gradients
# leaves behind.
_ENDS = (fold.FoldOp.TYPE, *fold_update.UPDATES, "Shape", "ShapeN", "Rank", "Size", "ZerosLike")


def fuse(graph) -> list[Fused]:
    """Fuses all that it can in a graph that no session has run."""
    found = []
    for types, fuse_one in ((("Sum", "Mean"), _pool), (("ConcatV2",), _join)):
        lookups = _Lookups(graph)
        for op in graph.get_operations():
            if op.type in types:
                found += fuse_one(op, lookups)
        _pool_updates(lookups)
    return found


class _Lookups:
    """The lookups of a graph."""

    def __init__(self, graph):
        self.folds = fold.FoldOp.all_in(graph)
        self.updates = fold_update.FoldUpdateOp.all_in(graph)
        # (plan, feature, gradient of its terms) -> gradient of their sum
        self.pooled = {}
        self._spares = {}

    def spare(self, lookup):
        """A lookup that gives what `lookup` gave when this object was made."""
        if lookup not in self._spares:
            self._spares[lookup] = lookup.copy(f"{lookup.op.name}_unfused")
        return self._spares[lookup]

    def is_dead(self, op, gone=()) -> bool:
        """Whether no step runs `op` once the ops of `gone` are: all that reads it are gradients and updates that
        something else has taken the place of."""
        seen, stack = set(gone), [op]
        while stack:
            op = stack.pop()
            if op in seen:
                continue
            seen.add(op)
            readers = walking.readers(op)
            is_end = not readers and op.type in _ENDS
            if walking.followers(op) or not (readers or is_end):
                return False
            stack.extend(readers)
        return True

    def folds_of(self, given):
        """The folds of the gradient of an EmbeddingsOp."""
        place, pooling = given.place, given.pooling
        same = (fold for fold in self.folds if fold.plan is place.plan)
        return [fold for fold in same if fold.feature == place.feature and fold.pooling == pooling]


def _plain(tensor):
    """The EmbeddingsOp of a tensor that is what one lookup gave, in an output of its own that nobody else reads; None
    for others."""
    given = embeddings.EmbeddingsOp.of(tensor.op)
    if given is None or given.lookup is None:
        return None
    lookup, feature = given.lookup
    # tf.gradients makes zeros for every output of a lookup, which nobody reads.
    readers = [reader for reader in given.source.consumers() if reader.type != "ZerosLike"]
    return given if readers == [given.op] and lookup.gives(feature, given.pooling) else None


# ---- Sums.


def _pool(op, lookups):
    result, terms, axis = sums.reduction_of(op)
    each = _plain(terms)
    if each is None or each.pooling != Pooling.NONE or not _has_same_bits(op.type, terms.shape, axis):
        return []
    lookup, feature = each.lookup
    if graphs.state(op.graph).tables[lookup.name_of(feature)].padding_keys:
        return []  # they count for nothing in a pooled lookup, but have rows in this sum
    folds = lookups.folds_of(each)
    chains = [sums.spread_to(fold.incoming) for fold in folds]  # (gradient of the sum, last op that spreads it)
    dead = {last for _, last in filter(None, chains)}
    if None in chains or not all(reader is op or lookups.is_dead(reader, dead) for reader in terms.consumers()):
        return []
    source, rows, place = each.source, each.rows, each.place
    with tf.name_scope(op.name + "_pooled/"), tf.control_dependencies(None):
        spare = lookups.spare(lookup)
        pooled = embeddings.build(source, rows, each.ids, Pooling.SUM)
        size = None if op.type == "Sum" else float(static_shape.size(terms.shape, -2))
        new = pooled if size is None else pooled / size
        gradients = [gradient if size is None else gradient / size for gradient, _ in chains]
    run_after_the_same(pooled.op, [op, each.op])
    replace_input(each.op, source, spare.embeddings[feature])
    lookup.give(feature, Pooling.SUM)
    new.set_shape(result.shape)
    replace(result, new)
    for old, gradient in zip(folds, gradients):
        lookups.pooled[place.plan.name, place.feature, old.incoming.name] = gradient
        with tf.name_scope(old.op.name + "_pooled/"), tf.control_dependencies(None):
            replace(old.outgoing, fold.build(gradient, rows, place, Pooling.SUM))
    return [Fused(op.name, op.type, 1)]


def _pool_updates(lookups):
    """Makes the updates read the gradients of sums instead of those of their terms."""
    for update in lookups.updates if lookups.pooled else []:
        is_changed, targets = False, []
        for target in update.targets:
            gradients = []
            for gradient in target.gradients:
                of_sum = lookups.pooled.get((update.plan.name, gradient.feature, gradient.tensor.name))
                if of_sum is not None:
                    is_changed = True
                    gradient = fold_update.Gradient(*columns_of(of_sum), gradient.feature, Pooling.SUM)
                gradients.append(gradient)
            targets.append(dataclasses.replace(target, gradients=gradients))
        if is_changed:
            with tf.name_scope(update.op.name + "_pooled/"), tf.control_dependencies(None):
                pooled = fold_update.build(update.plan, targets, update.settings)
            run_after(pooled, update.op.control_inputs)
            replace_control([update.op], pooled)


def _has_same_bits(kind, shape, axis):
    """Whether it sums the axis before the last, in an order that the pooled lookup keeps (native/batch/fold.h)."""
    if shape.rank is None or shape.rank < 2 or axis is None:
        return False
    size = static_shape.size(shape, -2)
    if axis % shape.rank != shape.rank - 2 or size == 0:
        return False
    if kind == "Mean":  # TensorFlow may turn a division by a constant into a multiplication, which must be exact
        return size in (1, 2, 4, 8)
    return (size is not None and size < 16) or static_shape.size(shape, -1) % 8 == 0


# ---- Concatenations.


def _join(op, lookups):
    result, tensors, axis = sums.concatenation_of(op)
    ranks = {tensor.shape.rank for tensor in tensors}
    if len({tensor.name for tensor in tensors}) < max(2, len(tensors)) or None in ranks or len(ranks) > 1:
        return []
    if axis is None or axis % ranks.pop() != tensors[0].shape.rank - 1:
        return []
    parts = [_plain(tensor) for tensor in tensors]
    if None in parts:
        return []
    lookup = parts[0].lookup[0]
    if any(part.lookup[0] != lookup for part in parts):
        return []
    if not all(reader is op or lookups.is_dead(reader) for tensor in tensors for reader in tensor.consumers()):
        return []
    features = [part.lookup[1] for part in parts]
    leader = min(features)
    dims = [static_shape.size(tensor.shape, -1) for tensor in tensors]
    with tf.name_scope(op.name + "_joined/"), tf.control_dependencies(None):
        spare = lookups.spare(lookup)
        both = embeddings.join(lookup.embeddings[leader], parts, result.shape)
    run_after_the_same(both.op, [op, *(part.op for part in parts)])
    for number, (part, feature) in enumerate(zip(parts, features)):
        replace_input(part.op, part.source, spare.embeddings[feature])
        lookup.write_beside(feature, leader, sum(dims[:number]))
    replace(result, both)
    return [Fused(op.name, op.type, len(parts))]
