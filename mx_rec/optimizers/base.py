"""CustomizedOptimizer: what scripts derive sparse optimizers of their own from.

Those that change the loss, the gradients or the learning rate derive from one of mx_rec's optimizers, or hold one.
Those that compute the update of rows themselves derive from an optimizer of TensorFlow and from this class
(mx_rec/optimizers/_own_update.py).
"""

from collections import defaultdict
from typing import Any

from mx_rec._process import Part, part
from mx_rec.optimizers import _own_update

__all__ = ["CustomizedOptimizer"]


class _Names(Part):
    """How many optimizers have asked for a name."""

    lasts = True

    def __init__(self):
        self.given: defaultdict[str, int] = defaultdict(int)


class CustomizedOptimizer:
    """A sparse optimizer: a name of its own, and slots with their initial values."""

    unique_name = ""
    base_name = ""
    _slot_num = 0
    _derivative = 1
    _has_rule = False  # of the core's: then it knows how tables are updated

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        if not cls._has_rule:
            _own_update.adopt(cls)

    @property
    def slot_num(self) -> int:
        """How many slots a row has."""
        return self._slot_num

    @property
    def derivative(self) -> int:
        """1 if the sum of the updates by two gradients of a row is the update by their sum, else 2."""
        return self._derivative

    def _get_name(self, name="CustomizedOptimizer") -> None:
        """Sets `base_name` to `name`, and `unique_name` to it with the number of the optimizers that had it before."""
        self.base_name = name
        given = part(_Names).given
        self.unique_name = f"{name}_{given[name]}"
        given[name] += 1

    def initialize_slots(self, var: Any, table_instance: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not say how its slots are made")

    def insert_slot(self, slot: Any, named_slots_key: Any, slot_name: str) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not say where its slots are")

    def get_slot_init_values(self) -> list[float]:
        """The initial value of each slot."""
        raise NotImplementedError(f"{type(self).__name__} does not say with what values its slots begin")
