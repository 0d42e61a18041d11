"""MxrecLookup: looks all tables of a batch up, and gives what it is asked for (native/tf/lookup.cc)."""

import dataclasses
from typing import Optional

from mx_rec._ops import library, touched
from mx_rec._ops.fold import folds_of
from mx_rec._ops.op import Op
from mx_rec._ops.pooling import Pooling
from mx_rec._tf.attributes import set_entry

# Modes of a table.
_SKIP, _READ, _INSERT = 0, 1, 2
# Views of a feature: none, or one that is more than a Pooling by 1.
_HIDDEN = 0


class LookupOp(Op):
    TYPE = "MxrecLookup"

    @property
    def plan(self):
        return self.op.inputs[0]

    @property
    def anchors(self) -> list[object]:
        """The variables that stand for the tables, as resource tensors."""
        return list(self.op.inputs)[1:]

    @property
    def tables(self) -> list[str]:
        """Names. Their order numbers the tables."""
        return [name.decode() for name in self.op.get_attr("tables")]

    @property
    def is_grouped(self) -> bool:
        """Whether it gives a handle for each different key, not for each position."""
        return self.op.get_attr("grouped")

    @property
    def _count(self):
        return len(self.op.get_attr("dims"))

    def rows(self, table):
        return self.op.outputs[table]

    def handles(self, table):
        return self.op.outputs[self._count + table]

    def embeddings(self, feature):
        return self.op.outputs[2 * self._count + feature]

    def table_of(self, tensor) -> int:
        """The number of the table that an output, rows or handles, belongs to."""
        return tensor.value_index % self._count

    def feature_of(self, tensor) -> int:
        """The number of the feature whose embeddings an output is."""
        return tensor.value_index - 2 * self._count

    def table_of_feature(self, feature) -> int:
        return self.op.get_attr("table_of_feature")[feature]

    def inserted(self):
        """Yields (table, rows and embeddings) of each table that keys are inserted into."""
        modes, owners = self.op.get_attr("modes"), self.op.get_attr("table_of_feature")
        for t, name in enumerate(self.tables):
            if modes[t] == _INSERT:
                yield name, [self.rows(t), *(self.embeddings(f) for f, owner in enumerate(owners) if owner == t)]

    def give_rows(self, table) -> None:
        """Copies the rows out, which costs time, for somebody who reads them."""
        set_entry(self.op, "with_rows", table, 1)

    def gives(self, feature, pooling) -> bool:
        """Whether it gives this view of a feature."""
        return self.op.get_attr("views")[feature] == 1 + pooling

    def give(self, feature, pooling) -> None:
        set_entry(self.op, "views", feature, 1 + int(pooling))

    def writes_alone(self, feature) -> bool:
        """Whether no other feature is written beside this one."""
        return self.op.get_attr("leaders").count(feature) == 1

    def write_beside(self, feature, leader, column) -> None:
        """Writes a feature from a column on into the embeddings of the feature `leader`."""
        set_entry(self.op, "leaders", feature, leader)
        set_entry(self.op, "columns", feature, column)

    def copy(self, name) -> "LookupOp":
        """Another op that was told the same."""
        types, attributes = [output.dtype for output in self.op.outputs], dict(self.op.node_def.attr)
        return LookupOp(self.op.graph.create_op(self.TYPE, list(self.op.inputs), types, name=name, attrs=attributes))

    @staticmethod
    def gradient(op, *gradients):
        """For each anchor variable the gradient of its table's rows, as slices that the row handles index."""
        import tensorflow as tf

        lookup, slices = LookupOp(op), []
        for t, dim in enumerate(op.get_attr("dims")):
            gradient = gradients[t]
            if gradient is None or _is_filler(gradient, lookup.rows(t)):
                slices.append(None)
                continue
            gradient = tf.convert_to_tensor(gradient)
            handles = reached(lookup.handles(t), gradient)
            slices.append(tf.IndexedSlices(gradient, handles, tf.constant([0, dim], tf.int32)))
        return [None, *slices]


