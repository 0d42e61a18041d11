"""SavedModels of graphs with tables: exported models that bring their rows along.

    export_dir/saved_model.pb
               assets/mx_rec_tables.txt        tells a loaded model where it lies
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
from tensorflow.python.saved_model import builder_impl

from mx_rec._log import logger
from mx_rec._ops import library
from mx_rec._tables import graphs, meta_graph
from mx_rec._tf.patch import Patch
from mx_rec.checkpoint import _columns, _layout, _manifest
from mx_rec.saver import saver

_ASSET = "mx_rec_tables.txt"


@dataclasses.dataclass
class _Export:
    """What a builder exports: one set of tables for all of its graphs."""

    directory: str  # of the tables
    suffix: str  # of their names in the exported graphs
    scratch: str
    last_saved: object  # what mx_rec.saver.export means, which this is not
    entries: dict = dataclasses.field(default_factory=dict)  # by table; when the tables are written


def _add_collections(self, assets_collection, main_op, train_op):
    """Adds the op that loads the tables to what a loaded model runs first."""
    tables = graphs.state().tables
    if tables:
        _check_saved(tables.values())
        export = _export_of(self)
        names = sorted(tables)
        with tf.name_scope("mx_rec"), tf.control_dependencies(None):
            asset = tf.constant(os.path.join(export.scratch, _ASSET), name="tables")
            serve = library.ops().mxrec_serve(
                asset=asset,
                tables=names,
                directories=names,
                dims=[tables[name].embedding_size for name in names],
                rows=[0] * len(names),
                table_of_file=[],
                files=[],
                bytes=[],
                crc32c=[],
                table_of_padding=[number for number, name in enumerate(names) for _ in tables[name].padding_keys],
                padding_keys=[key for name in names for key in tables[name].padding_keys],
                name="serve",
            )
            # The anchors are in no file; without a value TensorFlow could not save the loaded model again. Not by
            # tf.group, which would mark `main_op`, an op that a session may have run already.
            init = tf.no_op(name="init")
            anchors = [tables[name].variable.initializer for name in names]
            init._add_control_inputs([serve, *anchors, *([] if main_op is None else [main_op])])
        assets_collection = [*(assets_collection or []), asset]
        main_op = init
    return PATCHES[0].stock(self, assets_collection, main_op, train_op)


def _tag_and_add_meta_graph(self, meta_graph_def, tags, signature_def_map):
    """Completes the graph; the tables have been written."""
    export = getattr(self, "_mx_rec_export", None)
    if export is not None:
        if not export.entries:
            saver._last_sparse_dir = export.last_saved
            export.entries = _strip(export.directory)
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
        nodes = [graph.node, *(function.node_def for function in graph.library.function)]
        for node in (node for group in nodes for node in group if node.op.startswith("Mxrec")):
            if node.op == "MxrecServe":
                _complete(node, export.entries)
            _rename(node, export.suffix)
    return PATCHES[1].stock(self, meta_graph_def, tags, signature_def_map)


def _check_saved(tables):
    for table in tables:
        if not table.is_save:
            raise ValueError(
                f"table '{table.table_name}' cannot be exported: it was created with is_save=False; create it with "
                "is_save=True, or leave it out of the graph that is exported"
            )


def _export_of(builder):
    found = getattr(builder, "_mx_rec_export", None)
    if found is None:
        variables = os.path.join(tf.compat.as_str(builder._export_dir), "variables", "variables")
        scratch = tempfile.mkdtemp(prefix="mx_rec-export-")
        with open(os.path.join(scratch, _ASSET), "w", encoding="utf-8") as file:
            file.write("The tables of this model are in ../variables/sparse-variables.\n")
        found = _Export(_layout.of(variables), "@" + uuid.uuid4().hex[:12], scratch, saver.last_sparse_dir())
        builder._mx_rec_export = found
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


def _complete(node, entries):
    """Tells the op that loads the tables what was written."""
    names = [tf.compat.as_str(name) for name in node.attr["directories"].list.s]
    files = [(t, file, facts) for t, name in enumerate(names) for file, facts in entries[name].files.items()]
    node.attr["rows"].list.i[:] = [entries[name].rows for name in names]
    node.attr["table_of_file"].list.i.extend(t for t, _, _ in files)
    node.attr["files"].list.s.extend(file.encode() for _, file, _ in files)
    node.attr["bytes"].list.i.extend(facts.bytes for _, _, facts in files)
    node.attr["crc32c"].list.i.extend(facts.crc32c for _, _, facts in files)


def _rename(node, suffix):
    names = node.attr["tables"].list.s if "tables" in node.attr else []
    names[:] = [name + suffix.encode() for name in names]
    if "table" in node.attr and node.attr["table"].WhichOneof("value") == "s":
        node.attr["table"].s += suffix.encode()


PATCHES = [
    Patch(lambda: builder_impl.SavedModelBuilder, "_add_collections", _add_collections),
    Patch(lambda: builder_impl._SavedModelBuilder, "_tag_and_add_meta_graph", _tag_and_add_meta_graph),
]
