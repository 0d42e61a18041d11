"""Building the ops of a lookup: plan -> commit and gather -> expand.

The first lookup of a batch builds one commit for all tables of its insert function that exist by then, so that a step
runs one op however many tables it reads; later lookups pick their outputs.
"""

import contextlib

from mx_rec._native import library
from mx_rec.constants import constants
from mx_rec.core import _graph
from mx_rec.core.asc import _insertion

# Modes of MxrecLookup (native/tf/lookup.cc).
_SKIP, _READ, _INSERT = 0, 1, 2


def from_spec(table, spec, batch, is_train):
    """(embeddings, has_row builder) of `spec`'s ids in `batch`."""
    insertion, place, plan = _locate(table, spec, batch)
    rows, handles = _commit(plan, insertion.features_of_table, table, is_train)
    return _expand(plan, rows, handles, place.feature, place.table, _ids_shape(spec, batch, insertion, place), is_train)


def from_tensor(table, ids, is_train):
    """The same for a tensor of ids, prepared in the step."""
    import tensorflow as tf

    plan = library.ops().mxrec_prepare(
        ids=[tf.cast(ids, tf.int64)], tables=[table.table_name], table_of_feature=[0], name="prepare"
    )
    rows, handles = _commit(plan, {table.table_name: 1}, table, is_train)
    return _expand(plan, rows, handles, 0, 0, ids.shape, is_train)


def _locate(table, spec, batch):
    """(insertion, place, plan tensor) for a spec."""
    if not spec.insertions:
        raise RuntimeError(
            f"{spec} never went through an insert function: apply dataset.map(get_asc_insert_func(tgt_key_specs=[...]))"
            " with this very spec before the lookup"
        )
    for insertion in reversed(spec.insertions):
        plan = _insertion.plan_in(batch, insertion)
        if plan is not None:
            return insertion, insertion.find(spec), plan
    # Scripts may leave `batch` out or pass a part of it. If the graph holds just one iterator that prepares this spec,
    # there is no doubt which batch is meant.
    found = [(insertion, plan) for insertion in spec.insertions for plan in _search(insertion)]
    if len(found) == 1:
        insertion, plan = found[0]
        return insertion, insertion.find(spec), plan
    if batch is None:
        raise RuntimeError(
            f"table '{table.table_name}', {spec}: `batch` is needed: pass what iterator.get_next() returned"
        )
    raise RuntimeError(
        f"table '{table.table_name}', {spec}: `batch` does not hold what the insert function added to it "
        f"(key {spec.insertions[-1].plan_key!r}); pass the whole result of iterator.get_next()"
    )


def _search(insertion):
    """The plans of `insertion` in the default graph: the last output of each iterator whose dataset ran it."""
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    library_functions = {function.signature.name: function for function in graph.as_graph_def().library.function}
    functions = {
        name
        for name, function in library_functions.items()
        if any(node.name == insertion.op_name for node in function.node_def)
    }
    if not functions:
        return []
    found = []
    for op in graph.get_operations():
        if op.type not in ("IteratorGetNext", "IteratorGetNextSync"):
            continue
        iterator = op.inputs[0].op
        if iterator.type == "OneShotIterator":  # its dataset is built by a function
            factory = library_functions[iterator.get_attr("dataset_factory").name]
            is_source = any(node.attr["f"].func.name in functions for node in factory.node_def if "f" in node.attr)
        else:
            datasets = [use.inputs[0].op for use in iterator.outputs[0].consumers() if use.type == "MakeIterator"]
            is_source = any(_runs(dataset, functions) for dataset in datasets)
        if is_source:
            found.append(op.outputs[-1])
    return found


def _runs(dataset, functions):
    """Whether a dataset op, or one it reads from, maps one of `functions`."""
    stack = [dataset]
    while stack:
        op = stack.pop()
        try:
            if op.get_attr("f").name in functions:
                return True
        except ValueError:
            pass
        stack.extend(source.op for source in op.inputs if source.dtype.name == "variant")
    return False


