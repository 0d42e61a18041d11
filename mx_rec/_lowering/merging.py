"""One commit and one update for the lookups of a batch, where the script built one of each for every lookup."""

import dataclasses

from mx_rec._lowering import commits
from mx_rec._lowering.finding import sources_of
from mx_rec._ops import fold_update, plan_readers, prepare, touched
from mx_rec._ops.fold import folds_of
from mx_rec._ops.lookup import LookupOp, commit_of
from mx_rec._tables import graphs
from mx_rec._tf import walking
from mx_rec._tf.control_flow import is_inside
from mx_rec._tf.editing import replace, replace_control, run_after
from mx_rec._tf.iterators import GET_NEXT


@dataclasses.dataclass
class Group:
    """Lookups whose ids one plan shall hold, each as one feature, and that plan's layout.

    Lookups of the same ids in the same table are features of their own, too. If they shared one, TensorFlow could see
    that they are equal and rewrite, say, their sum as a product with 2, which rounds differently.
    """

    lookups: list[object]
    layout: prepare.Layout

    def prepare(self, tensors):
        """The plan, of the lookups' ids and timestamps as `tensors` has them by name."""
        times = [tensors[times.name] for times in self.lookups[0].times]
        return prepare.build([tensors[lookup.ids.name] for lookup in self.lookups], self.layout, times)


def groups_of(lookups) -> list[Group]:
    """The lookups of one batch in groups: all that train, all that read, and each that must stay by itself."""
    together = {}
    for lookup in lookups:
        is_plain = plan_readers.are_known(lookup.plan)  # else it keeps its numbers
        together.setdefault(lookup.is_train if is_plain else lookup.name, []).append(lookup)
    return [_group(same) for same in together.values()]


def _group(lookups):
    tables = list(dict.fromkeys(lookup.table.table_name for lookup in lookups))
    table_of_feature = tuple(tables.index(lookup.table.table_name) for lookup in lookups)
    is_grouped = commits.needs_groups(lookups[0].is_train)
    return Group(lookups, prepare.Layout(tuple(tables), table_of_feature, is_grouped))


def merge_in_step(graph) -> None:
    """Makes one plan of training lookups that read the same batch in the step, so that the batch fits or fails as a
    whole.

    That are lookups that the same training op needs: if one table is full, none is trained. And lookups that share a
    table that tracks its keys: a batch is counted as a whole, and whether a key gets a row must not depend on which
    lookup comes first. No run needs a batch that it did not need before, but it may insert keys for lookups of that
    batch that it does not ask for.
    """
    trainings = _trainings_of(graph)
    batches = {}
    for lookup in graphs.state(graph).tensor_lookups:
        is_here = lookup.plan.graph is graph and not is_inside(lookup.plan.op)
        if lookup.is_train and is_here and lookup.plan.consumers():
            batches.setdefault(frozenset(sources_of(lookup.ids.op)), []).append(lookup)
    for lookups in batches.values():
        for together in _to_merge(lookups, trainings):
            for group in groups_of(together):
                if len(group.lookups) > 1:
                    tensors = {t.name: t for lookup in group.lookups for t in (lookup.ids, *lookup.times)}
                    merge(group, group.prepare(tensors))


def _to_merge(lookups, trainings):
    """Lists of lookups of one batch that belong together; `trainings` as of _trainings_of."""
    tables = [lookup.table.table_name for lookup in lookups if lookup.table.native.tracking is not None]
    counted, others = [], {}
    for lookup in lookups:
        # One plan has the timestamps of all its lookups.
        key = (tuple(times.name for times in lookup.times), trainings.get(commit_of(lookup.plan).lookup.op.name))
        if tables.count(lookup.table.table_name) > 1:
            counted.append((key, lookup))
        elif key[1] is not None and _stands_alone(lookup):
            others.setdefault(key, []).append(lookup)
    keys = {key for key, _ in counted}
    joined = others.pop(*keys, []) if len(keys) == 1 else []
    return [[lookup for _, lookup in counted] + joined, *others.values()]


