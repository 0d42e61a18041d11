"""Moving lookups: the ops that compute their ids go, with the preparation, from the step into the dataset that the ids
come from. Everything that reads the batch reads it from the new dataset; no value changes.
"""

import dataclasses

import tensorflow as tf

from mx_rec import _process
from mx_rec._log import logger
from mx_rec._lowering import finding, merging, pipelines, reports
from mx_rec._tables import graphs
from mx_rec._tf import editing, iterators
from mx_rec._tf.copying import Copier
from mx_rec._tf.structure import batch_behind


@dataclasses.dataclass
class Replacement:
    """An iterator of the script and what stands in its place."""

    makers: list[object]  # ops that initialize it; none for a one-shot iterator
    modes: set[bool]  # is_train of the lookups that read it
    structures: dict[bool, object]  # of the batch, as the script gave it to a lookup, with the new tensors


def check(state) -> None:
    """Raises RuntimeError if the graph of `state` has no lookup; warns if none shall move."""
    if state.to_move:
        return
    if not any(table.lookup_count for table in state.tables.values()):
        raise RuntimeError(
            "there is no lookup in this graph: call sparse_lookup(..., modify_graph=True) before modifying it"
            + ("" if state.tables else graphs.elsewhere())
        )
    logger.warning("graph modification: no lookup has modify_graph=True, nothing is moved")


def move(graph) -> None:
    """Moves the lookups of `graph` that ask for it, unless a session has run it, and notes what stands for what."""
    state = graphs.state(graph)
    report = reports.Report()
    slices = {}
    for lookup in state.to_move:
        try:
            found = finding.trace(lookup)
            pipelines.Source([found.get_next]).check()
            slices[lookup.plan.name] = found
        except finding.Stays as reason:
            report.stayed.append(reports.Stayed(lookup.name, lookup.table.table_name, str(reason)))
    is_late = bool(slices) and graphs.is_running(graph, before_tables=True)
    if is_late:
        logger.warning(
            "graph modification: a session has run the graph before, and TensorFlow ignores changes for it; all "
            "lookups stay in the step. Call modify_graph_and_start_emb_cache() before the session's first run"
        )
    moving = [lookup for lookup in state.to_move if lookup.plan.name in slices]
    sources = {}
    for lookup in moving:
        get_next = slices[lookup.plan.name].get_next
        source = sources.setdefault(iterators.iterator_of(get_next).name, pipelines.Source([]))
        if get_next not in source.get_nexts:
            source.get_nexts.append(get_next)
    replace = _leave if is_late else _replace
    state.replacements = [replace(source, moving, slices, report) for source in sources.values()]
    # Now, because a monitored session finalizes the graph.
    for is_train in (True, False):
        makers = _makers(state.replacements, is_train)
        if len(makers) > 1 and all(len(same) == 1 for same in makers):
            state.initializers[is_train] = tf.group(*(maker for (maker,) in makers), name="mx_rec/initialize")
    reports.remember(report)
    _log(report)


def _log(report):
    if report.moved:
        logger.info(
            "graph modification: moved %d lookups with %d ops from the step into the dataset (%s)",
            len(report.moved),
            sum(moved.ops for moved in report.moved),
            ", ".join(sorted({f"{moved.source} -> {moved.target}" for moved in report.moved})),
        )
    for moved in report.moved:
        logger.debug("graph modification: %s", moved)
    for stayed in report.stayed:
        logger.info("graph modification: %s", stayed)


@dataclasses.dataclass
class _Batch:
    """A get_next op, the lookups of its batch, and what their dataset shall add to it."""

    get_next: object
    lookups: list[object]
    copier: Copier
    groups: list[merging.Group]
    shared_ids: list[object]  # ids that the step reads for other purposes too

    def prepare(self, flat):
        copies = self.copier(flat)
        plans = [group.prepare(copies) for group in self.groups]
        return [*plans, *(copies[tensor.name] for tensor in self.shared_ids)]


