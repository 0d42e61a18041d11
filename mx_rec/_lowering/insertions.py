"""Insertion: what an insert function did to one dataset, for the lookups that come later."""

import dataclasses

from mx_rec._ops.prepare import Layout
from mx_rec._process import Counter, part


class _Numbers(Counter):
    """Of insertions."""


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
    number: int = dataclasses.field(default_factory=lambda: part(_Numbers).next())

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


def tensor_in(batch, spec):
    """The batch's tensor for `spec`; None if a string key is absent."""
    import tensorflow as tf

    key = spec.index_key
    if isinstance(key, str):
        matches = list(_named(batch, key))
        if len(matches) > 1:
            raise ValueError(
                f"{spec}: the nested batch holds {len(matches)} entries named {key!r}; give them other names"
            )
        if not matches:
            return None
        value = matches[0]
    elif isinstance(batch, dict):
        value = batch.get(key)
        if value is None:
            return None
    else:
        elements = batch if isinstance(batch, (tuple, list)) else (batch,)
        if key >= len(elements):
            raise ValueError(f"{spec}: index_key must be below the batch's {len(elements)} elements, got {key}")
        value = elements[key]
    if not tf.is_tensor(value) or isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
        raise TypeError(
            f"{spec}: the batch entry must be a dense Tensor, got {type(value).__name__}; "
            "convert it with tf.sparse.to_dense or RaggedTensor.to_tensor"
        )
    return value


def _named(structure, key):
    if isinstance(structure, dict):
        if key in structure:
            yield structure[key]
        for name, value in structure.items():
            if name != key:
                yield from _named(value, key)
    elif isinstance(structure, (tuple, list)):
        for value in structure:
            yield from _named(value, key)
