"""Which part of a batch an op is about."""

import dataclasses
import enum


class Pooling(enum.IntEnum):
    """What a lookup gives of a feature."""

    NONE = 0  # an embedding for each id
    SUM = 1  # the sum along the last axis of the ids


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a feature is in a plan."""

    plan: object
    table: int
    feature: int
