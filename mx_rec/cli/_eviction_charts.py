"""Charts of how many rows of a saved table an eviction would free, by its threshold."""

import math

import numpy as np

from mx_rec.cli import _charts, _page
from mx_rec.cli._charts import brief, size

_POINTS = 40


def figures(table, profile) -> list[str]:
    """Returns a curve for each way of evicting that the table has what is needed for."""
    found = []
    norms = profile.norms.get("embedding")
    threshold = -1 if table.tracking is None else table.tracking.eviction_threshold
    if profile.ages is not None and profile.ages.n:
        highest = max(profile.ages.max, threshold, 1)
        limits = np.unique(np.linspace(0, highest, _POINTS).astype(np.int64))
        if threshold >= 0:
            limits = np.unique(np.append(limits, threshold))
        divisor, _ = _charts.duration_unit(highest)
        axis = _charts.linear(0, highest, "older_than, in the data's time", _charts.duration, divisor)
        mark = (threshold, f"eviction_threshold {_charts.duration(threshold)}") if threshold >= 0 else None
        freed = profile.ages.n - profile.ages.below(limits)
        found.append(_figure(table, 'By age: evict(by="time", older_than=…)', limits, freed, axis, mark))
    if profile.steps is not None and profile.steps.n:
        highest = max(profile.steps.max, 1)
        limits = np.unique(np.linspace(0, highest, _POINTS).astype(np.int64))
        axis = _charts.linear(0, highest, "older_than, in steps", is_whole=True)
        freed = profile.steps.n - profile.steps.below(limits)
        found.append(_figure(table, 'By steps: evict(by="step", older_than=…)', limits, freed, axis))
    if profile.counts is not None and profile.counts.n:
        highest = max(profile.counts.max, 1) + 1
        spread = np.ceil(np.logspace(0, math.log10(highest), _POINTS) - 1e-9).astype(np.int64)
        limits = np.unique(np.append(spread, np.arange(1, min(highest, 10) + 1)))
        axis = _charts.logarithmic(1, highest, "below, in occurrences")
        freed = profile.counts.below(limits)
        found.append(_figure(table, 'By count: evict(by="count", below=…)', limits, freed, axis))
    if norms is not None and norms.min is not None:
        highest = norms.max * 1.001 or 1.0
        limits = np.linspace(0, highest, _POINTS)
        axis = _charts.linear(0, highest, "below, Euclidean norm of the embedding")
        found.append(_figure(table, 'By norm: evict(by="norm", below=…)', limits, norms.below(limits), axis))
    return found


def _figure(table, title, limits, freed, axis, mark=None):
    row_bytes = 8 + 4 * table.dim * (1 + len(table.slots))
    points = list(zip(limits.tolist(), freed.tolist()))

    def say(limit, rows):
        share = rows / table.rows
        return (
            f"{axis.show(limit)}: frees {rows:,} rows ({share:.1%}), {size(rows * row_bytes)} of keys, rows and slots"
        )

    y = _charts.linear(0, table.rows, "", brief, is_whole=True)
    chart = _charts.curve(points, axis, y, f"{title}: rows freed by threshold", mark, say)
    shown = min(points, key=lambda point: abs(point[0] - mark[0]) if mark else abs(point[1] - table.rows / 2))
    caption = say(*shown)
    lines = [
        (axis.show(limit), f"{rows:,}", f"{rows / table.rows:.1%}", size(rows * row_bytes)) for limit, rows in points
    ]
    return _page.figure(title, chart, caption, _page.table(("threshold", "rows freed", "share", "bytes"), lines, 0))
