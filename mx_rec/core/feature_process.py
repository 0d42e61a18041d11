"""Feature eviction: EvictHook for monitored sessions and Estimators, `evict` for plain session loops."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Optional, Union

import tensorflow as tf

from mx_rec import _check, _process
from mx_rec._log import logger
from mx_rec._native import table as native_table
from mx_rec._native.table import Eviction
from mx_rec._sessions.shared_clock import SharedClock
from mx_rec._tables import graphs
from mx_rec._tables.sparse_table import BaseSparseEmbedding
from mx_rec.constants.constants import DEFAULT_EVICT_TIME_INTERVAL

__all__ = ["EvictHook", "EvictPolicy", "evict"]

# Rows that a hook walks between two steps: about 8 ms. Counted in rows, not in time, so that what is evicted in which
# step does not depend on the machine.
_SLICE = 1 << 18
_Tables = Union[str, BaseSparseEmbedding, Sequence[Union[str, BaseSparseEmbedding]]]


@dataclasses.dataclass(frozen=True)
class EvictPolicy:
    """Which rows go. Every row has a score; those that are too old or too low go, or the lowest until `keep` are left.

    Args:
        by: "time", the data time of the key's last occurrence; "step", its training step; "count", its occurrences,
            weighted by `faae_coefficient`; "norm", the L2 norm of its embedding.
        older_than: for "time" and "step": rows go whose key did not occur for so many seconds or steps. By default, for
            "time", each table's own `eviction_threshold`.
        below: for "count" and "norm": rows go that have less.
        keep: instead of either, how many rows each table may keep.
        tables: names of tables or tables; by default all of the default graph, or of the process if that graph has
            none, that have what is needed: an `eviction_threshold` where nothing else says what is old, counts where
            the score is one of them.

    All but "norm" need a table that counts: `access_threshold=0` counts and refuses nothing.
    """

    by: str = "time"
    older_than: Optional[int] = None
    below: Optional[float] = None
    keep: Optional[int] = None
    tables: Optional[_Tables] = None

    def __post_init__(self):
        _check.choice("by", self.by, ("time", "step", "count", "norm"))
        limit = "older_than" if self.by in ("time", "step") else "below"
        other = "below" if limit == "older_than" else "older_than"
        if getattr(self, other) is not None:
            raise ValueError(f"`{other}` is not for by={self.by!r}; use `{limit}` or `keep`")
        if self.older_than is not None:
            _check.integer("older_than", self.older_than, 0, _check.MAX_INT32)
        if self.below is not None and (isinstance(self.below, bool) or not isinstance(self.below, (int, float))):
            raise ValueError(f"`below` must be a number, got {self.below!r}")
        if self.keep is not None:
            _check.integer("keep", self.keep, 0, 2**62)
            if getattr(self, limit) is not None:
                raise ValueError(f"give `{limit}` or `keep`, not both")
        elif getattr(self, limit) is None and self.by != "time":
            raise ValueError(f"by={self.by!r} needs `{limit}` or `keep`")

    def begin(self) -> list[Eviction]:
        """Begins a pass over each table."""
        return [self._begin(table) for table in self._tables()]

    def _begin(self, table):
        if self.keep is not None:
            return Eviction(table, self.by, 0.0, self.keep)
        limit = self.below if self.by in ("count", "norm") else self.older_than
        if limit is None:
            tracking = table.tracking
            if tracking is None or tracking.eviction_threshold < 0:
                raise ValueError(
                    f"table '{table.name}' has no `eviction_threshold`: set one in its FeatureSpecs or in "
                    "access_and_evict_config, or pass `older_than`"
                )
            limit = tracking.eviction_threshold
        return Eviction(table, self.by, float(limit), -1)

    def _tables(self):
        """Returns the tables of the core that the policy is for, whatever graph has them."""
        known = native_table.known()
        if self.tables is None:
            here = [table.native for table in graphs.state().tables.values()] or known.values()
            return [table for table in here if self._concerns(table)]
        chosen = self.tables if isinstance(self.tables, (list, tuple)) else [self.tables]
        names = [table.table_name if isinstance(table, BaseSparseEmbedding) else table for table in chosen]
        for name in names:
            if name not in known:
                raise ValueError(f"there is no table {name!r} in this process; it has {sorted(known)}")
        return [known[name] for name in names]

    def _concerns(self, table):
        if self.by == "norm":
            return True
        tracking = table.tracking
        if self.by == "time" and self.older_than is None and self.keep is None:
            return tracking is not None and tracking.eviction_threshold >= 0
        return tracking is not None


def evict(
    by: str = "time",
    older_than: Optional[int] = None,
    below: Optional[float] = None,
    keep: Optional[int] = None,
    tables: Optional[_Tables] = None,
) -> dict[str, int]:
    """Evicts now and returns how many rows each table lost; for the arguments see `EvictPolicy`.

    Without arguments: by time, every table that has an `eviction_threshold`, of the default graph or, if that has no
    tables, of the process. The rows are free for new keys at once; a key that comes back starts from nothing. Call it
    between two `session.run`, never beside one. Training stands still for the whole pass: about 0.025 s per million
    rows, 0.06 by norm.
    """
    _process.config()
    run = _Pass(EvictPolicy(by, older_than, below, keep, tables))
    run.finish()
    return run.evicted


class EvictHook(tf.compat.v1.train.SessionRunHook):
    """Evicts while a monitored session or an Estimator trains; only for training.

    Args:
        evict_enable: whether to evict at all.
        evict_time_interval: seconds of the clock on the wall between two evictions.
        evict_step_interval: also evict whenever the global step is a multiple of this.
        policy: which rows go; by default, by time, those of all tables that have an `eviction_threshold`.

    With several ranks all must have the hook. They begin a pass at the same step: the clock is rank 0's.

    A pass over a large table is spread over as many steps as it has slices of 256 Ki rows, about 8 ms each.
    """

    def __init__(
        self,
        evict_enable: bool = False,
        evict_time_interval: int = DEFAULT_EVICT_TIME_INTERVAL,
        evict_step_interval: Optional[int] = None,
        policy: Optional[EvictPolicy] = None,
    ) -> None:
        self._enable = _check.boolean("evict_enable", evict_enable)
        self._seconds = _check.integer("evict_time_interval", evict_time_interval, 1, _check.MAX_INT32)
        self._steps = evict_step_interval
        if evict_step_interval is not None:
            _check.integer("evict_step_interval", evict_step_interval, 1, _check.MAX_INT32)
        if policy is not None:
            _check.instance("policy", policy, EvictPolicy, "an EvictPolicy")
        self._policy = policy or EvictPolicy()
        self._graph = None
        self._global_step = None
        self._clock = None  # since the last pass began
        self._last_step = None
        self._running = None

    def begin(self) -> None:
        self._graph = tf.compat.v1.get_default_graph()
        self._clock = SharedClock("EvictHook")
        if self._enable and self._steps is not None:
            self._global_step = tf.compat.v1.train.get_global_step()
            if self._global_step is None:
                raise RuntimeError(
                    "EvictHook: `evict_step_interval` needs a global step: call "
                    "tf.compat.v1.train.get_or_create_global_step() and pass it to the optimizer"
                )

    def before_run(self, run_context: Any) -> Any:
        del run_context
        return None if self._global_step is None else tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if not self._enable:
            return
        if self._running is None and self._is_due(run_context, run_values):
            with self._graph.as_default():
                self._running = _Pass(self._policy)
            self._clock.restart()
        if self._running is not None and self._running.go_on(_SLICE):
            self._running = None

    def end(self, session: Any) -> None:
        del session
        if self._running is not None:
            self._running.finish()
            self._running = None

    def _is_due(self, run_context, run_values):
        if self._clock.has_passed(self._seconds):
            return True
        # What was fetched may be from before or after the step's own increment.
        if self._global_step is None or (run_values.results + 1) % self._steps > 1:
            return False
        step = int(run_context.session.run(self._global_step))
        if step == 0 or step % self._steps != 0 or step == self._last_step:
            return False
        self._last_step = step
        return True


class _Pass:
    """One eviction, over all tables of a policy."""

    def __init__(self, policy):
        self._started = time.monotonic()
        self._policy = policy
        self._todo = policy.begin()
        if not self._todo:
            logger.warning(
                "nothing to evict from: no table has an `eviction_threshold`, or, for a policy of "
                "its own, an `access_threshold` to count by"
            )
        self._rows = {eviction.table.name: eviction.table.facts().rows for eviction in self._todo}
        self.evicted = {}

    def go_on(self, rows) -> bool:
        """Walks on over about `rows` rows; returns whether everything is done."""
        while self._todo:
            eviction = self._todo[0]
            eviction.run(rows)
            if not eviction.is_done:
                return False
            self.evicted[eviction.table.name] = eviction.evicted
            self._todo.pop(0)
            rows -= self._rows[eviction.table.name]
            if rows <= 0:
                break
        if self._todo:
            return False
        logger.info(
            "evicted by %s in %.2f s: %s",
            self._policy.by,
            time.monotonic() - self._started,
            ", ".join(f"'{name}' {count} of {self._rows[name]} rows" for name, count in self.evicted.items()),
        )
        return True

    def finish(self) -> None:
        while not self.go_on(_SLICE):
            pass
