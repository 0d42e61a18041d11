"""Worker: the process of one peer in one configuration. It sets up, then answers requests on stdin, one JSON a line.

    -> {"run": "train", "seconds": 0.8, "steps": 3}
    <- {"steps": 52, "seconds": 0.81, "rate": 6.8e6, "median_ms": 15.4, "longest_ms": 19.0, "resident": 5.9e9,
        "done": 320, "way": null}

Started as `python -m benchmarks.peers.<peer> '{"scenario": ..., ...}'`. The first line it writes tells what can be run.
"""

import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Measure:
    """`step(i)` does the i-th step, which handles `amount` ids (samples, bytes, ...).

    The first `lead` steps of each run are not timed: after them, what an input pipeline prepared while other peers ran
    is used up, and the caches are this peer's again. `pause` seconds of rest before each step, and what `before` does
    there, are not counted. With `reports`, a step returns the seconds that count.
    """

    step: Callable[[int], object]
    amount: float
    lead: int = 2
    pause: float = 0.0
    before: Optional[Callable[[], None]] = None
    reports: bool = False


def main(scenarios: dict) -> None:
    """Sets up the scenario that argv names, with the other entries as arguments, and serves until stdin ends.

    A scenario returns ({name: Measure}, info).
    """
    options = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer

    def answer(content):
        print(json.dumps(content), file=answers, flush=True)

    measures, info = scenarios[options.pop("scenario")](**options)
    done = dict.fromkeys(measures, 0)
    answer({"measures": list(measures), "info": info})
    for line in sys.stdin:
        request = json.loads(line)
        name = request["run"]
        result, done[name] = _run(measures[name], done[name], request["seconds"], request["steps"])
        answer(result)


def _run(measure, i, seconds, steps):
    lead_end = time.perf_counter() + max(seconds, 1.0)  # slow steps are not waited for several times over
    for _ in range(measure.lead):
        measure.step(i)
        i += 1
        if time.perf_counter() > lead_end:
            break
    times, began = [], time.perf_counter()
    start = began
    while start - began < seconds or len(times) < steps:
        if measure.pause > 0 or measure.before is not None:
            time.sleep(measure.pause)
            if measure.before is not None:
                measure.before()
            start = time.perf_counter()
        reported = measure.step(i)
        now = time.perf_counter()
        times.append(reported if measure.reports else now - start)
        start = now
        i += 1
    return {
        "steps": len(times),
        "seconds": start - began,
        "rate": measure.amount * len(times) / sum(times),
        "median_ms": 1e3 * statistics.median(times),
        "longest_ms": 1e3 * max(times),
        "resident": resident_bytes(),
        "done": i,
        "way": getattr(measure.step, "way", None),
    }, i


class Fastest:
    """The quickest of several ways to do the same step, chosen at the first call: a peer is measured at its best."""

    def __init__(self, ways: dict):
        self._ways = ways
        self.way = None

    def __call__(self, i):
        if self.way is None:
            self.way = next(iter(self._ways)) if len(self._ways) == 1 else self._choose()
        self._ways[self.way](i)

    def _choose(self, repeats=5):
        best = {}
        for repeat in range(repeats + 1):
            for way, step in self._ways.items():
                start = time.perf_counter()
                step(repeat)
                if repeat > 0:
                    best[way] = min(best.get(way, 1e9), time.perf_counter() - start)
        return min(best, key=best.get)


def resident_bytes() -> int:
    """Resident memory without files mapped into it: batches are, and libraries."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
