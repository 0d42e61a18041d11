"""No process is left behind: one whose parent dies gets a signal from the kernel."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Has the kernel send signal `number` to this process when `parent`, which started it, dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:  # it has died before
        os.kill(os.getpid(), number)
