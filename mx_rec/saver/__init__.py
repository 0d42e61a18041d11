"""Checkpoints: what `tf.compat.v1.train.Saver` does when a graph has tables."""

from mx_rec._lazy import attach

# Not on first use, as the others: its module has the same name, and takes it once it is imported.
from mx_rec.saver.lenient import lenient  # noqa: F401

__getattr__, __dir__ = attach(
    __name__,
    {
        "export": "mx_rec.saver.sparse",
        "rows_only": "mx_rec.saver._warm_start",
        "warm_start": "mx_rec.saver._warm_start",
    },
)
