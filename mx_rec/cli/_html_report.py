"""`inspect --html`: checkpoints as one page with pictures, which needs neither a network nor scripts."""

import dataclasses
import os
from typing import Optional

from tqdm import tqdm

import mx_rec
from mx_rec.checkpoint._errors import CheckpointError, DamagedError
from mx_rec.cli import _charts, _eviction_charts, _page, _profile, verify
from mx_rec.cli._charts import brief, size, text
from mx_rec.cli._steadily import steadily
from mx_rec.reading import _reading
from mx_rec.reading._verifying import Checker, Findings

_DENSE = {"fits": "fits", "differs": "of another save", "missing": "missing", "unknown": "there, not recorded"}


@dataclasses.dataclass(frozen=True)
class _Saved:
    """What one checkpoint says of itself, without reading its rows."""

    directory: str
    step: Optional[int]
    is_delta: bool
    rows: dict[str, int]  # by table, as for all below; of a delta, of the tables it stands for
    written: dict[str, int]  # rows in its own files
    deleted: int
    bytes: dict[str, int]  # of its own files

    @property
    def name(self) -> str:
        return os.path.basename(self.directory)


def write(path: str, checkpoints: list[str], table: Optional[str], has_check: bool) -> int:
    """Writes the report of `checkpoints`, the newest of them in detail, to the file `path`; returns the exit status, as
    `inspect` has it. `table` limits the details to one table."""
    saved, damaged, paths = [], [], {}
    for name in checkpoints:
        try:
            found = steadily(
                [name], lambda checkpoint: _links(checkpoint) if len(checkpoints) == 1 else [_saved(checkpoint)]
            )
        except DamagedError as error:
            if len(checkpoints) == 1:
                raise
            damaged.append(str(error))
            continue
        paths |= {one.directory: name for one in found}
        saved += [one for one in found if one.directory not in {other.directory for other in saved}]
    if not saved:
        raise DamagedError("; ".join(damaged))
    saved.sort(key=lambda one: -1 if one.step is None else one.step)  # stable: else as they were given
    newest = saved[-1]
    details = steadily([paths[newest.directory]], lambda checkpoint: _details(checkpoint, table, has_check))
    content = _content(saved, damaged, details)
    _put(path, _page.document(f"{os.path.basename(newest.directory)}: tables", content))
    print(f"{path}: {_plural(len(saved), 'checkpoint')}, {_plural(len(newest.rows), 'table')}")
    for line in (*damaged, *details.findings.damage):
        print(f"DAMAGED: {line}")
    for line in details.findings.not_finite:
        print(f"NOT FINITE: {line}")
    return 1 if damaged or details.is_bad else 0


def _put(path, content):
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError as error:
        raise CheckpointError(f"cannot write '{path}': {error.strerror or error}") from error


# ---- Collecting.


def _links(checkpoint):
    """Returns a checkpoint as it stood; of a delta, before it those that it builds on."""
    return [_saved(_reading.open_checkpoint(link.directory)) for link in checkpoint.chain[:-1]] + [_saved(checkpoint)]


def _saved(checkpoint):
    own = {name: table.links[-1] for name, table in checkpoint.tables.items()}
    return _Saved(
        checkpoint.directory,
        checkpoint.step if checkpoint.manifest is None else checkpoint.manifest.step,
        checkpoint.is_delta,
        {name: table.rows for name, table in checkpoint.tables.items()},
        {name: files.rows for name, files in own.items()},
        sum(len(files.deleted()) for files in own.values()) if checkpoint.is_delta else 0,
        {name: files.bytes for name, files in own.items()},
    )


@dataclasses.dataclass(frozen=True)
class _Details:
    checkpoint: _reading.Checkpoint
    dense: str  # as it was when the rows were read
    profiles: dict[str, _profile.Profile]
    findings: Findings
    is_checked: bool

    @property
    def is_bad(self) -> bool:
        problems = any(profile.problems for profile in self.profiles.values())
        return bool(self.findings.damage or self.findings.not_finite or problems)


def _details(checkpoint, table, has_check):
    tables = checkpoint.tables if table is None else {table: checkpoint.table(table)}
    findings = verify.check_with_bar(checkpoint, Checker()) if has_check else Findings()
    total, profiles = sum(map(_profile.work, tables.values())), {}
    with tqdm(total=total, desc="reading rows", unit=" rows", unit_scale=True, disable=None, leave=False) as bar:
        for name, its in tables.items():
            profiles[name] = _profile.take(its, bar.update)
    return _Details(checkpoint, checkpoint.dense, profiles, findings, has_check)


