"""Rows of a table from and to NumPy, between the steps of a session: `assign` and `read` of a table."""

import hashlib

import numpy as np

from mx_rec import _ranks
from mx_rec._native import table as native_table
from mx_rec._native import world

_INT32 = np.iinfo(np.int32)
_INT64 = np.iinfo(np.int64)
_READ_AT_ONCE = 1 << 16  # keys; the core reads slots too, so more would take several times the memory of the result


def assign(table, keys, rows) -> None:
    """Does what BaseSparseEmbedding.assign says."""
    keys = _keys(table, keys)
    if keys.ndim != 1:
        raise ValueError(f"table '{table.table_name}': `keys` must have shape [n], got {list(keys.shape)}")
    rows = _rows(table, rows, keys.size)
    _check_distinct(table, keys)
    _check_finite(table, keys, rows)
    _check_alive(table)
    if _ranks.are_several():
        keys, rows = _mine(table, keys, rows)
    before = table.content()
    table.native.assign(keys, rows)
    # Rows that a script has put there are no rows of an earlier training, which a new session is warned of.
    if before[0] == 0 or before == table.warm_started:
        table.warm_started = table.content()


def read(table, keys) -> tuple[np.ndarray, np.ndarray]:
    """Does what BaseSparseEmbedding.read says."""
    keys = _keys(table, keys)
    _check_alive(table)
    is_shared = _ranks.are_several() and not table.is_dp
    rows, found = (_read_of_owners if is_shared else _read_here)(table, keys.reshape(-1))
    return rows.reshape(*keys.shape, table.embedding_size), found.reshape(keys.shape)


def _read_here(table, keys):
    """Returns (rows, which are found) of this rank."""
    rows = np.empty((keys.size, table.embedding_size), np.float32)
    found = np.empty(keys.size, bool)
    for first in range(0, keys.size, _READ_AT_ONCE):
        part = slice(first, first + _READ_AT_ONCE)
        values, found[part] = table.native.read(keys[part])
        rows[part] = values[:, 0]
    return rows, found


def _read_of_owners(table, keys):
    """Returns (rows, which are found) of the ranks that own the keys; all ranks call it, each for keys of its own."""
    told = _ranks.facts()
    stream = f"reading table '{table.table_name}'"
    asked = [np.frombuffer(data, np.int64) for data in _ranks.gather(f"{stream}: keys", keys.tobytes())]
    owners = [world.owners(one, told.size) for one in asked]
    mine = [_read_here(table, one[owner == told.rank]) for one, owner in zip(asked, owners)]
    answers = _ranks.gather(f"{stream}: rows", b"".join(part.tobytes() for pair in mine for part in pair))
    rows = np.empty((keys.size, table.embedding_size), np.float32)
    found = np.empty(keys.size, bool)
    each = 4 * table.embedding_size + 1  # a row, and whether it is there
    for rank, answer in enumerate(answers):
        counts = [np.count_nonzero(owner == rank) for owner in owners]
        count, begin = counts[told.rank], each * sum(counts[: told.rank])
        chosen, middle = owners[told.rank] == rank, begin + (each - 1) * count
        rows[chosen] = np.frombuffer(answer[begin:middle], np.float32).reshape(count, table.embedding_size)
        found[chosen] = np.frombuffer(answer[middle : middle + count], bool)
    return rows, found


def _mine(table, keys, rows):
    """Returns what this rank owns of keys and rows that all ranks give alike; ValueError if they do not."""
    told = _ranks.facts()
    digest = hashlib.sha256(keys.tobytes() + rows.tobytes()).digest()
    others = _ranks.gather(f"assigning to table '{table.table_name}'", digest)
    different = [rank for rank, other in enumerate(others) if other != digest]
    if different:
        raise ValueError(
            f"table '{table.table_name}': rank {different[0]} assigns other keys or rows than rank {told.rank}: all "
            "ranks must call `assign` with the same arrays, of which each keeps the rows that it owns"
        )
    chosen = slice(None) if table.is_dp else world.owners(keys, told.size) == told.rank
    return np.ascontiguousarray(keys[chosen]), np.ascontiguousarray(rows[chosen])


def _keys(table, keys):
    """Returns `keys` as int64; ValueError unless they are legal keys of the table."""
    keys = _array(table, "keys", keys)
    if keys.size == 0:
        keys = keys.astype(np.int64)  # an empty list is one of floats
    if keys.dtype.kind not in "iu":
        raise ValueError(
            f"table '{table.table_name}': `keys` must be integers, got {keys.dtype}; convert or hash them first"
        )
    limits = _INT32 if table.key_dtype.name == "int32" else _INT64
    if keys.size and not limits.min <= int(keys.min()) <= int(keys.max()) <= limits.max:
        raise ValueError(
            f"table '{table.table_name}': `keys` must be {limits.dtype}, as its `key_dtype`, got {keys.min()} to "
            f"{keys.max()}"
        )
    return np.asarray(keys, np.int64, order="C")


def _rows(table, rows, count):
    """Returns `rows` as float32; ValueError unless they are `count` embeddings of the table."""
    rows = _array(table, "rows", rows)
    expected = (count, table.embedding_size)
    if rows.shape != expected:
        raise ValueError(
            f"table '{table.table_name}': `rows` must have shape {list(expected)}, a row of dim {table.embedding_size} "
            f"for each key, got {list(rows.shape)}"
        )
    if rows.dtype.kind != "f":
        raise ValueError(
            f"table '{table.table_name}': `rows` must be floats, got {rows.dtype}; convert them with "
            "np.asarray(rows, np.float32)"
        )
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is refused as such
        return np.ascontiguousarray(rows, np.float32)


def _array(table, label, values):
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, NotImplementedError) as error:  # rows of different lengths; a tensor of a graph
        raise ValueError(
            f"table '{table.table_name}': `{label}` must be an array or a list of numbers, got "
            f"{type(values).__name__}: {error}"
        ) from None
    if array.dtype == object:
        raise ValueError(
            f"table '{table.table_name}': `{label}` must be an array or a list of numbers, got {type(values).__name__} "
            "of objects"
        )
    return array


def _check_distinct(table, keys):
    ordered = np.sort(keys)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if again.size:
        raise ValueError(
            f"table '{table.table_name}': `keys` must all be different, got {again[0]} more than once; give each key "
            "one row"
        )


def _check_finite(table, keys, rows):
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise ValueError(
            f"table '{table.table_name}': `rows` must be finite in float32, but those of {np.count_nonzero(bad)} keys "
            f"are not, the first of key {keys[np.argmax(bad)]}"
        )


def _check_alive(table):
    if table.generation != native_table.generation():
        raise ValueError(
            f"table '{table.table_name}' was freed by terminate_config_initializer(); call init and create_table again"
        )
