"""MetaGraphs: what a graph says of its tables, so that another process can import it.

TensorFlow's own part of a MetaGraph names the tables in its lookups, but not how they are made: that goes into a
collection, one JSON text for each table. Importing such a MetaGraph registers the ops, makes the tables, or joins those
that the process has, and binds them to their anchor variables. Rows are a checkpoint's business.
"""

import base64
import dataclasses
import json

import numpy as np
import tensorflow as tf

from mx_rec import _process
from mx_rec._log import logger
from mx_rec._native.table_config import InitializerSpec
from mx_rec._ops import library, ranked
from mx_rec._ops.lookup import LookupOp
from mx_rec._ops.op import are_in
from mx_rec._tables import graphs, trackings
from mx_rec._tables.sparse_table import BaseSparseEmbedding, TableOptions
from mx_rec._tf import meta_graphs
from mx_rec._tf.patch import Patch

COLLECTION = "mx_rec_tables"  # also in files: never rename
_VERSION = 1


def _create_meta_graph_def(
    meta_info_def=None,
    graph_def=None,
    saver_def=None,
    collection_list=None,
    graph=None,
    export_scope=None,
    *arguments,
    **keywords,
):
    made = _CREATE.stock(
        meta_info_def, graph_def, saver_def, collection_list, graph, export_scope, *arguments, **keywords
    )
    ranked.strip(made.graph_def)
    state = graphs.state(graph)
    made.collection_def.pop(COLLECTION, None)  # of a graph that was imported itself
    if state.tables and not export_scope:
        texts = [json.dumps(_describe(table, state)).encode() for table in state.tables.values()]
        made.collection_def[COLLECTION].bytes_list.value.extend(texts)
    return made


def _import_meta_graph(meta_graph_or_file, clear_devices=False, graph=None, import_scope=None, *arguments, **keywords):
    proto = meta_graph_or_file
    if isinstance(proto, str):
        proto = meta_graphs.read(proto)
    texts = list(proto.collection_def[COLLECTION].bytes_list.value) if COLLECTION in proto.collection_def else []
    if are_in(proto):
        library.ops()
        copy = tf.compat.v1.MetaGraphDef()
        copy.CopyFrom(proto)
        ranked.fit(copy.graph_def)
        proto = copy
    described = [_parse(text) for text in texts]
    found = _IMPORT.stock(proto, clear_devices, graph, import_scope, *arguments, **keywords)
    graph = graph or tf.compat.v1.get_default_graph()
    with graph.as_default():
        for description in described:
            _make(description, import_scope)
        if described:
            _bind_handles(graph)
            logger.info("imported a graph with the tables %s", sorted(one["options"]["name"] for one in described))
    return found


_CREATE = Patch(
    lambda: meta_graphs.MAKERS, "create_meta_graph_def", _create_meta_graph_def, "MetaGraphs describe tables"
)
_IMPORT = Patch(
    lambda: meta_graphs.MAKERS,
    "import_scoped_meta_graph_with_return_elements",
    _import_meta_graph,
    "MetaGraphs make tables",
)
PATCHES = [_CREATE, _IMPORT]


# ---- Writing.


def _describe(table, state):
    options = {**vars(table.options), "key_dtype": table.key_dtype.name}
    return {
        "version": _VERSION,
        "options": options,
        "initializer": _initializer_text(table.initializer),
        "slots": table.native.slot_specs,
        "asked": {label: value for label, (_, value) in table.required.items()},
        "lookups": sorted(table.lookups),
        "is_updated": table.table_name in state.updated,
        "is_started": state.is_started,
    }


def _initializer_text(spec):
    text = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    if spec.pool is not None:
        pool = np.ascontiguousarray(spec.pool, "<f4")
        text["pool"] = {"shape": pool.shape, "float32": base64.b64encode(pool.tobytes()).decode()}
    return text


# ---- Reading.


def _parse(text):
    found = json.loads(text)
    if found.get("version") != _VERSION:
        raise ValueError(
            f"the MetaGraph describes its tables in version {found.get('version')}, this mx_rec knows {_VERSION}; "
            "import it with the mx_rec that wrote it"
        )
    return found


def _make(description, import_scope):
    """Makes a table, or joins that of the process, and binds it to its anchor in the default graph."""
    state = graphs.state()
    options = _options(description["options"])
    if options.name in state.tables:
        state.tables[options.name].check_same(options)
        return
    table = BaseSparseEmbedding(options, _initializer(description["initializer"]))
    if description["slots"]:
        table.native.set_slots([(name, value) for name, value in description["slots"]])
    table.bind_anchor(_anchor(options.name, import_scope))
    trackings.require(table, "the imported graph", **description["asked"])
    for what, is_train in description["lookups"]:
        table.count_lookup(tuple(what), is_train)
    state.tables[options.name] = table
    if description["is_updated"]:
        state.updated.add(options.name)
    state.is_started = state.is_started or description["is_started"]


def _options(texts):
    lists = {name: tuple(value) for name, value in texts.items() if isinstance(value, list)}
    return TableOptions(**{**texts, **lists, "key_dtype": tf.as_dtype(texts["key_dtype"])})


def _initializer(text):
    pool = text["pool"]
    if pool is not None:
        pool = np.frombuffer(base64.b64decode(pool["float32"]), "<f4").reshape(pool["shape"])
    return InitializerSpec(**{**text, "pool": pool})


def _anchor(name, import_scope):
    wanted = f"{import_scope}/{name}:0" if import_scope else f"{name}:0"
    for variable in tf.compat.v1.global_variables():
        if variable.name == wanted:
            # TensorFlow makes an object for every collection that a variable is in.
            anchors = tf.compat.v1.get_collection_ref(_process.process.hashtable_collection)
            anchors[:] = [variable if other.name == wanted else other for other in anchors]
            return variable
    raise ValueError(
        f"table '{name}': the imported graph has no variable '{wanted}', which stands for the table; export the whole "
        "graph with all of its collections"
    )


def _bind_handles(graph):
    """Lets sparse optimizers find the tables of the lookups in the graph."""
    state = graphs.state(graph)
    for lookup in LookupOp.all_in(graph):
        for name, handles in zip(lookup.tables, lookup.handles):
            if name in state.tables:
                state.handles.setdefault(graphs.key(handles), state.tables[name])
