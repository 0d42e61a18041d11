"""Starting and ending mx_rec in a process, and the settings in between."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any

from mx_rec import _check, _config, _process, _ranks
from mx_rec._log import logger
from mx_rec._process import Part, part, process
from mx_rec.util._process_config import FeatureSpecConfig, HybridManagerConfig, OptimizerConfig
from mx_rec.util.communication.hccl_ops import get_device_id, get_rank_id, get_rank_size

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mx_rec._tables.sparse_table import BaseSparseEmbedding
    from mx_rec.util._init_options import InitOptions

__all__ = [
    "ConfigInitializer",
    "clear_channel",
    "export_table_name_set",
    "get_ascend_global_hashtable_collection",
    "get_device_id",
    "get_eval_steps",
    "get_host_pipeline_ops",
    "get_if_load",
    "get_initializer",
    "get_rank_id",
    "get_rank_size",
    "get_target_batch",
    "get_train_interval",
    "get_use_dynamic_expansion",
    "init",
    "is_mpi_in_use",
    "set_ascend_global_hashtable_collection",
    "set_eval_steps",
    "set_if_load",
    "set_train_interval",
    "terminate_config_initializer",
]

# Keywords of older versions of the API and what became of them.
_OLD_NAMES = {"train_interval": "train_steps"}
_OLD_FLAGS = ("use_dynamic", "use_dynamic_expansion", "if_load")
_IGNORED = {
    "rank_id",
    "rank_size",
    "prefetch_batch_number",
    "use_hot",
    "use_mpi",
    "use_shm_swap",
    "use_faae",
    "iterations_per_loop",
}


def init(*args: bool, **kwargs: Unpack[InitOptions]) -> None:
    """Starts mx_rec in this process. The keywords are the fields of `mx_rec._config.Config`, with its defaults.

    The old form `init(use_mpi, rank_id=…, train_interval=…, use_dynamic=0)` is understood too, with `use_mpi` as a
    keyword or not. Raises ValueError for a bad value,
    TypeError for an unknown keyword, EnvironmentError if mx_rec is running already.
    """
    if len(args) > 1:
        raise ValueError(f"`init` takes keywords (at most one positional argument, the old `use_mpi`), got {args!r}")
    if process.config is not None:
        raise OSError(
            "mx_rec is already initialized in this process; call terminate_config_initializer() before init() again"
        )
    _config.check_environment()
    known = [field.name for field in dataclasses.fields(_config.Config)]
    _check.keywords("init", kwargs, [*known, *_OLD_NAMES, *sorted(_IGNORED)])
    is_old = bool(args) or "use_mpi" in kwargs
    settings = {}
    for name, value in kwargs.items():
        name = _OLD_NAMES.get(name, name)
        if name in known:
            if is_old and name in _OLD_FLAGS and value in (0, 1):
                value = bool(value)  # the old form passed flags as numbers
            settings[name] = value
        elif name == "use_shm_swap":
            logger.warning("init: `use_shm_swap` is deprecated and has no effect")
    config = _config.Config(**settings)
    _ranks.facts()  # a launcher that contradicts itself fails before anything changes
    if config.recent_key_count_threshold > 0:
        logger.warning("init: `recent_key_count_threshold` has no effect; a delta holds every row that has changed")
    if os.environ.get("USE_COMBINE_FAAE") == "1":
        logger.warning("init: USE_COMBINE_FAAE=1 has no effect; each table counts its own keys")
    _ranks.join()
    process.config = config
    process.if_load = config.if_load
    if "tensorflow" in sys.modules:  # a script that does not have it cannot have a dataset
        from mx_rec._tf import patches

        patches.install_early()
    logger.info("initialized: rank %d of %d, %s", get_rank_id(), get_rank_size(), _summary(config))


def _summary(config):
    changed = [
        f"{field.name}={getattr(config, field.name)}"
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != field.default
    ]
    return ", ".join(changed) or "default settings"


def terminate_config_initializer() -> None:
    """Frees all tables and settings of this process, when a save under way has ended. `init` may be called again
    afterwards. RuntimeError if a save in the background failed; all is freed then, too."""
    if process.config is None:
        logger.warning("terminate_config_initializer: mx_rec is not initialized, nothing to do")
        return
    try:
        process.end()
    finally:
        logger.info("terminated: tables are freed")


class TrainParamsConfig:
    """Settings of the running training."""

    @property
    def ascend_global_hashtable_collection(self) -> str:
        """The graph collection that holds the tables' anchor variables."""
        return process.hashtable_collection

    @ascend_global_hashtable_collection.setter
    def ascend_global_hashtable_collection(self, name: str) -> None:
        process.hashtable_collection = _check.text("ascend_global_hashtable_collection", name, 255)

    @property
    def sparse_dir(self) -> str | None:
        """The directory of the last saved tables, or None."""
        from mx_rec.saver import saver

        return saver.last_sparse_dir()

    def get_initializer(self, is_training: bool) -> Any:
        """Returns the op that initializes the iterator that graph modification put in place for training or for
        evaluation; None if it replaced none, or only one-shot iterators."""
        _check.boolean("is_training", is_training)
        from mx_rec._lowering import moving

        return moving.initializer_of(is_training)

    def get_target_batch(self, is_training: bool) -> Any:
        """Returns the batch of the iterator that graph modification put in place; None if it replaced none. It has the
        structure that was given to `sparse_lookup(batch=...)`; without that, the dataset's own."""
        _check.boolean("is_training", is_training)
        from mx_rec._lowering import moving

        return moving.batch_of(is_training)

    def get_training_mode_channel_id(self, is_training: bool) -> int:
        """Returns 0 for training, 1 for evaluation."""
        return 0 if _check.boolean("is_training", is_training) else 1


