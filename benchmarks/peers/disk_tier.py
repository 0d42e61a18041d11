"""mx_rec with rows on disk, beside the same table in memory; and a table that is larger than the memory it may use."""

import ctypes
import os
import resource
import time

import numpy as np
import tensorflow as tf

from benchmarks import scratch, worker, workloads
from benchmarks.peers import ours
from mx_rec.core.asc.manager import start_asc_pipeline

v1 = tf.compat.v1

STEADY = 2 * workloads.POOL  # steps until rows are where they belong
DROP = 10  # steps between two times that the files are thrown out of the page cache


class Training:
    """Adam on a workload's table with `memory` rows in memory, 0 for all."""

    def __init__(self, work, memory):
        options = {}
        if memory:
            options = {
                "device_vocabulary_size": 1,
                "host_vocabulary_size": memory - 1,
                "ssd_vocabulary_size": work.rows,
            }
            options["ssd_data_path"] = [str(scratch.directory("rows"))]
        self.tables = ours.Tables(work, v1.random_uniform_initializer(-0.05, 0.05), **options)
        self._pool = v1.placeholder(tf.int64, [None, work.tables, *work.feature_shape])
        dataset = tf.data.Dataset.from_tensor_slices(self.tables.features(self._pool)).repeat()
        self._input, _, embeddings = self.tables.read(dataset, is_train=True)
        output = ours.join(embeddings)
        train = ours.train_op(output, output - tf.constant(work.target()), "adam")
        self.populate = self.tables.make_populate()
        start_asc_pipeline()
        self.session = v1.Session()
        self.session.run(v1.global_variables_initializer())
        self.session.run(self._input.initializer, {self._pool: np.asarray(work.keys())})
        self.step = self.session.make_callable(train)

    def stats(self):
        (stats,) = self.tables.stats()
        return stats


def workload(scale, is_on_disk):
    """A fifth of the rows in memory, or all of them."""
    work = workloads.get("disk", scale)
    training = Training(work, work.rows // 5 if is_on_disk else 0)
    for _ in range(ours.LEAD):
        training.step()
    sizes = []

    def note():
        sizes.append((worker.resident_bytes(), training.stats()["bytes"]))

    training.populate(training.session, note)
    for _ in range(STEADY if is_on_disk else ours.LEAD):
        training.step()
    note()
    after = training.stats()
    grown, table_grown = (end - start for start, end in zip(*sizes))
    info = {"rows": after["rows"], "grown": grown, "table_grown": table_grown}
    if is_on_disk:
        for name in ("rows_in_memory", "rows_on_disk", "bytes_on_disk", "hit_rate", "read_microseconds"):
            info[name] = after[name]
    steps = 0

    def cold(i):
        nonlocal steps
        steps += 1
        training.step()

    def drop():
        if steps % DROP == 0:
            _drop_from_page_cache()

    measures = {
        "train": worker.Measure(lambda i: training.step(), work.ids_per_batch, ours.LEAD),
        "train_cold": worker.Measure(cold, work.ids_per_batch, ours.LEAD, before=drop),
    }
    return measures, info


def large(rows, memory, limit):
    """A table whose rows do not fit into `limit` bytes of data, which the process may not exceed, trains to the end."""
    work = workloads.Workload("disk-large", 1, rows, 32, (65_536,), zipf=1.05, seed=606)
    training = Training(work, memory)
    training.step()
    used = _data_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (used + limit, used + limit))
    started = time.perf_counter()
    training.populate(training.session)
    populated = time.perf_counter()
    for _ in range(workloads.POOL):
        training.step()
    ended = time.perf_counter()
    stats = training.stats()
    assert stats["rows"] == rows
    return {}, {
        "rows": rows,
        "rows_in_memory": stats["rows_in_memory"],
        "row_bytes": rows * work.dim * 4 * 3,
        "limit": limit,
        "new_rows_per_second": rows / (populated - started),
        "ids_per_second": workloads.POOL * work.ids_per_batch / (ended - populated),
        "hit_rate": stats["hit_rate"],
        "bytes_on_disk": stats["bytes_on_disk"],
    }


def _drop_from_page_cache():
    for name in os.listdir("/proc/self/fd"):
        try:
            is_scratch = "mxrec_scratch" in os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if is_scratch:
            os.fdatasync(int(name))  # only what is written can be dropped
            os.posix_fadvise(int(name), 0, 0, os.POSIX_FADV_DONTNEED)


def _data_bytes():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))


if __name__ == "__main__":
    # Every input pipeline that comes and goes while the tables are filled would leave a heap of its own behind, 70 MB
    # in all: not the rows'.
    _M_ARENA_MAX = -8
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
    worker.main({"workload": workload, "large": large})
