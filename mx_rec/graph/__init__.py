"""Automatic graph modification."""

from typing import TYPE_CHECKING

from mx_rec._lazy import attach

if TYPE_CHECKING:
    from mx_rec._lowering.reports import last_report as last_report
    from mx_rec.graph.acg_push_ops import ACGPushOpsToDatasetHook as ACGPushOpsToDatasetHook
    from mx_rec.graph.hooks import LookupSubgraphSlicerHook as LookupSubgraphSlicerHook
    from mx_rec.graph.hooks import OrphanLookupKeySlicerHook as OrphanLookupKeySlicerHook
    from mx_rec.graph.merge_lookup import do_merge_lookup as do_merge_lookup
    from mx_rec.graph.modifier import GraphModifierHook as GraphModifierHook
    from mx_rec.graph.modifier import modify_graph_and_start_emb_cache as modify_graph_and_start_emb_cache

__getattr__, __dir__ = attach(
    __name__,
    {
        "modify_graph_and_start_emb_cache": "mx_rec.graph.modifier",
        "GraphModifierHook": "mx_rec.graph.modifier",
        "LookupSubgraphSlicerHook": "mx_rec.graph.hooks",
        "OrphanLookupKeySlicerHook": "mx_rec.graph.hooks",
        "ACGPushOpsToDatasetHook": "mx_rec.graph.acg_push_ops",
        "do_merge_lookup": "mx_rec.graph.merge_lookup",
        "last_report": "mx_rec._lowering.reports",
    },
)
