"""Scaling plot: `python -m benchmarks.scaling_plot picture.svg`, with the data as JSON on stdin; needs matplotlib."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

matplotlib.rcParams["svg.hashsalt"] = "mx_rec"  # the same data, the same file


def main(picture):
    data = json.load(sys.stdin)
    figure, (curves, shares) = pyplot.subplots(1, 2, figsize=(13, 4.5))
    for name, curve in data["curves"].items():
        ranks = sorted(map(int, curve))
        curves.plot(ranks, [100 * curve[str(n)] for n in ranks], label=name)
    ranks = sorted(map(int, data["simulated"]))
    points = [100 * data["simulated"][str(n)] for n in ranks]
    curves.plot(ranks, points, "k.", label=f"simulated, {data['link']}")
    curves.set(xscale="log", ylim=(0, 105), xlabel="ranks", ylabel="%", title="samples/s of a rank, beside one alone")
    curves.axvline(256, color="gray", linewidth=0.7, linestyle=":")
    curves.text(256, 3, "as many as mx_rec takes ", fontsize=8, color="gray", ha="right")
    curves.legend()
    curves.grid(alpha=0.3)
    ranks = sorted(map(int, data["parts"]))[1:]
    names = list(data["parts"][str(ranks[0])])
    heights = [[1e3 * data["parts"][str(n)].get(name, 0) for n in ranks] for name in names]
    shares.stackplot(ranks, heights, labels=names, colors=pyplot.get_cmap("tab20").colors)
    shares.set(xscale="log", xlabel="ranks", ylabel="ms", title=f"a step's parts, {data['link']}")
    shares.legend(loc="upper left", fontsize=8, ncols=2)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1])
