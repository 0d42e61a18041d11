"""Editing a graph that is built: what reads a tensor, or runs after an op, is given another one."""

from mx_rec._tf.walking import followers


def replace(old, new) -> None:
    """Makes everything that reads the tensor `old` read `new`: ops, collections, and sessions that are asked for it or
    fed with it. What runs after an op whose only output is `old` runs after the op of `new`."""
    for op in old.consumers():
        if op is not new.op:
            replace_input(op, old, new)
    for name in old.graph.collections:
        collection = old.graph.get_collection_ref(name)
        for number, element in enumerate(collection):
            if element is old:
                collection[number] = new
    old._as_graph_element = lambda: current(new)
    if len(old.op.outputs) == 1:
        old.op._as_graph_element = lambda: current(new.op)
        replace_control([old.op], new.op)


def current(element):
    """What stands for a tensor or an op now, however often it was replaced."""
    # A session asks for it, too, but only once.
    replaced = getattr(element, "_as_graph_element", None)
    return element if replaced is None else replaced()


def replace_input(op, old, new) -> None:
    """Makes one op read the tensor `new` wherever it read `old`."""
    for number, tensor in enumerate(op.inputs):
        if tensor is old:
            op._update_input(number, new)


def replace_control(old, new) -> None:
    """Makes everything that runs after one of the ops `old` run after the op `new` instead."""
    for op in {after for before in old for after in followers(before)}:
        others = [before for before in op.control_inputs if before not in old]
        op._remove_all_control_inputs()
        op._add_control_inputs([*others, new])


def run_after(op, others) -> None:
    """Makes `op` run after the ops `others`, too."""
    op._add_control_inputs(list(dict.fromkeys(others)))


def run_after_the_same(op, others) -> None:
    """Makes `op` run after everything that the ops `others` run after. TensorFlow often leaves that to a constant among
    an op's inputs."""
    constants = [source.op for other in others for source in other.inputs if source.op.type == "Const"]
    run_after(op, (before for other in [*others, *constants] for before in other.control_inputs))
