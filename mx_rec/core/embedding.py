"""Tables and lookups: create_table and sparse_lookup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, Literal, overload

from mx_rec import _check, _process
from mx_rec._log import logger
from mx_rec._lowering import id_tensors
from mx_rec._tables import graphs, trackings
from mx_rec._tables.sparse_table import BaseSparseEmbedding, TableOptions
from mx_rec._tf import modes, static_shape
from mx_rec.constants.constants import MAX_VOCABULARY_SIZE, All2allGradientsOp, ApplyGradientsStrategy, MxRecMode
from mx_rec.core.asc.feature_spec import FeatureSpec

if TYPE_CHECKING:
    import numpy.typing as npt
    import tensorflow as tf
    from typing_extensions import Never

__all__ = ["BaseSparseEmbedding", "create_table", "sparse_lookup"]


def create_table(
    key_dtype: tf.DType,
    dim: int | tf.TensorShape,
    name: str,
    emb_initializer: Callable[..., Any],
    device_vocabulary_size: int = 1,
    host_vocabulary_size: int = 0,
    ssd_vocabulary_size: int = 0,
    ssd_data_path: Sequence[str] | None = None,
    is_save: bool = True,
    is_dp: bool = False,
    init_param: float = 1.0,
    all2all_gradients_op: str = "sum_gradients",
    enable_merge: bool = False,
    padding_keys: int | Sequence[int] | None = None,
    padding_keys_mask: bool = False,
    padding_keys_len: int | None = None,
    value_dtype: tf.DType | None = None,
    shard_num: int = 1,
    fusion_optimizer_var: bool = True,
    hashtable_threshold: int = 0,
    admission_filter_bytes: int = 0,
    optimizer_list: Any = None,
    apply_gradients_strategy: ApplyGradientsStrategy | str | None = None,
    mode: MxRecMode | str | None = None,
    **unknown: Never,
) -> BaseSparseEmbedding:
    """Returns a sparse table: an embedding row of `dim` floats for every key that training meets.

    Args:
        key_dtype: tf.int64 or tf.int32. Every value is a legal key.
        dim: floats per row, an int in [1, 8192] or a TensorShape of one such number.
        name: 1 to 100 of `0-9A-Za-z_.`. The same name and configuration give the same table of the process, also in
            another graph; another configuration is a ValueError.
        emb_initializer: first value of a row; a TensorFlow initializer or any callable (shape, dtype) -> values.
        device_vocabulary_size, host_vocabulary_size: their sum is the number of rows the table may hold; the default
            of 1 is hardly ever enough. With `init(use_dynamic_expansion=True)` there is no limit, and no need to say
            one.
        ssd_vocabulary_size, ssd_data_path: how many rows more the table may hold on disk, and the directories for
            them, filled in this order; by default the current one. Once device_vocabulary_size + host_vocabulary_size
            rows are in memory, those used least go to disk, and come back when they are used (docs/disk_tier.md). Files
            there have no name and vanish with the process. With dynamic expansion, memory grows when the disk is full.
        is_save: whether checkpoints include the table.
        init_param: multiplies the initial values, a float in [-10, 10].
        padding_keys, padding_keys_mask, padding_keys_len: keys whose rows are looked up but never updated, and count
            for nothing in lookups with a `combiner`; all three or none.
        is_dp, all2all_gradients_op, enable_merge, shard_num, fusion_optimizer_var, hashtable_threshold: checked; with
            one rank they make no difference (docs/tuning.md). Tables are never merged: one op serves all of a batch.
        value_dtype: tf.float32.
        admission_filter_bytes: with feature admission, how the keys that have no row yet are counted. 0: exactly, at 16
            to 24 bytes a key. Above: roughly, in a counting Bloom filter of this many bytes, however many there are
            (docs/admission_and_eviction.md tells the error).
        optimizer_list: of older scripts; ignored. The optimizer that is applied to the table says what it needs.
        apply_gradients_strategy, mode: of older scripts, an ApplyGradientsStrategy and a MxRecMode or their values;
            checked. A batch's gradients of one key are always summed before they are applied.

    Returns a BaseSparseEmbedding. Raises ValueError for a bad argument, TypeError for an unknown one, EnvironmentError
    before `init`.
    """
    import tensorflow as tf

    del optimizer_list
    config = _process.config()
    _check.nothing_unknown(create_table, unknown)
    modes.check_graph("create_table")
    _check_name(name)
    _check.choice("key_dtype", key_dtype, (tf.int64, tf.int32))
    if value_dtype not in (None, tf.float32):
        raise ValueError(f"table '{name}': `value_dtype` must be tf.float32, got {value_dtype!r}")
    dim = _dim(dim)
    device = _check.integer("device_vocabulary_size", device_vocabulary_size, 1, MAX_VOCABULARY_SIZE)
    host = _check.integer("host_vocabulary_size", host_vocabulary_size, 0, MAX_VOCABULARY_SIZE)
    ssd = _check.integer("ssd_vocabulary_size", ssd_vocabulary_size, 0, MAX_VOCABULARY_SIZE)
    if ssd > 0 and host == 0:
        raise ValueError(
            f"table '{name}': `ssd_vocabulary_size` needs a `host_vocabulary_size` above 0, got ssd {ssd} and host 0"
        )
    paths = _paths(ssd_data_path, is_needed=ssd > 0)
    for label, value in (
        ("is_save", is_save),
        ("is_dp", is_dp),
        ("enable_merge", enable_merge),
        ("padding_keys_mask", padding_keys_mask),
        ("fusion_optimizer_var", fusion_optimizer_var),
    ):
        _check.boolean(label, value)
    _check.real("init_param", init_param, -10.0, 10.0)
    _check.choice("all2all_gradients_op", all2all_gradients_op, [op.value for op in All2allGradientsOp])
    _check.integer("shard_num", shard_num, 1, 8192)
    _check.integer("hashtable_threshold", hashtable_threshold, 0, _check.MAX_INT32)
    _check.integer("admission_filter_bytes", admission_filter_bytes, 0, 2**50)
    if enable_merge and not config.use_dynamic_expansion:
        raise RuntimeError(
            f"table '{name}': `enable_merge=True` needs init(use_dynamic_expansion=True), which was not set"
        )
    for label, value, kind in (
        ("apply_gradients_strategy", apply_gradients_strategy, ApplyGradientsStrategy),
        ("mode", mode, MxRecMode),
    ):
        _check.choice(label, value, [None, *kind, *(member.value for member in kind)])
    padding = _padding_keys(name, padding_keys, padding_keys_mask, padding_keys_len, is_dp)

    options = TableOptions(
        name=name,
        key_dtype=key_dtype,
        dim=dim,
        device_vocabulary_size=device,
        host_vocabulary_size=host,
        ssd_vocabulary_size=ssd,
        ssd_data_path=paths,
        is_save=is_save,
        is_dp=is_dp,
        init_param=init_param,
        all2all_gradients_op=all2all_gradients_op,
        padding_keys=padding,
        unlimited=config.use_dynamic_expansion,
        admission_filter_bytes=int(admission_filter_bytes),
    )
    tables = graphs.state().tables
    table = BaseSparseEmbedding(options, emb_initializer)  # refuses another configuration of a known name
    if name in tables:
        tables[name].check_same(options)
        return tables[name]
    table.add_anchor()
    tables[name] = table
    _tell_if_joined(table)
    return table


@overload
def sparse_lookup(
    hashtable: BaseSparseEmbedding,
    ids: list[FeatureSpec] | tuple[FeatureSpec, ...],
    send_count: int | None = None,
    is_train: bool = True,
    name: str | None = None,
    modify_graph: bool = False,
    batch: Any = None,
    **options: Any,
) -> tf.Tensor | list[tf.Tensor]: ...


@overload
def sparse_lookup(
    hashtable: BaseSparseEmbedding,
    ids: FeatureSpec | tf.Tensor | npt.ArrayLike,
    send_count: int | None = None,
    is_train: bool = True,
    name: str | None = None,
    modify_graph: bool = False,
    batch: Any = None,
    access_and_evict_config: dict[str, int | None] | None = None,
    is_grad: bool = True,
    serving_default_value: tf.Tensor | None = None,
    combiner: Literal["sum", "mean", "sqrtn"] | None = None,
    dim: int | tf.TensorShape | None = None,
    multi_lookup: Any = None,
    lookup_ids: Any = None,
    feature_spec_name_ids_dict: Any = None,
    **unknown: Never,
) -> tf.Tensor: ...


def sparse_lookup(
    hashtable: BaseSparseEmbedding,
    ids: FeatureSpec | Sequence[FeatureSpec] | tf.Tensor | npt.ArrayLike,
    send_count: int | None = None,
    is_train: bool = True,
    name: str | None = None,
    modify_graph: bool = False,
    batch: Any = None,
    access_and_evict_config: dict[str, int | None] | None = None,
    is_grad: bool = True,
    serving_default_value: tf.Tensor | None = None,
    combiner: Literal["sum", "mean", "sqrtn"] | None = None,
    dim: int | tf.TensorShape | None = None,
    multi_lookup: Any = None,
    lookup_ids: Any = None,
    feature_spec_name_ids_dict: Any = None,
    **unknown: Never,
) -> tf.Tensor | list[tf.Tensor]:
    """Returns the embeddings of `ids`: a float32 tensor of shape `ids.shape + [dim]`, or `ids.shape[:-1] + [dim]` if
    pooled.

    Args:
        hashtable: a table of `create_table`.
        ids: a FeatureSpec whose batch went through `get_asc_insert_func`; a list of them (a list of one gives a tensor,
            a longer one a list of tensors in that order); an int32 or int64 Tensor, looked up in the step; or integers,
            as a NumPy array, a list or a single one, which become a constant.
        send_count: needed with `init(use_dynamic=False)`, and of no effect without; an int from 1. The different ids
            that a batch brings to a table may be as many as the send_counts of its lookups add up to; more are an
            InvalidArgumentError of the step (docs/shapes_and_addresses.md).
        is_train: True inserts unknown ids; False reads zeros for them and changes nothing.
        name: 1 to 255 characters; names the ops.
        modify_graph: asks for automatic graph modification; only for Tensor ids.
        batch: the whole result of `iterator.get_next()`; needed for FeatureSpecs. With `is_train=False` it may also
            hold the spec's key as a tensor that comes from no dataset, such as a placeholder for serving.
        access_and_evict_config: feature admission and eviction (docs/admission_and_eviction.md), for Tensor ids: a dict
            of `access_threshold` (a key gets a row once it has occurred that often; 0: count, refuse nothing),
            `eviction_threshold` (seconds without the key in the data), both off at -1 or None, and `faae_coefficient`
            (what one occurrence counts, from 1). All lookups of a table share them.
        is_grad: False: no gradient flows to the table through this lookup.
        serving_default_value: what ids without a row give instead of zeros; a Tensor broadcastable to the result.
        combiner: "sum", "mean" or "sqrtn" (the sum divided by the square root of the number) pools the embeddings along
            the last axis of the ids, without ever holding them one by one: the same numbers as tf.reduce_sum(lookup,
            axis=-2) and the like, but faster. Ids without a row count as zeros (or the default). The table's padding
            keys count for nothing: means are over the other ids, and a bag of padding alone gives zeros.
        dim: of older scripts; the table's own, or None.
        multi_lookup, lookup_ids, feature_spec_name_ids_dict: of older scripts; ignored.

    Raises ValueError, RuntimeError, EnvironmentError, or TypeError for an unknown argument, saying what to change.
    """
    import tensorflow as tf

    from mx_rec._lowering import lookups

    del multi_lookup, lookup_ids, feature_spec_name_ids_dict
    config = _process.config()
    _check.nothing_unknown(sparse_lookup, unknown)
    modes.check_graph("sparse_lookup")
    _check.instance("hashtable", hashtable, BaseSparseEmbedding, "a table made by create_table")
    if dim is not None and _dim(dim) != hashtable.embedding_size:
        raise ValueError(
            f"table '{hashtable.table_name}': `dim` of a lookup must be the table's own, {hashtable.embedding_size}, "
            f"got {dim}; leave it out"
        )
    for label, value in (("is_train", is_train), ("modify_graph", modify_graph), ("is_grad", is_grad)):
        _check.boolean(label, value)
    _check.choice("combiner", combiner, (None, "sum", "mean", "sqrtn"))
    if name is not None:
        _check.text("name", name, 255)
    if not config.use_dynamic and send_count is None:
        raise ValueError(
            f"table '{hashtable.table_name}': `send_count` is needed with init(use_dynamic=False); give an int from 1"
        )
    if send_count is not None:
        hashtable.send_count = _check.integer("send_count", send_count, 1, _check.MAX_INT32)
    limit = 0 if config.use_dynamic else send_count
    settings = _access_config(access_and_evict_config)
    if serving_default_value is not None and not tf.is_tensor(serving_default_value):
        raise ValueError(f"`serving_default_value` must be a tf.Tensor, got {type(serving_default_value).__name__}")
    if _is_spec_list(ids):
        results = [
            sparse_lookup(hashtable, spec, send_count, is_train, name, modify_graph, batch, access_and_evict_config,
                          is_grad, serving_default_value, combiner)
            for spec in _spec_list(ids)
        ]  # fmt: skip
        return results[0] if len(results) == 1 else results

    _check_known(hashtable)
    if is_train and is_grad:
        modes.check_no_tape(hashtable.table_name)
    default = None if serving_default_value is None else tf.cast(serving_default_value, tf.float32)
    with tf.name_scope(_scope(hashtable, name)):
        if isinstance(ids, FeatureSpec):
            _check_spec(hashtable, ids, modify_graph)
            _require_of_spec(hashtable, ids, settings)
            hashtable.count_lookup(("spec", ids.name), is_train)
            embeddings = lookups.from_spec(hashtable, ids, batch, is_train, combiner, default, limit)
        else:
            ids = id_tensors.as_tensor(hashtable.table_name, ids)
            id_tensors.check(f"table '{hashtable.table_name}'", ids)
            trackings.require(hashtable, f"the lookup of '{ids.name}'", **settings)
            hashtable.count_lookup(("tensor", ids.name), is_train)
            embeddings = lookups.from_tensor(hashtable, ids, is_train, combiner, default, modify_graph, batch, limit)
        return embeddings if is_grad else tf.stop_gradient(embeddings)


def _tell_if_joined(table):
    rows = table.size()
    if rows > 0:
        table.joined = table.content()
        logger.info("table '%s': this graph joins the table of the process, with %d rows", table.table_name, rows)


def _check_name(name):
    _check.table_name("name", name)
    if name.startswith("mergeable_table"):
        raise ValueError(f"`name` of a table must not start with 'mergeable_table', got {name!r}")


def _dim(dim):
    import tensorflow as tf

    if isinstance(dim, tf.TensorShape):
        if dim.rank != 1 or static_shape.size(dim, 0) is None:
            raise ValueError(f"`dim` must be an int in [1, 8192] or a TensorShape of one number, got {dim}")
        dim = static_shape.size(dim, 0)
    return _check.integer("dim", dim, 1, 8192)


def _paths(paths, is_needed):
    """Returns the directories for rows on disk, checked; none if there will be no such rows."""
    import os

    if paths is None:
        paths = [os.getcwd()] if is_needed else []
    elif not isinstance(paths, (list, tuple)) or not paths:
        raise ValueError(f"`ssd_data_path` must be a list of at least one directory, got {paths!r}")
    for path in paths:
        _check.text("ssd_data_path", path, 1024)
        if ".." in path.split(os.sep):
            raise ValueError(f"`ssd_data_path` must not contain '..', got {path!r}")
        if os.path.islink(path):
            raise ValueError(f"`ssd_data_path` must not be a symbolic link, got {path!r}")
        if not os.path.isdir(path):
            raise ValueError(f"`ssd_data_path` must be an existing directory, got {path!r}; create it first")
        if is_needed and not os.access(path, os.W_OK | os.X_OK):
            raise ValueError(f"`ssd_data_path` must be a directory that this process may write to, got {path!r}")
    return tuple(os.path.abspath(path) for path in paths) if is_needed else ()


def _padding_keys(table, keys, mask, length, is_dp):
    given = [keys is not None, bool(mask), length is not None]
    if any(given) and not all(given):
        raise ValueError(
            f"table '{table}': give `padding_keys`, `padding_keys_mask=True` and `padding_keys_len` together or not at "
            f"all, got {keys!r}, {mask!r}, {length!r}"
        )
    if keys is None:
        return ()
    keys = keys if isinstance(keys, (list, tuple)) else [keys]
    if not keys:
        raise ValueError(f"table '{table}': `padding_keys` must hold at least one key, got an empty list")
    for key in keys:
        _check.integer("padding_keys", key, -(2**63), 2**63 - 1)
    _check.integer("padding_keys_len", length, 1, _check.MAX_INT32)
    if is_dp:
        raise RuntimeError(f"table '{table}': `padding_keys` cannot be combined with `is_dp=True`")
    return tuple(sorted({int(key) for key in keys}))


def _is_spec_list(ids):
    return isinstance(ids, (list, tuple)) and (not ids or any(isinstance(one, FeatureSpec) for one in ids))


def _spec_list(ids):
    if not ids:
        raise ValueError("`ids` must hold at least one FeatureSpec, got an empty list")
    for spec in ids:
        _check.instance("ids", spec, FeatureSpec, "a FeatureSpec, a list of FeatureSpecs, or a Tensor")
    return ids


def _check_known(table):
    if graphs.state().tables.get(table.table_name) is not table:
        raise ValueError(
            f"table '{table.table_name}' belongs to another graph or was freed by terminate_config_initializer(); call "
            "create_table in the graph that is being built"
        )


def _check_spec(table, spec, modify_graph):
    if spec.is_timestamp:
        raise ValueError(f"{spec} is a timestamp, not a feature: it cannot be looked up")
    if spec.table_name != table.table_name:
        raise ValueError(
            f"{spec} reads table '{spec.table_name}', but the lookup is in table '{table.table_name}'; "
            "pass the spec's own table"
        )
    if modify_graph:
        raise ValueError(f"{spec}: `modify_graph=True` is for Tensor ids; a FeatureSpec's batch is prepared already")


def _require_of_spec(table, spec, settings):
    of_spec = {label: getattr(spec, label) for label in ("access_threshold", "eviction_threshold")}
    # 1 is the default: without a threshold beside it, it says nothing.
    if any(value is not None for value in of_spec.values()) or spec.faae_coefficient != 1:
        of_spec["faae_coefficient"] = spec.faae_coefficient
    trackings.require(table, repr(spec), **of_spec)
    trackings.require(table, f"the lookup of {spec}", **settings)


def _access_config(config):
    """Returns what `access_and_evict_config` asks for, checked."""
    if config is None:
        return {}
    _check.instance("access_and_evict_config", config, dict, "a dict")
    known = {"access_threshold": -1, "eviction_threshold": -1, "faae_coefficient": 1}
    for key, value in config.items():
        if key not in known:
            raise ValueError(f"`access_and_evict_config` may hold {', '.join(known)}, got {key!r}")
        if value is not None:
            _check.integer(key, value, known[key], _check.MAX_INT32)
    return dict(config)


def _scope(table, name):
    """Returns a legal name scope for the lookup's ops."""
    if name is None:
        state = graphs.state()
        number = state.lookup_names.get(table.table_name, 0)
        state.lookup_names[table.table_name] = number + 1
        name = f"sparse_lookup_{number}"
    return re.sub(r"^[^A-Za-z0-9.]|[^A-Za-z0-9_.\-/]", "_", f"{table.table_name}/{name}").lstrip("_") or "lookup"
