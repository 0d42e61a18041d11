"""Building a lookup: the plan of its batch, the commit that looks it up, and what the script gets to see."""

import dataclasses

import tensorflow as tf

from mx_rec._log import logger
from mx_rec._lowering import commits, id_tensors, insertions, timestamps
from mx_rec._lowering.finding import reads_dataset
from mx_rec._ops import embeddings, prepare
from mx_rec._ops.place import Ids, Place, Pooling
from mx_rec._tables import graphs, trackings
from mx_rec._tf import iterators, static_shape


def from_spec(table, spec, batch, is_train, combiner=None, default=None, send_count=0):
    """Returns the embeddings of `spec`'s ids in `batch`, pooled if there is a `combiner`. `default`: what ids without a
    row give, or None: zeros. `send_count`: how many different ids there may be; 0: any number."""
    if not is_train and all(insertions.plan_in(batch, insertion) is None for insertion in spec.insertions):
        ids = _serving_ids(spec, batch)
        if ids is not None:
            return from_tensor(table, ids, is_train, combiner, default, send_count=send_count)
    insertion, place, plan = _locate(table, spec, batch)
    if plan.shape.rank not in (None, 1):
        raise ValueError(
            f"table '{table.table_name}', {spec}: the insert function was mapped before .batch(), so each example was "
            "prepared by itself; map after batch: dataset.batch(n).map(get_asc_insert_func(...))"
        )
    shape = _shape(spec, batch, insertion, place)
    layout = insertion.layout
    if is_train and not insertion.has_times and trackings.evicts_by_time(table):
        raise ValueError(
            f"table '{table.table_name}' has an `eviction_threshold`, but the batch of {spec} has no timestamp: add "
            'FeatureSpec("timestamp", is_timestamp=True) to the specs of get_asc_insert_func'
        )
    if is_train and not layout.is_grouped:
        plan, layout = _grouped(plan, layout, spec)
    ids = Ids(Place(plan, place.table, place.feature), shape)
    return _view(ids, layout, table, is_train, combiner, default, send_count)


def from_tensor(table, ids, is_train, combiner=None, default=None, modify_graph=False, batch=None, send_count=0):
    """Returns the same for a tensor of ids, which is prepared in the step."""
    layout = prepare.Layout((table.table_name,), (0,), commits.needs_groups(is_train))
    plan = prepare.build([tf.cast(ids, tf.int64)], layout, [timestamps.known_or_empty()] if is_train else [])
    found = _view(Ids(Place(plan, 0, 0), ids.shape), layout, table, is_train, combiner, default, send_count)
    name = tf.compat.v1.get_default_graph().get_name_scope()
    graphs.state().tensor_lookups.append(graphs.TensorLookup(name, table, plan, is_train, batch, modify_graph))
    return found


def _grouped(plan, layout, spec):
    """Returns a plan for training out of one that was prepared for evaluation, and its layout; one per plan."""
    state = graphs.state()
    grouped = state.grouped.get(graphs.key(plan))
    if grouped is None:
        logger.warning(
            "%s: the batch was prepared for evaluation, but is looked up for training; pass is_training=True to "
            "get_asc_insert_func to prepare it ahead of the step",
            spec,
        )
        grouped = prepare.group(plan, layout)
        if graphs.is_top_level(plan.graph):
            state.grouped[graphs.key(plan)] = grouped
    return grouped, dataclasses.replace(layout, is_grouped=True)


def _combine(embeddings, combiner, padding=None):
    """Pools embeddings [..., n, dim] that exist one by one; those where `padding` is True count for nothing."""
    if padding is not None:
        pooled = tf.reduce_sum(tf.where(tf.expand_dims(padding, -1), tf.zeros_like(embeddings), embeddings), axis=-2)
        return _divide(pooled, combiner, padding)
    if combiner == "mean":
        return tf.reduce_mean(embeddings, axis=-2)
    pooled = tf.reduce_sum(embeddings, axis=-2)
    if combiner == "sqrtn":
        pooled /= tf.sqrt(tf.cast(tf.shape(embeddings)[-2], tf.float32))
    return pooled


def _divide(pooled, combiner, padding):
    """Makes of the sums of bags what the combiner wants, over the positions that are not padding. Sums of none are
    zeros and stay so."""
    if combiner == "sum":
        return pooled
    sizes = tf.reduce_sum(tf.cast(tf.logical_not(padding), tf.float32), axis=-1, keepdims=True)
    sizes = tf.maximum(sizes, 1.0)
    return pooled / (sizes if combiner == "mean" else tf.sqrt(sizes))


