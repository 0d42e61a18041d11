"""What a lookup gives of one feature: MxrecEmbeddings, and beside it MxrecHasRow and MxrecPadding."""

import dataclasses
from typing import Optional

from mx_rec._ops import fold, library
from mx_rec._ops.lookup import LookupOp
from mx_rec._ops.op import Op
from mx_rec._ops.pooling import Pooling
from mx_rec._tf.attributes import set_attributes


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a feature is in a plan."""

    plan: object
    table: int
    feature: int
    ids_shape: object  # tf.TensorShape


class _OfFeature(Op):
    def move(self, table, feature) -> None:
        """Means another place of a plan."""
        set_attributes(self.op, table=table, feature=feature)


class EmbeddingsOp(_OfFeature):
    TYPE = "MxrecEmbeddings"

    @property
    def source(self):
        """The lookup's output that it hands on."""
        return self.op.inputs[0]

    def take(self, source) -> None:
        """Hands on another lookup's output."""
        self.op._update_input(0, source)

    @property
    def rows(self):
        """The lookup's rows, whose gradient its own becomes."""
        return self.op.inputs[1]

    @property
    def out(self):
        return self.op.outputs[0]

    @property
    def place(self) -> Place:
        table, feature, ids_shape = (self.op.get_attr(name) for name in ("table", "feature", "ids_shape"))
        return Place(self.op.inputs[2], table, feature, ids_shape)

    @property
    def pooling(self) -> Pooling:
        return Pooling(self.op.get_attr("pooled"))

    @property
    def lookup(self) -> Optional[tuple[LookupOp, int]]:
        """The lookup whose embeddings these are, and the number of the feature there; None for another source."""
        lookup = LookupOp.of(self.source.op)
        return None if lookup is None else (lookup, lookup.feature_of(self.source))

    @staticmethod
    def gradient(op, gradient):
        import tensorflow as tf

        this, place = EmbeddingsOp(op), EmbeddingsOp(op).place
        gradient = tf.convert_to_tensor(gradient)
        return [None, fold.build(gradient, this.rows, place.plan, place.table, place.feature, this.pooling), None]


class HasRowOp(_OfFeature):
    TYPE = "MxrecHasRow"


class PaddingOp(_OfFeature):
    TYPE = "MxrecPadding"


def build(embeddings, rows, place, pooling, name=None):
    """The embeddings of a feature, or of each of its bags, out of the lookup's."""
    return library.ops().mxrec_embeddings(
        embeddings=embeddings, rows=rows, pooled=bool(pooling), name=name, **vars(place)
    )


def has_row(handles, place):
    """Which ids of a feature have a row, as bools."""
    return library.ops().mxrec_has_row(handles=handles, name="has_row", **vars(place))


def is_padding(keys, place):
    """Which ids of a feature are among `keys`, as bools."""
    return library.ops().mxrec_padding(keys=keys, name="padding", **vars(place))
