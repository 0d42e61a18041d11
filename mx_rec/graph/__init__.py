"""Automatic graph modification."""

from mx_rec._lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "modify_graph_and_start_emb_cache": "mx_rec.graph.modifier",
        "GraphModifierHook": "mx_rec.graph.modifier",
        "LookupSubgraphSlicerHook": "mx_rec.graph.hooks",
        "OrphanLookupKeySlicerHook": "mx_rec.graph.hooks",
        "ACGPushOpsToDatasetHook": "mx_rec.graph.acg_push_ops",
        "do_merge_lookup": "mx_rec.graph.merge_lookup",
        "last_report": "mx_rec.graph._report",
    },
)
