"""How numbers are spread, found in one pass over any number of them, in 4 MB."""

import numpy as np

# A bucket for each value of the upper 19 bits of a float32 without its sign: numbers of a bucket differ by less than
# 1/2048, and whole numbers up to 4096 have buckets of their own.
_SHIFT = 12
_BUCKETS = 1 << (31 - _SHIFT)
_BINS = 30


class Distribution:
    """How numbers that are not negative are spread. Those that are not finite are counted and else left out."""

    def __init__(self):
        self.n = 0  # all, with those that are not finite
        self.not_finite = 0
        self.min = self.max = None  # of those that are finite
        self._sum = 0.0
        self._buckets = np.zeros(_BUCKETS, np.int64)
        self._is_whole = True

    def add(self, values: np.ndarray) -> None:
        """Adds the numbers of an array [n], which the caller need not keep."""
        self.n += len(values)
        finite = values[np.isfinite(values)]
        self.not_finite += len(values) - len(finite)
        if not len(finite):
            return
        self._is_whole &= finite.dtype.kind == "i"
        low, high = finite.min().item(), finite.max().item()
        self.min = low if self.min is None else min(self.min, low)
        self.max = high if self.max is None else max(self.max, high)
        self._sum += float(finite.sum(dtype=np.float64))
        numbers = np.minimum(finite, np.finfo(np.float32).max).astype(np.float32)
        self._buckets += np.bincount(numbers.view(np.uint32) >> _SHIFT, minlength=_BUCKETS)

    @property
    def mean(self) -> float:
        """The mean of the finite numbers; there must be one."""
        return self._sum / (self.n - self.not_finite)

    def below(self, limits) -> np.ndarray:
        """Returns how many are less than each of `limits`, an array, to the width of a bucket; int64."""
        values, counts = self._filled()
        ends = np.concatenate([[0], np.cumsum(counts)])
        return ends[np.searchsorted(values, np.asarray(limits, np.float64), side="left")]

    def equal_bins(self) -> list[tuple[float, float, int]]:
        """Returns up to 30 bins (low, high, how many) of equal width. Of whole numbers both ends belong to the bin."""
        if self.min is None:
            return []
        values, counts = self._filled()
        if self._is_whole:
            width = -(-(self.max - self.min + 1) // _BINS)
            starts = list(range(self.min, self.max + 1, width))
            bins = [(start, min(start + width - 1, self.max)) for start in starts]
            places = (values - self.min) // width
        elif self.min == self.max:
            return [(self.min, self.max, self.n - self.not_finite)]
        else:
            edges = np.linspace(self.min, self.max, _BINS + 1).tolist()
            bins = list(zip(edges, edges[1:]))
            places = (values - self.min) / (self.max - self.min) * _BINS
        places = np.clip(places, 0, len(bins) - 1).astype(np.int64)
        filled = np.bincount(places, counts, len(bins)).astype(np.int64)
        return [(*span, n) for span, n in zip(bins, filled.tolist())]

    @property
    def is_wide(self) -> bool:
        """Whether the numbers are spread over orders of magnitude, so that bins of equal width hide most of them."""
        return self.min is not None and self.max > 1000 * self.least_positive > 0

    @property
    def least_positive(self) -> float:
        """Returns the least positive number, to the width of a bucket; 0 if there is none."""
        values, _ = self._filled()
        return float(values[values > 0].min(initial=np.inf)) if (values > 0).any() else 0.0

    @property
    def zeros(self) -> int:
        return int(self._buckets[0])

    def geometric_bins(self) -> list[tuple[float, float, int]]:
        """Returns 30 bins (low, high, how many) whose ends are in a constant ratio, without the zeros."""
        edges = np.geomspace(self.least_positive, self.max, _BINS + 1)
        ends = self.below([*edges[:-1], np.inf])
        return [(float(a), float(b), int(n)) for a, b, n in zip(edges, edges[1:], np.diff(ends))]

    def doubling_bins(self) -> list[tuple[int, int, int]]:
        """Returns bins of whole numbers over many orders of magnitude: 0, 1, 2 to 3, 4 to 7, ..."""
        if self.min is None:
            return []
        starts = [0, *(1 << bit for bit in range(int(self.max).bit_length()))]
        ends = self.below([*starts[1:], np.inf])
        bins = [(a, max(a, 2 * a - 1), int(n)) for a, n in zip(starts, np.diff(ends, prepend=0))]
        first = next(i for i, (_, _, n) in enumerate(bins) if n)
        return bins[first:]

    def _filled(self):
        """Returns (the least number, how many) of each bucket that is not empty."""
        places = np.flatnonzero(self._buckets)
        return (places.astype(np.uint32) << _SHIFT).view(np.float32).astype(np.float64), self._buckets[places]
