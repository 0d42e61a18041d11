"""Where the suite keeps things. All but the results is ignored by git and can be deleted at any time."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venv-bench"
BUILD = ROOT / "build"
DATA = BUILD / "bench-data"  # generated batches
SCRATCH = BUILD / "bench-scratch"  # checkpoints, while they are measured
LOGS = BUILD / "bench-logs"  # what a worker writes to stderr
RESULTS = ROOT / "benchmarks" / "results"
