"""FeatureSpec: where a feature's ids are in a batch, and which table they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mx_rec import _check
from mx_rec._process import Counter, part

if TYPE_CHECKING:
    from mx_rec._lowering.insertions import Insertion


class _Numbers(Counter):
    """Of specs."""


class FeatureSpec:
    """One feature of a batch.

    Args:
        name: 1 to 255 characters. Several specs may share a name; `.name` gets a running number appended.
        table_name: the table its ids read; default `name`.
        index_key: the feature's key in a dict batch, or position in a tuple batch; default `name`. In a nested batch a
            string key is searched in all dicts.
        access_threshold: -1 or None: off. From 0: feature admission.
        eviction_threshold: seconds; -1 or None: off. Feature eviction.
        is_timestamp: True for the batch's timestamp, which is not a feature and has no table.
        batch_size: the number of ids' rows per batch; informative.
        faae_coefficient: weight of one occurrence in the admission count.
        feat_count: of older scripts; ignored.
    """

    def __init__(
        self,
        name: str,
        table_name: str | None = None,
        index_key: str | int | None = None,
        access_threshold: int | None = None,
        eviction_threshold: int | None = None,
        is_timestamp: bool | None = None,
        batch_size: int | None = None,
        faae_coefficient: int = 1,
        feat_count: Any = None,
    ) -> None:
        del feat_count
        _check.text("name", name, 255)
        self.table_name = name if table_name is None else _check.text("table_name", table_name, 255)
        if index_key is None:
            index_key = name
        elif isinstance(index_key, str):
            _check.text("index_key", index_key, 255)
        else:
            _check.integer("index_key", index_key, 0, 255)
        self.index_key = index_key
        for label, value in (("access_threshold", access_threshold), ("eviction_threshold", eviction_threshold)):
            if value is not None:
                _check.integer(label, value, -1, _check.MAX_INT32)
        if is_timestamp is not None:
            _check.boolean("is_timestamp", is_timestamp)
        if batch_size is not None:
            _check.integer("batch_size", batch_size, 1, _check.MAX_INT32)
        _check.integer("faae_coefficient", faae_coefficient, 1, _check.MAX_INT32)
        self.access_threshold = access_threshold
        self.eviction_threshold = eviction_threshold
        self.is_timestamp = is_timestamp
        self.batch_size = batch_size
        self.faae_coefficient = faae_coefficient
        self.given_name = name
        self.name = f"{name}_{part(_Numbers).next()}"
        # One entry per dataset that passed through an insert function with this spec (_lowering/insertions.py).
        self.insertions: list[Insertion] = []

    def __repr__(self) -> str:
        return f"FeatureSpec({self.given_name!r}, table_name={self.table_name!r}, index_key={self.index_key!r})"
