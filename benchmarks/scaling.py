"""Scaling: what a step would cost on 2 to 1,000 ranks: `python -m benchmarks.scaling`, into results/scaling.md.

A closed formula (docs/scaling.md), whose parameters are fitted to runs of one rank and two: those of
results/ranks.json, by benchmarks.ranks, and the stages of `ranked_bench`, by `make bench-core`, whose output is kept
in results/stages.txt. What it says of more ranks is compared with a simulation of the messages, one by one, with keys
drawn by Zipf's law and ranks that are late (simulation.py).
"""

import argparse
import dataclasses
import json
import math
import pathlib
import re
import subprocess
import sys

import numpy as np

from benchmarks import environments, machine, paths, simulation, workloads
from benchmarks import ranks as ranks_page

RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
SIMULATED = (2, 8, 32, 128, 256, 1000)
_STAGES = ("prepare", "ask", "answer", "finish", "send gradients", "apply gradients")
_SLOTS = 2  # of Adam
_HEAD = 40  # bytes before each table's part of a message


@dataclasses.dataclass(frozen=True)
class Network:
    """Between machines. `latency` in seconds of a message, `each` the processor's time for one, `rate` bytes/s of a
    rank's link in either direction."""

    name: str
    latency: float
    each: float
    rate: float


# Assumed, but for the first, which is fitted to the ping of two ranks on one machine.
NETWORKS = (
    Network("10 Gbit/s", 30e-6, 2e-6, 1.1e9),
    Network("25 Gbit/s", 20e-6, 2e-6, 2.8e9),
    Network("100 Gbit/s", 5e-6, 1e-6, 11e9),
)


@dataclasses.dataclass(frozen=True)
class Job:
    """What each rank does in a step: `examples` with one id in each of `tables` tables of `rows` rows, over a net."""

    name: str
    examples: int
    tables: int
    rows: float
    dim: int
    zipf: float
    ids: int = 1  # of an example and table
    dense: float = 0.0  # seconds of the net
    parameters: int = 0  # of the net, all-reduced

    @property
    def positions(self):
        return self.examples * self.ids


@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds. `stages[name]` are (of a key or position, of a float of its row); `step` is of a step, `value` of a
    float that the model sees. `late` is the standard deviation of a stage's time over the ranks, as a part of it."""

    stages: dict
    step: float
    value: float
    late: float


class Keys:
    """How many keys of a table a number of draws by Zipf's law brings. Places of rows in its order stand together in
    groups that grow, so that 10^11 rows are as quick as 10^6."""

    def __init__(self, rows, zipf):
        first = np.arange(1.0, min(rows, 4096) + 1)
        edges = np.unique(np.floor(np.geomspace(len(first) + 1, rows + 1, 4000))) if rows > 4096 else []
        self.count = np.concatenate([np.ones(len(first)), np.diff(edges)])
        middle = np.concatenate([first, np.sqrt(edges[:-1] * edges[1:]) if len(edges) else []])
        weight = middle**-zipf
        self.chance = weight / (self.count * weight).sum()

    def asked(self, draws):
        """The chance of each key to be among them."""
        return -np.expm1(draws * np.log1p(-np.minimum(self.chance, 1 - 1e-12)))

    def distinct(self, draws):
        """How many keys are."""
        return float((self.count * self.asked(draws)).sum())

    def spread(self, draws, ranks):
        """The standard deviation, over owners, of the keys that one is asked for by all ranks."""
        q = self.asked(draws)
        return math.sqrt(float((self.count * (q + (ranks - 1) * q**2)).sum()) * (1 - 1 / ranks))


def latest(ranks):
    """By how many standard deviations the latest of so many ranks is late, on average (Blom)."""
    if ranks == 1:
        return 0.0
    from statistics import NormalDist

    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def step(job, ranks, costs, network) -> dict:
    """Seconds of each part of a step of a job on so many ranks: the closed formula. The sum is the step."""
    keys = Keys(job.rows, job.zipf)
    mine = job.tables * keys.distinct(job.positions)  # keys that a rank asks for, and, on average, is asked for
    rows = job.tables * keys.distinct(job.positions * ranks) / ranks  # distinct ones of these
    skew = latest(ranks) * math.sqrt(job.tables) * keys.spread(job.positions, ranks)  # keys of the busiest owner more
    positions = job.tables * job.positions

    def cost(stage, number):
        of_key, of_float = costs.stages[stage]
        return number * (of_key + of_float * job.dim)

    parts = {
        "fixed": costs.step,
        "model": costs.value * positions / job.ids * job.dim + job.dense,
        "keys": cost("prepare", positions) + cost("ask", mine) + cost("finish", positions),
        "owner": cost("answer", mine) + cost("apply gradients", 0.5 * (mine + rows)),
        "gradients": cost("send gradients", positions),
    }
    busy = sum(parts.values())
    if ranks == 1:
        return parts
    parts["skew"] = cost("answer", skew) + cost("apply gradients", skew)
    away = (ranks - 1) / ranks
    row = 8 + 4 * job.dim
    moved = mine * away * (8 + 2 * row) + 3 * job.tables * _HEAD * (ranks - 1)
    busiest = skew * away * (8 + 2 * row)  # what the busiest owner gets and gives more
    dense = 2 * 4 * job.parameters * away
    exchanges = 3 + (2 if job.parameters else 0)
    parts["bytes"] = (moved + busiest + dense) / network.rate
    parts["messages"] = exchanges * (network.latency + (ranks - 1) * network.each)
    # Each exchange waits for the latest rank, which is late by a part of what it does between two of them.
    parts["waiting"] = latest(ranks) * costs.late * busy
    return parts


