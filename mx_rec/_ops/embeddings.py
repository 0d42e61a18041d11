"""What a lookup gives of its features: MxrecEmbeddings and MxrecJoined; and MxrecHasRow and MxrecPadding."""

from typing import Optional

from mx_rec._ops import fold, library
from mx_rec._ops.lookup import LookupOp
from mx_rec._ops.op import Op, reads, told
from mx_rec._ops.place import Ids, Place, Pooling
from mx_rec._tf import static_shape


class EmbeddingsOp(Op):
    TYPE = "MxrecEmbeddings"
    # The lookup's output that it hands on, and the lookup's rows, whose gradient its own becomes.
    source, rows = reads(0), reads(1)
    pooling = told("pooled", Pooling)

    @property
    def place(self) -> Place:
        return Place(self.op.inputs[2], *map(self.op.get_attr, ("table", "feature")))

    @property
    def ids(self) -> Ids:
        return Ids(self.place, self.op.get_attr("ids_shape"))

    @property
    def lookup(self) -> Optional[tuple[LookupOp, int]]:
        """The lookup whose embeddings these are, and the number of the feature there; None for another source."""
        lookup = LookupOp.of(self.source.op)
        return None if lookup is None else (lookup, lookup.feature_of(self.source))

    @staticmethod
    def gradient(op, gradient):
        import tensorflow as tf

        this = EmbeddingsOp(op)
        return [None, fold.build(tf.convert_to_tensor(gradient), this.rows, this.place, this.pooling), None]


class JoinedOp(Op):
    """What the lookup wrote side by side."""

    TYPE = "MxrecJoined"

    @staticmethod
    def gradient(op, gradient):
        import tensorflow as tf

        _, *rows, plan = op.inputs
        widths = [static_shape.size(tensor.shape, 1) for tensor in rows]
        parts = tf.split(tf.convert_to_tensor(gradient), widths, axis=-1)
        attributes = zip(*map(op.get_attr, ("tables", "features", "pooled")))
        folds = [
            fold.build(part, its_rows, Place(plan, table, feature), pooling)
            for part, its_rows, (table, feature, pooling) in zip(parts, rows, attributes)
        ]
        return [None, *folds, None]


def build(source, rows, ids, pooling, name=None):
    """Builds the op that gives the embeddings of ids, or of each bag of them, out of the lookup's."""
    return library.ops().mxrec_embeddings(
        embeddings=source, rows=rows, pooled=bool(pooling), name=name, **ids.attributes
    )


def join(source, parts, shape):
    """Builds the op that gives side by side what `parts`, EmbeddingsOps, gave one by one. The lookup writes it so, with
    this `shape`, into its output `source`."""
    places = [part.place for part in parts]
    return library.ops().mxrec_joined(
        embeddings=source,
        rows=[part.rows for part in parts],
        plan=places[0].plan,
        tables=[place.table for place in places],
        features=[place.feature for place in places],
        pooled=[int(part.pooling) for part in parts],
        shape=shape,
    )


def has_row(handles, ids):
    """Builds the op that tells, as bools, which ids have a row."""
    return library.ops().mxrec_has_row(handles=handles, name="has_row", **ids.attributes)


def is_padding(keys, ids):
    """Builds the op that tells, as bools, which ids are among `keys`."""
    return library.ops().mxrec_padding(keys=keys, name="padding", **ids.attributes)
