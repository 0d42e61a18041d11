"""One table out of a chain of checkpoints (_chain.py): of each key the newest row, without those that were deleted.

    link 0, all rows        keys 1 2 3 4
    link 1, a delta         keys 2 5      deleted 3        the table:  1 4 of link 0, 5 of link 1, 2 7 of link 2
    link 2, a delta         keys 2 7      deleted 7 9

A delta deletes before it adds: a key that it has in both has a row. In memory are the table's keys and the numbers of
their rows, 16 bytes a row, and the deltas' keys; columns stay mapped.
"""

import functools
from collections.abc import Sequence
from typing import Optional

import numpy as np

from mx_rec.checkpoint import _manifest, _table_files
from mx_rec.checkpoint._errors import damage
from mx_rec.checkpoint._table_files import History, TableFiles


class MergedColumn:
    """Chosen rows of several arrays, one after the other. A slice of it, or an array of row numbers, gives an array."""

    def __init__(self, arrays: Sequence[np.ndarray], rows: Sequence[np.ndarray]):
        self._arrays, self._rows = arrays, rows
        self._ends = np.cumsum([len(numbers) for numbers in rows])
        self.dtype = arrays[0].dtype
        self.shape = (int(self._ends[-1]), *arrays[0].shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which) -> np.ndarray:
        wanted = np.arange(*which.indices(len(self))) if isinstance(which, slice) else np.asarray(which)
        result = np.empty((len(wanted), *self.shape[1:]), self.dtype)
        part_of = np.searchsorted(self._ends, wanted, side="right")
        for part in np.unique(part_of):
            here = part_of == part
            begin = self._ends[part] - len(self._rows[part])
            result[here] = self._arrays[part][self._rows[part][wanted[here] - begin]]
        return result


class MergedTable(TableFiles):
    """The files of a delta's table, with the rows and histories of the whole chain."""

    def __init__(self, links: list[TableFiles]):
        """`links`: from the base to the delta."""
        last = links[-1]
        super().__init__(last.name, last.path, last.entry)
        self.__dict__["links"] = links

    @property
    def rows(self) -> int:
        """The number of rows, as the delta's manifest has it."""
        return self.entry.table_rows

    @property
    def bytes(self) -> int:
        """The bytes of the table's files in all links."""
        return sum(link.bytes for link in self.links)

    def keys(self) -> np.ndarray:
        """Returns the keys, int64 [rows]."""
        return self._keys

    def floats(self, column: str) -> MergedColumn:
        """Returns the embeddings ("embedding") or a slot, float32 [rows, dim]."""
        return MergedColumn([link.floats(column) for link in self.links], self._chosen)

    def history(self) -> Optional[History]:
        """Returns the newest record of each key, without those of keys that were deleted since."""
        last, empty = self.links[-1].history(), np.empty(0, np.int64)
        if last is None:
            return None
        histories = [link.history() or History(0, empty, empty, empty) for link in self.links]
        chosen = self._survivors([history.keys for history in histories])
        keys = np.concatenate([history.keys[places] for history, places in zip(histories, chosen)])
        counts, times = ([getattr(h, name) for h in histories] for name in ("counts", "times"))
        return History(last.now, keys, MergedColumn(counts, chosen), MergedColumn(times, chosen))

    def numbers(self, column: str) -> Optional[MergedColumn]:
        """Returns a column of _columns.NUMBERS, int64 [rows]; None if a link has none."""
        numbers = [link.numbers(column) for link in self.links]
        return None if any(its is None for its in numbers) else MergedColumn(numbers, self._chosen)

    def find(self, keys) -> dict[int, tuple[TableFiles, int]]:
        """Returns {key: (files of a link, row in it)} of those `keys` that have a row. Does not merge the table."""
        return self._find_newest(keys, TableFiles.find)

    def find_history(self, keys) -> dict[int, tuple[int, int]]:
        """Returns {key: (count, last time)} of those `keys` that the table has counted."""
        return self._find_newest(keys, TableFiles.find_history)

    def _find_newest(self, keys, find):
        wanted, found = set(map(int, keys)), {}
        for link in reversed(self.links):
            found |= find(link, wanted)
            wanted -= {*found, *_table_files.find_first(link.deleted(), wanted)}
        return found

    @functools.cached_property
    def _chosen(self) -> list[np.ndarray]:
        """Returns, of each link, the numbers of its rows that no later link replaces or deletes."""
        chosen = self._survivors([link.keys() for link in self.links])
        total = sum(map(len, chosen))
        if total != self.rows:
            raise damage(
                self.data_file("key"),
                f"contradicts the checkpoints that it builds on: together they have {total} rows, expected {self.rows} "
                f"(table_rows in {_manifest.NAME})",
            )
        return chosen

    def _survivors(self, keys: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns, of the keys that each link has, the places of those that no later link has or deletes."""
        chosen, gone = [], np.empty(0, np.int64)
        for link, held in zip(reversed(self.links), reversed(keys)):
            chosen.insert(0, _where(held, lambda block, gone=gone: ~_is_in(block, gone)))
            if link is not self.links[0]:
                gone = np.unique(np.concatenate([gone, held, link.deleted()]))
        return chosen

    @functools.cached_property
    def _keys(self) -> np.ndarray:
        return np.concatenate([link.keys()[rows] for link, rows in zip(self.links, self._chosen)])


def _is_in(keys, ordered):
    """Returns which of `keys` are in the sorted array `ordered`."""
    at = np.searchsorted(ordered, keys)
    found = at < len(ordered)
    found[found] = ordered[at[found]] == keys[found]
    return found


def _where(array, chooses):
    """Returns the places in `array` that are chosen, chunk by chunk."""
    parts = [part.start + np.flatnonzero(chooses(array[part])) for part in _table_files.chunks(len(array))]
    return np.concatenate([np.empty(0, np.int64), *parts])
