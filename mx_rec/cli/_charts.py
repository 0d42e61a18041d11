"""Charts as SVG for a page that works without a network and without scripts. Colours are those of the page's style.

Every text is escaped here; a chart says in words what it shows, for those who do not see it.
"""

import dataclasses
import html
import math
import re
from collections.abc import Sequence
from typing import Callable, Optional

_WIDTH, _HEIGHT = 520, 232
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 14, 42
_CHARACTER = 7  # about the width of one
COLORS = 6  # of lines, as many as the style has


def text(value) -> str:
    """Returns `value` as text for HTML. What could act as markup, or turn or hide other text, as in a name from a file,
    is shown as an escape."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))
    return html.escape(shown, quote=True)


def brief(number: float) -> str:
    """Returns a number in a few characters: 1.2M."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= limit:
            return f"{number / (1e3 if unit == 'k' else limit):.3g}{unit}"
    if float(number).is_integer():
        return f"{number:,.0f}"
    return re.sub(r"e-0?", "e-", f"{number:.3g}" if abs(number) >= 1e-3 else f"{number:.2e}".replace(".00e", "e"))


def size(count: float) -> str:
    """Returns a number of bytes in a few characters: 1.2 MB."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Seconds in a unit that fits."""
    divisor, unit = duration_unit(seconds)
    return f"{seconds / divisor:.3g} {unit}"


def duration_unit(seconds: float) -> tuple[int, str]:
    """Returns (seconds of it, its name) for numbers up to `seconds`."""
    for divisor, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * divisor:
            return divisor, unit
    return 1, "s"


@dataclasses.dataclass(frozen=True)
class Axis:
    """Where numbers lie from `low` to `high`, between 0 and 1, and which of them are written there."""

    low: float
    high: float
    ticks: Sequence[float]
    show: Callable[[float], str]
    title: str
    is_log: bool = False

    def place(self, x: float) -> float:
        low, high, x = (math.log(v) for v in (self.low, self.high, x)) if self.is_log else (self.low, self.high, x)
        return 0.5 if high <= low else min(1.0, max(0.0, (x - low) / (high - low)))


def linear(low: float, high: float, title: str, show=brief, unit: float = 1.0, is_whole: bool = False) -> Axis:
    """Returns an axis with about five round numbers: round in multiples of `unit`."""
    span = (high - low) / unit
    step = 10.0 ** math.floor(math.log10(span / 4)) if span > 0 else 1.0
    step *= next((f for f in (1, 2, 5) if span / (step * f) <= 5), 10)
    step = max(1.0, step) if is_whole else step
    first, last = math.ceil(low / unit / step - 1e-9), math.floor(high / unit / step + 1e-9)
    return Axis(low, high, [i * step * unit for i in range(first, last + 1)], show, title)


