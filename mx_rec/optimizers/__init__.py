"""Sparse optimizers: one module each, with a factory function."""

from typing import TYPE_CHECKING

from mx_rec._lazy import attach

if TYPE_CHECKING:
    from mx_rec.optimizers.lazy_adam import create_hash_optimizer as create_hash_optimizer
    from mx_rec.optimizers.lazy_adam_by_addr import create_hash_optimizer_by_address as create_hash_optimizer_by_address

__getattr__, __dir__ = attach(
    __name__,
    {
        "create_hash_optimizer": "mx_rec.optimizers.lazy_adam",
        "create_hash_optimizer_by_address": "mx_rec.optimizers.lazy_adam_by_addr",
    },
)
