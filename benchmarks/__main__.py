"""The command line of the suite: `python -m benchmarks --help`."""

import argparse
import dataclasses
import signal
import sys
import time
import traceback

from benchmarks import environments, machine, report, runner, startup, suite, workloads
from benchmarks.results import Results

_MEMORY_PART = 0.93  # of the available memory that a group may be planned to need


def main() -> int:
    arguments = _parse()
    mode = suite.QUICK if arguments.quick else suite.FULL
    changes = {key: value for key in ("rounds", "scale", "peers") if (value := getattr(arguments, key)) is not None}
    partial = bool(changes) or arguments.only != suite.SCENARIOS
    mode = dataclasses.replace(mode, **changes, **({"name": "partial"} if partial else {}))
    if arguments.list:
        return _list(arguments.only, mode)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that workers and scratch files go, too
    _install(mode)
    start = time.monotonic()
    raw = {"machine": machine.describe(), "mode": dataclasses.asdict(mode), "groups": []}
    crashed = False
    for scenario in arguments.only:
        try:
            _run(scenario, mode, raw)
        except Exception:
            traceback.print_exc()
            crashed = True
    raw["minutes"] = (time.monotonic() - start) / 60
    report.write(Results(raw), mode.name)
    runner.say(f"done in {raw['minutes']:.1f} minutes; see benchmarks/results/{mode.name}.md")
    failed = [label for group in raw["groups"] for label in group["failed"] if label.startswith(suite.OURS)]
    return 1 if crashed or failed else 0


def _run(scenario, mode, raw):
    if scenario == "startup":
        raw["startup"] = startup.run(mode.rounds)
        return
    for group in suite.groups(scenario, mode, _MEMORY_PART * machine.available_gigabytes()):
        for name, scale in sorted(suite.data_of(group)):
            work = workloads.get(name, scale)
            work.keys()  # before the workers start, which would all make them
        raw["groups"].append(runner.run(group))


def _install(mode):
    """All environments first, so that no time is measured while pip runs."""
    peers = {suite.environment_of(label) for label in mode.peers}
    for environment in sorted(peers | {environments.PLOT}, key=lambda e: e.name):
        try:
            environments.python(environment)
        except environments.Absent as reason:
            runner.say(f"environment '{environment.name}' is absent: {reason}")


def _list(scenarios, mode):
    memory = _MEMORY_PART * machine.available_gigabytes()
    for scenario in scenarios:
        for group in suite.groups(scenario, mode, memory) if scenario != "startup" else []:
            members = ", ".join(f"{worker.label} ({worker.gigabytes:.1f} GB)" for worker in group.workers)
            print(f"{group.name:24} {'/'.join(group.measures):14} {members}")
    return 0


def _parse():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="mx_rec beside its peers")
    parser.add_argument("--quick", action="store_true", help="small tables, few peers, 3 rounds: under 4 minutes")
    parser.add_argument("--only", type=_names(suite.SCENARIOS), default=suite.SCENARIOS, help=",".join(suite.SCENARIOS))
    parser.add_argument("--peers", type=_names(suite.FULL.peers), help="|".join(suite.FULL.peers) + ", by commas")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scale", type=int, help="divide the rows of all tables by this")
    parser.add_argument("--list", action="store_true", help="print the groups and their memory, run nothing")
    return parser.parse_args()


def _names(allowed):
    def parse(text):
        names = tuple(text.split(","))
        unknown = [name for name in names if name not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(allowed)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
