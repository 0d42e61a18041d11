"""Keywords that nothing knows are a TypeError that names the nearest one; those of older scripts are taken."""

import inspect

import pytest
import tensorflow as tf

from mx_rec.core.asc.feature_spec import FeatureSpec
from mx_rec.core.asc.helper import get_asc_insert_func
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.core.feature_process import EvictHook, EvictPolicy, evict
from mx_rec.core.table_stats import TableStatsHook
from mx_rec.graph.acg_push_ops import ACGPushOpsToDatasetHook
from mx_rec.graph.merge_lookup import do_merge_lookup
from mx_rec.graph.modifier import GraphModifierHook, modify_graph_and_start_emb_cache
from mx_rec.npu import (
    npu_allreduce,
    npu_config_proto,
    npu_distributed_optimizer_wrapper,
    set_device_sat_mode,
    set_iteration_per_loop,
)
from mx_rec.optimizers import (
    ftrl_t_dense,
    lazy_adam,
)
from mx_rec.util.communication import hccl_ops, npu_ops
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.ops import import_host_pipeline_ops
from tests.shared import model
from tests.shared.optimizers import FACTORIES
from tf_adapter import NPUEstimator, NPURunConfig, npu_hooks_append

v1 = tf.compat.v1


def lookup(**arguments):
    return sparse_lookup(model.table("t"), tf.constant([1, 2]), **arguments)


@pytest.mark.parametrize(
    "call, keyword, nearest",
    [
        (lookup, "is_training", "is_train"),
        (lookup, "sendcount", "send_count"),
        (lambda **a: model.table("t", **a), "device_vocab_size", "device_vocabulary_size"),
        (lambda **a: model.table("t", **a), "is_saved", "is_save"),
        (lambda **a: get_asc_insert_func(FeatureSpec("ids"), **a), "is_train", "is_training"),
        (NPURunConfig, "save_checkpoint_steps", "save_checkpoints_steps"),
    ],
)
def test_a_misspelt_keyword_is_an_error_that_names_the_nearest_one(started, call, keyword, nearest):
    with pytest.raises(TypeError, match=f"no argument `{keyword}`; did you mean `{nearest}`"):
        call(**{keyword: False})


def test_a_misspelt_keyword_of_init_is_an_error_that_names_the_nearest_one():
    with pytest.raises(TypeError, match="init has no argument `use_dynamic_expantion`; did you mean `use_dynamic_exp"):
        init(use_dynamic_expantion=True)
    init(use_dynamic_expansion=True)
    terminate_config_initializer()


@pytest.mark.parametrize("keyword", ["weights", "unknown"])
def test_a_keyword_without_a_neighbour_is_an_error_that_lists_what_there_is(started, keyword):
    with pytest.raises(TypeError, match=f"`{keyword}`; it takes hashtable, ids, send_count"):
        lookup(**{keyword: 1})


@pytest.mark.parametrize(
    "call",
    [
        FeatureSpec,
        EvictHook,
        EvictPolicy,
        evict,
        TableStatsHook,
        GraphModifierHook,
        modify_graph_and_start_emb_cache,
        NPUEstimator,
        NPURunConfig,
        npu_hooks_append,
        hccl_ops.allreduce,
        hccl_ops.allgather,
        hccl_ops.broadcast,
        npu_ops.dropout,
        import_host_pipeline_ops,
        import_host_pipeline_ops().set_threshold,
        get_asc_insert_func,
        create_table,
        sparse_lookup,
        *FACTORIES.values(),
        ftrl_t_dense.create_ftrl_dense_optimizer,
        lazy_adam.CustomizedLazyAdam,
        ACGPushOpsToDatasetHook,
        do_merge_lookup,
        npu_allreduce,
        npu_config_proto,
        npu_distributed_optimizer_wrapper,
        set_device_sat_mode,
        set_iteration_per_loop,
    ],
)
def test_no_public_call_swallows_a_keyword(started, call):
    needed = {
        name: None
        for name, parameter in inspect.signature(call).parameters.items()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    with pytest.raises(TypeError, match="colour"):
        call(**needed, colour="red")


def test_keywords_of_older_scripts_are_taken(started):
    table = model.table("old", optimizer_list=["adam"])
    for arguments in (
        {"dim": None},
        {"dim": model.DIM},
        {"dim": tf.TensorShape([model.DIM])},
        {"multi_lookup": True, "lookup_ids": None, "feature_spec_name_ids_dict": {}},
    ):
        assert sparse_lookup(table, tf.constant([1, 2]), None, is_train=False, **arguments).shape == [2, model.DIM]
    with pytest.raises(ValueError, match=r"table 'old': `dim` of a lookup must be the table's own, 10, got 8"):
        sparse_lookup(table, tf.constant([1]), dim=8)
    tensor = tf.constant([1.0])
    assert hccl_ops.allreduce(tensor, "sum", fusion=2, fusion_id=1, group="hccl_world_group") is tensor
    assert hccl_ops.allgather(tensor, 1, group="hccl_world_group") is tensor
    assert hccl_ops.broadcast([tensor], 0, 2, 0, "hccl_world_group") == [tensor]
