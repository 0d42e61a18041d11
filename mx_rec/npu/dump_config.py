"""DumpConfig: which tensors the vendor's hardware shall write to disk."""

import dataclasses
from typing import Optional


@dataclasses.dataclass(frozen=True)
class DumpConfig:
    """Accepted, and without effect here: TensorFlow's own debugger and TensorBoard show any tensor."""

    enable_dump: bool = False
    dump_path: Optional[str] = None
    dump_step: Optional[str] = None
    dump_mode: str = "output"
    enable_dump_debug: bool = False
    dump_debug_mode: str = "all"
    dump_data: str = "tensor"
    dump_layer: Optional[str] = None
