"""What a result depends on besides the code: machine, versions, commit."""

import datetime
import os
import platform
import subprocess

from benchmarks import environments, paths


def describe() -> dict:
    commit = _output("git", "rev-parse", "--short", "HEAD") or "unknown"
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", "--", "native", "mx_rec")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit + (" with local changes" if changed else ""),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "vectors": _vectors(),
        "memory": f"{int(_first('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {
            "mx_rec and TensorFlow": _installed("mx_rec", "tensorflow-cpu", "tensorflow", "numpy"),
            **{
                environment.name: ", ".join(environment.packages)
                for environment in (environments.TFRA, environments.TORCH, environments.FBGEMM)
            },
        },
    }


def available_gigabytes() -> float:
    return int(_first("/proc/meminfo", "MemAvailable").split()[0]) * 1024 / 1e9


def _vectors():
    flags = _first("/proc/cpuinfo", "flags").split()
    return next((name for name in ("avx512f", "avx2", "avx") if name in flags), "")


def _installed(*names):
    import importlib.metadata

    found = []
    for name in names:
        try:
            found.append(f"{name}=={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _first(path, label):
    with open(path) as lines:
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(label)), "unknown 0")


def _output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=paths.ROOT).stdout.strip()
