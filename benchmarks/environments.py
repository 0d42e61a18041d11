"""Environments: one virtual environment per peer, made on first use from a pinned list of packages.

An environment carries a stamp with the list it was made from, so the second run starts at once, and a changed list
makes it anew. Packages come from wherever pip is configured to look.
"""

import dataclasses
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


OWN = Environment("own")
TFRA = Environment(
    "tfra",
    ("tensorflow-cpu==2.16.2", "tf_keras==2.16.0", "tensorflow-recommenders-addons==0.8.1"),
    "import tensorflow_recommenders_addons",
)
TORCH = Environment("torch", ("torch==2.13.0", "numpy<3"), "import torch")
FBGEMM = Environment("fbgemm", ("torch==2.13.0", "numpy<3", "fbgemm-gpu-cpu==1.8.0"), "import torch, fbgemm_gpu")
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
    wanted = "\n".join([*environment.packages, ""])
    if stamp.exists() and stamp.read_text() == wanted:
        return interpreter
    print(f"== installing {', '.join(environment.packages)} (once)", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    _call("the environment could not be made", sys.executable, "-m", "venv", home)
    pip = (interpreter, "-m", "pip", "-q", "--disable-pip-version-check", "install")
    _call("pip install failed", *pip, *environment.packages)
    _call("installed, but does not load", interpreter, "-c", environment.check)
    stamp.write_text(wanted)
    return interpreter


def _call(what, *command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise Absent(f"{what}: {impersonal(lines[-1]) if lines else f'exit code {done.returncode}'}")


def impersonal(reason: str) -> str:
    """A reason without this machine's paths and package index: results are published."""
    reason = reason.strip().replace(str(paths.ROOT), ".").replace("|", "/")
    return re.sub(r"\b(https?|file)://\S+", "<index>", reason)
