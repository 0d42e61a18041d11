"""`python -m mx_rec inspect`: what a checkpoint holds."""

import dataclasses
import json
import os
import sys

import numpy as np

from mx_rec.checkpoint import _columns
from mx_rec.checkpoint._errors import CheckpointError
from mx_rec.cli import _html_report, _profile, verify
from mx_rec.cli._steadily import steadily
from mx_rec.reading import _verifying

_DESCRIPTION = """\
Shows the tables of a checkpoint: rows, columns, sizes, the thresholds of admission and eviction, whether the dense part
belongs to them; of a delta, the checkpoints it builds on, and the tables that they make together. Then checks all files
as `verify` does. The exit status is 1 if something is damaged. With --html, writes a page with pictures: how norms,
counts and ages are spread, how many rows an eviction would free by its threshold, and, of several checkpoints or a
delta, how the tables grew; the newest is shown in detail and checked.
"""
_DENSE = {
    "fits": "fits: written by the same save",
    "differs": "DIFFERS: written by another save",
    "missing": "missing",
    "unknown": "there; whether it fits is not recorded",
}
_BINS = 10
_WIDTH = 40  # of the longest bar, in characters
_EIGHTHS = " ▏▎▍▌▋▊▉"


def add_command(commands) -> None:
    """Adds `inspect` to the command line's subparsers."""
    parser = commands.add_parser("inspect", help="show what a checkpoint holds", description=_DESCRIPTION)
    parser.add_argument(
        "path",
        nargs="+",
        metavar="PATH",
        help="a prefix (D/model-7), a sparse directory (D/sparse-model-7), or a directory: the latest in it; several "
        "with --html",
    )
    parser.add_argument("--table", metavar="T", help="of this table alone: --key, --hist, --html")
    parser.add_argument("--key", type=int, action="append", default=[], metavar="K", help="show its row; repeatable")
    parser.add_argument("--hist", action="store_true", help="plot the norms of embeddings and slots, and counts")
    parser.add_argument("--no-check", action="store_true", help="do not read and check all files")
    parser.add_argument("--json", action="store_true", help="print JSON, with null for numbers that are not finite")
    parser.add_argument("--html", metavar="FILE", help="write a page with pictures: one file that works offline")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Runs the command; returns the exit status."""
    if options.html is not None:
        if options.json or options.key or options.hist:
            raise CheckpointError("`--html` excludes --json, --key and --hist: call `inspect` twice")
        return _html_report.write(options.html, options.path, options.table, not options.no_check)
    if len(options.path) > 1:
        raise CheckpointError(
            f"several checkpoints need `--html FILE`, got {len(options.path)} without it; `diff` compares two, "
            "`verify` checks many"
        )
    return steadily(options.path, lambda checkpoint: _show(checkpoint, options))


def _show(checkpoint, options):
    tables = checkpoint.tables if options.table is None else {options.table: checkpoint.table(options.table)}
    facts = _facts(checkpoint)
    if options.key:
        facts["rows"] = _rows(tables, options.key)
    if options.hist:
        facts["histograms"] = {name: _histograms(table) for name, table in tables.items()}
    if not options.json:
        _print_facts(facts)
    status = 0
    if not options.no_check:
        findings = verify.check_with_bar(checkpoint, _verifying.Checker())
        facts["check"] = dataclasses.asdict(findings)
        status = 1 if findings.damage or findings.not_finite else 0
        if not options.json:
            _print_check(facts["check"], checkpoint.manifest is not None)
    if options.json:
        print(json.dumps(facts, indent=1, allow_nan=False))
    return status


# ---- Collecting.


def _facts(checkpoint):
    return {
        "checkpoint": checkpoint.prefix,
        "directory": checkpoint.directory,
        "step": checkpoint.step,
        "format": checkpoint.format,
        "mx_rec": checkpoint.writer,
        "dense": checkpoint.dense,
        "chain": [_link_facts(link) for link in checkpoint.chain] if checkpoint.is_delta else None,
        "tables": {name: _table_facts(table) for name, table in checkpoint.tables.items()},
    }


def _link_facts(link):
    """One checkpoint of a delta's chain, by itself."""
    tables = link.tables.values()
    return {
        "directory": link.directory,
        "step": link.manifest.step,
        "is_delta": link.is_delta,
        "rows": sum(table.rows for table in tables),
        "deleted": sum(len(table.deleted()) for table in tables),
        "bytes": sum(table.bytes for table in tables),
    }