def _batch(get_next, lookups, slices):
    prepares = {lookup.plan.op for lookup in lookups}
    computed = {lookup.ids.name: lookup.ids for lookup in lookups if lookup.ids.op is not get_next}
    shared = [ids for ids in computed.values() if not prepares.issuperset(ids.consumers())]
    wanted = [tensor for lookup in lookups for tensor in (lookup.ids, *lookup.times)]
    who = "the lookups " + ", ".join(f"'{lookup.name}'" for lookup in lookups)
    copier = Copier(get_next, wanted, who, [slices[lookup.plan.name] for lookup in lookups])
    return _Batch(get_next, lookups, copier, merging.groups_of(lookups), shared)


def _leave(source, lookups, slices, report):
    """Leaves the lookups of one iterator in the step: the iterator stands for itself."""
    replacement = Replacement(source.makers, set(), {})
    for get_next in source.get_nexts:
        for lookup in _lookups_of(get_next, lookups, slices):
            replacement.modes.add(lookup.is_train)
            replacement.structures.setdefault(lookup.is_train, _structure(get_next, lookup))
            reason = "a session has run the graph before it was modified"
            report.stayed.append(reports.Stayed(lookup.name, lookup.table.table_name, reason))
    return replacement


def _lookups_of(get_next, lookups, slices):
    return [lookup for lookup in lookups if slices[lookup.plan.name].get_next is get_next]


def _structure(get_next, lookup):
    """Returns the batch of a lookup as the script gave it, or in the structure of its dataset, with today's tensors."""
    structure = batch_behind(get_next) if lookup.batch is None else lookup.batch
    return tf.nest.map_structure(lambda leaf: editing.current(leaf) if tf.is_tensor(leaf) else leaf, structure)


def _replace(source, lookups, slices, report):
    """Moves the lookups of one iterator."""
    config = _process.config()
    batches = [_batch(one, _lookups_of(one, lookups, slices), slices) for one in source.get_nexts]
    modes = {lookup.is_train for batch in batches for lookup in batch.lookups}
    makers = source.makers
    limit = config.max_steps if True in modes else config.eval_steps
    new = pipelines.extend(source, [batch.prepare for batch in batches], limit)
    replacement = Replacement(makers, modes, {})
    for batch, tensors in zip(batches, new):
        added = iter(tensors)
        for group in batch.groups:
            merging.merge(group, next(added))
        for ids in batch.shared_ids:
            shared = next(added)
            shared.set_shape(ids.shape)
            editing.replace(ids, shared)
        for lookup in batch.lookups:
            replacement.structures.setdefault(lookup.is_train, _structure(batch.get_next, lookup))
            report.moved.append(
                reports.Moved(
                    lookup.name,
                    lookup.table.table_name,
                    batch.get_next.name,
                    tensors[0].op.name,
                    len(slices[lookup.plan.name].ops),
                )
            )
    return replacement


def _makers(replacements, is_training):
    """Returns, of each iterator that was replaced in this mode, the ops that initialize it."""
    return [one.makers for one in replacements if is_training in one.modes and one.makers]


def initializer_of(is_training):
    """Returns the op that initializes what replaced the iterators of training, or of evaluation; None without any."""
    graphs.tables_here("get_initializer")
    state = graphs.state()
    makers = _makers(state.replacements or [], is_training)
    for same in makers:
        if len(same) > 1:
            names = ", ".join(maker.name for maker in same)
            raise RuntimeError(
                f"the iterator has several datasets ({names}): run the initializer that make_initializer returned for "
                "the one you want"
            )
    if not makers:
        return None
    return makers[0][0] if len(makers) == 1 else state.initializers[is_training]


def batch_of(is_training):
    """Returns the batch that replaced the script's, in the structure that it gave to `sparse_lookup(batch=...)`, or
    that of the dataset; None without any."""
    graphs.tables_here("get_target_batch")
    for replacement in graphs.state().replacements or []:
        if is_training in replacement.structures:
            return replacement.structures[is_training]
    return None
