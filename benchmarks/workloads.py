"""Workloads: which ids a batch holds. Seeded NumPy, so every peer in every environment sees the same ones.

Rows of a table are numbered 0 .. rows-1; systems over arrays use these numbers as they are. Hash systems get a mixed
63-bit key for each. How often a row is used follows its rank, and ranks are spread over the table by a permutation: hot
rows are not neighbours, as they would not be in real data.
"""

import dataclasses
import functools
import os

import numpy as np

from benchmarks import paths

POOL = 128  # batches, used round-robin: their rows are far larger than any cache


@dataclasses.dataclass(frozen=True)
class Workload:
    """`feature_shape` ids for each of `tables` tables in a batch; the last axis of two is summed."""

    name: str
    tables: int
    rows: int  # of each table
    dim: int
    feature_shape: tuple[int, ...]
    zipf: float = 0.0  # exponent; 0: uniform
    hot: int = 0  # only this many rows are ever used; 0: all
    seed: int = 1

    @property
    def examples(self) -> int:
        return self.feature_shape[0]

    @property
    def bag(self) -> int:
        return self.feature_shape[1] if len(self.feature_shape) > 1 else 1

    @property
    def ids_per_batch(self) -> int:
        return self.tables * self.examples * self.bag

    def indices(self) -> np.ndarray:
        """Row numbers, [POOL, tables, *feature_shape] int64."""
        return self._cached("indices", self._draw)

    def keys(self) -> np.ndarray:
        """The same batches as keys of hash systems."""

        def mix():
            indices = self.indices()
            return np.stack([key_of(table, indices[:, table]) for table in range(self.tables)], axis=1)

        return self._cached("keys", mix)

    def target(self) -> np.ndarray:
        """[examples, tables * dim]. The loss is half the squared distance of the output to it.

        A loss that draws rows to zero would end in denormal numbers, which slow down some systems and not others.
        """
        return np.random.default_rng(77).normal(0, 0.05, (self.examples, self.tables * self.dim)).astype(np.float32)

    def _draw(self):
        random = np.random.default_rng(self.seed)
        ranks = self.hot or self.rows
        shape = (self.tables, *self.feature_shape)
        batches = np.empty((POOL, *shape), np.int64)
        for batch in batches:
            if self.zipf:
                rank = np.searchsorted(_zipf_cumulated(ranks, self.zipf), random.random(shape))
            else:
                rank = random.integers(0, ranks, shape)
            batch[...] = spread(rank, self.rows)
        return batches

    def _cached(self, what, make):
        path = paths.DATA / f"{self.name}-{self.rows}-{what}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(f".{os.getpid()}.npy")
            np.save(partial, make())
            partial.rename(path)
        return np.load(path, mmap_mode="r")


def get(name: str, scale: int = 1) -> Workload:
    """A workload by name, with tables of 1/scale of their rows."""
    workload = WORKLOADS[name]
    return dataclasses.replace(workload, rows=workload.rows // scale, hot=workload.hot // scale)


def key_of(table: int, row) -> np.ndarray:
    """The int64 key of a row number: distinct for distinct (table, row), and without any pattern."""
    x = np.asarray(row).astype(np.uint64) + (np.uint64(table) << np.uint64(40))
    x += np.uint64(0x9E3779B97F4A7C15)  # splitmix64; array arithmetic wraps
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)


def spread(rank: np.ndarray, rows: int) -> np.ndarray:
    """A permutation of 0 .. rows-1: the factor is a prime above any number of rows here."""
    return (rank.astype(np.uint64) * np.uint64(2654435761) % np.uint64(rows)).astype(np.int64)


@functools.lru_cache(maxsize=1)
def _zipf_cumulated(ranks, exponent):
    weights = np.arange(1, ranks + 1, dtype=np.float64) ** -exponent
    cumulated = np.cumsum(weights)
    cumulated /= cumulated[-1]
    cumulated[-1] = 1.0
    return cumulated


_SIZES = (100_000, 1_000_000, 10_000_000)
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("w1", tables=26, rows=1_000_000, dim=16, feature_shape=(4096,), zipf=1.05, seed=101),
        Workload("w2", tables=1, rows=10_000_000, dim=64, feature_shape=(8192, 20), zipf=1.05, seed=202),
        Workload("w3", tables=1, rows=10_000_000, dim=32, feature_shape=(100_000,), seed=303),
        Workload("disk", tables=1, rows=5_000_000, dim=32, feature_shape=(65_536,), zipf=1.05, seed=505),
        # One sequence of ranks below 100,000 in tables of three sizes: the same number of distinct rows and the same
        # reuse, with ever more unused rows between them.
        *(
            Workload(f"size{n}", tables=1, rows=n, dim=32, feature_shape=(100_000,), hot=_SIZES[0], seed=404)
            for n in _SIZES
        ),
    )
}