def _table_facts(table):
    facts = {
        "rows": table.rows,
        "dim": table.dim,
        "key_dtype": table.key_dtype,
        "optimizer": table.optimizer,
        "slots": list(table.slots),
        "bytes": table.bytes,
        "tracking": None,
    }
    tracking = table.tracking
    if tracking is not None:
        facts["tracking"] = {
            "access_threshold": tracking.access_threshold,
            "eviction_threshold": tracking.eviction_threshold,
            "coefficient": tracking.coefficient,
            "filter_bytes": tracking.filter_bytes,
            "now": tracking.now,
            "step": tracking.step,
        }
    return facts


def _rows(tables, keys):
    """Returns what is known of each of `keys`."""
    if len(tables) != 1:
        raise CheckpointError(f"`--key` needs `--table`: the checkpoint has the tables {sorted(tables)}")
    (table,) = tables.values()
    for key in keys:
        if not -(2**63) <= key < 2**63:
            raise CheckpointError(f"`--key` must be an int64, got {key}")
    places, counted = table.find(keys), table.find_history(keys)
    found = []
    for key in keys:
        if key not in places and key not in counted:
            raise CheckpointError(f"table '{table.name}': key {key} is not in it ({table.rows:,} keys are)")
        files, row = places.get(key, (None, None))
        entry = {"table": table.name, "key": key, "row": row}
        if files is not None:
            entry["in"] = os.path.basename(os.path.dirname(files.path))
            entry |= {name: [_number(x) for x in files.floats(name)[row]] for name in ("embedding", *files.slots)}
        if key in counted:
            entry["count"], entry["last_time"] = counted[key]
        numbers = {} if files is None else {name: files.numbers(name) for name in _columns.NUMBERS}
        entry |= {name: int(column[row]) for name, column in numbers.items() if column is not None}
        found.append(entry)
    return found


def _number(x):
    """Returns the shortest decimal number that is this float32; None if it is not finite."""
    return float(str(x)) if np.isfinite(x) else None


def _histograms(table):
    """Returns {what: its distribution}; norms are Euclidean."""
    plots = {f"{name} norm": _all_norms(table.floats(name)) for name in ("embedding", *table.slots)}
    plots = {name: _linear_bins(norms) for name, norms in plots.items()}
    history = table.history()
    if history is not None:
        plots["count"] = _power_bins(history.counts[:])
    return plots


def _all_norms(column):
    return np.concatenate([np.empty(0, np.float32), *_profile.norms(column)])


def _linear_bins(values):
    finite = values[np.isfinite(values)]
    result = {"n": len(values), "not_finite": len(values) - len(finite), "bins": []}
    if len(finite):
        low, high = float(finite.min()), float(finite.max())
        result |= {"min": low, "mean": float(finite.mean(dtype=np.float64)), "max": high}
        counts, edges = np.histogram(finite.astype(np.float64), _BINS if high > low else 1, (low, high))
        if high == low:
            edges = [low, high]  # NumPy widens a range of one number
        result["bins"] = [[float(a), float(b), int(n)] for a, b, n in zip(edges, edges[1:], counts)]
    return result


def _power_bins(values):
    """Counts are spread over many orders of magnitude: 0, 1, 2 to 3, 4 to 7, ..."""
    result = {"n": len(values), "not_finite": 0, "bins": []}
    if len(values):
        result |= {"min": int(values.min()), "mean": float(values.mean()), "max": int(values.max())}
        edges = [0, *(1 << bit for bit in range(int(values.max()).bit_length() + 1))]
        counts, _ = np.histogram(values, edges)
        bins = [[a, b - 1, int(n)] for a, b, n in zip(edges, edges[1:], counts)]
        result["bins"] = bins if bins[0][2] else bins[1:]
    return result


# ---- Printing.


