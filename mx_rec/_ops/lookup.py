"""MxrecLookup: looks all tables of a batch up, and gives what it is asked for (native/tf/lookup.cc)."""

import dataclasses
from typing import Optional

from mx_rec._ops import library, touched
from mx_rec._ops.fold import folds_of
from mx_rec._ops.op import Op, reads, told
from mx_rec._ops.place import Pooling
from mx_rec._ops.ranked import among_ranks
from mx_rec._tf.attributes import set_entry

# Modes of a table.
_SKIP, _READ, _INSERT = 0, 1, 2
# Views of a feature: none, or one that is more than a Pooling by 1.
_HIDDEN = 0


class LookupOp(Op):
    """Looks up tables and features, each numbered by their order."""

    TYPE = "MxrecLookup"
    plan, anchors = reads(0), reads(slice(1, None))  # anchors: the resources of the tables' variables
    tables = told("tables", lambda names: [name.decode() for name in names])
    is_grouped = told("grouped")  # whether it gives a handle for each different key, not for each position
    _count = told("dims", len)
    rows = property(lambda self: self.op.outputs[: self._count])
    handles = property(lambda self: self.op.outputs[self._count : 2 * self._count])
    embeddings = property(lambda self: self.op.outputs[2 * self._count :])

    def table_of(self, tensor) -> int:
        """Returns the table that an output, rows or handles, belongs to."""
        return tensor.value_index % self._count

    def feature_of(self, tensor) -> int:
        """Returns the feature whose embeddings an output is."""
        return tensor.value_index - 2 * self._count

    def name_of(self, feature) -> str:
        """Returns the name of a feature's table."""
        return self.tables[self.op.get_attr("table_of_feature")[feature]]

    def inserted(self):
        """Yields (table's name, rows and embeddings) of each table that keys are inserted into."""
        modes, owners = self.op.get_attr("modes"), self.op.get_attr("table_of_feature")
        for t, name in enumerate(self.tables):
            if modes[t] == _INSERT:
                yield name, [self.rows[t], *(out for out, owner in zip(self.embeddings, owners) if owner == t)]

    def gives(self, feature, pooling) -> bool:
        """Tells whether the lookup gives this view of a feature, in an output of the feature's own."""
        is_alone = self.op.get_attr("leaders").count(feature) == 1
        return is_alone and self.op.get_attr("views")[feature] == 1 + pooling

    def give(self, feature, pooling) -> None:
        """Makes the lookup give this view of a feature from now on."""
        set_entry(self.op, "views", feature, 1 + int(pooling))

    def write_beside(self, feature, leader, column) -> None:
        """Makes the lookup write a feature into the embeddings of the feature `leader`, from a column on."""
        set_entry(self.op, "leaders", feature, leader)
        set_entry(self.op, "columns", feature, column)

    def copy(self, name) -> "LookupOp":
        """Builds another lookup with the same attributes."""
        types, attributes = [output.dtype for output in self.op.outputs], dict(self.op.node_def.attr)
        return LookupOp(self.op.graph.create_op(self.TYPE, list(self.op.inputs), types, name=name, attrs=attributes))

    @staticmethod
    def gradient(op, *gradients):
        """Returns for each anchor variable the gradient of its table's rows, as slices that the handles index."""
        import tensorflow as tf

        lookup, slices = LookupOp(op), []
        for t, dim in enumerate(op.get_attr("dims")):
            gradient = gradients[t]
            if gradient is None or _is_filler(gradient, lookup.rows[t]):
                slices.append(None)
                continue
            gradient = tf.convert_to_tensor(gradient)
            handles = reached(lookup.handles[t], gradient)
            slices.append(tf.IndexedSlices(gradient, handles, tf.constant([0, dim], tf.int32)))
        return [None, *slices]


def _of_table(name, kind):
    """Makes a property of a Commit: its table's entry in an attribute that has one for each table."""
    return property(
        lambda self: kind(self.lookup.op.get_attr(name)[self.number]),
        lambda self, value: set_entry(self.lookup.op, name, self.number, int(value)),
    )