class SparseEmbedConfig:
    """The tables of the process, as the default graph knows them."""

    @property
    def table_instance_dict(self) -> dict[str, BaseSparseEmbedding]:
        """{name: table} of the default graph."""
        from mx_rec._tables import graphs

        return dict(graphs.tables_here("table_instance_dict"))

    @property
    def table_name_set(self) -> set[str]:
        """The names of all tables of the default graph."""
        return set(self.table_instance_dict)

    def get_table_instance_by_name(self, name: str) -> BaseSparseEmbedding:
        """Returns the table of this name in the default graph; KeyError, naming those that it has, if there is none."""
        tables = self.table_instance_dict
        if name not in tables:
            from mx_rec._tables import graphs

            hint = "" if tables else graphs.elsewhere()
            raise KeyError(f"there is no table {name!r} in this graph; it has {sorted(tables)}{hint}")
        return tables[name]


class ConfigInitializer:
    """The settings of the process; one instance, `ConfigInitializer.get_instance()`. The keywords of `init` are
    attributes of it."""

    def __init__(self) -> None:
        self.train_params_config = TrainParamsConfig()
        self.sparse_embed_config = SparseEmbedConfig()
        self.optimizer_config = OptimizerConfig()
        self.feature_spec_config = FeatureSpecConfig()
        self.hybrid_manager_config = HybridManagerConfig()

    @classmethod
    def get_instance(cls) -> ConfigInitializer:
        """Returns the one instance. EnvironmentError before `init`."""
        _process.config()
        return part(_Settings).instance

    @property
    def if_load(self) -> bool:
        """What `init(if_load=...)` said, or was set since."""
        return process.if_load

    @if_load.setter
    def if_load(self, value: bool) -> None:
        process.if_load = _check.boolean("if_load", value)

    @property
    def use_static(self) -> bool:
        """Whether shapes are static: `init(use_dynamic=False)`."""
        return not _process.config().use_dynamic

    @property
    def modify_graph(self) -> bool:
        """Whether a lookup of the default graph asked for graph modification."""
        from mx_rec._tables import graphs

        return bool(graphs.state().to_move)

    @property
    def host_pipeline_ops(self) -> Any:
        """The ops that scripts run beside the training step (mx_rec/util/ops.py)."""
        return get_host_pipeline_ops()

    def __getattr__(self, name: str) -> Any:
        config = _process.config()
        if name in {field.name for field in dataclasses.fields(config)}:
            return getattr(config, name)
        raise AttributeError(f"ConfigInitializer has no attribute {name!r}")


class _Settings(Part):
    """The one ConfigInitializer."""

    lasts = True

    def __init__(self):
        self.instance = ConfigInitializer()


def get_initializer(is_training: bool) -> Any:
    """Returns the op that initializes the iterator that graph modification made; see
    `TrainParamsConfig.get_initializer`."""
    return ConfigInitializer.get_instance().train_params_config.get_initializer(is_training)


def get_target_batch(is_training: bool) -> Any:
    """Returns the batch of the iterator that graph modification made; see `TrainParamsConfig.get_target_batch`."""
    return ConfigInitializer.get_instance().train_params_config.get_target_batch(is_training)


def get_use_dynamic_expansion() -> bool:
    """Tells whether tables grow without limit: `init(use_dynamic_expansion=...)`."""
    return _process.config().use_dynamic_expansion


def is_mpi_in_use() -> bool:
    """Returns whether this process is one of several ranks, which talk to each other by MPI."""
    return _ranks.are_several()


def set_if_load(if_load: bool) -> None:
    """Notes whether the script restores a checkpoint; without effect on restores."""
    ConfigInitializer.get_instance().if_load = if_load


def get_if_load() -> bool:
    """Returns what `init(if_load=...)` or `set_if_load` said."""
    return ConfigInitializer.get_instance().if_load


def get_train_interval() -> int:
    """Returns what `init(train_steps=...)` or `set_train_interval` said."""
    return _process.config().train_steps


def set_train_interval(steps: int) -> None:
    """Changes the announced number of training steps between two evaluations."""
    process.config = dataclasses.replace(_process.config(), train_steps=steps)


def get_eval_steps() -> int:
    """Returns what `init(eval_steps=...)` or `set_eval_steps` said."""
    return _process.config().eval_steps


def set_eval_steps(steps: int) -> None:
    """Changes the announced number of steps of an evaluation."""
    process.config = dataclasses.replace(_process.config(), eval_steps=steps)


def set_ascend_global_hashtable_collection(name: str) -> None:
    """Names the graph collection for the anchor variables of tables that are made from now on."""
    ConfigInitializer.get_instance().train_params_config.ascend_global_hashtable_collection = name


def get_ascend_global_hashtable_collection() -> str:
    """Returns the name of the graph collection that holds the tables' anchor variables."""
    return ConfigInitializer.get_instance().train_params_config.ascend_global_hashtable_collection


def export_table_name_set() -> set[str]:
    """Returns the names of all tables of the default graph."""
    return ConfigInitializer.get_instance().sparse_embed_config.table_name_set


def get_host_pipeline_ops() -> Any:
    """Returns the ops that scripts run beside the training step (mx_rec/util/ops.py)."""
    from mx_rec.util.ops import import_host_pipeline_ops

    return import_host_pipeline_ops()


def clear_channel(is_train_channel: bool = False) -> None:
    """Does nothing: prepared batches live in the dataset's own buffers and change no table."""
    _check.boolean("is_train_channel", is_train_channel)
