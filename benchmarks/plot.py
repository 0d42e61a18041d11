"""Plot: `python -m benchmarks.plot results.json picture.png`, in an environment with matplotlib."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

_COLORS = {
    "TFRA": "#d62728",
    "TensorFlow": "#ff7f0e",
    "PyTorch": "#9467bd",
    "FBGEMM": "#8c564b",
    "memory limit": "#7f7f7f",
    "TensorFlow AdamOptimizer": "#ffbb78",
}


def main(source, picture):
    with open(source) as file:
        results = json.load(file)
    machine, data = results["machine"], results["plot"]
    train = [bar for bar in data["bars"] if bar["measure"] == "train"]
    forward = [bar for bar in data["bars"] if bar["measure"] == "forward" and not bar["group"].endswith("-sgd")]
    figure, axes = pyplot.subplots(1, 3, figsize=(17, 5), gridspec_kw={"width_ratios": [3, 1.4, 1]})
    _bars(axes[0], train, "Training step: how many times faster mx_rec is")
    _bars(axes[1], forward, "Forward")
    _curve(axes[2], data["curve"])
    figure.suptitle(
        f"mx_rec {machine['commit']}, {machine['date']}, {machine['cpu']}, {machine['cores']} cores "
        f"({results['mode']['name']})",
        fontsize=10,
    )
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


def _bars(axis, bars, title):
    """Groups side by side, a bar per peer, on a logarithmic scale: below the line a peer is ahead."""
    axis.set_title(title)
    groups = list(dict.fromkeys(bar["group"] for bar in bars))
    if not groups:
        axis.set_axis_off()
        return
    labelled = set()
    for place, group in enumerate(groups):
        members = [bar for bar in bars if bar["group"] == group]
        width = 0.8 / len(members)
        for number, bar in enumerate(members):
            x = place + (number - (len(members) - 1) / 2) * width
            label = None if bar["peer"] in labelled else bar["peer"]
            labelled.add(bar["peer"])
            axis.bar(x, bar["ratio"] - 1, width * 0.9, 1, color=_COLORS.get(bar["peer"], "#1f77b4"), label=label)
            axis.annotate(
                f"{bar['ratio']:.2g}",
                (x, bar["ratio"]),
                ha="center",
                va="bottom" if bar["ratio"] >= 1 else "top",
                fontsize=7,
            )
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set_yscale("log")
    axis.set_xticks(range(len(groups)), [group.replace("-", "\n") for group in groups], fontsize=8)
    axis.legend(fontsize=7)


def _curve(axis, curve):
    axis.set_title("Step time by table size, same hits")
    if not curve:
        axis.set_axis_off()
        return
    times = [point["milliseconds"] for point in curve]
    axis.plot(range(len(curve)), times, marker="o")
    axis.set_xticks(range(len(curve)), [point["label"].split(", ", 1)[1] for point in curve], fontsize=8)
    axis.set_ylim(0, 1.3 * max(times))
    axis.set_ylabel("ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
