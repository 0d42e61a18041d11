"""Tables and lookups."""

from mx_rec._lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "EvictHook": "mx_rec.core.feature_process",
        "EvictPolicy": "mx_rec.core.feature_process",
        "TableStatsHook": "mx_rec.core.table_stats",
        "create_table": "mx_rec.core.embedding",
        "evict": "mx_rec.core.feature_process",
        "sparse_lookup": "mx_rec.core.embedding",
    },
)
