"""Walking a graph: from ops to what they depend on, and to what depends on them."""

# Ops that hand values on: what made them is further back.
_PASSING = ("ExpandDims", "GatherV2", "Identity", "Reshape", "Squeeze", "StridedSlice", "Transpose", "ConcatV2", "Pack")


def ancestors(ops, is_end=lambda op: False, with_control=False):
    """Yields `ops` and all that they depend on, each op once. Does not go on behind an op for which `is_end(op)` holds,
    nor along control dependencies unless asked to."""
    seen, stack = set(), list(ops)
    while stack:
        op = stack.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        yield op
        if not is_end(op):
            stack.extend(tensor.op for tensor in op.inputs)
            stack.extend(op.control_inputs if with_control else ())


def readers(op) -> list[object]:
    """The ops that read an output of `op`, once for each output."""
    return [reader for output in op.outputs for reader in output.consumers()]


def followers(op) -> list[object]:
    """The ops that run after `op` because they were told to."""
    return op._control_outputs


def ends_after(op) -> set[str]:
    """Of `op` and the ops that run after it, directly or not, the names of those that nothing runs after."""
    ends, seen, stack = set(), set(), [op]
    while stack:
        now = stack.pop()
        if now.name not in seen:
            seen.add(now.name)
            after = [*followers(now), *readers(now)]
            ends.update([] if after else [now.name])
            stack.extend(after)
    return ends


def maker_of(tensor):
    """The op that made the values of a tensor, behind those that only hand them on."""
    while tensor.op.type in _PASSING and tensor.op.inputs[0].dtype == tensor.dtype:
        tensor = tensor.op.inputs[0]
    return tensor.op
