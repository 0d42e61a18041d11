"""Results: medians, spreads and ratios of a run's raw numbers. Ratios are formed within a group's rounds only."""

import statistics

from benchmarks.runner import CALM
from benchmarks.suite import LIMIT, OURS


class Results:
    """`raw` is what the suite writes as JSON: "machine", "mode", "groups" as runner.run returns them, "startup"."""

    def __init__(self, raw: dict):
        self.raw = raw

    def parts(self, name):
        """The groups of that name: one, or several that did not fit into memory together."""
        return [group for group in self.raw["groups"] if group["name"] == name]

    def peers(self, name):
        """Labels of the group's workers that were measured, ours first."""
        return list(dict.fromkeys(label for group in self.parts(name) for label in group["workers"]))

    def failed(self):
        """{(title of the group, label): reason}"""
        return {
            (group["title"], label): reason for group in self.raw["groups"] for label, reason in group["failed"].items()
        }

    def rates(self, name, measure, label):
        """All runs' rates, over all parts."""
        return [
            run["rate"] for group in self.parts(name) for run in _runs(group, label, measure)
        ]  # fmt: skip

    def median(self, name, measure, label=OURS):
        rates = self.rates(name, measure, label)
        return statistics.median(rates) if rates else None

    def spread(self, name, measure, label=OURS):
        """Half the distance between the quartiles, as a part of the median."""
        rates = self.rates(name, measure, label)
        if len(rates) < 3:
            return None
        low, middle, high = statistics.quantiles(rates, n=4, method="inclusive")
        return (high - low) / 2 / middle

    def ratio(self, name, measure, label):
        """Ours over the peer's: the median over the rounds of the group that holds both.

        A round takes seconds, so a machine that becomes slower or faster meanwhile does so for both.
        """
        for group in self.parts(name):
            rounds = list(zip(_runs(group, OURS, measure), _runs(group, label, measure)))
            if rounds:
                return statistics.median(ours["rate"] / peer["rate"] for ours, peer in rounds)
        return None

    def ratio_to_best(self, name, measure, without):
        """(ratio, label) to the fastest peer besides those of `without` and the limit."""
        ratios = [
            (ratio, label)
            for label in self.peers(name)
            if label not in (OURS, LIMIT, *without) and (ratio := self.ratio(name, measure, label)) is not None
        ]
        return min(ratios, default=(None, ""))

    def info(self, name, label, key):
        values = [group["workers"].get(label, {"info": {}})["info"].get(key) for group in self.parts(name)]
        values = [value for value in values if value is not None]
        return statistics.median(values) if values else None

    def milliseconds(self, name, measure, label):
        """Median time of a step."""
        runs = [run["median_ms"] for group in self.parts(name) for run in _runs(group, label, measure)]
        return statistics.median(runs) if runs else None

    def disturbance(self):
        """(runs, repetitions, runs that stayed disturbed)."""
        runs = [
            run
            for group in self.raw["groups"]
            for worker in group["workers"].values()
            for measured in worker["runs"].values()
            for run in measured
        ]
        return len(runs), sum(run["repeated"] for run in runs), sum(run["disturbed"] > CALM for run in runs)


def _runs(group, label, measure):
    return group["workers"].get(label, {"runs": {}})["runs"].get(measure, [])
