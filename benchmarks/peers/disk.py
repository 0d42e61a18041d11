"""The disk as a peer of checkpoints: one file of the same bytes, written and read in sequence."""

import os

import numpy as np

from benchmarks import scratch, worker, workloads

_BLOCK = 8 << 20


def workload(workload, optimizer, scale, checkpoint):
    work = workloads.get(workload, scale)
    payload = work.tables * work.rows * work.dim * 4 * 3
    path = scratch.directory("disk") / "raw"
    block = np.random.default_rng(0).bytes(_BLOCK)  # random: a file system may compress

    def save(i):
        with open(path, "wb", buffering=0) as file:
            for first in range(0, payload, _BLOCK):
                file.write(block[: min(_BLOCK, payload - first)])
            os.fsync(file.fileno())

    def restore(i):
        buffer = bytearray(_BLOCK)
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    save(0)

    def before():
        scratch.prepare(path.parent, payload)

    read = worker.Measure(restore, payload, 0, before=before)
    return {"save": worker.Measure(save, payload, 0, before=before), "restore": read, "restart": read}, {}


if __name__ == "__main__":
    worker.main({"workload": workload})
