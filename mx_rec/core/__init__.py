"""Tables and lookups."""

from typing import TYPE_CHECKING

from mx_rec._lazy import attach

if TYPE_CHECKING:
    from mx_rec.core.distributed import BroadcastVariablesHook as BroadcastVariablesHook
    from mx_rec.core.distributed import broadcast_variables as broadcast_variables
    from mx_rec.core.distributed import distributed_optimizer as distributed_optimizer
    from mx_rec.core.embedding import create_table as create_table
    from mx_rec.core.embedding import sparse_lookup as sparse_lookup
    from mx_rec.core.feature_process import EvictHook as EvictHook
    from mx_rec.core.feature_process import EvictPolicy as EvictPolicy
    from mx_rec.core.feature_process import evict as evict
    from mx_rec.core.table_stats import TableStatsHook as TableStatsHook

__getattr__, __dir__ = attach(
    __name__,
    {
        "BroadcastVariablesHook": "mx_rec.core.distributed",
        "EvictHook": "mx_rec.core.feature_process",
        "EvictPolicy": "mx_rec.core.feature_process",
        "TableStatsHook": "mx_rec.core.table_stats",
        "broadcast_variables": "mx_rec.core.distributed",
        "create_table": "mx_rec.core.embedding",
        "distributed_optimizer": "mx_rec.core.distributed",
        "evict": "mx_rec.core.feature_process",
        "sparse_lookup": "mx_rec.core.embedding",
    },
)
