"""Commits: the one op that looks all tables of a batch up.

The first lookup of a batch builds a commit for all tables of its insert function that exist by then, so that a step
runs one op however many tables and features it reads. The op skips what no lookup asked for; each lookup asks by
setting its attributes, which is possible until a session has run it.
"""

import contextlib
import dataclasses
import sys
from typing import Optional

from mx_rec import _process
from mx_rec._ops import library
from mx_rec._tables import graphs
from mx_rec._tf.attributes import set_entry
from mx_rec.constants import constants

# Modes of a table and views of a feature (native/tf/lookup.cc).
_SKIP, _READ, _INSERT = 0, 1, 2
HIDDEN, EACH, POOLED = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a plan holds: its tables, for each of its features the number of its table, and whether it is grouped, so
    that a step can train on it and knows how many different ids it holds."""

    tables: tuple[str, ...]
    table_of_feature: tuple[int, ...]
    is_grouped: bool


@dataclasses.dataclass(frozen=True)
class Commit:
    """One table's part of a commit."""

    op: object
    number: int  # of the table, in the op
    features: dict[int, int]  # number in the plan -> number in the op
    first: Optional["Commit"] = None  # the one that inserts and counts the keys, if it is another

    @property
    def rows(self):
        return self.op.outputs[self.number]

    @property
    def handles(self):
        return self.op.outputs[self._tables + self.number]

    @property
    def is_pooled(self) -> bool:
        """Whether the op pools its only feature."""
        return list(self.op.get_attr("views")) == [POOLED]

    @property
    def gives_rows(self) -> bool:
        """Whether a script takes the rows from their collection."""
        return bool(self.op.get_attr("with_rows")[self.number])

    def give_rows(self) -> None:
        set_entry(self.op, "with_rows", self.number, 1)

    @property
    def shows_padding(self) -> bool:
        """Whether a lookup gives the rows of padding keys, which must be there then."""
        return bool(self.op.get_attr("pads")[self.number])

    def show_padding(self) -> None:
        inserting = self.first or self
        set_entry(inserting.op, "pads", inserting.number, 1)

    @property
    def capacity(self) -> int:
        """How many different ids a batch may bring to the table; 0: any number."""
        return self.op.get_attr("capacities")[self.number]

    @property
    def _tables(self):
        return len(self.op.get_attr("dims"))

    def serves(self, feature, is_pooled) -> bool:
        """Whether the op gives this view of the feature, or can still be asked to."""
        return self.op.get_attr("views")[self.features[feature]] in (HIDDEN, POOLED if is_pooled else EACH)

    def embeddings(self, feature, is_pooled, is_train):
        """The op's output for a feature of the plan; asks the op for it."""
        set_entry(self.op, "modes", self.number, _INSERT if is_train and self.first is None else _READ)
        set_entry(self.op, "views", self.features[feature], POOLED if is_pooled else EACH)
        return self.op.outputs[2 * self._tables + self.features[feature]]


def prepare(ids, layout, times=(), name="prepare"):
    """The plan of int64 tensors of ids, one for each feature of `layout`, and of one tensor of timestamps or none."""
    return library.ops().mxrec_prepare(
        ids=ids,
        times=list(times),
        tables=layout.tables,
        table_of_feature=layout.table_of_feature,
        grouped=layout.is_grouped,
        name=name,
    )


def needs_groups(is_train) -> bool:
    """Whether batches must be grouped: to be trained on, and with static shape to count their different ids."""
    return not _process.config().use_dynamic or is_train


def of_plan(plan) -> Commit:
    """The commit of a plan of one table and one feature."""
    (op,) = (op for op in plan.consumers() if op.type == "MxrecLookup")
    return Commit(op, 0, {0: 0})


def commit(plan, layout, table, feature, is_pooled, is_train) -> Commit:
    """The commit of `plan` that gives this view of a feature of `table`."""
    state = graphs.state()
    shared = state.commits.setdefault((graphs.key(plan), is_train), {})
    found = shared.get(table.table_name)
    # Inside a branch the outputs cannot serve other lookups, so other tables have no business there.
    is_shared = found is not None or graphs.is_top_level(plan.graph)
    if found is not None and not found.serves(feature, is_pooled):
        # The feature is looked up both pooled and not: the second view gets a commit of its own, which finds the rows
        # that the first one has made.
        first, shared = found, state.commits.setdefault((graphs.key(plan), is_train, is_pooled), {})
        found = shared.get(table.table_name)
        if found is None:
            found = dataclasses.replace(build(plan, layout, [table.table_name])[table.table_name], first=first)
            found.op._add_control_input(first.op)
            shared[table.table_name] = found
    if found is None:
        names = [name for name in layout.tables if name in state.tables and name not in shared]
        made = build(plan, layout, names if is_shared else [table.table_name], is_shared)
        found = made[table.table_name]
        if is_shared:
            shared.update(made)
    if is_train and is_shared:
        _collect(found)
    return found


