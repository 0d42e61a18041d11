"""All that changes: what mx_rec knows between `init` and `terminate_config_initializer`.

Each room keeps its share in a class of its own, a Part, and asks for the one instance with `part`: it is made when it
is first asked for, so that nothing is loaded to be ended, and forgotten when mx_rec ends.
"""

import contextlib
import contextvars
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Optional, TypeVar

from mx_rec._config import NOT_INITIALIZED, Config


class Part:
    """What a room keeps. It is made without arguments."""

    lasts = False  # True: it outlives terminate_config_initializer

    def settle(self) -> None:
        """Ends what is under way: called before anything is closed, and before tables begin anew. RuntimeError if that
        failed."""

    def forget(self, table: str) -> None:
        """Forgets what the rows of a table were: it has begun anew."""

    def close(self) -> None:
        """Gives back what it holds."""


class Counter(Part):
    """Counts from 0 for as long as the process lives: what makes names unique."""

    lasts = True

    def __init__(self) -> None:
        self.next = itertools.count().__next__


class Scoped(Part):
    """A value that holds inside a `with` block, for the thread that runs it. A subclass says what it is elsewhere."""

    lasts = True
    default: Any = None

    def __init__(self) -> None:
        self._variable = contextvars.ContextVar(type(self).__qualname__, default=self.default)

    def get(self) -> Any:
        """Returns the value that holds here."""
        return self._variable.get()

    @contextlib.contextmanager
    def set(self, value: object) -> Iterator[None]:
        """Makes it `value` inside the block."""
        token = self._variable.set(value)
        try:
            yield
        finally:
            self._variable.reset(token)


P = TypeVar("P", bound=Part)


@dataclasses.dataclass
class Process:
    """The settings of the process, and the parts of the rooms."""

    config: Optional[Config] = None  # None: mx_rec does not run
    hashtable_collection: str = "ASCEND_GLOBAL_HASHTABLE_COLLECTION"
    if_load: bool = False
    optimizer: Optional[object] = None  # the sparse optimizer that was made last
    feature_specs: dict[str, object] = dataclasses.field(default_factory=dict)  # that an insert function has seen
    generation: int = 0  # how often all tables were forgotten: what tells a table from a later one of its name
    parts: dict[type, Part] = dataclasses.field(default_factory=dict)

    def settle(self) -> None:
        """Settles all parts; the first failure ends it."""
        for one in list(self.parts.values()):
            one.settle()

    def forget(self, table: str) -> None:
        """Lets all parts forget what the rows of a table were."""
        for one in list(self.parts.values()):
            one.forget(table)

    def end(self) -> None:
        """Settles all parts, then closes those that do not last, the latest first, and forgets the settings. Raises the
        first of what they raise, when all has ended."""
        failures = []
        ending = list(reversed(self.parts.items()))
        closing = [part for kind, part in ending if not kind.lasts]
        for act in (*(part.settle for _, part in ending), *(part.close for part in closing)):
            try:
                act()
            except Exception as error:
                failures.append(error)
        for part in closing:
            self.parts.pop(type(part), None)
        # But for `if_load`, which scripts may ask for later.
        self.config = self.optimizer = None
        self.feature_specs.clear()
        self.hashtable_collection = Process.hashtable_collection
        if failures:
            raise failures[0]


process = Process()


def part(kind: type[P]) -> P:
    """Returns the process's instance of a Part."""
    found = process.parts.get(kind)
    # Two threads that come first make two, of which one is kept.
    return process.parts.setdefault(kind, kind()) if found is None else found  # type: ignore[return-value]


def config() -> Config:
    """Returns the configuration; EnvironmentError before `init`."""
    if process.config is None:
        raise OSError(NOT_INITIALIZED)
    return process.config
