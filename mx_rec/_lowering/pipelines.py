"""A dataset that also runs a part of the step, in the place of the one a batch came from."""

import dataclasses

import tensorflow as tf

from mx_rec._lowering.finding import Stays
from mx_rec._tf import iterators
from mx_rec._tf.editing import replace, replace_control, replace_input
from mx_rec._tf.structure import hand_on

v1 = tf.compat.v1

# Batches prepared ahead: enough to ride out a slow one, few enough to keep their ids in the caches.
_AHEAD = 4


@dataclasses.dataclass
class Source:
    """An iterator whose batches are looked up."""

    get_nexts: list[object]  # the ops that take them

    @property
    def iterator(self):
        """The op."""
        return iterators.iterator_of(self.get_nexts[0])

    @property
    def makers(self):
        """The ops that initialize the iterator."""
        return iterators.makers_of(self.iterator)

    def check(self) -> None:
        """Raises Stays if the iterator cannot be replaced."""
        if iterators.is_one_shot(self.iterator) or (self.iterator.type in ("Iterator", "IteratorV2") and self.makers):
            return
        raise Stays(
            f"{self.get_nexts[0].name} takes its batch from {self.iterator.name} ({self.iterator.type}), whose dataset "
            "is not in the graph; use make_initializable_iterator or make_one_shot_iterator"
        )


def extend(source, functions, limit):
    """Replaces `source` by an iterator over the same elements, each followed by what `functions` make of it.

    There is a function for each of the source's get_next ops; it takes and returns flat sequences of tensors. `limit`
    ends the data after so many batches, if it is positive. Returns for each get_next op what its function added to its
    batch. Everything in the graph that read the batch itself now reads that of the new iterator.
    """
    spec, makers = iterators.element_spec(source.get_nexts[0]), source.makers
    resource = iterators.resource_of(source.iterator)

    def dataset_of(variant):
        dataset = tf.data.experimental.from_variant(variant, spec)
        if limit > 0:
            dataset = dataset.take(limit)
        return dataset.map(lambda *flat: (flat, tuple(tuple(one(flat)) for one in functions))).prefetch(_AHEAD)

    with tf.name_scope("mx_rec/pipeline"), tf.control_dependencies(None):
        if iterators.is_one_shot(source.iterator):
            iterator = v1.data.make_one_shot_iterator(dataset_of(iterators.inlined(source.iterator)))
            # What still reads the old iterator must not silently draw batches from it.
            unused = v1.data.Iterator.from_structure(tuple(s.dtype for s in spec), tuple(s.shape for s in spec))
            for get_next in source.get_nexts:
                replace_input(get_next, resource, iterators.resource_behind(unused))
        else:
            datasets = [dataset_of(iterators.dataset_of(maker)) for maker in makers]
            # The script's own initializers now prepare the new iterator, which has no other; the old one stays without
            # data.
            iterator = v1.data.Iterator.from_structure(
                v1.data.get_output_types(datasets[0]), v1.data.get_output_shapes(datasets[0])
            )
            for maker, dataset in zip(makers, datasets):
                replace_input(maker, iterators.dataset_of(maker), tf.data.experimental.to_variant(dataset))
                replace_input(maker, resource, iterators.resource_behind(iterator))
        batches, added = zip(*(iterator.get_next() for _ in source.get_nexts))
    for get_next, batch in zip(source.get_nexts, batches):
        for output, tensor in zip(get_next.outputs, batch):
            tensor.set_shape(output.shape)
            replace(output, tensor)
        replace_control([get_next], batch[0].op)
        hand_on(get_next, batch[0].op)
    return [of_all[i] for i, of_all in enumerate(added)]
