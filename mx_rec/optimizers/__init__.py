"""Sparse optimizers: one module each, with a factory function."""

from mx_rec._lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "create_hash_optimizer": "mx_rec.optimizers.lazy_adam",
        "create_hash_optimizer_by_address": "mx_rec.optimizers.lazy_adam_by_addr",
    },
)
