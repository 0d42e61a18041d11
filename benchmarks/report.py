"""Report: the Markdown page and the plot of a run, beside its raw numbers."""

import json
import statistics
import subprocess

from benchmarks import environments, paths, targets
from benchmarks.results import Results
from benchmarks.suite import OURS, UNFOLLOWED

_OPTIMIZERS = ("adam", "sgd", "adagrad")
_TITLES = {
    "w1": "W1: 26 tables of {rows}, batch 4096, one id each, dim 16, Zipf 1.05",
    "w2": "W2: one table of {rows}, batch 8192 × 20 ids summed, dim 64, Zipf 1.05",
    "w3": "W3: one table of {rows}, 100,000 ids a batch, dim 32, uniform",
}
_SAVING = ("whole", "pause", "written", "step", "during", "longest_during", "delta", "delta_pause", "rows", "bytes",
           "delta_bytes", "memory_whole", "memory_while_training")  # fmt: skip
_ROWS = {"w1": 1_000_000, "w2": 10_000_000, "w3": 10_000_000}


def write(results: Results, name: str) -> None:
    """<name>.json, <name>.md and, if there is a matplotlib, <name>.png in benchmarks/results."""
    paths.RESULTS.mkdir(parents=True, exist_ok=True)
    raw = paths.RESULTS / f"{name}.json"
    results.raw["plot"] = _plot_data(results)
    raw.write_text(json.dumps(results.raw, indent=1) + "\n")
    picture = paths.RESULTS / f"{name}.png"
    try:
        python = environments.python(environments.PLOT)
        command = [python, "-m", "benchmarks.plot", raw, picture]
        subprocess.run(command, check=True, cwd=paths.ROOT, stdout=subprocess.DEVNULL)
        plot = f"![ratios]({picture.name})"
    except (environments.Absent, subprocess.CalledProcessError) as reason:
        plot = f"No plot: {reason}"
    (paths.RESULTS / f"{name}.md").write_text(markdown(results, plot))


