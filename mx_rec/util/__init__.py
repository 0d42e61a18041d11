"""Initialisation, variables, logging and communication."""

from typing import TYPE_CHECKING

from mx_rec._lazy import attach

if TYPE_CHECKING:
    from mx_rec.util.initialize import ConfigInitializer as ConfigInitializer
    from mx_rec.util.initialize import init as init
    from mx_rec.util.initialize import terminate_config_initializer as terminate_config_initializer
    from mx_rec.util.ops import import_host_pipeline_ops as import_host_pipeline_ops
    from mx_rec.util.tf_version_adapter import hccl_ops as hccl_ops
    from mx_rec.util.variable import get_dense_and_sparse_variable as get_dense_and_sparse_variable

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
