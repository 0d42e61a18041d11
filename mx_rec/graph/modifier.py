"""Automatic graph modification: a script that looks up plain tensors gets its batches prepared ahead of the step.

The ops that compute the ids of a lookup move, with the preparation, from the step into the dataset that the ids come
from. Everything that reads the batch reads it from the new dataset; no value changes.
"""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from mx_rec import _check, _process
from mx_rec._lowering import lowering
from mx_rec._tables import graphs
from mx_rec._tf.iterators import dataset_of, is_fed, probe_of
from mx_rec.core.asc.manager import start_asc_pipeline

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
    _process.config()
    _check.boolean("dump_graph", dump_graph)
    if full_graph is None:
        full_graph = v1.get_default_graph()
    _check.instance("full_graph", full_graph, tf.Graph, "a tf.Graph")
    with full_graph.as_default():
        if dump_graph:
            dump(full_graph, "before", "old_graph.pbtxt")
        lowering.lower(full_graph, moves=True)
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

    def begin(self) -> None:
        if not self._modify_graph:
            start_asc_pipeline()
            return
        modify_graph_and_start_emb_cache(dump_graph=self._dump_graph)
        self._probes = [
            (probe_of(maker), maker)
            for maker, *others in (one.makers for one in graphs.state().replacements or [] if one.makers)
            if not others and not is_fed(dataset_of(maker))
        ]

    def after_create_session(self, session: Any, coord: Any) -> None:
        del coord
        for probe, initializer in self._probes:
            try:
                session.run(probe)
            except tf.errors.OpError as error:  # others mean that its state cannot be saved; so it has one
                if "has not been initialized" in str(error):
                    session.run(initializer)


def dump(graph, folder, file) -> None:
    """Writes the graph to ./export_graph/, for TensorBoard to `folder` there, and as text to `file`."""
    v1.summary.FileWriter(os.path.join("export_graph", folder), graph=graph).close()
    tf.io.write_graph(graph.as_graph_def(), "export_graph", file, as_text=True)
