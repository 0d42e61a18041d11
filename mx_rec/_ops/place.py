"""Which part of a batch an op is about: a feature, and the ids that it holds."""

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


@dataclasses.dataclass(frozen=True)
class Ids:
    """The ids of a feature: where they are, and their form."""

    place: Place
    shape: object  # as far as the graph knows it

    @property
    def attributes(self) -> dict[str, object]:
        """What tells an op of them."""
        return {**vars(self.place), "ids_shape": self.shape}
