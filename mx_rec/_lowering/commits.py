"""Commits: the one op that looks all tables of a batch up.

The first lookup of a batch builds a commit for all tables of its insert function that exist by then, so that a step
runs one op however many tables and features it reads. The op skips what no lookup asked for (`Commit.ask_for`), which
is possible until a session has run it.
"""

import contextlib
import dataclasses

from mx_rec import _process, _ranks
from mx_rec._ops import lookup
from mx_rec._ops.lookup import Commit
from mx_rec._tables import graphs
from mx_rec._tf import collections
from mx_rec._tf.editing import run_after
from mx_rec.constants import constants


def needs_groups(is_train) -> bool:
    """Whether batches must be grouped: to be trained on, with static shape to count their different ids, and with
    several ranks so that each id travels once."""
    return not _process.config().use_dynamic or is_train or _ranks.are_several()


def commit(plan, layout, table, feature, pooling, is_train) -> Commit:
    """The commit of `plan` that gives this view of a feature of `table`."""
    state = graphs.state()
    shared = state.commits.setdefault((graphs.key(plan), is_train), {})
    found = shared.get(table.table_name)
    # Inside a branch the outputs cannot serve other lookups, so other tables have no business there.
    is_shared = found is not None or graphs.is_top_level(plan.graph)
    if found is not None and not found.serves(feature, pooling):
        # The feature is looked up both pooled and not: the second view gets a commit of its own, which finds the rows
        # that the first one has made.
        first, shared = found, state.commits.setdefault((graphs.key(plan), is_train, pooling), {})
        found = shared.get(table.table_name)
        if found is None:
            found = dataclasses.replace(build(plan, layout, [table.table_name])[table.table_name], first=first)
            run_after(found.lookup.op, [first.lookup.op])
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
        commit.capacity = sum(count for number, count in limits.send_counts.items() if number in commit.features)


def build(plan, layout, names, is_shared=True):
    """Commits of the tables of that name, by name."""
    import tensorflow as tf

    state = graphs.state()
    # One commit serves lookups built under different control dependencies, so it takes none of them.
    with tf.control_dependencies(None) if is_shared else contextlib.nullcontext():
        built = lookup.build(plan, layout, [state.tables[name] for name in names])
    for name, commit in built.items():
        state.handles[graphs.key(commit.handles)] = state.tables[name]
    return built


def _collect(found):
    """Puts a training lookup's rows and handles where by-address scripts take them from, once."""
    graph = found.handles.graph
    handles = graph.get_collection_ref(constants.ASCEND_SPARSE_LOOKUP_ID_OFFSET)
    if any(found.handles is other for other in handles):
        return
    # Copying the rows out costs a training step up to a sixth of its time, and most scripts never look at them.
    collections.watch(graph, constants.ASCEND_SPARSE_LOOKUP_LOCAL_EMB, lookup.give_rows)
    handles.append(found.handles)
    # Each row of a commit is there once, so its handles are what older scripts call its unique keys.
    graph.add_to_collection(constants.ASCEND_SPARSE_LOOKUP_UNIQUE_KEYS, found.handles)
    graph.get_collection_ref(constants.ASCEND_SPARSE_LOOKUP_LOCAL_EMB).append(found.rows)
