"""MxrecJoined: embeddings of several features of a plan, which the lookup wrote side by side."""

from mx_rec._ops import fold, library
from mx_rec._ops.op import Op
from mx_rec._ops.pooling import Pooling
from mx_rec._tf import static_shape


class JoinedOp(Op):
    TYPE = "MxrecJoined"

    @staticmethod
    def gradient(op, gradient):
        import tensorflow as tf

        _, *rows, plan = op.inputs
        widths = [static_shape.size(tensor.shape, 1) for tensor in rows]
        parts = tf.split(tf.convert_to_tensor(gradient), widths, axis=-1)
        attributes = zip(*(op.get_attr(name) for name in ("tables", "features", "pooled")))
        folds = [
            fold.build(part, its_rows, plan, table, feature, Pooling(pooled))
            for part, its_rows, (table, feature, pooled) in zip(parts, rows, attributes)
        ]
        return [None, *folds, None]


def build(source, parts, shape):
    """What `parts`, EmbeddingsOps, gave one by one, as the lookup's output `source` of `shape` has it side by side."""
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
