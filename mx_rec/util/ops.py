"""import_host_pipeline_ops: ops that scripts run beside the training step."""

from typing import Any, Optional

from mx_rec import _check, _process
from mx_rec._ops import control, library
from mx_rec._tables import graphs

__all__ = ["import_host_pipeline_ops"]


def import_host_pipeline_ops(so_pkg_name: str = "libasc_ops.so") -> "type[_HostPipelineOps]":
    """Returns the ops `set_threshold`, `return_timestamp` and `clear_channel`, as attributes of what is returned.

    `so_pkg_name` is the original's library; the ops are part of mx_rec here, so it is checked and not used.
    """
    _check.text("so_pkg_name", so_pkg_name, 100)
    library.ops()
    return _HostPipelineOps


class _HostPipelineOps:
    @staticmethod
    def set_threshold(input: Any, emb_name: str = "", ids_name: str = "", name: Optional[str] = None) -> Any:
        """Returns an op that sets the access threshold of a table from the next step on; it gives the number of tables
        it changed.

        Args:
            input: the threshold, an int32 scalar or a number from 0; 0 lets every key in.
            emb_name: the table; by default all tables that count their keys.
            ids_name: instead of a table, the name of a FeatureSpec or ids tensor that is looked up in it.

        Running it raises InvalidArgumentError for a negative threshold, an unknown table, and one that does not count.
        """
        import tensorflow as tf

        _process.config()
        if ids_name and not emb_name:
            emb_name = _table_of(ids_name)
        return control.set_threshold(tf.cast(input, tf.int32), emb_name, name)

    @staticmethod
    def return_timestamp(input: Any, name: Optional[str] = None) -> Any:
        """Returns the time of the machine in seconds, an int64 scalar, for data that carry no timestamp. `input`: any
        int64 tensor; the time is read anew for each of its values."""
        return control.timestamp(input, name)

    @staticmethod
    def clear_channel(channel_id: int = 0, name: Optional[str] = None) -> Any:
        """Returns an op that does nothing: prepared batches live in the dataset's own buffers and change no table."""
        import tensorflow as tf

        _check.integer("channel_id", channel_id, 0, 1)
        return tf.no_op(name=name)


def _table_of(ids_name):
    for name, table in graphs.state().tables.items():
        if table.reads(ids_name):
            return name
    raise ValueError(
        f"`ids_name` must be the name of a FeatureSpec or tensor that is looked up in this graph, got {ids_name!r}"
        + ("" if graphs.state().tables else graphs.elsewhere())
    )
