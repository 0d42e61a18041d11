"""BaseSparseEmbedding: a table as one graph sees it."""

import dataclasses
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from mx_rec import _process, _ranks
from mx_rec._log import logger
from mx_rec._native import table as native_table
from mx_rec._native import world
from mx_rec._native.table import NativeTable
from mx_rec._native.table_config import DiskTier, InitializerSpec, TableConfig
from mx_rec._process import Part, part
from mx_rec._tables import anchors, initializers, row_access
from mx_rec._tf import patches
from mx_rec.constants.constants import All2allGradientsOp


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """The checked arguments of create_table, without the initializer."""

    name: str
    key_dtype: Any
    dim: int
    device_vocabulary_size: int
    host_vocabulary_size: int
    ssd_vocabulary_size: int
    ssd_data_path: tuple[str, ...]
    is_save: bool
    is_dp: bool
    init_param: float
    all2all_gradients_op: str
    padding_keys: tuple[int, ...]
    unlimited: bool
    admission_filter_bytes: int

    @property
    def rows_in_memory(self) -> int:
        return self.device_vocabulary_size + self.host_vocabulary_size

    @property
    def rows(self) -> int:
        return self.rows_in_memory + self.ssd_vocabulary_size

    @property
    def tier(self) -> Optional[DiskTier]:
        if self.ssd_vocabulary_size == 0:
            return None
        in_memory = self.of_rank(self.rows_in_memory)
        # The limit of rows is that of all ranks together: one that has more than its share may have them on disk.
        return DiskTier(in_memory, self.rows - in_memory, self.ssd_data_path)

    def of_rank(self, rows: int) -> int:
        """Returns a rank's share of that many rows, rounded up; all of them in a table that each holds whole."""
        return rows if self.is_dp else -(-rows // _ranks.facts().size)


class _OnDisk(Part):
    """The tables that have rows on disk."""

    def __init__(self):
        self.tables: dict[str, BaseSparseEmbedding] = {}  # by name

    def close(self):
        """Logs what their disk tiers have done."""
        for name, table in self.tables.items():
            logger.info("table '%s': %s", name, tier_text(table.stats()))


def tier_text(stats) -> str:
    """Returns the numbers of a disk tier, of `table.stats()`, in words."""
    return (
        "{rows_in_memory:,} rows in memory, {rows_on_disk:,} on disk ({megabytes:,.1f} MB); hit rate {hit_rate:.3f}, "
        "{promotions:,} rows came back, {demotions:,} went to disk, a row was read in {read_microseconds:.1f} us"
    ).format(megabytes=stats["bytes_on_disk"] / 1e6, **stats)


class BaseSparseEmbedding:
    """A table. Its rows belong to the process and outlive the graph; this object belongs to the graph."""

    def __init__(self, options: TableOptions, initializer: Any) -> None:
        """`initializer`: as of create_table, or an InitializerSpec."""
        self.options = options
        self.send_count: Optional[int] = None
        """What a lookup was last given as its `send_count`; None without."""
        self.optimizer_name = None
        self.variable: Any = None
        """The resource variable of shape [0, dim] that stands for the table in collections and gradients."""
        self._lookups = set()
        # What `content` was when this graph joined it with rows, and after a warm start.
        self.joined = None
        self.warm_started = None
        self.required = {}  # what lookups of this graph require of admission and eviction (_tables/trackings.py)
        if not isinstance(initializer, InitializerSpec):
            initializer = initializers.convert(initializer, options.name, options.dim, options.rows, options.init_param)
            if _ranks.are_several() and initializer.pool is not None:
                # Drawn from a generator that may stand elsewhere on every rank.
                drawn = _ranks.gather(f"emb_initializer of table '{options.name}'", _of_first(initializer.pool))[0]
                pool = np.frombuffer(drawn, np.float32).reshape(-1, options.dim)
                initializer = dataclasses.replace(initializer, pool=pool)
        self.initializer = initializer
        self.generation = native_table.generation()
        self.native = NativeTable(
            TableConfig(
                options.name,
                options.dim,
                initializer,
                max_rows=self.native_limit,
                expected_rows=options.rows,
                padding_keys=options.padding_keys,
                tier=options.tier,
            )
        )
        if _ranks.are_several():
            self._share()
        if options.tier is not None:
            part(_OnDisk).tables[options.name] = self

    def _share(self):
        """Tells the core how the ranks share the table."""
        if self.is_dp:
            world.replicate(self.table_name)
        if self.options.all2all_gradients_op == All2allGradientsOp.SUM_GRADIENTS_AND_DIV_BY_RANKSIZE.value:
            world.scale_gradients(self.table_name, 1 / _ranks.facts().size)

    def add_anchor(self) -> None:
        """Makes the variable of shape [0, dim] that stands for the table in TensorFlow's collections and gradients."""
        import tensorflow as tf

        v1 = tf.compat.v1
        # At the root of all scopes and outside of control flow: one anchor per table, under the table's own name.
        with tf.init_scope() if _is_nested() else _root_scope():
            anchor = v1.Variable(
                lambda: tf.zeros([0, self.embedding_size], tf.float32),
                name=self.table_name,
                trainable=False,
                use_resource=True,
                dtype=tf.float32,
                collections=[v1.GraphKeys.GLOBAL_VARIABLES, _process.process.hashtable_collection],
            )
        self.bind_anchor(anchor)

    def bind_anchor(self, variable: Any) -> None:
        """Takes a variable of the graph as the anchor. From now on TensorFlow must know of tables."""
        patches.install()
        self.variable = variable
        anchors.bind(variable, self)

    def check_same(self, options: TableOptions) -> None:
        """Raises ValueError unless `options` are the ones the table was made with."""
        for field in dataclasses.fields(options):
            have, want = getattr(self.options, field.name), getattr(options, field.name)
            if have != want:
                raise ValueError(
                    f"table '{self.table_name}' exists with {field.name}={have!r}, now {want!r}; give the new table "
                    "another name"
                )

    def count_lookup(self, what: tuple[str, str], is_train: bool) -> None:
        self._lookups.add((what, is_train))

    @property
    def lookups(self) -> set[tuple[tuple[str, str], bool]]:
        """((kind of ids, their name), is_train) of this graph's lookups."""
        return self._lookups

    def reads(self, ids_name: str) -> bool:
        """Tells whether a lookup of this graph reads the FeatureSpec or tensor of that name."""
        for (kind, name), _ in self._lookups:
            plain = name.rpartition("_" if kind == "spec" else ":")[0]  # without the running number, without ":0"
            if ids_name in (name, plain):
                return True
        return False

    @property
    def is_trained_on(self) -> bool:
        """Whether a lookup of this graph inserts keys."""
        return any(is_train for _, is_train in self._lookups)

    @property
    def lookup_count(self) -> int:
        return len(self._lookups)

    @property
    def table_name(self) -> str:
        """The `name` of create_table."""
        return self.options.name

    @property
    def native_limit(self) -> int:
        """The most rows the table may hold; 0: no limit."""
        return 0 if self.options.unlimited else self.options.rows

    @property
    def tier(self) -> Optional[DiskTier]:
        """How the rows are shared between memory and disk; None if all are in memory."""
        return self.options.tier

    def content(self) -> tuple[int, ...]:
        """Numbers of which one differs whenever the rows have changed; the first is that of rows."""
        facts = self.native.facts()
        return facts.rows, facts.mutations, facts.inserted, facts.erased

    def size(self) -> int:
        """Rows that this rank has now; all of the table's if there is one rank."""
        return self.native.facts().rows

    def capacity(self) -> int:
        """Returns the most rows the table may hold; with dynamic expansion, the rows allocated so far."""
        return self.native.facts().capacity

    def assign(self, keys: npt.ArrayLike, rows: npt.ArrayLike) -> None:
        """Gives `keys`, [n] integers, the embeddings `rows`, [n, dim] floats: pretrained vectors, say.

        A key without a row gets one, whatever the admission threshold, with the optimizer's slots at their initial
        values. A row that is there keeps its slots, counts and times; only its embedding is replaced. Padding keys may
        be assigned, too. Checkpoints, also incremental ones, hold the rows as if they had been trained.

        Call it between two `session.run`, never beside one. Initializing variables does not touch tables, so it may
        come before or after; a restore replaces all rows.

        Raises ValueError for keys of another kind, range or twice, for rows of another shape or kind or that are not
        finite in float32, MemoryError if the table may not hold that many rows or memory is used up, OSError if a disk
        tier fails. After any of them the table is as it was.

        With several ranks all must call it with the same arrays; each keeps the rows that it owns.
        """
        row_access.assign(self, keys, rows)

    def read(self, keys: npt.ArrayLike) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Returns (embeddings, float32 of shape `keys.shape + [dim]`; which keys have a row, bool of shape
        `keys.shape`).

        Keys without a row read zeros, as in an evaluation. Nothing changes: no row is made, counted or brought back
        from disk. Call it between two `session.run`. Raises ValueError for keys that are no integers or out of range.

        With several ranks all must call it, each with keys of its own; the rows come from the ranks that own them.
        """
        return row_access.read(self, keys)

    def stats(self) -> dict[str, float]:
        """Returns numbers of this moment; admitted = rows + evicted, seen = admitted + refused.

        With several ranks they are this rank's, but for two: capacity, the limit for all ranks together, and
        rows_on_all_ranks, where the other ranks' rows are counted as they were before the table's latest lookup.

        rows: keys that have a row now. capacity: rows there is room for. bytes: memory of rows, index and counts.
        seen, admitted, refused, evicted: keys that training has met since the table was created, those of them that got
        a row, those that did not (yet), and rows taken away; a key that comes back after it was forgotten is another
        one. candidates: refused keys that are remembered now. With an admission filter `seen`, `refused` and
        `candidates` are estimates, too low where the filter is small: keys that share cells are taken for one.
        nonfinite: how often a row was not updated because its gradient held NaN or infinity, in steps that left such
        rows alone or failed because of them (`init(nonfinite_gradients=...)`).

        Tables with an `ssd_vocabulary_size` have more: rows_in_memory and rows_on_disk; bytes_on_disk, of the scratch
        files; hits, the keys of batches whose rows were in memory, and hit_rate, their share among keys that had a row;
        promotions, rows that came back from disk, demotions, rows that went there, and moved, rows that were written
        once more to free space; read_microseconds, how long reading a row kept a step waiting, on average.
        """
        facts = self.native.facts()
        return {
            "rows": facts.rows,
            "rows_on_all_ranks": facts.rows + facts.elsewhere,
            "capacity": facts.capacity,
            "bytes": facts.bytes,
            "seen": facts.seen,
            "admitted": facts.inserted,
            "refused": facts.refused,
            "evicted": facts.erased,
            "candidates": facts.candidates,
            "nonfinite": facts.nonfinite,
            **self._tier_stats(),
        }

    def _tier_stats(self) -> dict[str, float]:
        tier = self.native.tier
        if tier is None:
            return {}
        found = tier.hits + tier.promotions
        return {
            "rows_in_memory": tier.rows_in_memory,
            "rows_on_disk": tier.rows_on_disk,
            "bytes_on_disk": tier.bytes_on_disk,
            "hits": tier.hits,
            "hit_rate": tier.hits / found if found else 1.0,
            "promotions": tier.promotions,
            "demotions": tier.demotions,
            "moved": tier.moved,
            "read_microseconds": tier.read_nanoseconds / 1000 / tier.promotions if tier.promotions else 0.0,
        }

    @property
    def padding_keys(self) -> tuple[int, ...]:
        """Keys whose rows are never updated, and count for nothing where embeddings are pooled."""
        return self.options.padding_keys

    @property
    def admission_filter_bytes(self) -> int:
        """The `admission_filter_bytes` of create_table."""
        return self.options.admission_filter_bytes

    @property
    def emb_size(self) -> int:
        """The same as `embedding_size`."""
        return self.options.dim

    @property
    def embedding_size(self) -> int:
        """The number of floats in an embedding: the `dim` of create_table."""
        return self.options.dim

    @property
    def key_dtype(self) -> Any:
        """The dtype of ids, a tf.DType."""
        return self.options.key_dtype

    @property
    def is_save(self) -> bool:
        """Whether checkpoints hold the table."""
        return self.options.is_save

    @property
    def is_dp(self) -> bool:
        """The `is_dp` of create_table."""
        return self.options.is_dp

    @property
    def is_hbm(self) -> bool:
        """Whether the table has no host tier."""
        return self.options.host_vocabulary_size == 0

    @property
    def slice_device_vocabulary_size(self) -> int:
        """A rank's part of the `device_vocabulary_size` of create_table."""
        return self.options.of_rank(self.options.device_vocabulary_size)

    @property
    def slice_host_vocabulary_size(self) -> int:
        """A rank's part of the `host_vocabulary_size` of create_table."""
        return self.options.of_rank(self.options.host_vocabulary_size)

    @property
    def slice_ssd_vocabulary_size(self) -> int:
        """A rank's part of the `ssd_vocabulary_size` of create_table."""
        return self.options.of_rank(self.options.ssd_vocabulary_size)

    def __repr__(self) -> str:
        return f"<table '{self.table_name}': dim {self.embedding_size}>"


def _of_first(pool):
    """The bytes of rank 0's pool; nothing on other ranks."""
    return np.ascontiguousarray(pool, np.float32).tobytes() if _ranks.facts().rank == 0 else b""


def _is_nested():
    import tensorflow as tf

    return getattr(tf.compat.v1.get_default_graph(), "outer_graph", None) is not None


def _root_scope():
    import contextlib

    import tensorflow as tf

    stack = contextlib.ExitStack()
    stack.enter_context(tf.name_scope(""))
    stack.enter_context(tf.control_dependencies(None))
    return stack