def _trainings_of(graph) -> dict[str, frozenset[str]]:
    """For every lookup op whose rows are updated, by name: the ops at the ends of the graph that update them."""
    found = {}
    for update in fold_update.updates_in(graph):
        ends = walking.ends_after(update.op)
        for op in walking.ancestors([tensor.op for tensor in update.handles], LookupOp.of):
            if LookupOp.of(op):
                found.setdefault(op.name, set()).update(ends)
    return {name: frozenset(ends) for name, ends in found.items()}


def _stands_alone(lookup) -> bool:
    """Whether nothing must happen before a lookup but what brings its ids: neither an order that the script asks for,
    nor another lookup, nor an op with a state, such as a queue."""
    op = commit_of(lookup.plan).lookup.op
    if op.control_inputs or lookup.plan.op.control_inputs:
        return False
    before = walking.ancestors([lookup.ids.op, *(times.op for times in lookup.times)], lambda op: op.type in GET_NEXT)
    return not any(_has_effect(op) for op in before)


def _has_effect(op):
    is_static = op.type in GET_NEXT or "Placeholder" in op.type or "Table" in op.type
    return bool(op.control_inputs) or (op.op_def.is_stateful and not is_static)


def merge(group, plan) -> None:
    """Makes the lookups of `group` read `plan`, whose features are theirs, through one op."""
    if len(group.lookups) == 1:
        replace(group.lookups[0].plan, plan)
        return
    built = commits.build(plan, group.layout, list(group.layout.tables))
    for feature, lookup in enumerate(group.lookups):
        _redirect(lookup, feature, plan, group.layout, built[lookup.table.table_name])
    _merge_updates(plan, {commit.handles.name for commit in built.values()})


def _redirect(lookup, feature, plan, layout, commit):
    old = commit_of(lookup.plan)
    table = layout.table_of_feature[feature]
    plan_readers.move(lookup.plan, plan, table, feature)
    handles = commit.handles
    if layout.table_of_feature.count(table) > 1:
        # The other features' keys are none of this lookup's business: without a gradient they must not be updated.
        handles = touched.build(handles, plan, table, [feature])
    if old.gives_rows:
        commit.gives_rows = True
    if old.shows_padding:
        commit.show_padding()
    commits.limit(plan, commit, feature, old.capacity)
    given, pooling = old.given(0)
    replace(given, commit.ask_for(feature, pooling, lookup.is_train))
    replace(old.rows, commit.rows)
    replace(old.handles, handles)


def _merge_updates(plan, handles):
    """One op for all updates of the plan's tables by one optimizer. `handles`: names of the tensors of the commit."""
    updates = {}
    for update in fold_update.updates_in(plan.graph):
        targets = _targets(update, plan, handles)
        if targets:
            hyper, *others = update.settings.values()
            updates.setdefault((hyper.name, *others), []).append((update, targets))
    for same in updates.values():
        targets = [target for _, its_targets in same for target in its_targets]
        merged = fold_update.build(plan, targets, same[0][0].settings)
        run_after(merged, (before for one, _ in same for before in one.op.control_inputs))
        replace_control([update.op for update, _ in same], merged)


def _targets(update, plan, handles):
    """What an update of the plan's tables needs to be merged with others; nothing if it cannot be."""
    if isinstance(update, fold_update.FoldUpdateOp):
        targets = update.targets if update.plan is plan else []
        return [dataclasses.replace(target, handles=touched.origin_of(target.handles)) for target in targets]
    parts = [(touched.origin_of(h), folds_of(gradient)) for h, gradient in update.parts]
    if all(h.name in handles and len(folds) == 1 and folds[0].plan is plan for h, folds in parts):
        return [fold_update.target_of(update.table_name, parts[0][0], [fold for _, (fold,) in parts])]
    return []
