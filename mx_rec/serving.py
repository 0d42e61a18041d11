"""Serving: import this module to load exported models.

    import mx_rec.serving
    model = tf.saved_model.load(export_dir)

It registers the ops of the models with TensorFlow: no `init` is needed, and the model itself loads its tables. `save`
saves such a model again; `freeze` and `load_tables` are for programs that keep graphs instead of models.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat.v1 import graph_util

from mx_rec._ops import library
from mx_rec._ops.lookup import LookupOp
from mx_rec._ops.serve import ServeOp

library.ops()


def freeze(session: tf.compat.v1.Session, output_names: Sequence[str]) -> Any:
    """Returns the GraphDef of an exported model that was loaded into `session`, with its variables as constants.

    Args:
        session: of `tf.compat.v1.saved_model.load(session, ["serve"], export_dir)`.
        output_names: the ops to keep, with what they need.

    Tables are no constants: they stay in the model's directory, and whoever imports the graph calls `load_tables`
    before the first run. Raises ValueError if the session's graph is no such model.
    """
    serve = _serve_op(session.graph)
    anchors = {anchor.op.name for lookup in LookupOp.all_in(session.graph) for anchor in lookup.anchors}
    return graph_util.convert_variables_to_constants(
        session, session.graph.as_graph_def(), [*output_names, serve.op.name], variable_names_blacklist=sorted(anchors)
    )


def load_tables(session: tf.compat.v1.Session, export_dir: str) -> None:
    """Loads the tables of the exported model in `export_dir` for a frozen graph of it, once per process.

    Raises ValueError if the session's graph is no such graph, TensorFlow's NotFoundError or DataLossError if the files
    are not those of the export.
    """
    serve = _serve_op(session.graph)
    session.run(serve.op, {serve.asset: os.path.join(export_dir, "assets", "mx_rec_tables.txt")})


def save(model: Any, export_dir: str, loaded_from: str, **keywords: Any) -> None:
    """Saves a model that `tf.saved_model.load` gave, or one that contains it, to `export_dir`, with the tables.

    Args:
        model: for `tf.saved_model.save`, as are the `keywords` (signatures, options). Without `signatures`, those that
            `model` was loaded with, if it was.
        export_dir: the new directory.
        loaded_from: the directory that the model with tables was loaded from; its tables are copied.

    `tf.saved_model.save` alone copies what it knows of: the new model could not be loaded without the old one, and
    would have no signatures.
    Raises ValueError if `loaded_from` has no tables, or is `export_dir` itself.
    """
    from mx_rec.checkpoint import _layout, _manifest

    source, target = (os.path.join(path, "variables", "sparse-variables") for path in (loaded_from, export_dir))
    manifest = _manifest.read(source)
    if manifest is None:
        raise ValueError(
            "`loaded_from` must be the directory of a model with tables, but there is no "
            f"'{os.path.join(source, _manifest.NAME)}'"
        )
    if os.path.realpath(loaded_from) == os.path.realpath(export_dir):
        raise ValueError(f"`export_dir` must be another directory than `loaded_from`, got '{export_dir}' for both")
    # The tables first: TensorFlow writes saved_model.pb last, and without that there is no model.
    temporary = f"{target}.tmp-{os.getpid()}"
    try:
        shutil.copytree(source, temporary)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    signatures = getattr(model, "signatures", None)
    tf.saved_model.save(model, export_dir, **{**({"signatures": dict(signatures)} if signatures else {}), **keywords})
    dense = _layout.dense_crc32c(os.path.join(export_dir, "variables", "variables"))
    _manifest.write(dataclasses.replace(manifest, dense_index_crc32c=dense), target)


def _serve_op(graph):
    found = ServeOp.all_in(graph)
    if len(found) != 1:
        raise ValueError(
            f"the graph must be that of one exported model with tables, got one with {len(found)} ops that load "
            "tables; load a SavedModel with tables into an empty graph, or import a graph of `freeze`"
        )
    return found[0]
