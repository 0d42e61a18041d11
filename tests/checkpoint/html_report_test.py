"""`inspect --html`: a page that holds what the files hold, harms nobody who opens it, and bears what may be wrong."""

import html.parser
import os
import re

import numpy as np
import pytest

from mx_rec.cli import _charts
from tests.shared import model
from tests.shared.checkpoint_files import flip, write_original
from tests.shared.tool_checkpoints import STEPS

_VOID = {"meta"}


class Page(html.parser.HTMLParser):
    """What a browser finds in a report: whether its tags are closed, its texts, and the tables of its figures."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.tables = []  # of each table, its rows of cells
        self.figures = {}  # (section, caption) -> its table
        self._section, self._caption = None, None
        self.feed(self.source)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
            if "figure" in self.open:
                self.figures[self._section, self._caption] = self.tables[-1]
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.open[-1:] == ["h2"]:
            self._section = data
        elif self.open[-1:] == ["figcaption"]:
            self._caption = data
        elif {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    @property
    def text(self):
        return "\n".join(self.texts)


@pytest.fixture
def report(tool, tmp_path):
    """Makes a report: (exit status, page, what was printed)."""

    def make(*arguments):
        path = tmp_path / "report.html"
        status, out, err = tool("inspect", "--html", path, *arguments)
        return status, Page(path), out + err

    return make


def number(cell):
    return int(cell.replace(",", ""))


def test_a_report_is_one_file_that_loads_and_runs_nothing(run, report):
    status, page, out = report(run)
    assert status == 0 and "1 checkpoint, 2 tables" in out
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(page.tags)
    names = {name for name, _ in page.attributes}
    assert not [name for name in names if name.startswith("on") or name in ("src", "srcset", "style")]
    assert all(value.startswith("#") for name, value in page.attributes if name == "href")
    assert "default-src 'none'" in page.source
    assert "://" not in page.source and "@import" not in page.source and "url(" not in page.source
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert len(labels) == page.tags.count("svg") and all(labels)


def test_figures_hold_what_the_files_hold(counted, report):
    directory, known, rows = counted
    status, page, _ = report(directory)
    assert status == 0

    def total(caption, column=2):
        return sum(number(line[column]) for line in page.figures["t", caption][1:])

    assert total("Norms of embedding") == len(rows)
    assert total("Norms of Adagrad_accumulator") == len(rows)
    assert total("How often the keys of rows occurred") == len(rows)
    assert total("Counts of keys that have no row yet") == len(known) - len(rows)
    assert total("Age of rows: time since the key last occurred") == len(rows)
    assert total("Age of rows in steps") == len(rows)


def test_curves_tell_what_an_eviction_frees(counted, report):
    directory, known, rows = counted
    page = report(directory)[1]
    curves = {caption: lines[1:] for (_, caption), lines in page.figures.items() if "evict(" in caption}
    assert len(curves) == 4
    counts = np.array([known[key][0] for key in rows])
    for limit, freed, *_ in curves['By count: evict(by="count", below=…)']:
        assert number(freed) == (counts < number(limit)).sum()
    now = max(time for _, time, _ in known.values())
    ages = np.array([now - known[key][1] for key in rows])
    by_age = {limit: number(freed) for limit, freed, *_ in curves['By age: evict(by="time", older_than=…)']}
    assert by_age["60 s"] == (ages >= 60).sum()  # the table's own threshold
    assert by_age["0 s"] == len(rows)
    embedding = np.fromfile(directory / "sparse-model-20/t/embedding/slice.data", np.float32).reshape(len(rows), -1)
    norms = np.linalg.norm(embedding.astype(np.float64), axis=1)
    by_norm = [number(line[1]) for line in curves['By norm: evict(by="norm", below=…)']]
    assert by_norm == sorted(by_norm) and (by_norm[0], by_norm[-1]) == ((norms < 0).sum(), len(rows))


def test_several_checkpoints_show_how_tables_grow(run, original, report):
    # In any order, and by several of their names.
    paths = [run / "model-9", run / "model-3", run / "model-6.index", run / "model-6.meta"]
    status, page, out = report(*paths)
    assert status == 0 and "3 checkpoints" in out
    growth = next(table for table in page.tables if table[0][0] == "checkpoint")
    rows = [sum(len(keys) for keys, _ in original[1][step].values()) for step in STEPS]
    assert [(line[0], number(line[3])) for line in growth[1:]] == [
        (f"sparse-model-{step}", count) for step, count in zip(STEPS, rows)
    ]
    assert "model-9" in page.texts, "the newest is shown in detail"


def test_one_table_alone(run, report):
    page = report(run, "--table", "own")[1]
    assert {section for section, _ in page.figures} == {"own"}


def test_names_from_files_are_text(tmp_path, report):
    directory = tmp_path / "sparse-<b>model-1"
    hostile = '<img src=x onerror="alert(1)">\u202e&lt;'
    write_original(directory, [1, 2, 3], table=hostile)
    write_original(directory, [1], table=os.fsdecode(b"\xff\n'"))
    status, page, _ = report(directory)
    assert status == 0
    assert "img" not in page.tags and "b" not in page.tags
    assert hostile.replace("\u202e", "\\u202e") in page.text
    assert "\\udcff\\n'" in page.text
    assert "\u202e" not in page.source


def test_empty_tables_are_told(tmp_path, report):
    write_original(tmp_path / "sparse-model-1", [])
    status, page, _ = report(tmp_path / "sparse-model-1")
    assert status == 0
    assert "The table is empty" in page.text


@pytest.mark.parametrize("harmed", ["some", "all"])
def test_rows_that_are_not_finite_are_told(harmed, run, report):
    file = run / "sparse-model-9/own/embedding/slice.data"
    rows = np.fromfile(file, np.float32).reshape(-1, model.DIM)
    rows[: 2 if harmed == "some" else None, 0] = np.nan
    rows.tofile(file)
    _, page, _ = report(run, "--no-check")
    count = 2 if harmed == "some" else len(rows)
    assert f"{count:,} NOT FINITE" in page.text
    assert ("No row is finite." in page.text) == (harmed == "all")


@pytest.mark.parametrize("has_check", [True, False])
def test_a_damaged_column_is_told_and_the_others_are_shown(has_check, run, report):
    file = run / "sparse-model-9/own/embedding/slice.data"
    file.write_bytes(file.read_bytes()[:-1])
    status, page, _ = report(run, *([] if has_check else ["--no-check"]))
    assert status == 1
    assert "own/embedding/slice.data' is cut off" in page.text
    assert ("own", "Norms of LazyAdam_momentum") in page.figures
    assert ("own", "Norms of embedding") not in page.figures
    assert ("shared", "Norms of embedding") in page.figures


def test_a_checkpoint_that_cannot_be_opened_is_told_beside_the_others(run, report):
    flip(run / "sparse-model-6/manifest.json")
    status, page, out = report(run / "model-3", run / "model-6", run / "model-9")
    assert status == 1
    assert "sparse-model-6/manifest.json' is damaged" in page.text and "DAMAGED" in out
    assert "sparse-model-3" in page.text


def test_nothing_is_written_where_nothing_can_be_read(run, tool, tmp_path):
    flip(run / "sparse-model-9/manifest.json")
    status, _, err = tool("inspect", "--html", tmp_path / "report.html", run / "model-9")
    assert status == 1 and "manifest.json' is damaged" in err
    assert not list(tmp_path.glob("report.html*"))


def test_a_place_that_cannot_be_written_is_told(run, tool):
    status, _, err = tool("inspect", "--html", run / "nowhere" / "report.html", run / "model-9")
    assert status == 2
    assert "cannot write" in err and "nowhere" in err


def test_options_that_exclude_each_other_are_told(run, tool):
    status, _, err = tool("inspect", run / "model-3", run / "model-9")
    assert status == 2 and "several checkpoints need `--html FILE`" in err
    status, _, err = tool("inspect", run / "model-3", "--html", run / "report.html", "--json")
    assert status == 2 and "excludes --json" in err


def test_many_tables_share_the_last_colour(tmp_path, report):
    for step in (1, 2):
        for name in range(9):
            write_original(tmp_path / f"sparse-model-{step}", [1, 2, 3], table=f"t{name}")
    page = report(tmp_path / "model-1", tmp_path / "model-2")[1]
    assert "4 other tables" in page.texts


@pytest.mark.parametrize("bins", [1, 5, 14, 40])
def test_texts_below_columns_do_not_overlap(bins):
    spans = [(1, 1, 3)] + [(2**i, 2 ** (i + 1) - 1, 5) for i in range(1, bins)]
    svg = _charts.columns(spans, "count", "How often")
    below = re.findall(r'<text x="([\d.]+)" y="206" text-anchor="middle">([^<]+)<', svg)
    edges = [(float(x) - 3.5 * len(label), float(x) + 3.5 * len(label)) for x, label in below]
    assert edges and all(right <= left for (_, right), (left, _) in zip(edges, edges[1:]))