@dataclasses.dataclass(frozen=True)
class Commit:
    """One table's part of a lookup."""

    lookup: LookupOp
    number: int  # of the table, in the lookup
    features: dict[int, int]  # number in the plan -> number in the lookup
    first: Optional["Commit"] = None  # the one that inserts and counts the keys, if it is another

    @property
    def rows(self):
        return self.lookup.rows(self.number)

    @property
    def handles(self):
        return self.lookup.handles(self.number)

    def embeddings(self, feature):
        """The lookup's output for a feature of the plan."""
        return self.lookup.embeddings(self.features[feature])

    @property
    def gives_rows(self) -> bool:
        """Whether a script takes the rows from their collection."""
        return bool(self.lookup.op.get_attr("with_rows")[self.number])

    def give_rows(self) -> None:
        self.lookup.give_rows(self.number)

    @property
    def shows_padding(self) -> bool:
        """Whether a lookup gives the rows of padding keys, which must be there then."""
        return bool(self.lookup.op.get_attr("pads")[self.number])

    def show_padding(self) -> None:
        inserting = self.first or self
        set_entry(inserting.lookup.op, "pads", inserting.number, 1)

    @property
    def capacity(self) -> int:
        """How many different ids a batch may bring to the table; 0: any number."""
        return self.lookup.op.get_attr("capacities")[self.number]

    def limit(self, capacity) -> None:
        set_entry(self.lookup.op, "capacities", self.number, capacity)

    def pooling(self, feature) -> Pooling:
        """What it gives of a feature of the plan."""
        return Pooling(self.lookup.op.get_attr("views")[self.features[feature]] - 1)

    def serves(self, feature, pooling) -> bool:
        """Whether the lookup gives this view of a feature of the plan, or can still be asked to."""
        return self.lookup.op.get_attr("views")[self.features[feature]] in (_HIDDEN, 1 + pooling)

    def ask_for(self, feature, pooling, is_train):
        """Makes the lookup give this view of a feature of the plan, and insert its keys to train; returns it."""
        mode = _INSERT if is_train and self.first is None else _READ
        set_entry(self.lookup.op, "modes", self.number, mode)
        self.lookup.give(self.features[feature], pooling)
        return self.embeddings(feature)


def build(plan, tables, features, is_grouped) -> dict[str, Commit]:
    """A lookup that gives nothing yet, by table.

    `tables`: (name, anchor, dim, number in the plan); `features`: (number in the plan, number among `tables`).
    """
    names, anchors, dims, numbers = map(list, zip(*tables))
    in_plan, owners = map(list, zip(*features))
    rows, _, _ = library.ops().mxrec_lookup(
        plan=plan,
        anchors=anchors,
        tables=names,
        table_in_plan=numbers,
        dims=dims,
        features=[owners.count(t) for t in range(len(names))],
        modes=[_SKIP] * len(names),
        with_rows=[0] * len(names),
        capacities=[0] * len(names),
        pads=[0] * len(names),
        table_of_feature=owners,
        feature_in_plan=in_plan,
        views=[_HIDDEN] * len(features),
        leaders=list(range(len(features))),
        columns=[0] * len(features),
        grouped=is_grouped,
        F=len(features),
        name="commit",
    )
    lookup = LookupOp(rows[0].op)
    return {
        name: Commit(lookup, t, {number: f for f, (number, owner) in enumerate(features) if owner == t})
        for t, name in enumerate(names)
    }


def commit_of(plan) -> Commit:
    """The commit of a plan of one table and one feature."""
    (lookup,) = (op for op in plan.consumers() if op.type == LookupOp.TYPE)
    return Commit(LookupOp(lookup), 0, {0: 0})


def handles_of(tensor):
    """The handles of `tensor`, rows that a lookup gave; None if it is something else."""
    lookup = LookupOp.of(tensor.op)
    is_rows = lookup is not None and tensor.value_index < len(lookup.tables)
    return lookup.handles(tensor.value_index) if is_rows else None


def give_rows(tensor):
    """The rows at handles of a lookup, which copies them out from now on; rows stand for themselves."""
    lookup = LookupOp(tensor.op)
    table = lookup.table_of(tensor)
    lookup.give_rows(table)
    return lookup.rows(table)


def reached(handles, gradient):
    """The handles of a commit, less those of keys that `gradient`, the gradient of its rows, did not reach.

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
    """Whether TensorFlow made up zeros because the loss does not depend on this output.

    Such a table must get no gradient at all: optimizers with momentum would move its rows otherwise.
    """
    op = getattr(gradient, "op", None)
    return op is not None and op.type == "ZerosLike" and op.inputs[0] is output
