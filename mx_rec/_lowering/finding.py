"""Finding the sub-graph that computes a lookup's ids, and the iterator behind it."""

import dataclasses
from typing import Optional

from mx_rec._tf.structure import GET_NEXT

# Stateful by TensorFlow's book, but always the same for the same input: static tables are filled once, before training.
_STATIC_TABLES = ("HashTable", "HashTableV2")
_STATIC_READS = ("LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2")
_LOOPS = ("Enter", "Exit", "NextIteration", "LoopCond", "RefEnter", "RefExit", "RefNextIteration")


@dataclasses.dataclass
class Slice:
    """The ops between an iterator and the ids of a lookup."""

    get_next: object
    ops: dict[str, object]  # by name; without `get_next` and the makers of `tables`
    tables: list[object]  # handles of static tables, which a copy shares


class Stays(Exception):
    """The lookup cannot leave the step; the message says why."""


def trace(lookup) -> Slice:
    """The slice of a lookup. Raises Stays, or ValueError for graphs that cannot be meant."""
    graph = lookup.plan.graph
    if getattr(graph, "outer_graph", None) is not None or lookup.plan.op._get_control_flow_context() is not None:
        raise Stays("it is inside a branch or a loop")
    who = f"lookup '{lookup.name}' in table '{lookup.table.table_name}'"
    return trace_ops([lookup.ids.op, *(times.op for times in lookup.times)], who)


def trace_ops(ops, who) -> Slice:
    """The slice of what `ops` give to `who`."""
    seen, tables, sources = {}, [], {}
    stack = list(ops)
    while stack:
        op = stack.pop()
        if op.name in seen or op.name in sources:
            continue
        if op.type in GET_NEXT:
            sources[op.name] = op
            continue
        if op.type in _STATIC_TABLES:
            tables.append(op.outputs[0])
            seen[op.name] = None
            continue
        reason = _reason_to_stay(op)
        if reason is not None:
            raise Stays(f"its ids depend on {op.name} ({op.type}), {reason}")
        if op.type in _LOOPS:
            raise ValueError(
                f"{who}: the sub-graph of its ids cannot be copied into the dataset, because {op.name} ({op.type}) is "
                "part of a loop; enable control flow v2, compute the ids outside of the loop, or look them up with "
                "modify_graph=False"
            )
        seen[op.name] = op
        stack.extend(source.op for source in op.inputs)
        stack.extend(op.control_inputs)
    if not sources:
        raise Stays("its ids do not come from a dataset")
    if len(sources) > 1:
        first, second = sorted(sources)[:2]
        raise ValueError(
            f"{who}: its ids come from two batches, {first} and {second}, and cannot move into either dataset; zip the "
            "datasets, or call get_next() once"
        )
    (get_next,) = sources.values()
    return Slice(get_next, {name: op for name, op in seen.items() if op is not None}, tables)


def ancestors_of(op) -> dict[str, object]:
    """The op and all that it depends on, up to iterators, by name."""
    seen, stack = {}, [op]
    while stack:
        op = stack.pop()
        if op.name not in seen and op.type not in GET_NEXT:
            seen[op.name] = op
            stack.extend(source.op for source in op.inputs)
    return seen


def sources_of(op) -> set[str]:
    """The names of the ops that bring data into the graph and that `op` depends on: iterators and placeholders."""
    seen, found, stack = set(), set(), [op]
    while stack:
        op = stack.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if op.type in GET_NEXT or "Placeholder" in op.type:
            found.add(op.name)
        else:
            stack.extend(source.op for source in op.inputs)
    return found


def reads_dataset(op) -> bool:
    """Whether an op depends on an iterator."""
    return any(op.graph.get_operation_by_name(name).type in GET_NEXT for name in sources_of(op))


def _reason_to_stay(op) -> Optional[str]:
    if op.type in ("Placeholder", "PlaceholderWithDefault", "PlaceholderV2"):
        return "which is fed in the step"
    if op.type in _STATIC_READS:
        return None if op.inputs[0].op.type in _STATIC_TABLES else "whose table may change from step to step"
    if "Variable" in op.type or op.type == "VarHandleOp":
        return "which reads a variable"
    if op.op_def.is_stateful:
        return "which has a state or draws random numbers"
    return None
