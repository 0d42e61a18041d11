"""Automatic graph modification: a script that looks up plain tensors gets its batches prepared ahead of the step.

The ops that compute the ids of a lookup move, with the preparation, from the step into the dataset that the ids come
from. Everything that reads the batch reads it from the new dataset; no value changes.
"""

from __future__ import annotations

import dataclasses
import os

import tensorflow as tf

from mx_rec import _check, _config
from mx_rec.core import _graph, _timestamp, _watch
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.graph import _find, _merge, _pipeline, _report
from mx_rec.graph._copy import Copier
from mx_rec.graph._structure import batch_behind
from mx_rec.util.log import logger

v1 = tf.compat.v1


def modify_graph_and_start_emb_cache(full_graph: tf.Graph | None = None, dump_graph: bool = False) -> None:
    """Moves the ids of all lookups with `modify_graph=True` into their datasets and starts the pipeline.

    Call it when the graph is complete, gradients and updates included, and before a session runs it; one that was made
    before, and has run nothing yet, runs the modified graph. For one that has run something, TensorFlow ignores
    changes: then all lookups stay in the step, with the same values, and a warning says so. What was moved, and what
    stayed and why, is logged and in `mx_rec.graph.last_report()`. Repeating it changes nothing.

    Args:
        full_graph: the graph; by default the default graph.
        dump_graph: writes the graph before and after to ./export_graph/, for TensorBoard.

    Raises RuntimeError if there is no lookup, ValueError naming the lookup and the op where ids come from two batches
    or cannot be copied.
    """
    _config.current()
    _check.boolean("dump_graph", dump_graph)
    if full_graph is None:
        full_graph = v1.get_default_graph()
    _check.instance("full_graph", full_graph, tf.Graph, "a tf.Graph")
    with full_graph.as_default():
        if dump_graph:
            dump(full_graph, "before", "old_graph.pbtxt")
        _modify(full_graph)
        start_asc_pipeline()
        if dump_graph:
            dump(full_graph, "after", "new_graph.pbtxt")


class GraphModifierHook(v1.train.SessionRunHook):
    """Graph modification for monitored sessions and Estimators.

    `begin` modifies the graph, or with `modify_graph=False` only starts the pipeline, as FeatureSpec mode needs it.
    After the session is made, iterators that nobody has initialized are. If the work was done before, nothing is done
    again.
    """

    def __init__(self, dump_graph: bool = False, modify_graph: bool = True) -> None:
        self._dump_graph = _check.boolean("dump_graph", dump_graph)
        self._modify_graph = _check.boolean("modify_graph", modify_graph)
        self._probes = []

    def begin(self):
        if not self._modify_graph:
            start_asc_pipeline()
            return
        modify_graph_and_start_emb_cache(dump_graph=self._dump_graph)
        self._probes = [
            (tf.raw_ops.SerializeIterator(resource_handle=makers[0].inputs[1], external_state_policy=1), makers[0])
            for makers in (replacement.makers for replacement in _graph.state().replacements or [])
            if len(makers) == 1 and not _is_fed(makers[0].inputs[0].op)
        ]

    def after_create_session(self, session, coord):
        del coord
        for probe, initializer in self._probes:
            try:
                session.run(probe)
            except tf.errors.OpError as error:  # others mean that its state cannot be saved; so it has one
                if "has not been initialized" in str(error):
                    session.run(initializer)


@dataclasses.dataclass
class Replacement:
    """An iterator of the script and what stands in its place."""

    makers: list[object]  # ops that initialize it; none for a one-shot iterator
    modes: set[bool]  # is_train of the lookups that read it
    structures: dict[bool, object]  # of the batch, as the script gave it to a lookup, with the new tensors


def _modify(graph):
    state = _graph.state(graph)
    if state.replacements is not None:
        return
    if not state.to_move:
        if not any(table.lookup_count for table in state.tables.values()):
            raise RuntimeError(
                "there is no lookup in this graph: call sparse_lookup(..., modify_graph=True) before modifying it"
                + ("" if state.tables else _graph.elsewhere())
            )
        logger.warning("graph modification: no lookup has modify_graph=True, nothing is moved")
    _timestamp.bind(graph)
    report = _report.Report()
    slices = {}
    for lookup in state.to_move:
        try:
            found = _find.trace(lookup)
            _pipeline.Source(found.get_next.inputs[0].op, [found.get_next]).check()
            slices[lookup.plan.name] = found
        except _find.Stays as reason:
            report.stayed.append(_report.Stayed(lookup.name, lookup.table.table_name, str(reason)))
    is_late = bool(slices) and _watch.is_running(graph, before_tables=True)
    if is_late:
        logger.warning(
            "graph modification: a session has run the graph before, and TensorFlow ignores changes for it; all "
            "lookups stay in the step. Call modify_graph_and_start_emb_cache() before the session's first run"
        )
    moving = [lookup for lookup in state.to_move if lookup.plan.name in slices]
    sources = {}
    for lookup in moving:
        get_next = slices[lookup.plan.name].get_next
        source = sources.setdefault(get_next.inputs[0].name, _pipeline.Source(get_next.inputs[0].op, []))
        if get_next not in source.get_nexts:
            source.get_nexts.append(get_next)
    replace = _leave if is_late else _move
    state.replacements = [replace(source, moving, slices, report) for source in sources.values()]
    # Now, because a monitored session finalizes the graph.
    for is_train in (True, False):
        makers = _makers(state.replacements, is_train)
        if len(makers) > 1 and all(len(same) == 1 for same in makers):
            state.initializers[is_train] = tf.group(*(maker for (maker,) in makers), name="mx_rec/initialize")
    _report.remember(report)
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
    groups: list[_merge.Group]
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
    return _Batch(get_next, lookups, copier, _merge.groups_of(lookups), shared)