def _view(ids, layout, table, is_train, combiner, default, send_count):
    if combiner is not None and ids.shape.rank == 0:
        raise ValueError(
            f"table '{table.table_name}': `combiner` pools the last axis of the ids, but these ids are a scalar"
        )
    size = None if ids.shape.rank in (None, 0) else static_shape.size(ids.shape, -1)
    # Defaults replace single embeddings, so these must exist before they are pooled.
    is_pooled = combiner is not None and default is None and (combiner == "sum" or bool(size or table.padding_keys))
    pooling = Pooling.SUM if is_pooled else Pooling.NONE
    place = ids.place
    commit = commits.commit(place.plan, layout, table, place.feature, pooling, is_train)
    commits.limit(place.plan, commit, place.feature, send_count)
    if combiner is None:
        commit.show_padding()
    given = _given(commit, ids, pooling, is_train)
    if default is not None:
        has_row = embeddings.has_row(commit.handles, ids)
        given = tf.where(tf.expand_dims(has_row, -1), given, default)
    if combiner is None or (is_pooled and combiner == "sum"):
        return given
    padding = embeddings.is_padding(table.padding_keys, ids) if table.padding_keys else None
    if not is_pooled:
        return _combine(given, combiner, padding)
    if padding is not None:
        return _divide(given, combiner, padding)
    return given / (size if combiner == "mean" else size**0.5)


def _given(commit, ids, pooling, is_train):
    """Returns what the commit gives for the ids of a feature; the same tensor for every lookup of it."""
    state, place = graphs.state(), ids.place
    key = (graphs.key(place.plan), is_train, place.feature, pooling)
    given = state.embeddings.get(key)
    if given is None:
        lookup = commit.ask_for(place.feature, pooling, is_train)
        given = embeddings.build(lookup, commit.rows, ids, pooling, "embeddings")
        if graphs.is_top_level(place.plan.graph):
            state.embeddings[key] = given
    return given


def _serving_ids(spec, batch):
    """Returns the tensor under the spec's key in a batch that comes from no dataset, as serving feeds it; None if there
    is none. Nothing prepares such a batch ahead of the step."""
    ids = insertions.tensor_in(batch, spec) if isinstance(batch, dict) else None
    if ids is None or reads_dataset(ids.op):
        return None
    id_tensors.check(spec, ids)
    return ids


def _locate(table, spec, batch):
    """Returns (insertion, place, plan tensor) of a spec."""
    if not spec.insertions:
        raise RuntimeError(
            f"{spec} never went through an insert function: apply dataset.map(get_asc_insert_func(tgt_key_specs=[...]))"
            " with this very spec before the lookup; for serving, pass sparse_lookup(..., is_train=False, "
            f"batch={{{spec.index_key!r}: <tensor of ids>}})"
        )
    for insertion in reversed(spec.insertions):
        plan = insertions.plan_in(batch, insertion)
        if plan is not None:
            return insertion, insertion.find(spec), plan
    # Scripts may leave `batch` out or pass a part of it. If the graph holds just one iterator that prepares this spec,
    # there is no doubt which batch is meant.
    graph = tf.compat.v1.get_default_graph()
    found = [(one, plan) for one in spec.insertions for plan in iterators.last_outputs(graph, one.op_name)]
    if len(found) == 1:
        insertion, plan = found[0]
        return insertion, insertion.find(spec), plan
    if batch is None:
        raise RuntimeError(
            f"table '{table.table_name}', {spec}: `batch` is needed: pass what iterator.get_next() returned"
        )
    raise RuntimeError(
        f"table '{table.table_name}', {spec}: `batch` does not hold what the insert function added to it "
        f"(key {spec.insertions[-1].plan_key!r}); pass the whole result of iterator.get_next(), or, for serving with "
        f"is_train=False, a dict with a tensor of ids under the key {spec.index_key!r}"
    )


def _shape(spec, batch, insertion, place):
    """Returns the static shape of the ids: of the batch's own tensor if it is there, else what the dataset knew."""
    if isinstance(batch, dict):
        ids = batch.get(spec.index_key)
        if ids is not None and hasattr(ids, "shape"):
            return ids.shape
    if len([i for i in spec.insertions if i.plan_key == insertion.plan_key]) == 1:
        return place.ids_shape
    return tf.TensorShape(None) if place.ids_shape.rank is None else tf.TensorShape([None] * place.ids_shape.rank)
