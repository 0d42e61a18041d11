"""Feature admission and eviction in a few lines of Python: dicts and NumPy, one key after another."""

import copy
import dataclasses

import numpy as np


@dataclasses.dataclass
class Row:
    values: np.ndarray  # [2, dim]: embedding, Adagrad's accumulator
    count: int
    time: int
    step: int


class Reference:
    """A table trained by Adagrad, and what it knows of its keys."""

    def __init__(self, dim, rate, accumulator, initial, access=-1, eviction=-1, coefficient=1):
        self.dim, self.rate, self.accumulator, self.initial = dim, np.float32(rate), accumulator, initial
        self.access, self.eviction, self.coefficient = access, eviction, coefficient
        self.rows, self.candidates = {}, {}  # key -> Row; key -> [count, time]
        self.now = self.step = 0
        self.seen = self.admitted = self.evicted = self.forgotten = 0

    def train(self, ids, times, gradients):
        """One batch: ids [n], times [n] and gradients [n, dim] of all positions. Returns the embeddings [n, dim] before
        the update."""
        self.step += 1
        self.now = max(self.now, *times.tolist())
        places = {}
        for place, key in enumerate(ids.tolist()):
            places.setdefault(key, []).append(place)
        for key, mine in places.items():
            self._meet(key, self.coefficient * len(mine), max(times[p] for p in mine))
        embeddings = self.read(ids)
        for key, mine in places.items():
            if key not in self.rows:
                continue
            total = gradients[mine[0]].copy()
            for place in mine[1:]:
                total += gradients[place]
            w, a = self.rows[key].values
            a += total * total
            w -= self.rate * total / np.sqrt(a)
        return embeddings

    def _meet(self, key, weight, time):
        row = self.rows.get(key)
        if row is None:
            before = self.candidates.pop(key, None)
            if before is None:
                self.seen += 1
                before = [0, 0]
            count, time = before[0] + weight, max(before[1], time)
            if count < self.access:
                self.candidates[key] = [count, time]
                return
            self.admitted += 1
            values = np.empty((2, self.dim), np.float32)
            values[0], values[1] = self.initial, self.accumulator
            self.rows[key] = Row(values, count, time, self.step)
            return
        row.count, row.time, row.step = row.count + weight, max(row.time, time), self.step

    def read(self, ids):
        nothing = np.zeros(self.dim, np.float32)
        found = [self.rows[key].values[0] if key in self.rows else nothing for key in np.ravel(ids).tolist()]
        return np.array(found, np.float32)

    def evict(self, is_victim=None):
        """By time, or the rows for which is_victim(row) holds."""
        if is_victim is None:
            limit = self.now - self.eviction
            old = [key for key, (_, time) in self.candidates.items() if time <= limit]
            self.forgotten += len(old)
            for key in old:
                del self.candidates[key]

            def is_victim(row):
                return row.time <= limit

        victims = [key for key, row in self.rows.items() if is_victim(row)]
        self.evicted += len(victims)
        for key in victims:
            del self.rows[key]
        return len(victims)

    def snapshot(self):
        """What a checkpoint holds."""
        names = ("rows", "candidates", "now", "step", "access", "eviction", "coefficient")
        return copy.deepcopy({name: getattr(self, name) for name in names})

    def restore(self, snapshot):
        self.evicted += len(self.rows)
        self.forgotten += len(self.candidates)
        for name, value in copy.deepcopy(snapshot).items():
            setattr(self, name, value)
        self.admitted += len(self.rows)
        self.seen += len(self.rows) + len(self.candidates)

    def check(self, table):
        """Asserts that `table` holds and knows the same."""
        keys = np.sort(table.native.keys())
        np.testing.assert_array_equal(keys, np.array(sorted(self.rows), np.int64))
        values, _ = table.native.read(keys)
        mine = [self.rows[key] for key in keys.tolist()]
        np.testing.assert_allclose(values, np.reshape([row.values for row in mine], values.shape), rtol=1e-5, atol=1e-6)
        known = [*keys.tolist(), *self.candidates]
        count, time, step = table.native.history(known)
        assert count.tolist() == [row.count for row in mine] + [c for c, _ in self.candidates.values()]
        assert time.tolist() == [row.time for row in mine] + [t for _, t in self.candidates.values()]
        assert step.tolist() == [row.step for row in mine] + [0] * len(self.candidates)
        stats = table.stats()
        assert stats["candidates"] == len(self.candidates)
        assert (stats["seen"], stats["admitted"]) == (self.seen, self.admitted)
        assert (stats["refused"], stats["evicted"]) == (len(self.candidates) + self.forgotten, self.evicted)
        assert stats["seen"] == stats["admitted"] + stats["refused"]
        assert stats["admitted"] == stats["rows"] + stats["evicted"]
