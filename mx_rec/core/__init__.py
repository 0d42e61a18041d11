"""Tables and lookups."""

from mx_rec._lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "create_table": "mx_rec.core.embedding",
        "sparse_lookup": "mx_rec.core.embedding",
    },
)
