"""FeatureSpec mode: describing features, preparing batches, starting the pipeline."""

from mx_rec._lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "FeatureSpec": "mx_rec.core.asc.feature_spec",
        "get_asc_insert_func": "mx_rec.core.asc.helper",
        "start_asc_pipeline": "mx_rec.core.asc.manager",
    },
)
