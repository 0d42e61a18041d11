"""Pooling: what a lookup gives of a feature."""

import enum


class Pooling(enum.IntEnum):
    NONE = 0  # an embedding for each id
    SUM = 1  # the sum along the last axis of the ids
