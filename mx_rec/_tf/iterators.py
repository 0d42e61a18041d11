"""Iterators in a graph: the ops that make them, draw batches from them and give them their data."""

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from mx_rec._tf.copying import functions_of
from mx_rec._tf.walking import ancestors

GET_NEXT = ("IteratorGetNext", "IteratorGetNextSync")  # types of the ops that take a batch from an iterator


def iterator_of(get_next):
    """The op of the iterator that a get_next op draws from."""
    return get_next.inputs[0].op


def is_one_shot(iterator) -> bool:
    """Whether a function builds the iterator's dataset, so that nothing initializes it."""
    return iterator.type == "OneShotIterator"


def resource_of(iterator):
    """The tensor by which ops know an iterator."""
    return iterator.outputs[0]


def resource_behind(iterator):
    """The same of an iterator as scripts know it, tf.compat.v1.data.Iterator."""
    return iterator._iterator_resource


def makers_of(iterator) -> list[object]:
    """The ops that initialize an iterator."""
    return [op for op in resource_of(iterator).consumers() if op.type == "MakeIterator"]


def dataset_of(maker):
    """The dataset, a variant tensor, that a maker gives to its iterator."""
    return maker.inputs[0]


def probe_of(maker):
    """A tensor that cannot be had, as an error says, before the iterator of a maker is initialized."""
    return tf.raw_ops.SerializeIterator(resource_handle=maker.inputs[1], external_state_policy=1)


def element_spec(get_next):
    """The tensors of a batch, as tf.TensorSpecs."""
    kinds = zip(get_next.get_attr("output_shapes"), get_next.get_attr("output_types"))
    return tuple(tf.TensorSpec(tf.TensorShape(shape), dtype) for shape, dtype in kinds)


def is_fed(dataset) -> bool:
    """Whether a dataset, a variant tensor, depends on a placeholder."""
    return any(op.type == "Placeholder" for op in ancestors([dataset.op]))


def inlined(one_shot):
    """The dataset of a one-shot iterator, whose ops are hidden in a function, as a tensor of the graph."""
    functions = functions_of(one_shot.graph).library
    name = one_shot.get_attr("dataset_factory").name
    (factory,) = (function for function in functions.function if function.signature.name == name)
    nodes, names = function_def_to_graph.function_def_to_graph_def(factory)
    nodes.library.CopyFrom(functions)
    result = names[factory.ret[factory.signature.output_arg[0].name]]
    (variant,) = tf.graph_util.import_graph_def(nodes, return_elements=[result], name="dataset")
    return variant


def last_outputs(graph, op_name) -> list[object]:
    """Of each get_next op of the graph whose dataset maps a function with an op of that name, the last output."""
    library = {function.signature.name: function for function in graph.as_graph_def().library.function}
    mapped = {name for name, function in library.items() if any(node.name == op_name for node in function.node_def)}
    if not mapped:
        return []
    found = []
    for op in graph.get_operations():
        if op.type not in GET_NEXT:
            continue
        iterator = iterator_of(op)
        if is_one_shot(iterator):
            factory = library[iterator.get_attr("dataset_factory").name]
            is_source = any(node.attr["f"].func.name in mapped for node in factory.node_def if "f" in node.attr)
        else:
            datasets = [dataset_of(maker).op for maker in makers_of(iterator)]
            is_source = any(_maps(op, mapped) for op in ancestors(datasets))
        if is_source:
            found.append(op.outputs[-1])
    return found


def _maps(dataset, functions):
    try:
        return dataset.get_attr("f").name in functions
    except ValueError:
        return False
