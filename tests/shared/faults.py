"""Has file operations fail, by faults.c: `load` before TensorFlow is imported, `arm` before what is to fail."""

import ctypes
import errno
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).with_suffix(".c")
COUNT, ONCE, DIE, KILL = range(4)

_library = ctypes.CDLL(None)


def load(module: str) -> None:
    """Returns if the intercepting library is loaded; else compiles it, and begins `module` anew with it."""
    if not hasattr(_library, "faults_arm"):
        with tempfile.TemporaryDirectory(prefix="mxrec_faults_") as directory:
            target = os.path.join(directory, "faults.so")
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", target, SOURCE, "-ldl"], check=True)
            environment = {**os.environ, "LD_PRELOAD": target, "TF_CPP_MIN_LOG_LEVEL": "3"}
            sys.exit(subprocess.run([sys.executable, "-m", module, *sys.argv[1:]], env=environment).returncode)
    _library.faults_log.restype = ctypes.c_char_p
    _library.faults_disarm.restype = ctypes.c_long


def arm(directory: str, n: int, how: int, error: int = errno.EIO) -> None:
    """Has the n-th file operation below `directory` go wrong."""
    _library.faults_arm(directory.encode(), ctypes.c_long(n), how, error)


def disarm() -> int:
    """Ends that; how many operations there were."""
    return _library.faults_disarm()


def operations() -> list[str]:
    """Those since `arm`: name, path."""
    return _library.faults_log().decode().splitlines()
