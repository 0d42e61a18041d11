"""What the peers of several ranks share: which rank this process is, its part of every batch, and the clock.

A process takes its options from argv, trains, and rank 0 prints one line, "measures" and JSON.
"""

import json
import os
import sys
import time

import numpy as np

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))
SIZE = int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))


def part(array, axis):
    """This rank's part of an array of samples, which lie along `axis`."""
    each = array.shape[axis] // SIZE
    where = [slice(None)] * array.ndim
    where[axis] = slice(RANK * each, (RANK + 1) * each)
    return np.ascontiguousarray(array[tuple(where)])


def measure(step, seconds, lead, agree, before=lambda: None):
    """Times steps for about so many seconds, on all ranks equally many, after `lead` others; `before` is called in
    between. `agree(n)` is the least `n` of all ranks."""
    for _ in range(lead):
        step()
    began = time.perf_counter()
    step()
    steps = agree(max(3, int(seconds / (time.perf_counter() - began))))
    before()
    began, busy = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    elapsed, busy = time.perf_counter() - began, time.process_time() - busy
    return {"steps": steps, "milliseconds": 1e3 * elapsed / steps, "core_milliseconds": 1e3 * busy / steps}


def main(scenarios):
    """Runs the scenario that argv names, with the other options as arguments."""
    options = json.loads(sys.argv[1])
    measures = scenarios[options.pop("scenario")](**options)
    if RANK == 0:
        print("measures", json.dumps(measures), flush=True)
