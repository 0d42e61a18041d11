"""Every name that scripts of the original import, by the module they import it from: what the API promises them.

`modules`: or the class that has the name as a method while mx_rec runs. `parameters`: names that a call must take, None
where there is nothing to call. `verdict`: what the name does here, as docs/ported_scripts.md says: "works", "accepted"
(without effect) or "refused".
"""

import typing


class Name(typing.NamedTuple):
    name: str
    modules: tuple[str, ...]
    parameters: typing.Optional[str]
    verdict: str


NAMES = [
    # Starting and ending
    Name("init", ("mx_rec.util.initialize", "mx_rec.util"), None, "works"),
    Name("terminate_config_initializer", ("mx_rec.util.initialize", "mx_rec.util"), "", "works"),
    Name("ConfigInitializer", ("mx_rec.util.initialize", "mx_rec.util"), None, "works"),
    Name("get_initializer", ("mx_rec.util.initialize",), "is_training", "works"),
    Name("get_target_batch", ("mx_rec.util.initialize",), "is_training", "works"),
    Name("get_use_dynamic_expansion", ("mx_rec.util.initialize",), "", "works"),
    Name(
        "get_rank_id",
        ("mx_rec.util.initialize", "mx_rec.util.communication.hccl_ops", "rec_sdk_common.communication.hccl.hccl_info"),
        "",
        "works",
    ),
    Name(
        "get_rank_size",
        ("mx_rec.util.initialize", "mx_rec.util.communication.hccl_ops", "rec_sdk_common.communication.hccl.hccl_info"),
        "",
        "works",
    ),
    Name(
        "get_device_id",
        ("mx_rec.util.initialize", "mx_rec.util.communication.hccl_ops", "rec_sdk_common.communication.hccl.hccl_info"),
        "",
        "works",
    ),
    Name(
        "get_local_rank_size",
        ("mx_rec.util.communication.hccl_ops", "rec_sdk_common.communication.hccl.hccl_info"),
        "",
        "works",
    ),
    Name("get_local_rank_id", ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"), "", "works"),
    Name("set_if_load", ("mx_rec.util.initialize",), "if_load", "works"),
    Name("get_if_load", ("mx_rec.util.initialize",), "", "works"),
    Name("get_train_interval", ("mx_rec.util.initialize",), "", "works"),
    Name("set_train_interval", ("mx_rec.util.initialize",), "steps", "works"),
    Name("get_eval_steps", ("mx_rec.util.initialize",), "", "works"),
    Name("set_eval_steps", ("mx_rec.util.initialize",), "steps", "works"),
    Name("set_ascend_global_hashtable_collection", ("mx_rec.util.initialize",), "name", "works"),
    Name("get_ascend_global_hashtable_collection", ("mx_rec.util.initialize",), "", "works"),
    Name("export_table_name_set", ("mx_rec.util.initialize",), "", "works"),
    Name("is_mpi_in_use", ("mx_rec.util.initialize",), "", "works"),
    Name("clear_channel", ("mx_rec.util.initialize",), "is_train_channel", "accepted"),
    Name("get_host_pipeline_ops", ("mx_rec.util.initialize",), "", "works"),
    Name("version", ("mx_rec",), "", "works"),
    Name("__version__", ("mx_rec",), None, "works"),
    # Tables and lookups
    Name(
        "create_table",
        ("mx_rec.core.embedding", "mx_rec.core"),
        "key_dtype dim name emb_initializer device_vocabulary_size host_vocabulary_size ssd_vocabulary_size "
        "ssd_data_path is_save is_dp init_param all2all_gradients_op enable_merge padding_keys "
        "padding_keys_mask padding_keys_len value_dtype shard_num fusion_optimizer_var hashtable_threshold "
        "optimizer_list apply_gradients_strategy mode",
        "works",
    ),
    Name(
        "sparse_lookup",
        ("mx_rec.core.embedding", "mx_rec.core"),
        "hashtable ids send_count is_train name modify_graph batch access_and_evict_config is_grad "
        "serving_default_value dim multi_lookup lookup_ids feature_spec_name_ids_dict",
        "works",
    ),
    Name(
        "FeatureSpec",
        ("mx_rec.core.asc.feature_spec", "mx_rec.core.asc", "mx_rec.core.asc.helper"),
        "name table_name index_key access_threshold eviction_threshold is_timestamp batch_size "
        "faae_coefficient feat_count",
        "works",
    ),
    Name(
        "get_asc_insert_func",
        ("mx_rec.core.asc.helper", "mx_rec.core.asc"),
        "tgt_key_specs args_index_list table_names is_training dump_graph",
        "works",
    ),
    Name("start_asc_pipeline", ("mx_rec.core.asc.manager", "mx_rec.core.asc"), "", "works"),
    Name(
        "EvictHook",
        ("mx_rec.core.feature_process", "mx_rec.core"),
        "evict_enable evict_time_interval evict_step_interval",
        "works",
    ),
    Name("get_dense_and_sparse_variable", ("mx_rec.util.variable", "mx_rec.util"), "", "works"),
    Name("import_host_pipeline_ops", ("mx_rec.util.ops", "mx_rec.util"), "so_pkg_name", "works"),
    Name("export", ("mx_rec.saver.sparse", "mx_rec.saver"), "table_list", "works"),
    # Graph modification
    Name(
        "modify_graph_and_start_emb_cache", ("mx_rec.graph.modifier", "mx_rec.graph"), "full_graph dump_graph", "works"
    ),
    Name("GraphModifierHook", ("mx_rec.graph.modifier", "mx_rec.graph"), "dump_graph modify_graph", "works"),
    Name("LookupSubgraphSlicerHook", ("mx_rec.graph.hooks", "mx_rec.graph"), "op_types", "works"),
    Name("OrphanLookupKeySlicerHook", ("mx_rec.graph.hooks", "mx_rec.graph"), "", "accepted"),
    Name("ACGPushOpsToDatasetHook", ("mx_rec.graph.acg_push_ops", "mx_rec.graph"), "dump_graph", "works"),
    Name("do_merge_lookup", ("mx_rec.graph.merge_lookup", "mx_rec.graph"), "is_train", "accepted"),
    Name("eos_map", ("tf.data.Dataset",), "librec channel_id max_train_steps max_eval_steps", "works"),
    # Optimizers
    Name(
        "create_hash_optimizer",
        ("mx_rec.optimizers.lazy_adam", "mx_rec.optimizers"),
        "learning_rate beta1 beta2 epsilon name use_fusion_optim",
        "works",
    ),
    Name(
        "create_hash_optimizer",
        ("mx_rec.optimizers.adagrad",),
        "learning_rate initial_accumulator_value use_locking name",
        "works",
    ),
    Name(
        "create_hash_optimizer",
        ("mx_rec.optimizers.ftrl",),
        "learning_rate use_locking name learning_rate_power initial_accumulator_value "
        "l1_regularization_strength l2_regularization_strength l2_shrinkage_regularization_strength "
        "accum_name linear_name",
        "works",
    ),
    Name(
        "create_hash_optimizer",
        ("mx_rec.optimizers.gradient_descent",),
        "learning_rate use_locking name use_fusion_optim weight_decay",
        "works",
    ),
    Name(
        "create_hash_optimizer",
        ("mx_rec.optimizers.momentum",),
        "learning_rate momentum use_locking name use_nesterov",
        "works",
    ),
    Name(
        "create_hash_optimizer",
        ("mx_rec.optimizers.ftrl_t",),
        "learning_rate use_locking name alpha beta lambda1 lambda2 epsilon grad_factor",
        "works",
    ),
    Name(
        "create_ftrl_dense_optimizer",
        ("mx_rec.optimizers.ftrl_t_dense",),
        "learning_rate use_locking name alpha beta lambda1 lambda2 epsilon grad_factor",
        "works",
    ),
    Name(
        "create_hash_optimizer_by_address",
        ("mx_rec.optimizers.lazy_adam_by_addr", "mx_rec.optimizers"),
        "learning_rate beta1 beta2 epsilon name",
        "works",
    ),
    Name(
        "create_hash_optimizer_by_address",
        ("mx_rec.optimizers.adagrad_by_addr",),
        "learning_rate initial_accumulator_value name",
        "works",
    ),
    Name(
        "create_hash_optimizer_by_addr",
        ("mx_rec.optimizers.gradient_descent_by_addr",),
        "learning_rate weight_decay use_locking name",
        "works",
    ),
    Name(
        "CustomizedLazyAdam",
        ("mx_rec.optimizers.lazy_adam",),
        "learning_rate beta1 beta2 epsilon use_locking name",
        "works",
    ),
    Name("CustomizedOptimizer", ("mx_rec.optimizers.base",), None, "works"),
    # The vendor's packages
    Name(
        "NPUEstimator",
        ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"),
        "model_fn model_dir config params job_start_file warm_start_from",
        "works",
    ),
    Name("NPURunConfig", ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"), None, "works"),
    Name(
        "npu_hooks_append",
        ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"),
        "hooks_list",
        "accepted",
    ),
    Name(
        "DumpConfig",
        ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"),
        "enable_dump dump_path dump_step dump_mode",
        "accepted",
    ),
    Name(
        "npu_distributed_optimizer_wrapper",
        ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"),
        "optimizer",
        "works",
    ),
    Name(
        "npu_allreduce",
        ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"),
        "values reduction",
        "works",
    ),
    Name(
        "NPUBroadcastGlobalVariablesHook",
        ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"),
        "root_rank index",
        "works",
    ),
    Name("npu_ops", ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"), None, "works"),
    Name("npu_unary_ops", ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"), None, "works"),
    Name("hccl_ops", ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"), None, "works"),
    Name("npu_plugin", ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"), None, "accepted"),
    Name("util", ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"), None, "refused"),
    Name(
        "npu_config_proto",
        ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"),
        "config_proto",
        "works",
    ),
    Name("RewriterConfig", ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"), None, "works"),
    Name("tf", ("npu_bridge.npu_init", "npu_device.compat.v1.npu_init", "tf_adapter"), None, "works"),
    Name("NPURunConfig", ("npu_bridge.estimator.npu.npu_config",), None, "works"),
    Name("NPUEstimator", ("npu_bridge.estimator.npu.npu_estimator",), None, "works"),
    Name(
        "allreduce",
        ("npu_bridge.hccl.hccl_ops", "mx_rec.util.communication.hccl_ops"),
        "tensor reduction fusion fusion_id group",
        "works",
    ),
    Name(
        "broadcast",
        ("npu_bridge.hccl.hccl_ops", "mx_rec.util.communication.hccl_ops"),
        "tensors root_rank fusion fusion_id group",
        "works",
    ),
    Name("dropout", ("npu_bridge.estimator.npu_ops",), "x keep_prob", "works"),
    Name("gelu", ("npu_bridge.estimator.npu_unary_ops",), "x", "works"),
    Name("set_device_sat_mode", ("npu_bridge.estimator.npu.npu_plugin",), "mode", "accepted"),
    Name("set_iteration_per_loop", ("npu_bridge.estimator.npu.util",), "sess train_op iterations_per_loop", "refused"),
    Name("enable_v1", ("npu_device.compat",), "", "works"),
    Name(
        "hccl_ops", ("mx_rec.util.tf_version_adapter", "rec_sdk_common.util.tf_adapter", "mx_rec.util"), None, "works"
    ),
    Name("npu_ops", ("mx_rec.util.tf_version_adapter", "rec_sdk_common.util.tf_adapter"), None, "works"),
    Name("logger", ("mx_rec.util.log", "rec_sdk_common.log"), None, "works"),
    Name(
        "para_checker_decorator",
        ("mx_rec.validator.validator", "rec_sdk_common.validator.validator"),
        "check_option_list output_log",
        "works",
    ),
    Name("ClassValidator", ("mx_rec.validator.validator", "rec_sdk_common.validator.validator"), None, "works"),
    Name("FloatValidator", ("mx_rec.validator.validator", "rec_sdk_common.validator.validator"), None, "works"),
    Name("IntValidator", ("mx_rec.validator.validator", "rec_sdk_common.validator.validator"), None, "works"),
    Name("ListValidator", ("mx_rec.validator.validator", "rec_sdk_common.validator.validator"), None, "works"),
    Name("OptionValidator", ("mx_rec.validator.validator", "rec_sdk_common.validator.validator"), None, "works"),
    Name("StringValidator", ("mx_rec.validator.validator", "rec_sdk_common.validator.validator"), None, "works"),
    # Constants
    Name("ASCEND_GLOBAL_HASHTABLE_COLLECTION", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("ASCEND_CUTTING_POINT_INITIALIZER", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "accepted"),
    Name("ASCEND_SPARSE_LOOKUP_ENTRANCE", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "accepted"),
    Name("ASCEND_SPARSE_LOOKUP_ID_OFFSET", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("ASCEND_SPARSE_LOOKUP_LOCAL_EMB", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("ASCEND_SPARSE_LOOKUP_UNIQUE_KEYS", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("ASCEND_TIMESTAMP", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("MULTI_LOOKUP_TIMES", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "accepted"),
    Name("TRAIN_CHANNEL_ID", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("EVAL_CHANNEL_ID", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("DEFAULT_EVICT_TIME_INTERVAL", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("MAX_VOCABULARY_SIZE", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("MAX_DEVICE_VOCABULARY_SIZE", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("BASE_MODEL", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("DELTA_MODEL", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("HDFS_FILE_PREFIX", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "accepted"),
    Name("LIBREC_CPU_SO", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "accepted"),
    Name("LIBREC_EOS_OPS_SO", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "accepted"),
    Name("LIBREC_TF_REC_V1_CPU_SO", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "accepted"),
    Name("All2allGradientsOp", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("BaseEnum", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("DataName", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("ASCAnchorAttr", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("ApplyGradientsStrategy", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("CacheModeEnum", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
    Name("MxRecMode", ("mx_rec.constants.constants", "mx_rec.util.constants"), None, "works"),
]
