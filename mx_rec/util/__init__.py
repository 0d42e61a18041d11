"""Initialisation, variables, logging and communication."""

from mx_rec._lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "init": "mx_rec.util.initialize",
        "terminate_config_initializer": "mx_rec.util.initialize",
        "ConfigInitializer": "mx_rec.util.initialize",
        "get_dense_and_sparse_variable": "mx_rec.util.variable",
        "import_host_pipeline_ops": "mx_rec.util.ops",
        "hccl_ops": "mx_rec.util.tf_version_adapter",
    },
)