# ---- The page.


def _content(saved, damaged, details):
    checkpoint = details.checkpoint
    parts = [_head(checkpoint, details)]
    parts += [_page.alert("Damaged", line) for line in (*damaged, *details.findings.damage)]
    parts += [_page.alert("Not finite", line) for line in details.findings.not_finite]
    parts += [_page.note(line) for line in details.findings.warnings]
    if len(saved) > 1:
        parts.append(_growth(saved))
    parts.append(_overview(checkpoint, details.profiles))
    for number, name in enumerate(details.profiles):
        parts.append(_table_section(number, checkpoint.tables[name], details.profiles[name]))
    parts.append(
        f"<footer>Made by mx_rec {text(mx_rec.version())}. Norms are Euclidean; ages are those of the data.</footer>"
    )
    return "".join(parts)


def _head(checkpoint, details):
    rows = sum(table.rows for table in checkpoint.tables.values())
    count = sum(table.bytes for table in checkpoint.tables.values())
    if not details.is_checked:
        state = "not checked"
    elif details.findings.damage:
        state = "damaged"
    elif details.findings.not_finite:
        state = "rows not finite"
    else:
        state = "whole" if checkpoint.manifest is not None else "sizes right"
    facts = {
        "rows": f"{rows:,}",
        "on disk": size(count),
        "tables": f"{len(checkpoint.tables):,}",
        "step": "–" if checkpoint.step is None else f"{checkpoint.step:,}",
        "files": state,
        "dense part": _DENSE[details.dense],
    }
    written = "the original SDK" if checkpoint.writer is None else f"mx_rec {checkpoint.writer}"
    chain = f", a delta at the end of a chain of {len(checkpoint.chain)}" if checkpoint.is_delta else ""
    lead = f"Tables in <code>{text(checkpoint.directory)}</code>, written by {text(written)}{chain}."
    return _page.header(os.path.basename(checkpoint.prefix), lead, facts)


def _growth(saved):
    """How the tables grew over the checkpoints."""
    steps = [one.step for one in saved]
    is_by_step = None not in steps and len(set(steps)) == len(steps)
    places = steps if is_by_step else list(range(1, len(saved) + 1))
    x = _charts.linear(places[0], places[-1], "step" if is_by_step else "checkpoint", is_whole=True)
    figures = []
    for title, pick, show in (
        ("Rows", lambda one: one.rows, brief),
        ("Bytes that each save wrote", lambda one: one.bytes, size),
    ):
        series = _largest([pick(one) for one in saved], places)
        top = max((value for points in series.values() for _, value in points), default=0)
        y = _charts.linear(0, top, "", show, is_whole=True)
        chart = _charts.lines(series, x, y, f"{title} of {', '.join(series)} over {len(saved)} checkpoints")
        figures.append(_page.figure(title, chart, legend=list(series)))
    listed = [
        (
            one.name,
            "delta" if one.is_delta else "whole",
            "–" if one.step is None else f"{one.step:,}",
            f"{sum(one.rows.values()):,}",
            f"{sum(one.written.values()):,}",
            f"{one.deleted:,}" if one.is_delta else "–",
            size(sum(one.bytes.values())),
        )
        for one in saved
    ]
    head = ("checkpoint", "kind", "step", "rows", "rows written", "keys deleted", "bytes written")
    return _page.section("growth", "Growth", _page.grid(figures) + _page.table(head, listed, numbers_from=2))


def _largest(numbers, places):
    """Returns {table: its points} of the tables that are largest at the end or were ever, and of the others as one."""
    names = sorted(
        {name for its in numbers for name in its}, key=lambda name: -max(its.get(name, 0) for its in numbers)
    )
    shown = names if len(names) <= _charts.COLORS else names[: _charts.COLORS - 1]
    series = {name: [(x, its[name]) for x, its in zip(places, numbers) if name in its] for name in shown}
    others = names[len(shown) :]
    if others:
        label = _plural(len(others), "other table")
        series[label] = [(x, sum(its.get(name, 0) for name in others)) for x, its in zip(places, numbers)]
    return series


