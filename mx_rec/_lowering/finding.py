"""Finding the sub-graph that computes a lookup's ids, and the iterator behind it."""

import dataclasses
from typing import Optional

from mx_rec._tf import walking
from mx_rec._tf.control_flow import is_inside
from mx_rec._tf.iterators import GET_NEXT

# Stateful by TensorFlow's book, but always the same for the same input: static tables are filled once, before training.
_STATIC_TABLES = ("HashTable", "HashTableV2")
_STATIC_READS = ("LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2")
_SOURCES = (*GET_NEXT, *_STATIC_TABLES)
_LOOPS = ("Enter", "Exit", "NextIteration", "LoopCond", "RefEnter", "RefExit", "RefNextIteration")


@dataclasses.dataclass
class Slice:
    """The ops between an iterator and the ids of a lookup."""

    get_next: object
    ops: dict[str, object]  # by name; without `get_next` and the makers of `tables`
    tables: list[object]  # ops of static tables, which a copy shares


class Stays(Exception):
    """The lookup cannot leave the step; the message says why."""


def trace(lookup) -> Slice:
    """The slice of a lookup. Raises Stays, or ValueError for graphs that cannot be meant."""
    graph = lookup.plan.graph
    if getattr(graph, "outer_graph", None) is not None or is_inside(lookup.plan.op):
        raise Stays("it is inside a branch or a loop")
    who = f"lookup '{lookup.name}' in table '{lookup.table.table_name}'"
    return trace_ops([lookup.ids.op, *(times.op for times in lookup.times)], who)


def trace_ops(ops, who) -> Slice:
    """The slice of what `ops` give to `who`."""
    found, tables, sources = {}, [], {}
    for op in walking.ancestors(ops, lambda op: op.type in _SOURCES, with_control=True):
        if op.type in GET_NEXT:
            sources[op.name] = op
        elif op.type in _STATIC_TABLES:
            tables.append(op)
        elif (reason := _reason_to_stay(op)) is not None:
            raise Stays(f"its ids depend on {op.name} ({op.type}), {reason}")
        elif op.type in _LOOPS:
            raise ValueError(
                f"{who}: the sub-graph of its ids cannot be copied into the dataset, because {op.name} ({op.type}) is "
                "part of a loop; enable control flow v2, compute the ids outside of the loop, or look them up with "
                "modify_graph=False"
            )
        else:
            found[op.name] = op
    if not sources:
        raise Stays("its ids do not come from a dataset")
    if len(sources) > 1:
        first, second = sorted(sources)[:2]
        raise ValueError(
            f"{who}: its ids come from two batches, {first} and {second}, and cannot move into either dataset; zip the "
            "datasets, or call get_next() once"
        )
    (get_next,) = sources.values()
    return Slice(get_next, found, tables)


def sources_of(op) -> set[str]:
    """The names of the ops that bring data into the graph and that `op` depends on: iterators and placeholders."""
    return {one.name for one in walking.ancestors([op], _brings_data) if _brings_data(one)}


def _brings_data(op):
    return op.type in GET_NEXT or "Placeholder" in op.type


def reads_dataset(op) -> bool:
    """Whether an op depends on an iterator."""
    return any(op.graph.get_operation_by_name(name).type in GET_NEXT for name in sources_of(op))


def _reason_to_stay(op) -> Optional[str]:
    if op.type in ("Placeholder", "PlaceholderWithDefault", "PlaceholderV2"):
        return "which is fed in the step"
    if op.type in _STATIC_READS:
        is_static = any(source.op.type in _STATIC_TABLES for source in op.inputs)
        return None if is_static else "whose table may change from step to step"
    if "Variable" in op.type or op.type == "VarHandleOp":
        return "which reads a variable"
    if op.op_def.is_stateful:
        return "which has a state or draws random numbers"
    return None