@dataclasses.dataclass
class Commit:
    """One table's share of a lookup."""

    lookup: LookupOp
    number: int  # of the table, in the lookup
    features: dict[int, int]  # number in the plan -> number in the lookup
    first: Optional["Commit"] = None  # the one that inserts and counts the keys, if it is another

    rows = property(lambda self: self.lookup.rows[self.number])
    handles = property(lambda self: self.lookup.handles[self.number])
    gives_rows = _of_table("with_rows", bool)  # copying them out costs time
    capacity = _of_table("capacities", int)  # how many different ids a batch may bring to the table; 0: any number
    shows_padding = _of_table("pads", bool)  # whether a lookup gives the rows of padding keys, which must be there then
    _mode = _of_table("modes", int)

    def show_padding(self) -> None:
        (self.first or self).shows_padding = True

    def _view(self, feature):
        return self.lookup.op.get_attr("views")[self.features[feature]]

    def serves(self, feature, pooling) -> bool:
        """Tells whether the lookup gives this view of a feature of the plan, or can still be made to."""
        return self._view(feature) in (_HIDDEN, 1 + pooling)

    def ask_for(self, feature, pooling, is_train):
        """Makes the lookup give this view of a feature of the plan, and insert its keys to train; returns it."""
        self._mode = _INSERT if is_train and self.first is None else _READ
        self.lookup.give(self.features[feature], pooling)
        return self.lookup.embeddings[self.features[feature]]

    def given(self, feature):
        """Returns (embeddings, Pooling): what the lookup gives of a feature of the plan."""
        return self.lookup.embeddings[self.features[feature]], Pooling(self._view(feature) - 1)


def build(plan, layout, tables) -> dict[str, Commit]:
    """Builds a lookup of some tables of a plan, which gives nothing yet; returns its commits by the tables' names."""
    names = [table.table_name for table in tables]
    numbers = [layout.tables.index(name) for name in names]
    features = [(f, numbers.index(t)) for f, t in enumerate(layout.table_of_feature) if t in numbers]
    owners = [owner for _, owner in features]
    rows, _, _ = library.ops().mxrec_lookup(
        plan=plan,
        anchors=[table.variable.handle for table in tables],
        tables=names,
        table_in_plan=numbers,
        dims=[table.embedding_size for table in tables],
        features=[owners.count(t) for t in range(len(names))],
        modes=[_SKIP] * len(names),
        **dict.fromkeys(("with_rows", "capacities", "pads"), [0] * len(names)),
        table_of_feature=owners,
        feature_in_plan=[f for f, _ in features],
        views=[_HIDDEN] * len(features),
        leaders=list(range(len(features))),
        columns=[0] * len(features),
        grouped=layout.is_grouped,
        F=len(features),
        name="commit",
    )
    lookup = LookupOp(among_ranks(rows[0].op))
    return {
        name: Commit(lookup, t, {number: f for f, (number, owner) in enumerate(features) if owner == t})
        for t, name in enumerate(names)
    }


def commit_of(plan) -> Commit:
    """Returns the commit of a plan of one table and one feature."""
    (lookup,) = filter(None, map(LookupOp.of, plan.consumers()))
    return Commit(lookup, 0, {0: 0})


def handles_of(tensor):
    """Returns the handles of `tensor` if it is the rows that a lookup gave; `tensor` itself if it is something else."""
    lookup = LookupOp.of(tensor.op)
    is_rows = lookup is not None and tensor.value_index < len(lookup.tables)
    return lookup.handles[tensor.value_index] if is_rows else tensor


def give_rows(tensor):
    """Returns the rows at handles of a lookup, which copies them out from now on; rows are returned as they are."""
    commit = Commit(LookupOp(tensor.op), LookupOp(tensor.op).table_of(tensor), {})
    commit.gives_rows = True
    return commit.rows


def reached(handles, gradient):
    """Returns the handles of a commit, less those of keys that `gradient`, the gradient of its rows, did not reach.

    A key may be in the batch only through features that do not feed the loss. Its row of `gradient` is zeros, but an
    update with zeros would still move it: momentum goes on, weights decay.
    """
    folds = folds_of(gradient)
    if not folds:
        return handles  # not for us to say
    lookup = LookupOp(handles.op)
    t = lookup.table_of(handles)
    features = sorted({fold.feature for fold in folds})
    if len(features) == lookup.op.get_attr("features")[t]:
        return handles
    return touched.build(handles, lookup.plan, lookup.op.get_attr("table_in_plan")[t], features, "touched")


def _is_filler(gradient, output):
    """Tells whether TensorFlow made up zeros because the loss does not depend on this output.

    Such a table must get no gradient at all: optimizers with momentum would move its rows otherwise.
    """
    op = getattr(gradient, "op", None)
    return op is not None and op.type == "ZerosLike" and op.inputs[0] is output
