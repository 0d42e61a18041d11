"""The vendor's module of that name."""

from mx_rec.npu.iterations import set_iteration_per_loop

__all__ = ["set_iteration_per_loop"]
