import numpy as np
import pytest

from mx_rec.cli._distribution import Distribution


def of(values, pieces=3):
    found = Distribution()
    for piece in np.array_split(values, pieces):
        found.add(piece)
    return found


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e20])
def test_numbers_are_counted_as_numpy_counts_them(scale):
    values = (np.random.RandomState(1).lognormal(size=20_000) * scale).astype(np.float32)
    spread = of(values)
    assert (spread.n, spread.min, spread.max) == (len(values), values.min(), values.max())
    assert spread.mean == pytest.approx(values.mean(dtype=np.float64))
    for bins in (spread.equal_bins(), spread.geometric_bins()):
        assert sum(n for _, _, n in bins) == len(values)
        edges = np.array([bins[0][0], *(high for _, high, _ in bins)])
        counts = np.histogram(values, np.concatenate([[0], edges[1:-1], [np.inf]]))[0]
        # A bucket is 1/2048 wide, and numbers that share one with an edge may be on either side.
        assert np.abs(counts - [n for _, _, n in bins]).max() < 0.01 * len(values)


def test_whole_numbers_are_exact_up_to_4096():
    values = np.random.RandomState(2).zipf(1.5, 10_000).clip(max=4096) - 1
    spread = of(values)
    for limit in (0, 1, 2, 3, 10, 100, 4095, 4096, 10_000):
        assert spread.below(limit) == (values < limit).sum()
    assert [n for *_, n in spread.equal_bins()] == [
        ((values >= low) & (values <= high)).sum() for low, high, _ in spread.equal_bins()
    ]
    assert [n for *_, n in spread.doubling_bins()] == [
        ((values >= low) & (values <= high)).sum() for low, high, _ in spread.doubling_bins()
    ]
    assert sum(n for *_, n in spread.doubling_bins()) == len(values)


def test_large_counts_have_bins():
    spread = of(np.array([1, 2**32 - 1]), 1)
    assert (spread.doubling_bins()[0], spread.doubling_bins()[-1]) == ((1, 1, 1), (2**31, 2**32 - 1, 1))


def test_what_is_not_finite_is_counted_and_left_out():
    spread = of(np.array([np.nan, 1.0, np.inf, 3.0], np.float32), 1)
    assert (spread.n, spread.not_finite, spread.min, spread.max, spread.mean) == (4, 2, 1.0, 3.0, 2.0)
    nothing = of(np.array([np.nan], np.float32), 1)
    assert (nothing.min, nothing.equal_bins(), nothing.doubling_bins(), nothing.is_wide) == (None, [], [], False)


@pytest.mark.parametrize("values", [np.zeros(5, np.float32), np.full(5, 0.3, np.float32), np.full(5, 7)])
def test_equal_numbers_are_one_bin(values):
    assert of(values, 1).equal_bins() == [(values[0].item(), values[0].item(), 5)]
