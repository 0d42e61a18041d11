"""Checkpoints: what `tf.compat.v1.train.Saver` does when a graph has tables."""

from mx_rec._lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "export": "mx_rec.saver.sparse",
        "lenient": "mx_rec.saver._lenient",
        "rows_only": "mx_rec.saver._warm_start",
        "wait": "mx_rec.saver._background",
        "warm_start": "mx_rec.saver._warm_start",
    },
)
