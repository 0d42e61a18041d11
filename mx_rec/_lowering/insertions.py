"""Insertion: what an insert function did to one dataset, for the lookups that come later."""

import dataclasses
import itertools

from mx_rec._lowering.commits import Layout

_counter = itertools.count()


@dataclasses.dataclass(frozen=True)
class Feature:
    """A feature's place in a plan."""

    feature: int  # number among the plan's features
    table: int  # number among the plan's tables
    ids_shape: object  # tf.TensorShape, as far as the dataset knows it


@dataclasses.dataclass
class Insertion:
    """One traced insert function: its plan's layout and where the plan is in the batch."""

    plan_key: object  # key in a dict batch; None: the last element of a tuple batch
    tables: tuple[str, ...]
    features: dict[int, Feature]  # by id() of the spec; `specs` keeps them alive
    specs: list[object]
    is_grouped: bool
    has_times: bool  # whether the plan holds timestamps
    number: int = dataclasses.field(default_factory=lambda: next(_counter))

    @property
    def op_name(self) -> str:
        """The name of the prepare op in the dataset's function, unique in the process."""
        return f"mx_rec_prepare_{self.number}"

    @property
    def layout(self) -> Layout:
        table_of_feature = {feature.feature: feature.table for feature in self.features.values()}
        return Layout(self.tables, tuple(table_of_feature[f] for f in range(len(table_of_feature))), self.is_grouped)

    def find(self, spec):
        """The place of `spec`, or None."""
        return self.features.get(id(spec))


def plan_in(batch, insertion):
    """The plan tensor that `insertion` added to `batch`, or None if it is not there."""
    if isinstance(batch, dict):
        return batch.get(insertion.plan_key) if insertion.plan_key is not None else None
    if isinstance(batch, (tuple, list)) and insertion.plan_key is None and batch:
        return batch[-1]
    return None