def _overview(checkpoint, profiles):
    lines = []
    for number, name in enumerate(profiles):
        table = checkpoint.tables[name]
        link = _page.Html(f'<a href="#table-{number}">{text(name)}</a>')
        slots = ", ".join(table.slots) or "–"
        lines.append((link, table.optimizer or "–", slots, f"{table.rows:,}", str(table.dim), size(table.bytes)))
    head = ("table", "optimizer", "slots", "rows", "dim", "on disk")
    return _page.section("tables", "Tables", _page.table(head, lines, numbers_from=3))


def _table_section(number, table, profile):
    sentences = [f"{table.rows:,} rows of dim {table.dim}, {size(table.bytes)} on disk"]
    tracking = table.tracking if profile.counts is not None or not profile.problems else None
    if tracking is not None:
        sentences.append(f"admission {_threshold(tracking.access_threshold)}")
        sentences.append(f"eviction {_threshold(tracking.eviction_threshold)}")
    if profile.refused is not None and profile.refused.n:
        sentences.append(f"{profile.refused.n:,} keys counted that have no row")
    parts = [f"<p>{text('; '.join(sentences))}.</p>"]
    parts += [_page.alert("Damaged", line) for line in profile.problems]
    if table.rows == 0:
        parts.append(_page.note("The table is empty: nothing to draw."))
        return _page.section(f"table-{number}", table.name, "".join(parts))
    figures = [_norm_figure(column, spread) for column, spread in profile.norms.items()]
    for title, spread in (
        ("How often the keys of rows occurred", profile.counts),
        ("Counts of keys that have no row yet", profile.refused),
    ):
        if spread is not None and spread.n:
            bins = spread.doubling_bins()
            chart = _charts.columns(bins, "count", _words(title, spread, brief))
            figures.append(_page.figure(title, chart, _summary(spread, brief), _bins_table(bins, brief)))
    for title, axis, spread, show in (
        ("Age of rows: time since the key last occurred", "age", profile.ages, _charts.duration),
        ("Age of rows in steps", "steps since the key last occurred", profile.steps, brief),
    ):
        if spread is not None and spread.n:
            figures.append(_age_figure(title, axis, spread, show))
    parts.append(_page.grid(figures))
    parts.append("<h3>What an eviction would free</h3>")
    if profile.counts is None:
        parts.append(_page.note("The table does not count its keys: it can be evicted by norm alone."))
    parts.append(_page.grid(_eviction_charts.figures(table, profile)))
    return _page.section(f"table-{number}", table.name, "".join(parts))


def _norm_figure(column, spread):
    title, summary = f"Norms of {column}", _summary(spread, brief)
    if spread.min is None:
        return _page.figure(title, _page.note("No row is finite."), summary)
    if spread.is_wide:
        bins = spread.geometric_bins()
        x = _charts.logarithmic(bins[0][0], bins[-1][1], "norm, logarithmic")
        summary += f", {spread.zeros:,} zero" if spread.zeros else ""
    else:
        bins = spread.equal_bins()
        x = _charts.linear(bins[0][0], bins[-1][1], "norm")
    chart = _charts.histogram(bins, x, _words(title, spread, brief))
    return _page.figure(title, chart, summary, _bins_table(bins, brief))


def _age_figure(title, axis, spread, show):
    bins = spread.equal_bins()
    unit = _charts.duration_unit(spread.max)[0] if show is _charts.duration else 1
    x = _charts.linear(spread.min, spread.max + 1, axis, show, unit, is_whole=True)
    chart = _charts.histogram([(low, high + 1, n) for low, high, n in bins], x, _words(title, spread, show))
    return _page.figure(title, chart, _summary(spread, show), _bins_table(bins, show))


def _summary(spread, show):
    facts = [f"{spread.n:,} keys"]
    if spread.min is not None:
        facts += [f"min {show(spread.min)}", f"mean {show(spread.mean)}", f"max {show(spread.max)}"]
    if spread.not_finite:
        facts.append(f"{spread.not_finite:,} NOT FINITE")
    return ", ".join(facts)


def _words(title, spread, show):
    return f"Histogram. {title}: {_summary(spread, show)}"


def _bins_table(bins, show):
    lines = [(show(low), show(high), f"{n:,}") for low, high, n in bins]
    return _page.table(("from", "to", "keys"), lines, numbers_from=0)


def _threshold(value):
    return "off" if value < 0 else f"at {value:,}"


def _plural(count, noun):
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
