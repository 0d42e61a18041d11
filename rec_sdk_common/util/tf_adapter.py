"""The vendor's op modules."""

from mx_rec.util.communication import hccl_ops, npu_ops

__all__ = ["hccl_ops", "npu_ops"]