def total(parts) -> float:
    """The seconds of a step."""
    return sum(parts.values())


# ---- Fitting.


def read_stages(text) -> dict:
    """{(workload, ranks): {stage: seconds}} of what ranked_bench printed."""
    found, current = {}, None
    for line in text.splitlines():
        if head := re.match(r"(w\d) on (\d+) rank", line):
            current = found.setdefault((head[1], int(head[2])), {})
        elif stage := re.match(r"  (\S.*?) +([\d.]+) ms", line):
            current[stage[1]] = float(stage[2]) / 1e3
    return found


def job_of(name, ranks) -> Job:
    """The part of a benchmark's workload that each rank has."""
    work = workloads.get("w1" if name == "e2e" else name)
    return Job(name, work.examples // ranks, work.tables, work.rows, work.dim, work.zipf, work.bag)


def fit(stages, raw) -> tuple[Costs, Network, dict]:
    """(costs, the link between two ranks of one machine, {workload: (seconds of the net, its parameters)})."""
    counts = {}
    for name in ("w1", "w2", "w3"):
        job = job_of(name, 2)
        keys, positions = Keys(job.rows, job.zipf), job.tables * job.positions
        mine = job.tables * keys.distinct(job.positions)
        rows = job.tables * keys.distinct(2 * job.positions) / 2
        numbers = (positions, mine, mine, positions, positions, 0.5 * (mine + rows))
        counts[name] = job.dim, dict(zip(_STAGES, numbers))
    fitted = {}
    for stage in _STAGES:
        dims = [dim for dim, _ in counts.values()]
        each = [stages[name, 2][stage] / numbers[stage] for name, (_, numbers) in counts.items()]
        fitted[stage] = _line(dims, each)
    milliseconds = {
        name: {label: np.median([run["milliseconds"] for run in runs]) for label, runs in ways.items() if runs}
        for name, ways in raw["runs"].items()
    }
    alone = {name: milliseconds[name][ranks_page.ONE_CORE.label] / 1e3 for name in ("w1", "w2", "w3", "e2e")}
    floats, beyond = [], []
    for name in ("w1", "w2", "w3"):
        job = job_of(name, 1)
        floats.append(job.examples * job.tables * job.dim)
        beyond.append(max(0.0, alone[name] - sum(v for stage, v in stages[name, 1].items() if stage != "all")))
    fixed, value = _line(floats, beyond)
    pings = sorted((int(size), ms / 1e3) for size, ms in raw["ping"]["milliseconds_by_bytes"].items())
    (small, least), (large, most) = pings[0], pings[-1]
    network = Network("memory of one machine", least, 0.0, (large - small) / (most - least))
    lates = []
    for name in ("w1", "w2", "w3"):
        runs = raw["runs"][name][ranks_page.TWO.label]
        waited = np.median([np.mean(run["waits"]) for run in runs]) / 1e3
        carried = 3 * network.latency + 1e6 * ranks_page.median(runs, "megabytes") / network.rate
        busy = milliseconds[name][ranks_page.TWO.label] / 1e3 - waited
        lates.append(max(0.0, waited - carried) / busy / latest(2))
    costs = Costs(fitted, fixed, value, float(np.median(lates)))
    dense = {"e2e": (max(0.0, alone["e2e"] - alone["w1"]), 416 * 400 + 400 + 400 * 400 + 400 + 400 + 1)}
    return costs, network, dense


def _line(x, y):
    """(a, b) of y = a + b x by least squares, neither below zero."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    b, a = np.polyfit(x, y, 1, w=1 / np.maximum(y, 1e-12))
    if b < 0:
        return float(y.mean()), 0.0
    if a < 0:
        return 0.0, float((y / x).mean())
    return float(a), float(b)


# ---- What follows for many ranks.

ADDED = ("skew", "bytes", "messages", "waiting")  # what one rank does not have
_ROW_BYTES = 34  # beside its floats: index and keys, at most
_MEMORY = 256e9  # of a machine with one rank


def predict(costs, local, dense, seed=1) -> dict:
    """Everything on the page that is not an input."""
    seconds, parameters = dense["e2e"]
    two = {
        name: total(step(_with_net(job_of(name, 2), *dense.get(name, (0.0, 0))), 2, costs, local))
        for name in ("w1", "w2", "w3", "e2e")
    }
    job = _with_net(job_of("e2e", 2), seconds, parameters)
    curves = {network.name: {ranks: step(job, ranks, costs, network) for ranks in (1, *RANKS)} for network in NETWORKS}
    keys = Keys(job.rows, job.zipf)
    network = NETWORKS[1]
    simulated = {ranks: simulation.simulate(job, keys, ranks, costs, network, _HEAD, seed=seed) for ranks in SIMULATED}
    sizes = {}
    for terabytes in (0.1, 1, 10, 100):
        rows = terabytes * 1e12 / job.tables / (4 * job.dim * (1 + _SLOTS) + _ROW_BYTES)
        needed = max(2, math.ceil(terabytes * 1e12 / _MEMORY))
        large = dataclasses.replace(job, rows=rows)
        sizes[terabytes] = needed, step(large, needed, costs, network), math.ceil(needed / 5)
    return {"two": two, "job": job, "curves": curves, "simulated": simulated, "sizes": sizes}


def _with_net(job, seconds, parameters):
    """`seconds`: of the net on the samples of a whole step of the benchmark."""
    return dataclasses.replace(job, dense=seconds * job.examples / job_of("e2e", 1).examples, parameters=parameters)


def markdown(raw, costs, local, told, picture) -> str:
    """The page."""
    host = raw["machine"]
    job, network = told["job"], NETWORKS[1]
    alone = told["curves"][network.name][1]
    measured = {
        name: np.median([run["milliseconds"] for run in ways[ranks_page.TWO.label]])
        for name, ways in raw["runs"].items()
    }
    stages = [
        (f"stage: {stage}", f"{1e9 * of_key:.1f} ns a key + {1e9 * of_float:.3f} ns a float", "measured (ranked_bench)")
        for stage, (of_key, of_float) in costs.stages.items()
    ]
    net = "416 → 400 → 400 → 1"
    parameters = [
        *stages,
        ("a step, whatever is in it", f"{1e3 * costs.step:.2f} ms", "fitted to one rank on one core"),
        ("a float that the model sees", f"{1e9 * costs.value:.2f} ns", "fitted to one rank on one core"),
        (f"the net {net}, a sample", f"{1e6 * job.dense / job.examples:.2f} µs", "measured, one rank on one core"),
        ("a rank's lateness", f"{100 * costs.late:.1f} % of its time", "fitted to the waits of two ranks"),
        (local.name, f"{1e6 * local.latency:.0f} µs, {local.rate / 1e9:.2f} GB/s", "measured (ping of two ranks)"),
        *(
            (link.name, f"{1e6 * link.latency:.0f} µs, {1e6 * link.each:.0f} µs a message, {link.rate / 1e9:.1f} GB/s",
             "assumed")
            for link in NETWORKS
        ),
        ("memory of a machine", f"{_MEMORY / 1e9:.0f} GB", "assumed"),
    ]  # fmt: skip
    checks = [
        (name, f"{ms:.2f}", f"{1e3 * told['two'][name]:.2f}", f"{100 * (1e3 * told['two'][name] / ms - 1):+.0f} %")
        for name, ms in measured.items()
    ]
    rows = []
    for ranks in RANKS:
        parts = told["curves"][network.name][ranks]
        others = [_efficiency(told["curves"][link.name], ranks) for link in NETWORKS]
        rows.append(
            (
                f"{ranks}",
                f"{1e3 * total(parts):.2f}",
                f"{job.examples * ranks / total(parts) / 1e3:,.0f}",
                *(f"{100 * share:.0f} %" for share in others),
                *(f"{1e3 * parts[part]:.2f}" for part in ADDED),
                max(ADDED, key=lambda part: parts[part]),
            )
        )
    compared = [
        (f"{ranks}", f"{1e3 * seconds:.2f}", f"{1e3 * total(step(job, ranks, costs, network)):.2f}",
         f"{100 * (total(step(job, ranks, costs, network)) / seconds - 1):+.1f} %")
        for ranks, seconds in told["simulated"].items()
    ]  # fmt: skip
    sizes = [
        (
            f"{terabytes:g} TB",
            f"{needed}",
            f"{fewer}",
            f"{1e3 * total(parts):.2f}",
            f"{100 * total(alone) / total(parts):.0f} %",
        )
        for terabytes, (needed, parts, fewer) in told["sizes"].items()
    ]
    crossings = []
    for link in NETWORKS:
        curve = told["curves"][link.name]
        first = {part: next((n for n in RANKS if _leads(curve[n], part)), None) for part in ADDED}
        half = next((n for n in RANKS if _efficiency(curve, n) < 0.5), None)
        crossings.append((link.name, *(f"{first[part] or '–'}" for part in ADDED), f"{half or '–'}"))
    page = [
        "# What a step would cost on many ranks",
        f"Made by `python -m benchmarks.scaling` from runs of commit {host['commit']}, {host['date']} "
        "([ranks.md](ranks.md), [stages.txt](stages.txt)); [docs/scaling.md](../../docs/scaling.md) explains the "
        "formula. "
        "**Nothing here beyond two ranks on one machine has been measured.** mx_rec itself takes 256 ranks at most.",
        f"![efficiency and parts]({picture})",
        "## Parameters",
        _table(("", "", ""), parameters),
        "## The formula against two ranks that were measured",
        "The parameters come from one rank, and from the stages; the lateness alone from two.",
        _table(("workload", "ms a step, measured", "by the formula", "difference"), checks),
        "## More and more ranks, each with the same batch",
        f"The model of `e2e`: {job.tables} tables of {job.rows:,.0f} rows, dim {job.dim}, under a net; each rank has "
        f"{job.examples:,} samples a step, as each of the two that were measured. Efficiency: samples/s of a rank "
        f"beside those of one alone. Milliseconds of the parts that one rank does not have, and the largest of them, "
        f"with {network.name}.",
        _table(
            (
                "ranks",
                "ms a step",
                "thousand samples/s",
                *(f"efficiency, {link.name}" for link in NETWORKS),
                *ADDED,
                "largest",
            ),
            rows,
        ),
        "## Where each part leads",
        "The first of the numbers of ranks above at which it is the largest of the four; and at which efficiency is "
        "below a half.",
        _table(("", *ADDED, "below 50 %"), crossings),
        "## Against the simulation",
        f"The same model and link ({network.name}), message by message (`benchmarks/simulation.py`).",
        _table(("ranks", "ms a step, simulated", "by the formula", "difference"), compared),
        "## Up to 100 TB of rows",
        f"As many ranks as hold the rows in {_MEMORY / 1e9:.0f} GB each, or, with a fifth of the rows in memory and "
        f"the others on disks, a fifth of these. Rows of dim {job.dim} with Adam's slots and their index: "
        f"{4 * job.dim * (1 + _SLOTS) + _ROW_BYTES} bytes. A step of so many ranks, all in memory, {network.name}.",
        _table(("rows", "ranks", "with disks", "ms a step", "efficiency"), sizes),
    ]
    return "\n\n".join(page) + "\n"


def _efficiency(curve, ranks):
    return total(curve[1]) / total(curve[ranks])


def _leads(parts, part):
    return parts[part] == max(parts[other] for other in ADDED)


def _table(columns, rows):
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    options = _parse()
    raw = json.loads(options.runs.read_text())
    if options.measure:
        bench = paths.BUILD / "bench" / "bench" / "ranked_bench"
        if not bench.exists():
            sys.exit(f"{bench} is not there: run `make bench-core` before")
        done = subprocess.run([bench], capture_output=True, text=True, check=True)
        options.stages.write_text(f"commit {machine.describe()['commit']}\n{done.stdout}")
    costs, local, dense = fit(read_stages(options.stages.read_text()), raw)
    told = predict(costs, local, dense)
    picture = options.output.with_suffix(".svg")
    data = {
        "curves": {
            name: {ranks: total(curve[1]) / total(parts) for ranks, parts in curve.items()}
            for name, curve in told["curves"].items()
        },
        "simulated": {
            ranks: total(told["curves"][NETWORKS[1].name][1]) / seconds for ranks, seconds in told["simulated"].items()
        },
        "parts": told["curves"][NETWORKS[1].name],
        "link": NETWORKS[1].name,
    }
    python = environments.python(environments.PLOT)
    subprocess.run(
        [python, "-m", "benchmarks.scaling_plot", picture],
        input=json.dumps(data),
        text=True,
        check=True,
        cwd=paths.ROOT,
    )
    options.output.write_text(markdown(raw, costs, local, told, picture.name))
    print(options.output.read_text())
    return 0


def _parse():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--measure", action="store_true", help="measure the stages anew, by ranked_bench: 1 minute, 6 GB"
    )
    parser.add_argument("--runs", type=pathlib.Path, default=paths.RESULTS / "ranks.json")
    parser.add_argument("--stages", type=pathlib.Path, default=paths.RESULTS / "stages.txt")
    parser.add_argument("--output", type=pathlib.Path, default=paths.RESULTS / "scaling.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
