"""The names that scripts import."""

import importlib
import inspect

# Where scripts import public names from. Modules stand for all of their `__all__`, packages for what they hand on.
MODULES = [
    "mx_rec",
    "mx_rec.core",
    "mx_rec.core.asc",
    "mx_rec.core.asc.helper",
    "mx_rec.core.embedding",
    "mx_rec.core.feature_process",
    "mx_rec.core.table_stats",
    "mx_rec.graph",
    "mx_rec.optimizers",
    "mx_rec.saver",
    "mx_rec.util",
    "mx_rec.util.initialize",
    "mx_rec.util.ops",
    "mx_rec.util.tf_version_adapter",
    "mx_rec.npu",
    "mx_rec.npu.behavior",
    "mx_rec.npu.npu_unary_ops",
    "mx_rec.validator.validator",
    "rec_sdk_common.communication.hccl.hccl_info",
    "rec_sdk_common.log",
    "rec_sdk_common.util.tf_adapter",
]
# And those of modules that do not list their own.
NAMES = {
    "mx_rec": ["reset_tables", "version"],
    "mx_rec.core.asc.feature_spec": ["FeatureSpec"],
    "mx_rec.core.asc.manager": ["start_asc_pipeline"],
    "mx_rec.graph.hooks": ["LookupSubgraphSlicerHook", "OrphanLookupKeySlicerHook"],
    "mx_rec.graph.modifier": ["GraphModifierHook", "modify_graph_and_start_emb_cache"],
    "mx_rec.optimizers.adagrad": ["create_hash_optimizer"],
    "mx_rec.optimizers.adagrad_by_addr": ["create_hash_optimizer_by_address"],
    "mx_rec.optimizers.base": ["CustomizedOptimizer"],
    "mx_rec.optimizers.ftrl": ["create_hash_optimizer"],
    "mx_rec.optimizers.ftrl_t": ["create_hash_optimizer"],
    "mx_rec.optimizers.ftrl_t_dense": ["create_ftrl_dense_optimizer"],
    "mx_rec.optimizers.gradient_descent": ["create_hash_optimizer"],
    "mx_rec.optimizers.gradient_descent_by_addr": ["create_hash_optimizer_by_addr"],
    "mx_rec.optimizers.lazy_adam": ["CustomizedLazyAdam", "create_hash_optimizer"],
    "mx_rec.optimizers.lazy_adam_by_addr": ["create_hash_optimizer_by_address"],
    "mx_rec.optimizers.momentum": ["create_hash_optimizer"],
    "mx_rec.saver.sparse": ["export"],
    "mx_rec.serving": ["freeze", "load_tables", "save"],
    "mx_rec.util.communication.hccl_ops": [
        "allgather",
        "allreduce",
        "broadcast",
        "get_device_id",
        "get_local_rank_size",
        "get_rank_id",
        "get_rank_size",
    ],
    "mx_rec.util.communication.npu_ops": ["dropout"],
    "mx_rec.util.log": ["logger"],
    "mx_rec.util.variable": ["get_dense_and_sparse_variable"],
}
# Those of the contract that are modules, or have another home.
ELSEWHERE = {"hccl_ops": "mx_rec.util.communication.hccl_ops", "npu_ops": "mx_rec.util.communication.npu_ops"}


def public_names():
    found = {(module, name) for module, names in NAMES.items() for name in names}
    for path in MODULES:
        module = importlib.import_module(path)
        names = getattr(module, "__all__", None)
        if names is None:  # a package of _lazy.py
            names = [
                name
                for name in dir(module)
                if not name.startswith("_") and name not in ("TYPE_CHECKING", "attach", "version")
            ]
            names = [name for name in names if not inspect.ismodule(getattr(module, name)) or name in ELSEWHERE]
        found |= {(path, name) for name in names}
    return sorted(found)
