"""Checkpoints: what `tf.compat.v1.train.Saver` does when a graph has tables."""

from typing import TYPE_CHECKING

from mx_rec._lazy import attach

if TYPE_CHECKING:
    from mx_rec.saver._background import wait as wait
    from mx_rec.saver._lenient import lenient as lenient
    from mx_rec.saver._warm_start import rows_only as rows_only
    from mx_rec.saver._warm_start import warm_start as warm_start
    from mx_rec.saver.sparse import export as export

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
