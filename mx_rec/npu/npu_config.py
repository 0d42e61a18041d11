"""The vendor's module of that name."""

from mx_rec.npu.dump_config import DumpConfig
from mx_rec.npu.npu_run_config import NPURunConfig

__all__ = ["DumpConfig", "NPURunConfig"]
