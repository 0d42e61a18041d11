"""What saving costs a training with mx_rec: how long a step waits for a checkpoint that is written between two steps,
for one that is written while training goes on, and for one of what has changed; and how much memory each takes."""

import os
import statistics
import threading
import time

import numpy as np
import tensorflow as tf

from benchmarks import scratch, worker, workloads
from benchmarks.peers import ours
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.saver import _background, wait

v1 = tf.compat.v1

ROUNDS = 3
STEPS = 20  # between two saves


class Peak:
    """The most memory that the process has had resident since this was made."""

    def __init__(self):
        self._is_done = threading.Event()
        self._first = self._most = worker.resident_bytes()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self):
        while not self._is_done.wait(0.005):
            self._most = max(self._most, worker.resident_bytes())

    def stop(self):
        """Bytes beyond those at the beginning."""
        self._is_done.set()
        self._thread.join()
        return max(self._most, worker.resident_bytes()) - self._first


def saving(workload, scale):
    work = workloads.get(workload, scale)
    tables = ours.Tables(
        work,
        v1.random_uniform_initializer(-0.05, 0.05),
        settings={
            "is_async_checkpoint": True,
            "is_incremental_checkpoint": True,
            "save_checkpoint_due_time": 10**6,
            "save_delta_checkpoints_secs": 10**6,
        },
    )
    pool, _, train_input, train = ours.make_training(work, tables, "adam")
    populate = tables.make_populate()
    saver = v1.train.Saver(max_to_keep=2)
    start_asc_pipeline()
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    populate(session)
    session.run(train_input.initializer, {pool: np.asarray(work.keys())})
    step = session.make_callable(train)
    home = scratch.directory("saving")
    number = 0

    def save(**options):
        nonlocal number
        number += 1
        saver.save(session, str(home / "model"), global_step=number, write_meta_graph=False, **options)

    def timed(work, times):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)

    def sizes(kind):
        return [
            sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
            for directory in home.glob(f"{kind}-model-*")
        ]

    names = ("whole", "pause", "written", "step", "during", "delta", "delta_pause")
    seconds = {name: [] for name in names}
    memory = {"whole": [], "while_training": []}
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            timed(step, seconds["step"])
        os.sync()
        peak = Peak()
        with _background.foreground():
            timed(save, seconds["whole"])
        memory["whole"].append(peak.stop())
        os.sync()
        peak = Peak()
        begun = time.perf_counter()
        timed(save, seconds["pause"])
        while _background.is_busy():
            timed(step, seconds["during"])
        wait()
        seconds["written"].append(time.perf_counter() - begun)
        memory["while_training"].append(peak.stop())
        for _ in range(STEPS):
            step()
        with _background.foreground():
            timed(lambda: save(save_delta=True), seconds["delta"])
        for _ in range(STEPS):
            step()
        timed(lambda: save(save_delta=True), seconds["delta_pause"])
        wait()
    info = {name: statistics.median(times) for name, times in seconds.items()}
    return {}, {
        **info,
        "longest_during": max(seconds["during"]),
        "rows": tables.size(),
        "bytes": max(sizes("sparse")),
        "delta_bytes": max(sizes("delta-sparse")),
        "memory_whole": max(memory["whole"]),
        "memory_while_training": max(memory["while_training"]),
    }


if __name__ == "__main__":
    worker.main({"saving": saving})