def _print_facts(facts):
    version = "no manifest: written by the original SDK" if facts["format"] is None else facts["format"]
    for label, value in {
        "checkpoint": facts["checkpoint"],
        "tables in": facts["directory"],
        "step": "not recorded" if facts["step"] is None else f"{facts['step']:,}",
        "format": version,
        "written by": "unknown" if facts["mx_rec"] is None else f"mx_rec {facts['mx_rec']}",
        "dense part": _DENSE[facts["dense"]],
    }.items():
        print(f"{label:<12}{value}")
    print()
    if facts["chain"]:
        _print_chain(facts["chain"])
    lines = [("table", "rows", "dim", "keys", "bytes", "optimizer", "slots")]
    for name, its in facts["tables"].items():
        lines.append(
            (
                name,
                f"{its['rows']:,}",
                str(its["dim"]),
                its["key_dtype"],
                f"{its['bytes']:,}",
                its["optimizer"] or "-",
                ", ".join(its["slots"]) or "-",
            )
        )
    _print_columns(lines, "<>>>><<")
    tracked = {name: its["tracking"] for name, its in facts["tables"].items() if its["tracking"]}
    if tracked:
        print()
        lines = [("counts its keys", "admission", "eviction", "coefficient", "filter bytes", "time", "step")]
        for name, its in tracked.items():
            thresholds = [_threshold(its["access_threshold"]), _threshold(its["eviction_threshold"])]
            rest = [str(its[label]) for label in ("coefficient", "filter_bytes", "now", "step")]
            lines.append((name, *thresholds, *rest))
        _print_columns(lines, "<>>>>>>")
    for row in facts.get("rows", ()):
        print()
        _print_row(row)
    for name, plots in facts.get("histograms", {}).items():
        for what, plot in plots.items():
            print()
            _print_plot(f"{name}: {what}", plot)


def _print_chain(chain):
    print("a delta: what it builds on, and what each has changed")
    lines = [("", "step", "rows", "deleted", "bytes")]
    for its in chain:
        step = "-" if its["step"] is None else f"{its['step']:,}"
        deleted = f"{its['deleted']:,}" if its["is_delta"] else "-"
        lines.append((os.path.basename(its["directory"]), step, f"{its['rows']:,}", deleted, f"{its['bytes']:,}"))
    _print_columns(lines, "<>>>>")
    print("\ntogether")


def _threshold(value):
    return "off" if value < 0 else str(value)


def _print_columns(lines, alignment):
    widths = [max(map(len, cells)) for cells in zip(*lines)]
    for line in lines:
        print("  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, alignment, widths)).rstrip())


def _print_row(row):
    place = "has no row yet" if row["row"] is None else f"is row {row['row']:,} of {row['in']}"
    print(f"table '{row['table']}': key {row['key']} {place}")
    for label, value in row.items():
        if label not in ("table", "key", "row", "in"):
            text = " ".join("not-finite" if x is None else str(x) for x in value) if isinstance(value, list) else value
            print(f"  {label:<24}{text}")


def _print_plot(title, plot):
    facts = [f"{plot['n']:,} keys"]
    facts += [f"{label} {plot[label]:.4g}" for label in ("min", "mean", "max") if label in plot]
    facts += [f"{plot['not_finite']:,} NOT FINITE"] if plot["not_finite"] else []
    print(f"{title} ({', '.join(facts)})")
    labels = [_span(low, high) for low, high, _ in plot["bins"]]
    width = max(map(len, labels), default=0)
    largest = max((n for _, _, n in plot["bins"]), default=0)
    for label, (_, _, n) in zip(labels, plot["bins"]):
        print(f"  {label:>{width}} {_bar(n / largest)} {n:,}")


def _span(low, high):
    if isinstance(low, int):
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{low:.4g} to {high:.4g}"


def _bar(share):
    eighths = round(share * _WIDTH * 8)
    eighths = max(eighths, 1) if share > 0 else 0  # what is there is seen
    try:
        "█▏".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "#" * -(-eighths // 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].rstrip()


def _print_check(check, has_manifest):
    print()
    for text in check["damage"]:
        print(f"DAMAGED: {text}")
    for text in check["not_finite"]:
        print(f"NOT FINITE: {text}")
    for text in check["warnings"]:
        print(f"warning: {text}")
    if not check["damage"]:
        print("checked: all files are whole" if has_manifest else "checked: sizes and keys are right")
