"""get_asc_insert_func: the preparation stage, as a function for `dataset.map`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable

from mx_rec import _check, _process
from mx_rec._log import logger
from mx_rec._lowering import commits, id_tensors, insertions, timestamps
from mx_rec._lowering.insertions import Feature, Insertion
from mx_rec._ops import prepare
from mx_rec.core.asc.feature_spec import FeatureSpec

if TYPE_CHECKING:
    from typing_extensions import Never

__all__ = ["FeatureSpec", "get_asc_insert_func"]


def get_asc_insert_func(
    tgt_key_specs: FeatureSpec | Sequence[FeatureSpec] | None = None,
    args_index_list: Sequence[int] | None = None,
    table_names: Sequence[str] | None = None,
    is_training: bool = True,
    dump_graph: bool = False,
    **unknown: Never,
) -> Callable[..., Any]:
    """Returns a function for `dataset.map` that prepares batches ahead of the training step. Map it after `.batch()`.

    Give either `tgt_key_specs` (a FeatureSpec or a list of them) or `args_index_list` and `table_names` (equal lists:
    positions in a tuple batch and the tables they read). `is_training`: whether the batches will be trained on.
    `dump_graph` writes the dataset function to ./export_graph/pipeline_graph.pb.

    The mapped batch is the old one plus one tensor: in a dict batch under the key `<last key>_read_emb_key`, in a tuple
    batch at the end. Pass the whole batch to `sparse_lookup`. EnvironmentError before `init`.
    """
    _check.nothing_unknown(get_asc_insert_func, unknown)
    _check.boolean("is_training", is_training)
    _check.boolean("dump_graph", dump_graph)
    specs = _specs(tgt_key_specs, args_index_list, table_names)
    is_grouped = commits.needs_groups(is_training)

    import tensorflow as tf

    # AutoGraph would translate all of our code that this reaches, and find nothing to do: 1 to 3 s in every process.
    @tf.autograph.experimental.do_not_convert
    def insert(*args):
        return _prepare(args, specs, is_training, is_grouped, dump_graph)

    insert.specs = specs
    return insert


def _specs(tgt_key_specs, args_index_list, table_names):
    if (tgt_key_specs is None) == (args_index_list is None and table_names is None):
        raise ValueError("give either `tgt_key_specs`, or `args_index_list` with `table_names`, and not both")
    if tgt_key_specs is None:
        if not isinstance(args_index_list, (list, tuple)) or not isinstance(table_names, (list, tuple)):
            raise ValueError("`args_index_list` and `table_names` must both be lists")
        if len(args_index_list) != len(table_names) or not table_names:
            raise ValueError(
                "`args_index_list` and `table_names` must be lists of equal length of at least 1, got "
                f"{len(args_index_list)} and {len(table_names)}"
            )
        return [FeatureSpec(table, index_key=index) for index, table in zip(args_index_list, table_names)]
    specs = list(tgt_key_specs) if isinstance(tgt_key_specs, (list, tuple)) else [tgt_key_specs]
    if not specs:
        raise ValueError("`tgt_key_specs` must hold at least one FeatureSpec, got an empty list")
    for spec in specs:
        _check.instance("tgt_key_specs", spec, FeatureSpec, "a FeatureSpec or a list of FeatureSpecs")
    times = [spec for spec in specs if spec.is_timestamp]
    if len(times) > 1:
        raise OSError(f"a batch has one timestamp, got {len(times)}: {times}")
    if not [spec for spec in specs if not spec.is_timestamp]:
        raise ValueError("`tgt_key_specs` holds only a timestamp; add the FeatureSpecs of the batch")
    return specs


def _prepare(args, specs, is_training, is_grouped, dump_graph):
    import tensorflow as tf

    batch = args[0] if len(args) == 1 else args
    tables, ids, times, features, present = [], [], [], {}, []
    for spec in specs:
        found = insertions.tensor_in(batch, spec)
        if spec.is_timestamp:
            if found is not None:
                times = [timestamps.checked(found, spec)]
            elif is_training:
                raise KeyError(f"{spec}: the batch has no timestamp under the key {spec.index_key!r}")
            continue
        if found is None:
            logger.warning("%s: the batch has no key %r; the feature is skipped", spec, spec.index_key)
            continue
        id_tensors.check(spec, found)
        if spec.table_name not in tables:
            tables.append(spec.table_name)
        features[id(spec)] = Feature(len(ids), tables.index(spec.table_name), found.shape)
        ids.append(tf.cast(found, tf.int64))
        present.append(spec)
    if not ids:
        raise ValueError(f"the batch holds none of the features {specs}; its structure is {_describe(batch)}")
    # The key sorts after all others, so that the plan is the last tensor of the flattened batch;
    # _lowering/lookups.py relies on it.
    plan_key = f"{sorted(map(str, batch))[-1]}_read_emb_key" if isinstance(batch, dict) else None
    insertion = Insertion(plan_key, tuple(tables), features, present, is_grouped, bool(times))
    plan = prepare.build(ids, insertion.layout, times, insertion.op_name)
    for spec in present:
        spec.insertions.append(insertion)
        _process.process.feature_specs[spec.name] = spec
    if dump_graph:
        graph = tf.compat.v1.get_default_graph()
        tf.io.write_graph(graph.as_graph_def(), "./export_graph", "pipeline_graph.pb", as_text=False)
    if isinstance(batch, dict):
        return {**batch, plan_key: plan}
    return (*args, plan)


def _describe(batch):
    return sorted(map(str, batch)) if isinstance(batch, dict) else f"{type(batch).__name__} of {len(batch)}"