def _ids_shape(spec, batch, insertion, place):
    """The ids' static shape: of the batch's own tensor if it is there, else what the dataset knew."""
    if isinstance(batch, dict):
        ids = batch.get(spec.index_key)
        if ids is not None and hasattr(ids, "shape"):
            return ids.shape
    if len([i for i in spec.insertions if i.plan_key == insertion.plan_key]) == 1:
        return place.ids_shape
    import tensorflow as tf

    return tf.TensorShape(None) if place.ids_shape.rank is None else tf.TensorShape([None] * place.ids_shape.rank)


def _commit(plan, features_of_table, table, is_train):
    """(rows, handles) of `table` in `plan`, whose tables and their numbers of features `features_of_table` tells."""
    import tensorflow as tf

    state = _graph.state()
    commit = state.commits.setdefault((_graph.key(plan), is_train), {})
    pair = commit.get(table.table_name)
    # Inside a branch the outputs cannot serve other lookups, so other tables have no business there.
    is_shared = pair is not None or _is_top_level(plan.graph)
    if pair is None:
        names = [name for name in features_of_table if name in state.tables and name not in commit]
        names = names if is_shared else [table.table_name]
        tables = [state.tables[name] for name in names]
        # One commit serves lookups built under different control dependencies, so it takes none of them.
        with tf.control_dependencies(None) if is_shared else contextlib.nullcontext():
            rows, handles = library.ops().mxrec_lookup(
                plan=plan,
                anchors=[t.variable.handle for t in tables],
                tables=names,
                table_in_plan=[list(features_of_table).index(name) for name in names],
                dims=[t.embedding_size for t in tables],
                features=[features_of_table[name] for name in names],
                modes=[_SKIP] * len(names),
                name="commit",
            )
        made = dict(zip(names, zip(rows, handles)))
        for name, (_, its_handles) in made.items():
            state.handles[_graph.key(its_handles)] = state.tables[name]
        if is_shared:
            commit.update(made)
        pair = made[table.table_name]
    _ask_for(pair[0], is_train)
    if is_train and is_shared:
        _collect(*pair)
    return pair


def _ask_for(rows, is_train):
    """Makes the commit serve this table: it skips those that no lookup asked for, so that none of them changes."""
    import tensorflow as tf

    op = rows.op
    modes = list(op.get_attr("modes"))
    if modes[rows.value_index] == _SKIP:
        modes[rows.value_index] = _INSERT if is_train else _READ
        value = tf.compat.v1.AttrValue
        op._set_attr("modes", value(list=value.ListValue(i=modes)))


def _collect(rows, handles):
    """Puts a training lookup's rows and handles where by-address scripts take them from, once."""
    graph = rows.graph
    known = graph.get_collection_ref(constants.ASCEND_SPARSE_LOOKUP_ID_OFFSET)
    if not any(handles is other for other in known):
        known.append(handles)
        graph.add_to_collection(constants.ASCEND_SPARSE_LOOKUP_LOCAL_EMB, rows)


def _expand(plan, rows, handles, feature, table, ids_shape, is_train):
    state = _graph.state()
    key = (_graph.key(plan), is_train, feature)
    embeddings = state.expansions.get(key)
    if embeddings is None:
        embeddings = library.ops().mxrec_expand(
            rows=rows, plan=plan, table=table, feature=feature, ids_shape=ids_shape, name="expand"
        )
        if _is_top_level(plan.graph):
            state.expansions[key] = embeddings

    def has_row():
        return library.ops().mxrec_has_row(
            handles=handles, plan=plan, table=table, feature=feature, ids_shape=ids_shape, name="has_row"
        )

    return embeddings, has_row


def _is_top_level(graph):
    """Whether ops now go to the graph itself, not into a branch or loop of it."""
    import tensorflow as tf

    current = tf.compat.v1.get_default_graph()
    return current is graph and current._get_control_flow_context() is None
