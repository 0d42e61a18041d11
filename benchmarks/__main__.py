"""Runs every scenario in a process of its own and prints one table, with machine, versions and commit."""

import json
import os
import platform
import subprocess
import sys

REPEATS = 3
SCENARIOS = [
    ("growth, scattered ids", "growth", []),
    ("growth, sequential ids", "growth", ["--stride", "1"]),
    ("growth, ids in steps of 2^20", "growth", ["--stride", str(2**20)]),
]
COLUMNS = [
    ("new_rows_per_second", "new rows/s", 1e-6, "M"),
    ("trained_ids_per_second", "train ids/s", 1e-6, "M"),
    ("bytes_per_row", "bytes/row", 1, ""),
    ("median_step_ms", "median step", 1, " ms"),
    ("longest_step_ms", "longest step", 1, " ms"),
]


def _cpu():
    with open("/proc/cpuinfo") as lines:
        return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def _output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main():
    import tensorflow as tf

    import mx_rec

    print(
        f"{_cpu()}, {os.cpu_count()} cores, Python {platform.python_version()}, TensorFlow {tf.__version__}, "
        f"mx_rec {mx_rec.__version__}, commit {_output('git', 'rev-parse', '--short', 'HEAD') or 'unknown'}; "
        f"median of {REPEATS} runs"
    )
    print("  ".join([f"{'scenario':30}"] + [f"{title:>14}" for _, title, _, _ in COLUMNS]))
    for title, module, arguments in SCENARIOS:
        runs = []
        for _ in range(REPEATS):
            done = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{module}", *arguments], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                sys.exit(f"{title} failed:\n{done.stderr[-2000:]}")
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        cells = []
        for key, _, scale, unit in COLUMNS:
            value = sorted(run[key] for run in runs)[len(runs) // 2]
            cells.append(f"{value * scale:.1f}{unit}".rjust(14))
        print("  ".join([f"{title:30}", *cells]), flush=True)


if __name__ == "__main__":
    main()