def logarithmic(low: float, high: float, title: str, show=brief) -> Axis:
    """Returns an axis of positive numbers with round ones: powers of ten, or of two between a few."""
    base = 10 if high / low >= 300 else 2
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    every = -(-(last - first + 1) // 8)
    return Axis(low, high, [base**e for e in range(first, last + 1, every)], show, title, is_log=True)


def histogram(bins: Sequence[tuple[float, float, int]], x: Axis, words: str) -> str:
    """Returns a bar for each (low, high, how many), from `low` to `high` of the axis."""
    plot = _Plot(x, _counts(bins), words)
    for low, high, n in bins:
        plot.bar(plot.at(low), plot.at(high), n, f"{x.show(low)} to {x.show(high)}")
    plot.ticks([(plot.at(tick), x.show(tick)) for tick in x.ticks])
    return plot.svg()


def columns(bins: Sequence[tuple[int, int, int]], title: str, words: str) -> str:
    """Returns a bar for each (first, last, how many), of equal width, with the span below it."""
    plot = _Plot(Axis(0, len(bins), (), brief, title), _counts(bins), words)
    spans = [brief(first) if first == last else f"{brief(first)}–{brief(last)}" for first, last, _ in bins]
    for i, (span, (_, _, n)) in enumerate(zip(spans, bins)):
        plot.bar(plot.at(i), plot.at(i + 1), n, span)
    every = math.ceil(_CHARACTER * (1 + max(map(len, spans))) / (plot.at(1) - plot.at(0)))
    plot.ticks([(plot.at(i + 0.5), spans[i]) for i in range(0, len(bins), every)])
    return plot.svg()


def _counts(bins):
    return linear(0, max(n for _, _, n in bins), "", is_whole=True)


def curve(points, x: Axis, y: Axis, words: str, mark: Optional[tuple[float, str]] = None, hint=None) -> str:
    """One line through `points`, filled below; `mark` is (x, text) of a line across; hint(x, y) is told by a point."""
    plot = _Plot(x, y, words)
    places = [(plot.at(a), plot.y(b)) for a, b in points]
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    first, last, bottom = places[0][0], places[-1][0], plot.y(0)
    plot.add(f'<polygon class="area" points="{first:.1f},{bottom:.1f} {line} {last:.1f},{bottom:.1f}"/>')
    plot.add(f'<polyline class="line c0" points="{line}"/>')
    if mark is not None:
        at = plot.at(mark[0])
        side, dx = ("end", -5) if at > _WIDTH / 2 else ("start", 5)
        plot.add(
            f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{plot.y(0):.1f}"/>'
            f'<text class="mark" x="{at + dx:.1f}" y="{_TOP + 9}" text-anchor="{side}">{text(mark[1])}</text>'
        )
    if hint is not None:
        for (a, b), (left, top) in zip(points, places):
            plot.add(
                f'<circle class="hit" cx="{left:.1f}" cy="{top:.1f}" r="5"><title>{text(hint(a, b))}</title></circle>'
            )
    plot.ticks([(plot.at(tick), x.show(tick)) for tick in x.ticks])
    return plot.svg()


def lines(series, x: Axis, y: Axis, words: str) -> str:
    """Returns a line for each of `series`, {name: [(x, y)]}: at most COLORS. The page says which has which colour."""
    plot = _Plot(x, y, words)
    for i, (name, points) in enumerate(series.items()):
        places = [(plot.at(a), plot.y(b), a, b) for a, b in points]
        path = " ".join(f"{left:.1f},{top:.1f}" for left, top, _, _ in places)
        plot.add(f'<polyline class="line c{i}" points="{path}"/>')
        for left, top, a, b in places:
            label = f"{name}, {x.title} {x.show(a)}: {y.show(b)}"
            plot.add(
                f'<circle class="dot c{i}" cx="{left:.1f}" cy="{top:.1f}" r="3.2"><title>{text(label)}</title></circle>'
            )
    plot.ticks([(plot.at(tick), x.show(tick)) for tick in x.ticks])
    return plot.svg()


class _Plot:
    """A frame with numbers on the left, whose content is added in the order of drawing."""

    def __init__(self, x: Axis, y: Axis, words: str):
        self._x, self._y, self._words = x, y, words
        self._parts = []
        for tick in y.ticks:
            top = self.y(tick)
            self.add(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{top:.1f}" y2="{top:.1f}"/>')
            self.add(f'<text x="{_LEFT - 7}" y="{top + 4:.1f}" text-anchor="end">{text(y.show(tick))}</text>')

    def add(self, part: str) -> None:
        self._parts.append(part)

    def at(self, value: float) -> float:
        return _LEFT + self._x.place(value) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _TOP + (1 - self._y.place(value)) * (_HEIGHT - _TOP - _BOTTOM)

    def bar(self, left: float, right: float, n: int, span: str) -> None:
        """A bar for `n`; what is there is seen."""
        bottom = self.y(0)
        top = min(self.y(n), bottom - 1.5) if n else bottom
        self.add(
            f'<rect class="bar" x="{left + 0.6:.1f}" y="{top:.1f}" width="{max(right - left - 1.2, 0.6):.1f}" '
            f'height="{bottom - top:.1f}"><title>{text(span)}: {n:,}</title></rect>'
        )

    def ticks(self, marks: Sequence[tuple[float, str]]) -> None:
        """Writes numbers below, at these places."""
        for left, label in marks:
            # At the edge, what would stand out of the picture moves in.
            left = min(left, _WIDTH - _CHARACTER / 2 * len(label))
            self.add(f'<text x="{left:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{text(label)}</text>')

    def svg(self) -> str:
        base = self.y(0) if self._y.low == 0 else _HEIGHT - _BOTTOM
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        return (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(self._words)}">'
            + "".join(self._parts)
            + f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base:.1f}" y2="{base:.1f}"/>'
            + f'<text x="{middle}" y="{_HEIGHT - 7}" text-anchor="middle">{text(self._x.title)}</text></svg>'
        )
