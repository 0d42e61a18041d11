"""Fusing what a script does to embeddings into the lookup that gives them.

Two patterns are known: the sum (or the mean of 2, 4 or 8) along the last axis of the ids, which the lookup then pools;
and the concatenation of embeddings along their last axis, which the lookup then writes side by side. The values are the
same to the bit. What else may read the single embeddings reads them from a lookup of its own, which no step runs unless
it is asked for them.
"""

import dataclasses

import tensorflow as tf

from mx_rec._lowering.commits import EACH, POOLED
from mx_rec._lowering.reports import Fused
from mx_rec._ops import fold_update, library
from mx_rec._ops.columns import columns_of
from mx_rec._ops.gradients import fold
from mx_rec._tables import graphs
from mx_rec._tf import static_shape
from mx_rec._tf.attributes import set_attributes, set_entry
from mx_rec._tf.editing import replace, replace_control

# Ops without a reader that only a script that fetches them runs: updates that were replaced, and what tf.gradients
# leaves behind.
_ENDS = ("MxrecFold", "MxrecUpdate", "MxrecFoldUpdate", "Shape", "ShapeN", "Rank", "Size", "ZerosLike")


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
        ops = graph.get_operations()
        self.folds = [op for op in ops if op.type == "MxrecFold"]
        self.updates = [op for op in ops if op.type == "MxrecFoldUpdate"]
        # (plan, feature, gradient of its terms) -> gradient of their sum
        self.pooled = {}
        self._spares = {}

    def spare(self, commit):
        """A commit that gives what `commit` gave when this object was made."""
        if commit.name not in self._spares:
            self._spares[commit.name] = commit.graph.create_op(
                commit.type,
                list(commit.inputs),
                [output.dtype for output in commit.outputs],
                name=f"{commit.name}_unfused",
                attrs=dict(commit.node_def.attr),
            )
        return self._spares[commit.name]

    def is_dead(self, op, gone=()) -> bool:
        """Whether no step runs `op` once the ops of `gone` are: all that reads it are gradients and updates that
        something else has taken the place of."""
        seen, stack = set(gone), [op]
        while stack:
            op = stack.pop()
            if op in seen:
                continue
            seen.add(op)
            readers = [reader for output in op.outputs for reader in output.consumers()]
            is_end = not readers and op.type in _ENDS
            if op._control_outputs or not (readers or is_end):
                return False
            stack.extend(readers)
        return True

    def folds_of(self, embeddings):
        """The folds of the gradient of an MxrecEmbeddings op."""
        plan, feature = embeddings.inputs[2], embeddings.get_attr("feature")
        return [
            op
            for op in self.folds
            if op.inputs[1] is plan
            and op.get_attr("feature") == feature
            and op.get_attr("pooled") == embeddings.get_attr("pooled")
        ]


def _place(embeddings):
    """(commit op, number of the feature among its features) of an MxrecEmbeddings op."""
    source = embeddings.inputs[0]
    return source.op, source.value_index - 2 * len(source.op.get_attr("dims"))


def _is_plain(tensor, view):
    """Whether a tensor is what one lookup gave, in an output of its own that nobody else reads."""
    if tensor.op.type != "MxrecEmbeddings" or tensor.op.inputs[0].op.type != "MxrecLookup":
        return False
    commit, feature = _place(tensor.op)
    # tf.gradients makes zeros for every output of a lookup, which nobody reads.
    readers = [reader for reader in tensor.op.inputs[0].consumers() if reader.type != "ZerosLike"]
    is_alone = commit.get_attr("leaders").count(feature) == 1
    return readers == [tensor.op] and is_alone and commit.get_attr("views")[feature] == view


def _has_padding(embeddings):
    commit, feature = _place(embeddings)
    name = commit.get_attr("tables")[commit.get_attr("table_of_feature")[feature]].decode()
    return bool(graphs.state(commit.graph).tables[name].padding_keys)


def _run_after_the_same(op, others):
    """Makes `op` run after everything that the ops `others` run after. TensorFlow often leaves that to a constant among
    an op's inputs."""
    constants = [source.op for other in others for source in other.inputs if source.op.type == "Const"]
    op._add_control_inputs(list(dict.fromkeys(b for other in [*others, *constants] for b in other.control_inputs)))


# ---- Sums.


def _pool(op, lookups):
    embeddings = op.inputs[0]
    if op.get_attr("keep_dims") or not _is_plain(embeddings, EACH) or not _has_same_bits(op):
        return []
    if _has_padding(embeddings.op):  # which counts for nothing in a pooled lookup, but has a row in this sum
        return []
    chains = [_Chain.of(fold) for fold in lookups.folds_of(embeddings.op)]
    dead = {chain.op for chain in chains if chain is not None}
    if None in chains or not all(reader is op or lookups.is_dead(reader, dead) for reader in embeddings.consumers()):
        return []
    commit, feature = _place(embeddings.op)
    source, rows, plan = embeddings.op.inputs
    table, number = embeddings.op.get_attr("table"), embeddings.op.get_attr("feature")
    with tf.name_scope(op.name + "_pooled/"), tf.control_dependencies(None):
        spare = lookups.spare(commit)
        pooled = library.ops().mxrec_embeddings(
            embeddings=source,
            rows=rows,
            plan=plan,
            table=table,
            feature=number,
            pooled=True,
            ids_shape=embeddings.op.get_attr("ids_shape"),
        )
        size = None if op.type == "Sum" else float(static_shape.size(embeddings.shape, -2))
        result = pooled if size is None else pooled / size
        gradients = [chain.gradient if size is None else chain.gradient / size for chain in chains]
    _run_after_the_same(pooled.op, [op, embeddings.op])
    embeddings.op._update_input(0, spare.outputs[source.value_index])
    set_entry(commit, "views", feature, POOLED)
    result.set_shape(op.outputs[0].shape)
    replace(op.outputs[0], result)
    for chain, gradient in zip(chains, gradients):
        lookups.pooled[plan.name, number, chain.fold.inputs[0].name] = gradient
        with tf.name_scope(chain.fold.name + "_pooled/"), tf.control_dependencies(None):
            replace(chain.fold.outputs[0], fold(gradient, rows, plan, table, number, True))
    return [Fused(op.name, op.type, 1)]