def limit(plan, found, feature, send_count) -> None:
    """Lets a feature of `plan`, looked up through the commit `found`, bring `send_count` different ids; 0: any number.

    The ids of a batch are counted per table, so all commits of the table check the sum over all features of the batch
    that are looked up, whichever commit serves them. A feature that is looked up again counts once.
    """
    if send_count == 0:
        return
    limits = graphs.state().limits.setdefault(graphs.key(plan), graphs.Limits())
    limits.send_counts[feature] = max(send_count, limits.send_counts.get(feature, 0))
    if found not in limits.commits:
        limits.commits.append(found)
    for commit in limits.commits:
        capacity = sum(count for number, count in limits.send_counts.items() if number in commit.features)
        set_entry(commit.op, "capacities", commit.number, capacity)


def build(plan, layout, names, is_shared=True):
    """Commits of the tables of that name, by name."""
    import tensorflow as tf

    state = graphs.state()
    tables = [state.tables[name] for name in names]
    features = [
        (number, names.index(layout.tables[t]))
        for number, t in enumerate(layout.table_of_feature)
        if layout.tables[t] in names
    ]
    # One commit serves lookups built under different control dependencies, so it takes none of them.
    with tf.control_dependencies(None) if is_shared else contextlib.nullcontext():
        rows, handles, _ = library.ops().mxrec_lookup(
            plan=plan,
            anchors=[table.variable.handle for table in tables],
            tables=names,
            table_in_plan=[layout.tables.index(name) for name in names],
            dims=[table.embedding_size for table in tables],
            features=[layout.table_of_feature.count(layout.tables.index(name)) for name in names],
            modes=[_SKIP] * len(names),
            with_rows=[0] * len(names),
            capacities=[0] * len(names),
            pads=[0] * len(names),
            table_of_feature=[t for _, t in features],
            feature_in_plan=[number for number, _ in features],
            views=[HIDDEN] * len(features),
            leaders=list(range(len(features))),
            columns=[0] * len(features),
            grouped=layout.is_grouped,
            F=len(features),
            name="commit",
        )
    for name, its_handles in zip(names, handles):
        state.handles[graphs.key(its_handles)] = state.tables[name]
    op = rows[0].op
    return {
        name: Commit(op, t, {number: f for f, (number, owner) in enumerate(features) if owner == t})
        for t, name in enumerate(names)
    }


class _RowsCollection(list):
    """The collection of rows that by-address scripts read.

    Copying the rows out costs a training step up to a sixth of its time, and most scripts never look at them. So the
    commits do it only once a script has looked into this list. TensorFlow itself copies all collections into every
    function graph and meta graph; that is not a look.
    """

    def __iter__(self):
        if not _is_called_by_tensorflow():
            for rows in super().__iter__():
                set_entry(rows.op, "with_rows", rows.value_index, 1)
        return super().__iter__()

    def __getitem__(self, index):
        return list(self)[index]


def _is_called_by_tensorflow() -> bool:
    """Whether the caller of the caller, not counting Graph.get_collection and its like, is TensorFlow's own code."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "tensorflow.python.framework.ops":
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").startswith("tensorflow.")


def _collect(found):
    """Puts a training lookup's rows and handles where by-address scripts take them from, once."""
    graph = found.op.graph
    handles = graph.get_collection_ref(constants.ASCEND_SPARSE_LOOKUP_ID_OFFSET)
    if any(found.handles is other for other in handles):
        return
    if constants.ASCEND_SPARSE_LOOKUP_LOCAL_EMB not in graph.collections:
        graph._collections[constants.ASCEND_SPARSE_LOOKUP_LOCAL_EMB] = _RowsCollection()
    handles.append(found.handles)
    # Each row of a commit is there once, so its handles are what older scripts call its unique keys.
    graph.add_to_collection(constants.ASCEND_SPARSE_LOOKUP_UNIQUE_KEYS, found.handles)
    graph.get_collection_ref(constants.ASCEND_SPARSE_LOOKUP_LOCAL_EMB).append(found.rows)
