"""Start-up: how long importing mx_rec takes once TensorFlow is imported, in fresh processes."""

import subprocess
import sys

from benchmarks import paths

_SCRIPT = """
import time
import tensorflow
start = time.perf_counter()
import mx_rec
first = time.perf_counter()
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable
print(first - start, time.perf_counter() - start)
"""


def run(repeats: int) -> dict:
    """{"package": seconds of `import mx_rec`, "script": of all that a training script imports}, one per repeat."""
    times = {"package": [], "script": []}
    for _ in range(repeats):
        command = [sys.executable, "-c", _SCRIPT]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=paths.ROOT)
        package, script = map(float, done.stdout.splitlines()[-1].split())
        times["package"].append(package)
        times["script"].append(script)
    return times
