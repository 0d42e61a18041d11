"""What mx_rec knows about each TensorFlow graph: its tables and the lookups built so far."""

import dataclasses
import weakref
from typing import Optional

from mx_rec._log import logger
from mx_rec._native import table as native_table
from mx_rec._ops.prepare import PrepareOp
from mx_rec._process import process
from mx_rec._tf.control_flow import is_inside
from mx_rec._tf.notes import Note

_STATE = Note("state")


@dataclasses.dataclass(frozen=True)
class TensorLookup:
    """A lookup of a tensor of ids, prepared in the step."""

    name: str
    table: object
    plan: object
    is_train: bool
    batch: object  # the structure of tensors that the script gave, or None
    moves: bool  # whether graph modification shall move it

    @property
    def ids(self) -> object:
        """The ids, int64, as they are prepared now: what changed the graph may have given the lookup others."""
        (ids,) = PrepareOp(self.plan.op).ids
        return ids

    @property
    def times(self) -> list[object]:
        """The timestamps that the plan is prepared with, one tensor, or none as far as is known."""
        return [times for times in PrepareOp(self.plan.op).times if times.op.type != "PlaceholderWithDefault"]


@dataclasses.dataclass
class Limits:
    """What static shape allows the batches of a plan."""

    send_counts: dict[int, int] = dataclasses.field(default_factory=dict)  # by feature
    commits: list[object] = dataclasses.field(default_factory=list)  # that check them


@dataclasses.dataclass
class GraphState:
    """Tensors are kept by `key`."""

    tables: dict[str, object] = dataclasses.field(default_factory=dict)
    # (plan, is_train) -> table -> its commit; (plan, is_train, pooling) for a second view of a feature
    commits: dict[tuple, dict[str, object]] = dataclasses.field(default_factory=dict)
    # (plan, is_train, feature, pooling) -> embeddings
    embeddings: dict[tuple, object] = dataclasses.field(default_factory=dict)
    # plan prepared for evaluation -> the same for training
    grouped: dict[tuple, object] = dataclasses.field(default_factory=dict)
    # plan -> how many different ids it may hold
    limits: dict[tuple, Limits] = dataclasses.field(default_factory=dict)
    # handles tensor -> table
    handles: dict[tuple, object] = dataclasses.field(default_factory=dict)
    # optimizer -> its variables in this graph
    optimizer_variables: dict[object, tuple] = dataclasses.field(default_factory=dict)
    # tables that a sparse optimizer updates
    updated: set[str] = dataclasses.field(default_factory=set)
    lookup_names: dict[str, int] = dataclasses.field(default_factory=dict)
    tensor_lookups: list[TensorLookup] = dataclasses.field(default_factory=list)
    # what graph modification put in place of the script's iterators; None: it has not run
    replacements: Optional[list[object]] = None
    # is_train -> the op that initializes all of their iterators, where there are several
    initializers: dict[bool, object] = dataclasses.field(default_factory=dict)
    is_started: bool = False
    has_session: bool = False
    # sessions that have run the graph, and those that did so before it had a table
    runners: weakref.WeakSet = dataclasses.field(default_factory=weakref.WeakSet)
    early_runners: weakref.WeakSet = dataclasses.field(default_factory=weakref.WeakSet)
    # what each export as a SavedModel has added to the graph, the latest last
    exports: list[list[object]] = dataclasses.field(default_factory=list)
    # tables that nothing trains, and that the log says so of
    warned_of: set[str] = dataclasses.field(default_factory=set)

    @property
    def to_move(self) -> list[TensorLookup]:
        """The lookups that graph modification shall move."""
        return [lookup for lookup in self.tensor_lookups if lookup.moves]


def state(graph=None) -> GraphState:
    """The state of `graph`, by default the default graph; inside tf.cond and the like, of the graph around it.

    It is kept on the graph itself, so that it goes when the graph goes.
    """
    if graph is None:
        import tensorflow as tf

        graph = tf.compat.v1.get_default_graph()
    graph = outermost(graph)
    generation, found = _STATE.of(graph, (None, None))
    if generation != process.generation:  # of tables that are gone
        found = GraphState()
        _STATE.set(graph, (process.generation, found))
    return found


def tables_here(what) -> dict[str, object]:
    """The tables of the default graph, for `what`, a call that concerns them. A warning if it has none, but others do:
    then the call was most likely meant for one of those."""
    tables = state().tables
    if not tables:
        hint = elsewhere()
        if hint:
            logger.warning("%s: the default graph has no table%s", what, hint)
    return tables


def elsewhere() -> str:
    """What to add to a message that the default graph has no table: where there are some. Empty if nowhere."""
    names = sorted(native_table.known())
    if not names:
        return ""
    return f"; {names} were created in another graph: make the call inside `with graph.as_default():` of that one"


def outermost(graph):
    """The graph around all branches and functions that `graph` is nested in; itself if it is not."""
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return graph


def key(tensor) -> tuple[int, str]:
    """What tells a tensor from all others of a state: names are unique in a graph, and a branch of tf.cond is one."""
    return id(tensor.graph), tensor.name


def is_top_level(graph) -> bool:
    """Whether ops now go to `graph` itself, not into a branch or loop of it."""
    import tensorflow as tf

    current = tf.compat.v1.get_default_graph()
    return current is graph and not is_inside(current)


def is_running(graph, before_tables=False) -> bool:
    """Whether a session that is still open has run `graph`. TensorFlow ignores changes of ops for such a session.
    `before_tables`: also if it did so only before there was a table, which matters where other ops are changed."""
    from mx_rec._tf.sessions import is_open

    found = state(graph)
    return any(map(is_open, [*found.runners, *(found.early_runners if before_tables else ())]))
