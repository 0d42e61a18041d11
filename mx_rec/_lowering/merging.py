"""One commit and one update for the lookups of a batch, where the script built one of each for every lookup."""

import dataclasses

from mx_rec._lowering import commits
from mx_rec._lowering.finding import GET_NEXT, sources_of
from mx_rec._ops import fold_update, library
from mx_rec._ops.gradients import folds_of, origin_of, parts_of
from mx_rec._tables import graphs
from mx_rec._tf.attributes import set_attributes
from mx_rec._tf.editing import replace, replace_control, replace_input

# The ops that know a plan's numbering. A plan that another op reads keeps its own.
_OF_FEATURES = ("MxrecEmbeddings", "MxrecFold", "MxrecHasRow", "MxrecPadding")
_READERS = (*_OF_FEATURES, "MxrecLookup", "MxrecTouched", "MxrecFoldUpdate")


@dataclasses.dataclass
class Group:
    """Lookups whose ids one plan shall hold, each as one feature, and that plan's layout.

    Lookups of the same ids in the same table are features of their own, too. If they shared one, TensorFlow could see
    that they are equal and rewrite, say, their sum as a product with 2, which rounds differently.
    """

    lookups: list[object]
    layout: commits.Layout

    def prepare(self, tensors):
        """The plan, of the lookups' ids and timestamps as `tensors` has them by name."""
        times = [tensors[times.name] for times in self.lookups[0].times]
        return commits.prepare([tensors[lookup.ids.name] for lookup in self.lookups], self.layout, times)


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
    is_grouped = commits.needs_groups(lookups[0].is_train)
    return Group(lookups, commits.Layout(tuple(tables), table_of_feature, is_grouped))


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
        is_here = lookup.plan.graph is graph and lookup.plan.op._get_control_flow_context() is None
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
        key = (tuple(times.name for times in lookup.times), trainings.get(commits.of_plan(lookup.plan).op.name))
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
    for op in graph.get_operations():
        if op.type not in ("MxrecUpdate", "MxrecFoldUpdate"):
            continue
        ends, seen, stack = set(), set(), [op]
        while stack:
            now = stack.pop()
            if now.name in seen:
                continue
            seen.add(now.name)
            after = [*now._control_outputs, *(reader for out in now.outputs for reader in out.consumers())]
            ends.update([] if after else [now.name])
            stack.extend(after)
        handles = [op.inputs[0]] if op.type == "MxrecUpdate" else op.inputs[1 : 1 + len(op.get_attr("tables"))]
        for lookup in _behind([tensor.op for tensor in handles], lambda op: op.type == "MxrecLookup"):
            found.setdefault(lookup.name, set()).update(ends)
    return {name: frozenset(ends) for name, ends in found.items()}


def _stands_alone(lookup) -> bool:
    """Whether nothing must happen before a lookup but what brings its ids: neither an order that the script asks for,
    nor another lookup, nor an op with a state, such as a queue."""
    op = commits.of_plan(lookup.plan).op
    if op.control_inputs or lookup.plan.op.control_inputs:
        return False
    return not _behind([lookup.ids.op, *(times.op for times in lookup.times)], _has_effect)


def _has_effect(op):
    is_static = op.type in GET_NEXT or "Placeholder" in op.type or "Table" in op.type
    return bool(op.control_inputs) or (op.op_def.is_stateful and not is_static)


def _behind(ops, is_wanted) -> list[object]:
    """The first ops for which is_wanted(op) holds on the ways back from `ops`, up to iterators."""
    seen, found, stack = set(), [], list(ops)
    while stack:
        op = stack.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if is_wanted(op):
            found.append(op)
        elif op.type not in GET_NEXT:
            stack.extend(source.op for source in op.inputs)
    return found


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
    old = commits.of_plan(lookup.plan)
    table = layout.table_of_feature[feature]
    for reader in lookup.plan.consumers():
        if reader.type in _OF_FEATURES:
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
    if old.shows_padding:
        commit.show_padding()
    commits.limit(plan, commit, feature, old.capacity)
    replace(old.op.outputs[-1], commit.embeddings(feature, old.is_pooled, lookup.is_train))
    replace(old.rows, commit.rows)
    replace(old.handles, handles)


def _merge_updates(plan, handles):
    """One op for all updates of the plan's tables by one optimizer. `handles`: names of the tensors of the commit."""
    updates = {}
    for op in plan.graph.get_operations():
        targets = _targets(op, plan, handles)
        if targets:
            settings = (op.inputs[-1].name, op.get_attr("rule"), op.get_attr("nonfinite"))
            updates.setdefault(settings, []).append((op, targets))
    for (_, rule, nonfinite), same in updates.items():
        targets = [target for _, its_targets in same for target in its_targets]
        merged = fold_update.build(plan, targets, same[0][0].inputs[-1], rule, nonfinite)
        merged._add_control_inputs(list(dict.fromkeys(before for op, _ in same for before in op.control_inputs)))
        replace_control([op for op, _ in same], merged)


def _targets(op, plan, handles):
    """What an update of the plan's tables needs to be merged with others; nothing if it cannot be."""
    if op.type == "MxrecFoldUpdate" and op.inputs[0] is plan:
        return [dataclasses.replace(target, handles=origin_of(target.handles)) for target in fold_update.targets_of(op)]
    if op.type == "MxrecUpdate":
        parts = [(origin_of(h), folds_of(gradient)) for h, gradient in parts_of(op.inputs[0], op.inputs[1])]
        if all(h.name in handles and len(folds) == 1 and folds[0].inputs[1] is plan for h, folds in parts):
            return [fold_update.target_of(op.get_attr("table").decode(), parts[0][0], [f for _, (f,) in parts])]
    return []
