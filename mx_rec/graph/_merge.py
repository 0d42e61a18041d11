"""One commit and one update for the lookups of a batch, where the script built one of each for every lookup."""

import dataclasses

from mx_rec._native import library
from mx_rec._native.gradients import folds_of, origin_of, parts_of
from mx_rec.core import _commit, _graph
from mx_rec.core._attributes import set_attributes
from mx_rec.graph._find import sources_of
from mx_rec.graph._pipeline import replace, replace_control, replace_input
from mx_rec.optimizers import _fold_update

# The ops that know a plan's numbering. A plan that another op reads keeps its own.
_READERS = ("MxrecLookup", "MxrecEmbeddings", "MxrecFold", "MxrecHasRow", "MxrecTouched", "MxrecFoldUpdate")


@dataclasses.dataclass
class Group:
    """Lookups whose ids one plan shall hold, each as one feature, and that plan's layout.

    Lookups of the same ids in the same table are features of their own, too. If they shared one, TensorFlow could see
    that they are equal and rewrite, say, their sum as a product with 2, which rounds differently.
    """

    lookups: list[object]
    layout: _commit.Layout

    def prepare(self, tensors):
        """The plan, of the lookups' ids and timestamps as `tensors` has them by name."""
        times = [tensors[times.name] for times in self.lookups[0].times]
        return _commit.prepare([tensors[lookup.ids.name] for lookup in self.lookups], self.layout, times)


def groups_of(lookups) -> list[Group]:
    """The lookups of one batch in groups: all that train, all that read, and each that must stay by itself."""
    together = {}
    for lookup in lookups:
        is_plain = all(reader.type in _READERS for reader in lookup.plan.consumers())
        together.setdefault(lookup.is_train if is_plain else lookup.name, []).append(lookup)
    return [_group(same) for same in together.values()]


def _group(lookups):
    tables = list(dict.fromkeys(lookup.table.table_name for lookup in lookups))
    table_of_feature = tuple(tables.index(lookup.table.table_name) for lookup in lookups)
    is_grouped = _commit.needs_groups(lookups[0].is_train)
    return Group(lookups, _commit.Layout(tuple(tables), table_of_feature, is_grouped))


def merge_in_step(graph) -> None:
    """Makes one plan of training lookups that read the same batch in the step, where they share a table that tracks its
    keys: a batch is counted as a whole, and whether a key gets a row must not depend on which lookup comes first."""
    batches = {}
    for lookup in _graph.state(graph).tensor_lookups:
        is_here = lookup.plan.graph is graph and lookup.plan.op._get_control_flow_context() is None
        if lookup.is_train and is_here and lookup.table.native.tracking is not None and lookup.plan.consumers():
            batches.setdefault(frozenset(sources_of(lookup.ids.op)), []).append(lookup)
    for lookups in batches.values():
        tables = [lookup.table.table_name for lookup in lookups]
        shared = [lookup for lookup in lookups if tables.count(lookup.table.table_name) > 1]
        for group in groups_of(shared) if shared else []:
            tensors = {t.name: t for lookup in group.lookups for t in (lookup.ids, *lookup.times)}
            merge(group, group.prepare(tensors))


def merge(group, plan) -> None:
    """Makes the lookups of `group` read `plan`, whose features are theirs, through one op."""
    if len(group.lookups) == 1:
        replace(group.lookups[0].plan, plan)
        return
    commits = _commit.build(plan, group.layout, list(group.layout.tables))
    for feature, lookup in enumerate(group.lookups):
        _redirect(lookup, feature, plan, group.layout, commits[lookup.table.table_name])
    _merge_updates(plan, {commit.handles.name for commit in commits.values()})


def _redirect(lookup, feature, plan, layout, commit):
    old = _commit.of_plan(lookup.plan)
    table = layout.table_of_feature[feature]
    for reader in lookup.plan.consumers():
        if reader.type in ("MxrecEmbeddings", "MxrecFold", "MxrecHasRow"):
            set_attributes(reader, table=table, feature=feature)
        elif reader.type == "MxrecTouched":
            set_attributes(reader, table=table, features=[feature])
        elif reader.type == "MxrecFoldUpdate":
            set_attributes(reader, table_in_plan=[table], feature_of_gradient=[feature])
        if reader is not old.op:
            replace_input(reader, lookup.plan, plan)
    handles = commit.handles
    if layout.table_of_feature.count(table) > 1:
        # The other features' keys are none of this lookup's business: without a gradient they must not be updated.
        handles = library.ops().mxrec_touched(handles=handles, plan=plan, table=table, features=[feature])
    if old.gives_rows:
        commit.give_rows()
    _commit.limit(plan, commit, feature, old.capacity)
    replace(old.op.outputs[-1], commit.embeddings(feature, old.is_pooled, lookup.is_train))
    replace(old.rows, commit.rows)
    replace(old.handles, handles)


def _merge_updates(plan, handles):
    """One op for all updates of the plan's tables by one optimizer. `handles`: names of the tensors of the commit."""
    updates = {}
    for op in plan.graph.get_operations():
        targets = _targets(op, plan, handles)
        if targets:
            updates.setdefault((op.inputs[-1].name, op.get_attr("rule")), []).append((op, targets))
    for (_, rule), same in updates.items():
        targets = [target for _, its_targets in same for target in its_targets]
        merged = _fold_update.build(plan, targets, same[0][0].inputs[-1], rule)
        merged._add_control_inputs(list(dict.fromkeys(before for op, _ in same for before in op.control_inputs)))
        replace_control([op for op, _ in same], merged)


def _targets(op, plan, handles):
    """What an update of the plan's tables needs to be merged with others; nothing if it cannot be."""
    if op.type == "MxrecFoldUpdate" and op.inputs[0] is plan:
        return [
            dataclasses.replace(target, handles=origin_of(target.handles)) for target in _fold_update.targets_of(op)
        ]
    if op.type == "MxrecUpdate":
        parts = [(origin_of(h), folds_of(gradient)) for h, gradient in parts_of(op.inputs[0], op.inputs[1])]
        if all(h.name in handles and len(folds) == 1 and folds[0].inputs[1] is plan for h, folds in parts):
            return [_fold_update.target_of(op.get_attr("table").decode(), parts[0][0], [f for _, (f,) in parts])]
    return []
