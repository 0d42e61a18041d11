"""Checkpoints: what `tf.compat.v1.train.Saver` does when a graph has tables."""

from mx_rec._lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "export": "mx_rec.saver.sparse",
        "lenient": "mx_rec.saver._lenient",
        "wait": "mx_rec.saver._background",
    },
)