def _leave(source, lookups, slices, report):
    """Leaves the lookups of one iterator in the step: the iterator stands for itself."""
    replacement = Replacement(source.makers, set(), {})
    for get_next in source.get_nexts:
        for lookup in _lookups_of(get_next, lookups, slices):
            replacement.modes.add(lookup.is_train)
            replacement.structures.setdefault(lookup.is_train, _structure(get_next, lookup))
            reason = "a session has run the graph before it was modified"
            report.stayed.append(_report.Stayed(lookup.name, lookup.table.table_name, reason))
    return replacement


def _lookups_of(get_next, lookups, slices):
    return [lookup for lookup in lookups if slices[lookup.plan.name].get_next is get_next]


def _structure(get_next, lookup):
    """The batch of a lookup: in the structure that the script gave to it, or that of the dataset, with tensors of
    today."""
    structure = batch_behind(get_next) if lookup.batch is None else lookup.batch
    return tf.nest.map_structure(lambda leaf: _pipeline.current(leaf) if tf.is_tensor(leaf) else leaf, structure)


def _move(source, lookups, slices, report):
    """Moves the lookups of one iterator."""
    config = _config.current()
    batches = [_batch(one, _lookups_of(one, lookups, slices), slices) for one in source.get_nexts]
    modes = {lookup.is_train for batch in batches for lookup in batch.lookups}
    makers = source.makers
    limit = config.max_steps if True in modes else config.eval_steps
    new = _pipeline.extend(source, lambda flat: [t for batch in batches for t in batch.prepare(flat)], limit)
    replacement = Replacement(makers, modes, {})
    first = len(source.get_nexts[0].outputs)
    for batch, tensors in zip(batches, new):
        added = iter(tensors[first:])
        for group in batch.groups:
            _merge.merge(group, next(added))
        for ids in batch.shared_ids:
            shared = next(added)
            shared.set_shape(ids.shape)
            _pipeline.replace(ids, shared)
        first += len(batch.groups) + len(batch.shared_ids)
        for lookup in batch.lookups:
            replacement.structures.setdefault(lookup.is_train, _structure(batch.get_next, lookup))
            report.moved.append(
                _report.Moved(
                    lookup.name,
                    lookup.table.table_name,
                    batch.get_next.name,
                    tensors[0].op.name,
                    len(slices[lookup.plan.name].ops),
                )
            )
    return replacement


def _makers(replacements, is_training):
    """Of each iterator that was replaced in this mode, the ops that initialize it."""
    return [one.makers for one in replacements if is_training in one.modes and one.makers]


def initializer_of(is_training):
    """The op that initializes what replaced the iterators of training, or of evaluation; None without any."""
    _graph.tables_here("get_initializer")
    state = _graph.state()
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
    """The batch that replaced the script's, in the structure that it gave to `sparse_lookup(batch=...)`, or that of the
    dataset; None without any."""
    _graph.tables_here("get_target_batch")
    for replacement in _graph.state().replacements or []:
        if is_training in replacement.structures:
            return replacement.structures[is_training]
    return None


def _is_fed(dataset):
    """Whether a dataset op depends on a placeholder."""
    seen, stack = set(), [dataset]
    while stack:
        op = stack.pop()
        if op.type == "Placeholder":
            return True
        if op.name not in seen:
            seen.add(op.name)
            stack.extend(source.op for source in op.inputs)
    return False


def dump(graph, folder, file) -> None:
    """Writes the graph to ./export_graph/, for TensorBoard to `folder` there, and as text to `file`."""
    v1.summary.FileWriter(os.path.join("export_graph", folder), graph=graph).close()
    tf.io.write_graph(graph.as_graph_def(), "export_graph", file, as_text=True)
