"""Targets: what the project has set out to reach, as numbers that a run either reaches or misses."""

import dataclasses
import statistics
from typing import Optional

from benchmarks.results import Results
from benchmarks.suite import (
    DENSE_ADAM,
    DISK,
    IN_MEMORY,
    IN_STEP,
    LIMIT,
    LIMITED,
    OURS,
    SIZES,
    STOCK,
    TFRA,
    TFRA_FILES,
    TORCH,
    UNFOLLOWED,
    UNTRACKED,
)

WORKLOADS = ("w1", "w2", "w3")
DIM_OF = {"w1": 16, "w2": 64, "w3": 32}


@dataclasses.dataclass(frozen=True)
class Target:
    text: str
    value: Optional[float]  # None: not measured
    bound: float
    is_minimum: bool = True
    unit: str = "×"
    note: str = ""

    @property
    def reached(self):
        if self.value is None:
            return None
        return self.value >= self.bound if self.is_minimum else self.value <= self.bound


def evaluate(results: Results) -> list[Target]:
    targets = []

    def ratio(text, name, measure, peer, bound):
        targets.append(Target(f"{text} / {peer}", results.ratio(name, measure, peer), bound))

    for work in WORKLOADS:
        ratio(f"{work.upper()} train, Adam", f"{work}-adam", "train", TFRA, 15)
        ratio(f"{work.upper()} train, Adam", f"{work}-adam", "train", STOCK, 3.2 if work == "w3" else 4)
        ratio(f"{work.upper()} train, Adam", f"{work}-adam", "train", LIMIT, 0.3 if work == "w1" else 0.5)
    for optimizer, title, over_tfra, over_best in (("sgd", "SGD", 7, 1.8), ("adagrad", "Adagrad", 10, 2.5)):
        for work in WORKLOADS:
            name = f"{work}-{optimizer}"
            ratio(f"{work.upper()} train, {title}", name, "train", TFRA, over_tfra)
            value, best = results.ratio_to_best(name, "train", without=(TFRA,))
            targets.append(Target(f"{work.upper()} train, {title} / best other peer", value, over_best, note=best))
    for work in WORKLOADS:
        ratio(f"{work.upper()} forward", f"{work}-adam", "forward", TFRA, 5)
        ratio(f"{work.upper()} forward", f"{work}-adam", "forward", STOCK, 1 if work == "w3" else 1.3)
    ratio("W2 forward, pooled", "w2-adam", "forward", TORCH, 0.45)
    for peer, bound in ((STOCK, 1.4), (TFRA, 2.6), (TORCH, 2), (DENSE_ADAM, 40)):
        ratio("end to end", "e2e", "train", peer, bound)
    ratio("W1 on one thread, modified graph", "modify-w1-1", "train", IN_STEP, 1.3)
    for name, title in (("modify-w1", "W1"), ("modify-e2e", "end to end")):
        ratio(f"{title}, modified graph", name, "train", IN_STEP, 1)
        ratio(f"{title}, modified graph, time of a step after a rest", name, "train_rested", IN_STEP, 1)
    ratio("W1 train, with admission and counts", "admission", "train", UNTRACKED, 0.9)
    targets.append(_stall(results))
    for work in WORKLOADS:
        ratio(f"{work.upper()} train, with dynamic expansion", f"expansion-{work}", "train", LIMITED, 0.95)
    ratio("train with a fifth of the rows in memory, files in the page cache", "disk", "train", IN_MEMORY, 0.4)
    targets.append(_disk_memory(results))
    for measure, title in (("save", "save"), ("restart", "restore, new process"), ("restore", "restore over rows")):
        for peer, bound in ((DISK, 0.7), (TFRA_FILES, 3)):
            ratio(title, "checkpoint-w3", measure, peer, bound)
    ratio("W1 train, changes followed", "follow", "train", UNFOLLOWED, 0.97)
    targets += _saving(results)
    targets += [_auc(results), _size(results), *_memory(results), _new_rows(results), _startup(results)]
    return targets


def _auc(results):
    ours, stock = (results.info("e2e", label, "auc") for label in (OURS, STOCK))
    text = "end to end, difference of the AUC to TensorFlow with LazyAdam"
    if ours is None or stock is None:
        return Target(text, None, 0.002, is_minimum=False, unit="")
    return Target(text, abs(ours - stock), 0.002, is_minimum=False, unit="", note=f"{ours:.5f} and {stock:.5f}")


def _stall(results):
    step, longest = (results.info("eviction", OURS, key) for key in ("step_ms", "longest_ms"))
    value = None if step is None else longest - step
    text = "longest delay of a step while a table is evicted"
    rows = results.info("eviction", OURS, "rows")
    return Target(text, value, 50, is_minimum=False, unit=" ms", note="" if rows is None else f"{rows:,} rows")


def _disk_memory(results):
    grown, table = (results.info("disk", OURS, key) for key in ("grown", "table_grown"))
    value = None if grown is None else grown / table
    return Target(
        "memory with a fifth of the rows in it / that of these rows and the index", value, 1.1, is_minimum=False
    )


def _saving(results):
    whole, pause, memory = (results.info("saving", OURS, key) for key in ("whole", "pause", "memory_whole"))
    share = None if whole is None else pause / whole
    return [
        Target("pause for a save while training goes on / whole save", share, 0.1, is_minimum=False),
        Target("memory taken by a save", memory and memory / 2**20, 64, is_minimum=False, unit=" MiB"),
    ]


def _size(results):
    times = [results.milliseconds("size", "train", label) for label in results.peers("size")]
    value = times[-1] / times[0] if len(times) == len(SIZES) and None not in times else None
    return Target("step time, largest table / smallest", value, 1.5, is_minimum=False)


def _memory(results):
    made = []
    for work in WORKLOADS:
        ours, tfra = (results.info(f"{work}-adam", label, "bytes_per_row") for label in (OURS, TFRA))
        dim = DIM_OF[work]
        made.append(Target(f"bytes per row, Adam, dim {dim}", ours, 12 * dim + 45, is_minimum=False, unit=" bytes"))
        share = ours / tfra if ours is not None and tfra is not None else None
        made.append(Target(f"bytes per row, Adam, dim {dim} / TFRA", share, 0.65, is_minimum=False))
    return made


def _new_rows(results):
    value = results.median("growth-32", "new_rows")
    return Target("new rows/s in training steps, dim 32", value and value / 1e6, 3, unit=" million")


def _startup(results):
    times = results.raw.get("startup")
    value = statistics.median(times["script"]) if times else None
    return Target("import of mx_rec beyond TensorFlow", value, 0.3, is_minimum=False, unit=" s")
