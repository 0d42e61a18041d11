"""Op: an op of the core that stands in a graph, with names for its inputs, outputs and attributes."""

import dataclasses

_PREFIX = "Mxrec"  # of all types


@dataclasses.dataclass(frozen=True)
class Op:
    """The base of classes that know one op of native/tf each. Attributes can change until a session has run the op."""

    op: object  # tf.Operation

    TYPE = ""

    @classmethod
    def of(cls, op):
        """Returns an Op for `op`; None if that is an op of another type."""
        return cls(op) if op.type == cls.TYPE else None

    @classmethod
    def all_in(cls, graph) -> list:
        """Returns all ops of this type in a graph."""
        return [cls(op) for op in graph.get_operations() if op.type == cls.TYPE]


def reads(number):
    """Makes a property of an Op: an input, or several if `number` is a slice."""
    return property(lambda self: self.op.inputs[number])


def gives(number):
    """Makes a property of an Op: an output."""
    return property(lambda self: self.op.outputs[number])


def told(name, kind=lambda value: value):
    """Makes a property of an Op: an attribute."""
    return property(lambda self: kind(self.op.get_attr(name)))


def are_in(meta_graph_def) -> bool:
    """Tells whether a MetaGraph has ops of the core."""
    return any(op.name.startswith(_PREFIX) for op in meta_graph_def.meta_info_def.stripped_op_list.op)


def nodes_of(graph_def):
    """Yields the nodes of the core's ops in a GraphDef and its functions."""
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        yield from (node for node in nodes if node.op.startswith(_PREFIX))


def rename_tables(node, suffix) -> None:
    """Adds `suffix` to the names of the tables that a node knows."""
    names = node.attr["tables"].list.s if "tables" in node.attr else []
    names[:] = [name + suffix.encode() for name in names]
    if "table" in node.attr and node.attr["table"].WhichOneof("value") == "s":
        node.attr["table"].s += suffix.encode()
