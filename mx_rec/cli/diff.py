"""`python -m mx_rec diff`: in which rows two checkpoints differ."""

import dataclasses

import numpy as np
from tqdm import tqdm

from mx_rec.checkpoint import _columns, _table_files
from mx_rec.checkpoint._errors import CheckpointError, DamagedError
from mx_rec.cli._steadily import steadily

_DESCRIPTION = """\
Compares the tables of two checkpoints, key by key and bit by bit. Steps, versions, the order of rows and the dense
parts do not matter; a delta stands for the tables that it makes of those it builds on. The exit status
is 0 if they are equal, 1 if they differ, 2 if they cannot be compared.
"""


def add_command(commands) -> None:
    """Adds `diff` to the command line's subparsers."""
    parser = commands.add_parser("diff", help="compare the tables of two checkpoints", description=_DESCRIPTION)
    for name in ("A", "B"):
        parser.add_argument(name.lower(), metavar=name, help="as PATH of `inspect`")
    parser.add_argument("--keys", type=int, default=0, metavar="N", help="list up to N keys of each kind")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Runs the command; returns the exit status."""
    try:
        return steadily([options.a, options.b], lambda a, b: _print_checkpoints(a, b, options.keys))
    except DamagedError as error:
        raise CheckpointError(f"{error}; a damaged checkpoint cannot be compared") from error


def _print_checkpoints(a, b, examples):
    """Prints how checkpoint `a` differs from `b`; returns the exit status."""
    print(f"A  {a.directory}\nB  {b.directory}")
    is_equal = True
    for name in sorted({*a.tables, *b.tables}):
        if name in a.tables and name in b.tables:
            is_equal &= _print_table(a.tables[name], b.tables[name], examples)
        else:
            side, table = ("A", a.tables[name]) if name in a.tables else ("B", b.tables[name])
            print(f"\ntable '{name}': only in {side}, {table.rows:,} rows")
            is_equal = False
    print("\nequal" if is_equal else "\ndifferent")
    return 0 if is_equal else 1


# ---- Comparing.


@dataclasses.dataclass
class Difference:
    """Two sets of keyed records, compared. Keys are examples, as many as were asked for."""

    only_a: int = 0
    only_b: int = 0
    changed: int = 0
    equal: int = 0
    # By column, over all keys in both: NaN where a NaN came or went.
    largest: dict[str, float] = dataclasses.field(default_factory=dict)
    keys_only_a: list[int] = dataclasses.field(default_factory=list)
    keys_only_b: list[int] = dataclasses.field(default_factory=list)
    keys_changed: list[int] = dataclasses.field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return self.only_a == self.only_b == self.changed == 0


def compare(keys_a, columns_a, keys_b, columns_b, examples=0) -> Difference:
    """Compares records by key: `keys` int64 [n], distinct; `columns` {name: [n] or [n, dim]}, the same in both.

    Walks A in the order of its file. In memory are B's keys, sorted, with their rows: 17 bytes a key; columns are read
    chunk by chunk from where they are mapped. Deltas need more (_merging.py).
    """
    result = Difference(largest=dict.fromkeys(columns_a, 0.0))
    order_b = np.argsort(keys_b, kind="stable")
    sorted_b = keys_b[order_b]
    is_met = np.zeros(len(keys_b), bool)
    for part in tqdm(list(_table_files.chunks(len(keys_a))), disable=None, leave=False):
        keys = np.asarray(keys_a[part])
        # In the order of keys, as then the search walks through B once and finds its neighbours in the cache.
        order = np.argsort(keys)
        keys = keys[order]
        at = np.searchsorted(sorted_b, keys)
        in_both = at < len(sorted_b)
        in_both[in_both] = sorted_b[at[in_both]] == keys[in_both]
        result.only_a += int((~in_both).sum())
        _remember(result.keys_only_a, keys[~in_both], examples)
        rows_a, rows_b = part.start + order[in_both], order_b[at[in_both]]
        is_met[rows_b] = True
        is_changed = np.zeros(len(rows_a), bool)
        for name in columns_a:
            differs, largest = _compare_rows(columns_a[name][rows_a], columns_b[name][rows_b])
            is_changed |= differs
            result.largest[name] = float(np.maximum(result.largest[name], largest))  # NaN stays
        result.changed += int(is_changed.sum())
        result.equal += int((~is_changed).sum())
        _remember(result.keys_changed, keys[in_both][is_changed], examples)
    result.only_b = int((~is_met).sum())
    _remember(result.keys_only_b, keys_b[np.flatnonzero(~is_met)[:examples]], examples)
    return result


def _compare_rows(a, b):
    """Returns (which rows differ in a bit, the largest absolute difference)."""
    bits = np.int32 if a.dtype == np.float32 else a.dtype
    differs = a.view(bits) != b.view(bits)  # a NaN is equal to itself, and -0.0 is not 0.0
    with np.errstate(invalid="ignore"):
        largest = np.abs(a[differs].astype(np.float64) - b[differs].astype(np.float64)).max(initial=0.0)
    return differs.any(axis=tuple(range(1, differs.ndim))), float(largest)


def _remember(examples, keys, count):
    examples += keys[: max(0, count - len(examples))].tolist()


# ---- A table.


def _print_table(a, b, examples):
    """Prints how table `a` differs from `b`; returns whether they are equal."""
    print(f"\ntable '{a.name}'")
    notes = _notes(a, b)
    names = [name for name in ("embedding", *a.slots) if name == "embedding" or name in b.slots]
    if a.dim != b.dim:
        names = []  # rows of another length are changed, whatever they hold
    columns = [{name: table.floats(name) for name in names} for table in (a, b)]
    for name in _columns.NUMBERS:
        numbers = [table.numbers(name) for table in (a, b)]
        if all(its is not None for its in numbers):
            columns = [{**others, name: its} for others, its in zip(columns, numbers)]
    rows = compare(a.keys(), columns[0], b.keys(), columns[1], examples)
    if a.dim != b.dim:
        rows = dataclasses.replace(rows, changed=rows.changed + rows.equal, equal=0)
    for note in notes:
        print(f"  {note}")
    _print_difference("rows", rows)
    is_equal = rows.is_equal and not notes
    histories = [table.history() for table in (a, b)]
    if all(history is not None for history in histories):
        counted = [{"count": h.counts, "last_time": h.times} for h in histories]
        seen = compare(histories[0].keys, counted[0], histories[1].keys, counted[1], examples)
        _print_difference("counted keys", seen)
        is_equal &= seen.is_equal
    return is_equal


def _notes(a, b):
    """Returns what differs besides the rows."""
    notes = []
    if a.dim != b.dim:
        notes.append(f"dim: {a.dim} in A, {b.dim} in B; the columns cannot be compared")
    # Without a manifest the optimizer's name is not known, and no difference.
    if a.entry is not None and b.entry is not None and a.optimizer != b.optimizer:
        notes.append(f"optimizer: {a.optimizer} in A, {b.optimizer} in B")
    for side, mine, others in (("A", a.slots, b.slots), ("B", b.slots, a.slots)):
        notes += [f"slot {slot}: only in {side}" for slot in mine if slot not in others]
    if (a.tracking is None) != (b.tracking is None):
        notes.append(f"counts its keys: only in {'A' if b.tracking is None else 'B'}")
    elif a.tracking is not None and a.entry is not None and b.entry is not None:
        for field in dataclasses.fields(a.tracking):
            values = [getattr(table.tracking, field.name) for table in (a, b)]
            if values[0] != values[1]:
                notes.append(f"{field.name}: {values[0]} in A, {values[1]} in B")
    filters = [table.filter() for table in (a, b)]
    if all(cells is not None for cells in filters) and not np.array_equal(*filters):
        notes.append("the counts in the admission filter differ")
    return notes


def _print_difference(what, difference):
    kinds = ("only in A", "only in B", "changed", "equal")
    numbers = (difference.only_a, difference.only_b, difference.changed, difference.equal)
    print(f"  {what}: " + ", ".join(f"{number:,} {kind}" for number, kind in zip(numbers, kinds)))
    if difference.changed:
        for name, largest in difference.largest.items():
            print(f"    largest difference of {name}: {largest:.9g}")
    examples = (difference.keys_only_a, difference.keys_only_b, difference.keys_changed)
    for kind, keys in zip(kinds, examples):
        if keys:
            print(f"    {kind}: {' '.join(map(str, keys))}")
