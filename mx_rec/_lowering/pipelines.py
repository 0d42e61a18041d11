"""A dataset that also runs a part of the step, in the place of the one a batch came from."""

import dataclasses

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.framework import function_def_to_graph

from mx_rec._lowering.finding import Stays
from mx_rec._tf.copying import functions_of
from mx_rec._tf.editing import replace, replace_control
from mx_rec._tf.structure import hand_on

v1 = tf.compat.v1

# Batches prepared ahead: enough to ride out a slow one, few enough to keep their ids in the caches.
_AHEAD = 4


@dataclasses.dataclass
class Source:
    """An iterator whose batches are looked up."""

    iterator: object  # op
    get_nexts: list[object]  # ops

    @property
    def is_one_shot(self) -> bool:
        return self.iterator.type == "OneShotIterator"

    @property
    def makers(self):
        """The ops that initialize the iterator."""
        return [op for op in self.iterator.outputs[0].consumers() if op.type == "MakeIterator"]

    def check(self) -> None:
        """Raises Stays if the iterator cannot be replaced."""
        if self.is_one_shot or (self.iterator.type in ("Iterator", "IteratorV2") and self.makers):
            return
        raise Stays(
            f"{self.get_nexts[0].name} takes its batch from {self.iterator.name} ({self.iterator.type}), whose dataset "
            "is not in the graph; use make_initializable_iterator or make_one_shot_iterator"
        )


def extend(source, function, limit):
    """Replaces `source` by an iterator over the same elements, each followed by what `function` makes of it.

    `function` takes and returns flat lists of tensors. `limit` ends the data after so many batches, if it is positive.
    Returns for each of the source's get_next ops the list of new tensors; the first ones stand for the old op's
    outputs, and everything in the graph that read those now reads them.
    """
    old = source.get_nexts[0]
    spec = tuple(
        tf.TensorSpec(tf.TensorShape(shape), dtype)
        for shape, dtype in zip(old.get_attr("output_shapes"), old.get_attr("output_types"))
    )

    def dataset_of(variant):
        dataset = dataset_ops._VariantDataset(variant, spec)
        if limit > 0:
            dataset = dataset.take(limit)
        return dataset.map(lambda *flat: (*flat, *function(list(flat)))).prefetch(_AHEAD)

    with tf.name_scope("mx_rec/pipeline"), tf.control_dependencies(None):
        if source.is_one_shot:
            iterator = v1.data.make_one_shot_iterator(dataset_of(_inlined(source.iterator)))
            # What still reads the old iterator must not silently draw batches from it.
            unused = v1.data.Iterator.from_structure(tuple(s.dtype for s in spec), tuple(s.shape for s in spec))
            for get_next in source.get_nexts:
                get_next._update_input(0, unused._iterator_resource)
        else:
            datasets = [dataset_of(maker.inputs[0]) for maker in source.makers]
            # The script's own initializers now prepare the new iterator, which has no other; the old one stays without
            # data.
            iterator = v1.data.Iterator.from_structure(
                v1.data.get_output_types(datasets[0]), v1.data.get_output_shapes(datasets[0])
            )
            for maker, dataset in zip(source.makers, datasets):
                maker._update_input(0, dataset._variant_tensor)
                maker._update_input(1, iterator._iterator_resource)
        batches = [list(iterator.get_next()) for _ in source.get_nexts]
    for get_next, batch in zip(source.get_nexts, batches):
        for output, tensor in zip(get_next.outputs, batch):
            tensor.set_shape(output.shape)
            replace(output, tensor)
        replace_control([get_next], batch[0].op)
        hand_on(get_next, batch[0].op)
    return batches


def _inlined(one_shot):
    """The dataset of a one-shot iterator, whose ops are hidden in a function, as a tensor of the graph."""
    functions = functions_of(one_shot.graph).library
    name = one_shot.get_attr("dataset_factory").name
    (factory,) = (function for function in functions.function if function.signature.name == name)
    nodes, names = function_def_to_graph.function_def_to_graph_def(factory)
    nodes.library.CopyFrom(functions)
    result = names[factory.ret[factory.signature.output_arg[0].name]]
    (variant,) = tf.graph_util.import_graph_def(nodes, return_elements=[result], name="dataset")
    return variant
