"""SavedModels of graphs with tables: exported models that bring their rows along.

    export_dir/saved_model.pb
               assets/mx_rec_tables.txt        tells a loaded model where it lies, and of which export it is
               variables/variables.*           the dense part, by TensorFlow
               variables/sparse-variables/     the tables: keys and embeddings, no slots, no counts

The model's initialisation loads the tables (native/tf/serve.cc). In the exported graph they have names of their own, so
that a process may load several models, or train one besides.
"""

import dataclasses
import os
import shutil
import tempfile
import uuid

import tensorflow as tf

from mx_rec import _ranks
from mx_rec._log import logger
from mx_rec._ops import serve
from mx_rec._ops.op import nodes_of, rename_tables
from mx_rec._tables import graphs, meta_graph
from mx_rec._tf import meta_graphs
from mx_rec._tf.editing import run_after
from mx_rec._tf.notes import Note
from mx_rec._tf.patch import Patch
from mx_rec.checkpoint import _columns, _layout, _manifest
from mx_rec.saver import _ranked_export

_ASSET = "mx_rec_tables.txt"
_EXPORT = Note("export")


@dataclasses.dataclass
class _Export:
    """What a builder exports: one set of tables for all of its graphs."""

    directory: str  # of the tables
    suffix: str  # of their names in the exported graphs
    note: str  # what the asset says, of this export alone
    scratch: str
    entries: dict = dataclasses.field(default_factory=dict)  # by table; when the tables are written


def _add_collections(self, assets_collection, main_op, train_op):
    """Adds the op that loads the tables to what a loaded model runs first."""
    state = graphs.state()
    tables = state.tables
    if tables:
        _check_saved(tables.values())
        _forget_earlier(state)
        export = _export_of(self)
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        with tf.name_scope("mx_rec"), tf.control_dependencies(None):
            asset = tf.constant(os.path.join(export.scratch, _ASSET), name="tables")
            served = serve.build(asset, tables)
            # A process that has loaded the model before keeps the tables, while TensorFlow reads the variables again.
            with tf.control_dependencies([served]):
                is_same = tf.equal(tf.io.read_file(asset), export.note)
            told = "the model was replaced by another export while it was loaded; load it again"
            check = tf.raw_ops.Assert(condition=is_same, data=[told], name="check")
            # The anchors are in no file; without a value TensorFlow could not save the loaded model again. Not by
            # tf.group, which would mark `main_op`, an op that a session may have run already.
            init = tf.no_op(name="init")
            anchors = [tables[name].variable.initializer for name in sorted(tables)]
            run_after(init, [served, check, *anchors, *([] if main_op is None else [main_op])])
        state.exports.append(graph.get_operations()[before:])
        assets_collection = [*(assets_collection or []), asset]
        main_op = init
    return PATCHES[0].stock(self, assets_collection, main_op, train_op)


def _tag_and_add_meta_graph(self, meta_graph_def, tags, signature_def_map):
    """Completes the graph; the tables have been written."""
    export = _EXPORT.of(self)
    if export is not None:
        if not export.entries:
            _ranked_export.note_tables()
            is_first = _ranks.rank() == 0
            entries = _ranks.together("export/tables", lambda: _strip(export.directory) if is_first else None)
            export.entries = entries[0]
            shutil.rmtree(export.scratch, ignore_errors=True)
            logger.info(
                "exported %d tables, %d rows: %s",
                len(export.entries),
                sum(entry.rows for entry in export.entries.values()),
                export.directory,
            )
        # Loaded models have tables of other names, which the model itself makes.
        meta_graph_def.collection_def.pop(meta_graph.COLLECTION, None)
        graph = meta_graph_def.graph_def
        earlier = {op.name for ops in graphs.state().exports[:-1] for op in ops}
        kept = [node for node in graph.node if node.name not in earlier]
        del graph.node[:]
        graph.node.extend(kept)
        for node in nodes_of(graph):
            serve.complete(node, export.entries)
            rename_tables(node, export.suffix)
    return PATCHES[1].stock(self, meta_graph_def, tags, signature_def_map)


def _forget_earlier(state):
    """Takes what earlier exports of the graph did for their models out of its collections: a script may export a graph
    again and again, and TensorFlow takes one main op."""
    earlier = [op for ops in state.exports for op in ops]
    keys = tf.compat.v1.saved_model.constants
    main_ops, assets = map(tf.compat.v1.get_collection_ref, (keys.MAIN_OP_KEY, keys.ASSETS_KEY))
    main_ops[:] = [op for op in main_ops if op not in earlier]
    names = {tensor.name for op in earlier for tensor in op.outputs}
    assets[:] = [asset for asset in assets if _file_of(asset).tensor_info.name not in names]


def _file_of(asset):
    file = tf.compat.v1.MetaGraphDef().asset_file_def.add()
    asset.Unpack(file)
    return file


def _check_saved(tables):
    for table in tables:
        if not table.is_save:
            raise ValueError(
                f"table '{table.table_name}' cannot be exported: it was created with is_save=False; create it with "
                "is_save=True, or leave it out of the graph that is exported"
            )


def _export_of(builder):
    found = _EXPORT.of(builder)
    if found is None:
        variables = os.path.join(meta_graphs.directory_of(builder), "variables", "variables")
        scratch = tempfile.mkdtemp(prefix="mx_rec-export-")
        suffix = "@" + uuid.uuid4().hex[:12]
        note = f"The tables of this model, named ...{suffix}, are in ../variables/sparse-variables.\n"
        with open(os.path.join(scratch, _ASSET), "w", encoding="utf-8") as file:
            file.write(note)
        found = _Export(_layout.of(variables), suffix, note, scratch)
        _EXPORT.set(builder, found)
    return found


def _strip(directory):
    """Removes all but keys and embeddings from a directory of tables; returns what is left, by table."""
    manifest = _manifest.read(directory)
    entries = {}
    for name, entry in manifest.tables.items():
        path = os.path.join(directory, name)
        for column in os.listdir(path):
            if column not in _columns.ROWS:
                shutil.rmtree(os.path.join(path, column))
        files = {file: facts for file, facts in entry.files.items() if file.split("/")[0] in _columns.ROWS}
        entries[name] = dataclasses.replace(entry, slots=(), optimizer=None, tracking=None, files=files)
    _manifest.write(dataclasses.replace(manifest, tables=entries), directory)
    return entries


PATCHES = [
    Patch(
        lambda: tf.compat.v1.saved_model.Builder,
        meta_graphs.ADD_COLLECTIONS,
        _add_collections,
        "a SavedModel brings its tables",
    ),
    Patch(
        lambda: meta_graphs.SavedModelBuilder,
        meta_graphs.ADD_META_GRAPH,
        _tag_and_add_meta_graph,
        "what only training needs is no part of a model",
    ),
]
