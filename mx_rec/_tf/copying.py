"""Copying a part of a graph into the function of a dataset."""

import tensorflow as tf


class Copier:
    """Copies the slices (_lowering/finding.py) behind the tensors `wanted` of one batch, which `who` reads. It must be
    made before the graph changes."""

    def __init__(self, get_next, wanted, who, slices):
        self._get_next = get_next
        self._wanted = {tensor.name: tensor for tensor in wanted}
        self._who = who
        self._tables = {table.outputs[0].name: table.outputs[0] for slice_ in slices for table in slice_.tables}
        ops = {name: op for slice_ in slices for name, op in slice_.ops.items()}
        outside = {get_next.name, *(handle.op.name for handle in self._tables.values())}
        self._nodes = functions_of(get_next.graph)
        for op in ops.values():
            node = self._nodes.node.add()
            node.CopyFrom(op.node_def)
            # Both name things that are not copied.
            node.device = ""
            node.attr.pop("_class", None)
            inputs = [name for name in node.input if not (name.startswith("^") and name[1:] in outside)]
            del node.input[:]
            node.input.extend(inputs)

    def __call__(self, batch):
        """Returns the wanted tensors by name, computed from those of a batch by copies in the default graph."""
        graph = tf.compat.v1.get_default_graph()
        known = {output.name: tensor for output, tensor in zip(self._get_next.outputs, batch)}
        known.update({name: graph.capture(handle) for name, handle in self._tables.items()})
        used = {_canonical(name) for node in self._nodes.node for name in node.input}
        computed = [name for name in self._wanted if name not in known]
        try:
            copies = tf.graph_util.import_graph_def(
                self._nodes,
                input_map={name: tensor for name, tensor in known.items() if name in used},
                return_elements=computed,
                name="ids",
            )
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"the sub-graph of the ids of {self._who} cannot be copied into the dataset behind "
                f"{self._get_next.name}: {error}"
            ) from error
        known.update(zip(computed, copies))
        return {name: known[name] for name in self._wanted}


def functions_of(graph):
    """Returns a GraphDef with the functions of a graph and no node. The nodes may hold whole datasets."""
    found = tf.compat.v1.GraphDef(versions=graph.graph_def_versions)
    graph._copy_functions_to_graph_def(found, 0)
    return found


def _canonical(name):
    return name if ":" in name or name.startswith("^") else f"{name}:0"
