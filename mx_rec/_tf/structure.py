"""The structure of a script's batch: what `iterator.get_next()` gave it. The op behind it knows only a flat list."""

from tensorflow.python.data.ops import iterator_ops

from mx_rec._tf.iterators import GET_NEXT, resource_behind
from mx_rec._tf.notes import Note
from mx_rec._tf.patch import Patch

_BATCH = Note("batch")


def batch_behind(get_next):
    """The batch of a get_next op, or of the one that it replaced, as the script got it; a flat tuple if that was before
    `init`."""
    return _BATCH.of(get_next, tuple(get_next.outputs))


def hand_on(old, new) -> None:
    """Makes the batch of one get_next op that of another, which replaces it."""
    _BATCH.set(new, batch_behind(old))


def _get_next(self, name=None):
    batch = PATCHES[0].stock(self, name)
    for op in resource_behind(self).consumers():
        if op.type in GET_NEXT and _BATCH.of(op) is None:
            _BATCH.set(op, batch)
    return batch


PATCHES = [Patch(lambda: iterator_ops.Iterator, "get_next", _get_next, "an op knows a flat list alone of its batch")]
