"""Memory: `python -m benchmarks.memory <gigabytes>` uses that much once and gives it back.

In a virtual machine, memory that was not used for a while is fetched from the host at the next use, several times
slower than the guest's own page faults. Whoever grows first would pay for it.
"""

import mmap
import subprocess
import sys

import numpy as np

from benchmarks import paths


def touch(gigabytes: float) -> None:
    """In a process of its own, so that it is given back for certain; failing to get it all is no harm."""
    subprocess.run([sys.executable, "-m", "benchmarks.memory", str(gigabytes)], check=False, cwd=paths.ROOT)


if __name__ == "__main__":
    block = mmap.mmap(-1, int(float(sys.argv[1]) * 1e9), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(block, np.uint8)[:: mmap.PAGESIZE] = 1