def markdown(results: Results, plot: str) -> str:
    parts = [_head(results), plot, _targets(results), *_workloads(results), _e2e(results), _modify(results)]
    parts += [
        _admission(results),
        _expansion(results),
        _disk(results),
        _size(results),
        _growth(results),
        _checkpoint(results),
        _saving(results),
        _startup(results),
        _absent(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(results):
    machine, mode = results.raw["machine"], results.raw["mode"]
    runs, repeated, disturbed = results.disturbance()
    scale = f"Tables have 1/{mode['scale']} of their rows; the targets are meant for all. " if mode["scale"] > 1 else ""
    return (
        f"# Benchmark results: {mode['name']}\n\n"
        f"Commit {machine['commit']}, {machine['date']}. {machine['cpu']} ({machine['vectors']}), "
        f"{machine['cores']} cores, {machine['memory']}, Linux {machine['kernel']}, Python {machine['python']}.\n"
        + "".join(f"{who}: {what}. " for who, what in machine["versions"].items())
        + f"\n\n{scale}Medians of {mode['rounds']} rounds, a group's workers by turns; ± is half the distance of the "
        f"quartiles. {runs} runs, {repeated} repetitions because of other load on the machine, {disturbed} runs kept "
        f"although disturbed. Ratios are {OURS} / peer, medians over the rounds. "
        "[How to read it](../../docs/benchmarks.md)."
    )


def _targets(results):
    rows = []
    for target in targets.evaluate(results):
        sign = "≥" if target.is_minimum else "≤"
        mark = {None: "not measured", True: "reached", False: "**missed**"}[target.reached]
        value = "" if target.value is None else f"{_number(target.value)}{target.unit}"
        note = f" ({target.note})" if target.note else ""
        rows.append((target.text + note, f"{sign} {_number(target.bound)}{target.unit}", value, mark))
    reached = sum(row[3] == "reached" for row in rows)
    missed = sum(row[3] == "**missed**" for row in rows)
    title = f"## Targets: {reached} reached, {missed} missed, {len(rows) - reached - missed} not measured"
    return title + "\n\n" + _table(("", "target", "measured", ""), rows)


def _workloads(results):
    for work, title in _TITLES.items():
        names = [f"{work}-{optimizer}" for optimizer in _OPTIMIZERS if results.parts(f"{work}-{optimizer}")]
        if not names:
            continue
        rows = []
        for name in names:
            for label in results.peers(name):
                cells = [name.split("-")[1], label]
                for measure in ("forward", "train"):
                    cells += [_rate(results, name, measure, label), _ratio(results, name, measure, label)]
                size = results.info(name, label, "bytes_per_row")
                rows.append((*cells, "" if size is None else f"{size:.0f}"))
        header = ("", "", "forward, M ids/s", "ratio", "train, M ids/s", "ratio", "bytes/row")
        text = title.format(rows=f"{_ROWS[work] // results.raw['mode']['scale']:,} rows")
        yield f"## {text}\n\n" + _table(header, rows)


def _e2e(results):
    if not results.parts("e2e"):
        return ""
    rows = []
    for label in results.peers("e2e"):
        time, auc = results.milliseconds("e2e", "train", label), results.info("e2e", label, "auc")
        rows.append(
            (
                label,
                _rate(results, "e2e", "train", label, 1e3),
                _ratio(results, "e2e", "train", label),
                "" if time is None else f"{time:.1f}",
                "" if auc is None else f"{auc:.5f}",
            )
        )
    title = "## End to end: 26 × dim 16 → 400 → 400 → 1, batch 4096, Adam, with the input pipeline"
    return title + "\n\n" + _table(("", "thousand samples/s", "ratio", "ms/step", "AUC, held out"), rows)


def _modify(results):
    rows = []
    for group in results.raw["groups"]:
        if not group["name"].startswith("modify"):
            continue
        for label in group["workers"]:
            name = group["name"]
            times = [results.milliseconds(name, measure, label) for measure in ("train", "train_rested")]
            cells = [f"{time:.2f}" if time is not None else "" for time in times]
            rows.append((group["title"], label, cells[0], _ratio(results, name, "train", label), cells[1],
                         _ratio(results, name, "train_rested", label)))  # fmt: skip
    header = ("", "", "ms/step", "ratio", "ms/step after a rest", "ratio")
    text = (
        "The same script with plain tensors, Adam: modified by `modify_graph_and_start_emb_cache()`, and as it was. "
        "After a rest of 20 ms batches are ready: what is left is the time inside `session.run`."
    )
    return f"## Graph modification\n\n{text}\n\n" + _table(header, rows) if rows else ""


def _admission(results):
    rows = [
        (label, f"{time:.2f}", _ratio(results, "admission", "train", label))
        for label in results.peers("admission")
        if (time := results.milliseconds("admission", "train", label)) is not None
    ]
    parts = []
    if rows:
        parts.append(
            "W1, Adam: tables that count and date every key of a batch, beside tables that do not. "
            "The rows trained are the same.\n\n" + _table(("", "ms/step", "ratio"), rows)
        )
    facts = _infos(results, "eviction", "rows evicted steps step_ms longest_ms")
    if facts["rows"] is not None:
        parts.append(
            "Eviction by `EvictHook` while W3 trains: {evicted:,} of {rows:,} rows in {steps} steps; a step takes "
            "{step_ms:.1f} ms, the longest one during the eviction {longest_ms:.1f} ms.".format(**facts)
        )
    return "## Feature admission and eviction\n\n" + "\n\n".join(parts) if parts else ""


def _expansion(results):
    rows = []
    for group in results.raw["groups"]:
        if group["name"].startswith("expansion"):
            for label in group["workers"]:
                name = group["name"]
                rows.append((group["title"], label, _rate(results, name, "train", label),
                             _ratio(results, name, "train", label)))  # fmt: skip
    header = ("", "", "train, M ids/s", "ratio")
    return "## Dynamic expansion, Adam\n\n" + _table(header, rows) if rows else ""


def _disk(results):
    rows = [
        (label, *(cell for measure in ("train", "train_cold")
                  for cell in (_rate(results, "disk", measure, label), _ratio(results, "disk", measure, label))))
        for label in results.peers("disk")
    ]  # fmt: skip
    parts = []
    if rows:
        facts = _infos(
            results, "disk", "rows rows_in_memory grown table_grown bytes_on_disk hit_rate read_microseconds"
        )
        parts.append(
            "One table of {rows:,.0f} rows, dim 32, Adam, 65,536 ids a batch, Zipf 1.05; {rows_in_memory:,.0f} rows in "
            "memory, {hit_rate:.1%} of the keys of a batch among them. Memory grew by {grown:,.0f} bytes, of which the "
            "table accounts for {table_grown:,.0f}; files have {bytes_on_disk:,.0f}. A row was read in "
            "{read_microseconds:.1f} us. Cold: the files are thrown out of the page cache every ten steps.".format(
                **facts
            )
        )
        parts.append(_table(("", "train, M ids/s", "ratio", "cold, M ids/s", "ratio"), rows))
    facts = _infos(
        results, "disk-large", "rows rows_in_memory row_bytes limit new_rows_per_second ids_per_second hit_rate"
    )
    if facts["rows"] is not None:
        parts.append(
            "A table of {rows:,.0f} rows, {row_bytes:,.0f} bytes, {rows_in_memory:,.0f} rows in memory, in a process "
            "that may use {limit:,.0f} bytes beyond what TensorFlow has (RLIMIT_DATA): {new_rows_per_second:,.0f} new "
            "rows/s, then {ids_per_second:,.0f} ids/s at a hit rate of {hit_rate:.1%}.".format(**facts)
        )
    return "## Rows on disk\n\n" + "\n\n".join(parts) if parts else ""


def _size(results):
    rows = [
        (label, f"{time:.2f}")
        for label in results.peers("size")
        if (time := results.milliseconds("size", "train", label)) is not None
    ]
    return "## Table size: the same hits, train step with Adam\n\n" + _table(("", "ms/step"), rows) if rows else ""


def _growth(results):
    rows = []
    for group in results.raw["groups"]:
        if not group["name"].startswith("growth"):
            continue
        for label, worker in group["workers"].items():
            runs = worker["runs"].get("new_rows", [])
            if runs:
                rate = _rate(results, group["name"], "new_rows", label)
                typical = statistics.median(run["median_ms"] for run in runs)
                longest = max(run["longest_ms"] for run in runs)
                rows.append((group["title"], label, rate, f"{typical:.1f}", f"{longest:.1f}"))
    header = ("", "", "million new rows/s", "ms/step", "longest, ms")
    return "## New rows: training steps on ids never seen, Adam\n\n" + _table(header, rows) if rows else ""


def _checkpoint(results):
    rows = []
    for group in results.raw["groups"]:
        if group["name"].startswith("checkpoint"):
            for label in group["workers"]:
                name = group["name"]
                measures = ("save", "restart", "restore")
                rows.append((group["title"], label, *(_rate(results, name, measure, label) for measure in measures)))
    header = ("", "", "save, MB/s", "restore in a new process, MB/s", "restore over rows, MB/s")
    text = (
        "Bytes of embeddings and slots; a save ends when the file system is flushed; restored files are not in the page"
        " cache, but may be in that of the virtual machine's host. TFRA uses the stock Saver, TFRA's files are written"
        " by the ops of its FileSystemSaver. The disk is one file of the same bytes, written and read in sequence."
    )
    return f"## Checkpoints, Adam\n\n{text}\n\n" + _table(header, rows) if rows else ""


def _saving(results):
    parts = []
    train = _rate(results, "follow", "train", OURS)
    if train:
        other = _rate(results, "follow", "train", UNFOLLOWED)
        ratio = results.ratio("follow", "train", UNFOLLOWED)
        parts.append(
            f"W1, Adam: {train} M ids/s while tables remember which rows change, {other} while they do not, "
            f"{ratio:.3f}×."
        )
    info = {key: results.info("saving", OURS, key) for key in _SAVING}
    if info["whole"] is not None:
        ms = {key: f"{1e3 * info[key]:.0f} ms" for key in _SAVING[:8]}
        parts.append(
            f"One table of {info['rows']:,} rows, dim 32, Adam, {info['bytes'] / 1e6:.0f} MB. A save between two steps "
            f"takes {ms['whole']} and {info['memory_whole'] / 2**20:.0f} MiB of memory at most. One that is written "
            f"while training goes on stops it for {ms['pause']} and is written after {ms['written']}; steps take "
            f"{ms['step']} without it, {ms['during']} during it, {ms['longest_during']} the longest; it takes "
            f"{info['memory_while_training'] / 2**20:.0f} MiB for rows that change meanwhile. A save of what 20 steps "
            f"changed, {info['delta_bytes'] / 1e6:.0f} MB, takes {ms['delta']}; while training goes on it stops it for "
            f"{ms['delta_pause']}."
        )
    return "## Saving while training goes on, and what has changed\n\n" + "\n\n".join(parts) if parts else ""


def _startup(results):
    times = results.raw.get("startup")
    if not times:
        return ""
    package, script = (1e3 * statistics.median(times[key]) for key in ("package", "script"))
    return (
        f"## Start-up\n\n`import mx_rec` after TensorFlow: {package:.0f} ms; all that a training script imports of it: "
        f"{script:.0f} ms."
    )


def _absent(results):
    rows = [(title, label, reason) for (title, label), reason in results.failed().items()]
    return "## Absent\n\n" + _table(("", "", "reason"), rows) if rows else ""


def _plot_data(results):
    bars = []
    for group in dict.fromkeys(group["name"] for group in results.raw["groups"]):
        for measure in ("forward", "train"):
            for label in results.peers(group):
                ratio = results.ratio(group, measure, label)
                if ratio is not None and label != OURS and "checkpoint" not in group:
                    bars.append({"group": group, "measure": measure, "peer": label, "ratio": ratio})
    times = {label: results.milliseconds("size", "train", label) for label in results.peers("size")}
    curve = [{"label": label, "milliseconds": time} for label, time in times.items()]
    return {"bars": bars, "curve": curve}


def _infos(results, name, keys):
    """What our worker of the group told of itself, by key."""
    return {key: results.info(name, OURS, key) for key in keys.split()}


def _rate(results, name, measure, label, unit=1e6):
    median, spread = results.median(name, measure, label), results.spread(name, measure, label)
    if median is None:
        return ""
    return _number(median / unit) + ("" if spread is None else f" ±{100 * spread:.0f}%")


def _ratio(results, name, measure, label):
    value = None if label == OURS else results.ratio(name, measure, label)
    return "" if value is None else f"{_number(value)}×"


def _number(value):
    """Three digits, or as many as there are before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(header, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in [header, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])
