"""The memory limit (limit.cc) as a peer: compiled for this machine's instructions, all threads, 2 MiB pages."""

import ctypes
import os
import pathlib
import subprocess

import numpy as np

from benchmarks import paths, worker, workloads

_SOURCE = pathlib.Path(__file__).with_name("limit.cc")


def workload(workload, optimizer, scale):
    if optimizer != "adam":
        raise ValueError(f"the limit program knows adam only, got {optimizer!r}")
    work = workloads.get(workload, scale)
    library = _library()
    table = library.limit_table(work.tables * work.rows, work.dim)
    if not table:
        raise MemoryError(f"no memory for {work.tables * work.rows:,} rows")
    batches = [_rows(work, batch) for batch in work.indices()]
    out = np.zeros((work.tables * work.examples, work.dim), np.float32)
    gradients = np.full((4096, work.dim), 1e-3, np.float32)  # stays in the cache, as a real one would not

    def forward(i):
        rows, _ = batches[i % len(batches)]
        assert library.limit_gather(table, work.dim, _at(rows), len(out), work.bag, _at(out))

    def update(i):
        _, distinct = batches[i % len(batches)]
        assert library.limit_update(table, work.dim, _at(distinct), len(distinct), _at(gradients), len(gradients))

    def train(i):
        forward(i)
        update(i)

    forward(0)
    before = out[0, 0]
    train(0)
    forward(0)
    assert np.isfinite(out).all() and out[0, 0] != before, "a training step must change the rows it touches"
    measures = {
        "forward": worker.Measure(forward, work.ids_per_batch),
        "train": worker.Measure(train, work.ids_per_batch),
    }
    return measures, {"distinct_per_batch": float(np.mean([len(distinct) for _, distinct in batches]))}


def _rows(work, indices):
    """(row of each id, distinct rows in the order of their first use: sorted ones would be nearer in memory)."""
    base = np.arange(work.tables).reshape([-1] + [1] * len(work.feature_shape)) * work.rows
    rows = (indices + base).ravel().astype(np.int32)
    _, first = np.unique(rows, return_index=True)
    return rows, rows[np.sort(first)]


def _at(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def _library():
    path = paths.BUILD / "bench-limit.so"
    if not path.exists() or path.stat().st_mtime < _SOURCE.stat().st_mtime:
        path.parent.mkdir(exist_ok=True)
        flags = "-std=c++17 -O3 -march=native -fno-math-errno -fno-trapping-math -fopenmp -shared -fPIC".split()
        subprocess.run([os.environ.get("CXX", "g++"), *flags, _SOURCE, "-o", path], check=True)
    library = ctypes.CDLL(str(path))
    pointer, long = ctypes.c_void_p, ctypes.c_int64
    library.limit_table.restype = pointer
    library.limit_table.argtypes = [long, ctypes.c_int]
    library.limit_gather.restype = library.limit_update.restype = ctypes.c_bool
    library.limit_gather.argtypes = [pointer, ctypes.c_int, pointer, long, ctypes.c_int, pointer]
    library.limit_update.argtypes = [pointer, ctypes.c_int, pointer, long, pointer, long]
    return library


if __name__ == "__main__":
    worker.main({"workload": workload})
