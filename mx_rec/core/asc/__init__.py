"""FeatureSpec mode: describing features, preparing batches, starting the pipeline."""

from typing import TYPE_CHECKING

from mx_rec._lazy import attach

if TYPE_CHECKING:
    from mx_rec.core.asc.feature_spec import FeatureSpec as FeatureSpec
    from mx_rec.core.asc.helper import get_asc_insert_func as get_asc_insert_func
    from mx_rec.core.asc.manager import start_asc_pipeline as start_asc_pipeline

__getattr__, __dir__ = attach(
    __name__,
    {
        "FeatureSpec": "mx_rec.core.asc.feature_spec",
        "get_asc_insert_func": "mx_rec.core.asc.helper",
        "start_asc_pipeline": "mx_rec.core.asc.manager",
    },
)