def _pool_updates(lookups):
    """Makes the updates read the gradients of sums instead of those of their terms."""
    for update in lookups.updates if lookups.pooled else []:
        plan, is_changed, targets = update.inputs[0], False, []
        for target in fold_update.targets_of(update):
            gradients = []
            for gradient in target.gradients:
                of_sum = lookups.pooled.get((plan.name, gradient.feature, gradient.tensor.name))
                if of_sum is not None:
                    is_changed = True
                    gradient = fold_update.Gradient(*columns_of(of_sum), gradient.feature, True)
                gradients.append(gradient)
            targets.append(dataclasses.replace(target, gradients=gradients))
        if is_changed:
            with tf.name_scope(update.name + "_pooled/"), tf.control_dependencies(None):
                rule, nonfinite = update.get_attr("rule"), update.get_attr("nonfinite")
                pooled = fold_update.build(plan, targets, update.inputs[-1], rule, nonfinite)
            pooled._add_control_inputs(update.control_inputs)
            replace_control([update], pooled)


def _has_same_bits(op):
    """Whether the op sums the axis before the last, in an order that the pooled lookup keeps (native/batch/fold.h)."""
    shape, axis = op.inputs[0].shape, tf.get_static_value(op.inputs[1])
    if shape.rank is None or shape.rank < 2 or axis is None or axis.size != 1:
        return False
    size = static_shape.size(shape, -2)
    if int(axis.reshape(-1)[0]) % shape.rank != shape.rank - 2 or size == 0:
        return False
    if op.type == "Mean":  # TensorFlow may turn a division by a constant into a multiplication, which must be exact
        return size in (1, 2, 4, 8)
    return (size is not None and size < 16) or static_shape.size(shape, -1) % 8 == 0


@dataclasses.dataclass
class _Chain:
    """The ops that spread the gradient of a sum over its terms, up to the fold that adds them up again."""

    fold: object
    op: object  # the last of them
    gradient: object  # of the sum

    @staticmethod
    def of(fold):
        """The chain before a fold, or None if there is something else."""
        op = fold.inputs[0].op
        spread = op.inputs[0].op if op.type == "RealDiv" else op
        if spread.type not in ("BroadcastTo", "Tile") or spread.inputs[0].op.type != "Reshape":
            return None
        reshape = spread.inputs[0].op
        gradient, shape = reshape.inputs[0], tf.get_static_value(reshape.inputs[1])
        is_known = shape[-2] == 1 if shape is not None else reshape.inputs[1].op.type == "DynamicStitch"
        rank = fold.inputs[0].shape.rank
        if not is_known or rank is None or gradient.shape.rank != rank - 1:
            return None
        return _Chain(fold, op, gradient)


# ---- Concatenations.


def _join(op, lookups):
    parts = list(op.inputs)[:-1]
    axis = tf.get_static_value(op.inputs[-1])
    ranks = {part.shape.rank for part in parts}
    if len({part.name for part in parts}) < max(2, len(parts)) or None in ranks or len(ranks) > 1:
        return []
    if axis is None or int(axis) % ranks.pop() != parts[0].shape.rank - 1:
        return []
    if not all(_is_plain(part, POOLED if _is_pooled(part) else EACH) for part in parts):
        return []
    places = [_place(part.op) for part in parts]
    commit = places[0][0]
    if any(other is not commit for other, _ in places):
        return []
    if not all(reader is op or lookups.is_dead(reader) for part in parts for reader in part.consumers()):
        return []
    features = [feature for _, feature in places]
    leader = min(features)
    dims = [static_shape.size(part.shape, -1) for part in parts]
    with tf.name_scope(op.name + "_joined/"), tf.control_dependencies(None):
        spare = lookups.spare(commit)
        joined = library.ops().mxrec_joined(
            embeddings=parts[features.index(leader)].op.inputs[0],
            rows=[part.op.inputs[1] for part in parts],
            plan=parts[0].op.inputs[2],
            tables=[part.op.get_attr("table") for part in parts],
            features=[part.op.get_attr("feature") for part in parts],
            pooled=[int(_is_pooled(part)) for part in parts],
            shape=op.outputs[0].shape,
        )
    _run_after_the_same(joined.op, [op, *(part.op for part in parts)])
    leaders, columns = list(commit.get_attr("leaders")), list(commit.get_attr("columns"))
    for number, (part, feature) in enumerate(zip(parts, features)):
        part.op._update_input(0, spare.outputs[part.op.inputs[0].value_index])
        leaders[feature], columns[feature] = leader, sum(dims[:number])
    set_attributes(commit, leaders=leaders, columns=columns)
    replace(op.outputs[0], joined)
    return [Fused(op.name, op.type, len(parts))]


def _is_pooled(tensor):
    return tensor.op.type == "MxrecEmbeddings" and tensor.op.get_attr("pooled")
