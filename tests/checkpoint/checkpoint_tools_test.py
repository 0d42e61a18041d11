"""The command line's checkpoint tools, beside readings of the same files that share no code with them."""

import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from mx_rec._process import part
from mx_rec.checkpoint import _manifest, _owner, _table_files
from mx_rec.cli import diff
from mx_rec.cli._steadily import steadily
from mx_rec.reading import _finding, _reading
from mx_rec.saver import export, sparse
from tests.shared import model, training
from tests.shared.checkpoint_files import SLOTS, crc32c, files_of, flip, state_of, write_original
from tests.shared.tool_checkpoints import STEPS

v1 = tf.compat.v1

GONE = 2**22 + 1  # above any process's number


def read(directory, table):
    """{key: {column: row}} of a table, by NumPy alone."""
    folder = pathlib.Path(directory) / table
    keys = np.fromfile(folder / "key/slice.data", np.int64)
    columns = [path.name for path in folder.iterdir() if path.name == "embedding" or path.name.startswith("Lazy")]
    floats = {name: np.fromfile(folder / name / "slice.data", np.float32).reshape(len(keys), -1) for name in columns}
    return {key: {name: array[i] for name, array in floats.items()} for i, key in enumerate(keys.tolist())}


# ---- Which checkpoint a path means.


def test_prefix_directory_and_folder_mean_the_same_checkpoint(run, tool):
    forms = [run / "model-9", run / "model-9.index", run / "sparse-model-9", f"{run}/sparse-model-9/", run, f"{run}/"]
    for path in forms:
        status, out, _ = tool("inspect", path, "--json", "--no-check")
        assert status == 0
        assert json.loads(out)["step"] == 9, path


def test_a_folder_means_what_tensorflow_calls_the_latest(run, tool):
    (run / "checkpoint").write_text('model_checkpoint_path: "model-6"\nall_model_checkpoint_paths: "model-9"\n')
    assert json.loads(tool("inspect", run, "--json", "--no-check")[1])["step"] == 6
    (run / "checkpoint").unlink()
    assert json.loads(tool("inspect", run, "--json", "--no-check")[1])["step"] == 9


def test_state_files_are_read_as_tensorflow_reads_them(run):
    directory = run / 'quoted "ü"'
    directory.mkdir()
    names = [str(directory / name) for name in ("a-1", "b\\n-2", "é-3")]
    v1.train.update_checkpoint_state(str(directory), names[2], names)
    state = tf.train.get_checkpoint_state(str(directory))
    found = _finding.read_state(str(directory / "checkpoint"))
    assert found[0] == state.model_checkpoint_path
    assert set(found) == set(state.all_model_checkpoint_paths)


@pytest.mark.parametrize("command", ["inspect", "verify", "diff", "export", "prune"])
@pytest.mark.parametrize("what", ["nowhere", "empty", "file", "model-5"])
def test_wrong_paths_are_told(command, what, run, tool):
    (run / "empty").mkdir()
    (run / "file").write_text("text")
    more = {"export": [run / "out"], "diff": [run / "model-9"], "prune": ["--keep", 1]}.get(command, [])
    status, out, err = tool(command, run / what, *more)
    assert status == (0 if (command, what) == ("prune", "empty") else 1 if command == "verify" else 2)
    assert "checkpoint" in out + err
    assert what in out + err
    assert "Traceback" not in err


def test_a_latest_checkpoint_without_tables_is_told(run, tool):
    shutil.rmtree(run / "sparse-model-9")
    status, _, err = tool("inspect", run)
    assert status == 2
    assert "model-9', which has no tables" in err


# ---- inspect.


def test_inspect_tells_what_numpy_reads(run, original, tool):
    status, out, _ = tool("inspect", run / "model-6", "--json")
    facts = json.loads(out)
    assert status == 0
    assert (facts["step"], facts["format"], facts["dense"]) == (6, 1, "fits")
    assert facts["check"]["damage"] == []
    assert set(facts["tables"]) == set(model.TABLES)
    for name, table in facts["tables"].items():
        folder = run / "sparse-model-6" / name
        assert table["rows"] == len(read(run / "sparse-model-6", name)) == len(original[1][6][name][0])
        assert table["bytes"] == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        assert (table["dim"], table["key_dtype"], table["optimizer"]) == (model.DIM, "int64", "LazyAdam")
        assert table["slots"] == SLOTS
        assert table["tracking"] is None
    text = tool("inspect", run / "model-6")[1]
    assert "fits" in text and "LazyAdam_velocity" in text and "all files are whole" in text


def test_inspect_shows_rows_with_every_bit(run, tool):
    rows = read(run / "sparse-model-9", "shared")
    keys = [key for key in model.ODD_KEYS if key in rows]
    assert min(keys) < 0 and len(keys) > 3
    arguments = [f"--key={key}" for key in keys]
    facts = json.loads(tool("inspect", run, "--table", "shared", *arguments, "--json", "--no-check")[1])
    assert [row["key"] for row in facts["rows"]] == keys
    for row in facts["rows"]:
        for column in ("embedding", *SLOTS):
            np.testing.assert_array_equal(np.array(row[column], np.float32), rows[row["key"]][column])
    text = tool("inspect", run, "--table", "shared", "--key", keys[0], "--no-check")[1]
    assert f"key {keys[0]} is row" in text
    assert str(rows[keys[0]]["embedding"][0]) in text


def test_unknown_keys_and_tables_are_told(run, tool):
    for arguments, message in (
        (("--table", "shared", "--key", "123456789"), "table 'shared': key 123456789 is not in it"),
        (
            (
                "--table",
                "sharde",
            ),
            "table 'sharde' is not in it, only ['own', 'shared']",
        ),
        (("--key", "1"), "`--key` needs `--table`"),
        (("--table", "own", "--key", 2**63), "must be an int64, got 9223372036854775808"),
    ):
        status, _, err = tool("inspect", run, *arguments)
        assert status == 2
        assert message in err


def test_inspect_shows_what_admission_knows(counted, tool):
    directory, known, rows = counted
    refused = next(key for key in known if key not in rows)
    arguments = [f"--key={key}" for key in (rows[0], rows[-1], refused)]
    facts = json.loads(tool("inspect", directory, *arguments, "--json")[1])
    tracking = facts["tables"]["t"]["tracking"]
    assert (tracking["access_threshold"], tracking["eviction_threshold"], tracking["coefficient"]) == (4, 60, 3)
    for row in facts["rows"][:2]:
        assert (row["count"], row["last_time"], row["last_step"]) == known[row["key"]]
    assert facts["rows"][2]["row"] is None
    assert (facts["rows"][2]["count"], facts["rows"][2]["last_time"]) == known[refused][:2]
    text = tool("inspect", directory, "--key", refused, "--hist")[1]
    assert f"key {refused} has no row yet" in text
    assert "t: count" in text


def test_histograms_count_every_row_once(counted, tool):
    directory, known, rows = counted
    plots = json.loads(tool("inspect", directory, "--hist", "--json", "--no-check")[1])["histograms"]["t"]
    assert list(plots) == ["embedding norm", "Adagrad_accumulator norm", "count"]
    table = np.fromfile(directory / "sparse-model-20/t/embedding/slice.data", np.float32).reshape(len(rows), -1)
    norms = np.linalg.norm(table.astype(np.float64), axis=1)
    plot = plots["embedding norm"]
    np.testing.assert_allclose([plot["min"], plot["mean"], plot["max"]], [norms.min(), norms.mean(), norms.max()], 1e-6)
    assert sum(n for _, _, n in plot["bins"]) == len(rows)
    counts = [count for count, _, _ in known.values()]
    for low, high, n in plots["count"]["bins"]:
        assert n == sum(low <= count <= high for count in counts)
    assert sum(n for _, _, n in plots["count"]["bins"]) == len(known)


def test_histograms_and_rows_bear_numbers_that_are_not_finite(run, tool):
    file = run / "sparse-model-9/own/embedding/slice.data"
    rows = np.fromfile(file, np.float32).reshape(-1, model.DIM)
    rows[0, 0], rows[1, 1] = np.nan, np.inf
    rows.tofile(file)
    key = np.fromfile(run / "sparse-model-9/own/key/slice.data", np.int64)[0]
    arguments = ("--table", "own", "--hist", "--no-check", f"--key={key}")
    facts = json.loads(tool("inspect", run, "--json", *arguments)[1])
    assert facts["histograms"]["own"]["embedding norm"]["not_finite"] == 2
    assert facts["rows"][0]["embedding"][0] is None
    text = tool("inspect", run, *arguments)[1]
    assert "2 NOT FINITE" in text and "█" in text


def test_a_terminal_without_unicode_gets_other_bars(run):
    command = [sys.executable, "-m", "mx_rec", "inspect", str(run), "--hist", "--no-check"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert "####" in result.stdout


def test_the_tools_start_without_tensorflow(run):
    script = (
        "import sys\nfrom mx_rec import __main__\n"
        f"assert __main__.main(['verify', {str(run)!r}]) == 0\n"
        f"assert __main__.main(['inspect', {str(run)!r}, '--hist']) == 0\n"
        f"assert __main__.main(['inspect', {str(run)!r}, '--html', {str(run / 'report.html')!r}]) == 0\n"
        f"assert __main__.main(['diff', {str(run)!r}, {str(run)!r}]) == 0\n"
        f"assert __main__.main(['export', {str(run)!r}, {str(run / 'out')!r}]) == 0\n"
        "assert 'tensorflow' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


# ---- verify.


def test_verify_has_a_line_for_every_checkpoint(run, tool):
    flip(run / "sparse-model-6/own/key/slice.data")
    status, out, _ = tool("verify", run, run / "model-9")
    lines = out.splitlines()
    assert status == 1
    assert [line.split(": ")[1] for line in lines] == ["ok", "DAMAGED", "ok", "ok"]
    assert "sparse-model-6/own/key/slice.data' is damaged: the CRC32C" in lines[1]
    assert tool("verify", run / "model-3", run / "sparse-model-9")[0] == 0


@pytest.mark.parametrize("harm", ["flip", "cut", "longer", "remove"])
def test_every_harmed_file_is_named_alone(harm, run, tool):
    directory = run / "sparse-model-9"
    files = files_of(directory)
    assert len(files) == 2 * 8
    for path in files:
        good = path.read_bytes()
        if harm == "flip":
            flip(path, len(good) // 2)
        elif harm == "cut":
            path.write_bytes(good[:-1])
        elif harm == "longer":
            path.write_bytes(good + b"x")
        else:
            path.unlink()
        for command in ("verify", "inspect"):
            status, out, _ = tool(command, directory)
            assert status == 1
            assert [other for other in files if f"{other}'" in out] == [path]
        path.write_bytes(good)
    assert tool("verify", directory)[0] == 0


@pytest.mark.parametrize("column", ["history_record", "last_step", "table_2_threshold"])
def test_harmed_histories_are_named(column, counted, tool):
    flip(counted[0] / "sparse-model-20/t" / column / "slice.data")
    status, out, _ = tool("verify", counted[0])
    assert status == 1
    assert f"t/{column}/slice.data' is damaged" in out


def test_every_byte_of_the_manifest_counts(run, tool):
    path = run / "sparse-model-9/manifest.json"
    good = path.read_bytes()
    random = np.random.RandomState(1)
    for at in random.choice(len(good), 150, replace=False):
        flip(path, at)
        status, out, _ = tool("verify", run / "model-9")
        assert status == 1
        assert "manifest.json'" in out
        path.write_bytes(good)
    for cut in (0, 1, len(good) // 2, len(good) - 3):
        path.write_bytes(good[:cut])
        status, out, _ = tool("verify", run / "model-9")
        assert status == 1
        assert "manifest.json' is damaged" in out
        status, _, err = tool("inspect", run / "model-9")
        assert status == 1
        assert "manifest.json' is damaged" in err


def test_a_newer_format_is_not_called_damage(run, tool):
    path = run / "sparse-model-9/manifest.json"
    path.write_text(json.dumps({"format": 99, "mx_rec": "9.0"}))
    status, out, _ = tool("verify", run / "model-9")
    assert status == 1
    assert "FAILED" in out and "has format 99" in out and "9.0" in out


def test_files_that_do_not_belong_are_warned_of(run, tool):
    (run / "sparse-model-9/own/notes.txt").write_text("mine")
    (run / "sparse-model-9/stray").write_text("")
    status, out, _ = tool("verify", run / "model-9")
    assert status == 0
    assert "warning" in out and "own/notes.txt" in out and "sparse-model-9/stray" in out


def test_the_dense_part_must_be_that_of_the_same_save(run, tool):
    shutil.copy(run / "model-6.index", run / "model-9.index")
    status, out, _ = tool("verify", run / "model-9")
    assert status == 1
    assert "was written by another save" in out
    assert json.loads(tool("inspect", run / "model-9", "--json")[1])["dense"] == "differs"
    (run / "model-9.index").unlink()
    status, out, _ = tool("verify", run / "sparse-model-9")
    assert status == 0
    assert "no dense part" in out
    next(run.glob("model-6.data-*")).unlink()
    status, out, _ = tool("verify", run / "model-6")
    assert status == 1
    assert "has 0 of its 1 data files" in out


def test_contradictions_are_found_though_checksums_fit(run, tool):
    """A manifest that says of wrong files that they were written so."""
    directory = run / "sparse-model-9"
    for file, content, message in (
        ("key/slice.data", lambda keys: np.concatenate([keys[:-1], keys[:1]]), "twice, in rows 0 and"),
        ("embedding/slice.attribute", lambda numbers: numbers + [1, 0, 0], "embedding/slice.attribute' is damaged"),
        (
            "LazyAdam_velocity/slice.attribute",
            lambda numbers: -numbers,
            "LazyAdam_velocity/slice.attribute' is damaged",
        ),
    ):
        path = directory / "own" / file
        good, manifest = path.read_bytes(), (directory / "manifest.json").read_text()
        content(np.fromfile(path, np.int64)).tofile(path)
        changed = json.loads(manifest)
        changed["tables"]["own"]["files"][file]["crc32c"] = f"{crc32c(path.read_bytes()):08x}"
        del changed["crc32c"]
        body = json.dumps(changed, indent=1)[:-2]
        (directory / "manifest.json").write_text(f'{body},\n "crc32c": "{crc32c(body.encode()):08x}"\n}}\n')
        status, out, _ = tool("verify", directory)
        assert status == 1
        assert message in out and "CRC32C" not in out
        path.write_bytes(good)
        (directory / "manifest.json").write_text(manifest)


# ---- Checkpoints without a manifest, and empty tables.


def test_checkpoints_of_the_original_are_read_by_their_sizes(run, counted, tool):
    (run / "sparse-model-9/manifest.json").unlink()
    status, out, _ = tool("verify", run / "model-9")
    assert status == 0
    assert "no manifest.json" in out
    assert tool("diff", run / "model-9", run / "model-9")[0] == 0
    facts = json.loads(tool("inspect", run / "model-9", "--json")[1])
    assert (facts["format"], facts["mx_rec"], facts["step"], facts["dense"]) == (None, None, 9, "unknown")
    assert facts["tables"]["own"]["slots"] == SLOTS
    path = run / "sparse-model-9/own/LazyAdam_velocity/slice.data"
    path.write_bytes(path.read_bytes()[:-4])
    status, out, _ = tool("verify", run / "model-9")
    assert status == 1
    assert "LazyAdam_velocity/slice.data' is cut off" in out

    directory, known, rows = counted
    (directory / "sparse-model-20/manifest.json").unlink()
    facts = json.loads(tool("inspect", directory, f"--key={rows[0]}", "--json")[1])
    assert facts["check"]["damage"] == []
    assert facts["tables"]["t"]["tracking"]["eviction_threshold"] == 60
    assert facts["tables"]["t"]["slots"] == ["Adagrad_accumulator"]
    assert facts["rows"][0]["count"] == known[rows[0]][0]


def test_a_key_that_occurs_twice_is_named(tmp_path, tool):
    write_original(tmp_path / "sparse-model-1", [5, -7, 3, -7])
    status, out, _ = tool("verify", tmp_path / "sparse-model-1")
    assert status == 1
    assert "the key -7 twice, in rows 1 and 3" in out


@pytest.mark.parametrize("has_manifest", [True, False])
def test_empty_tables(has_manifest, tmp_path, tool):
    with training.Run(model.batches(1)) as run:
        v1.train.Saver().save(run.session, str(tmp_path / "model"), global_step=0)
    if not has_manifest:
        (tmp_path / "sparse-model-0/manifest.json").unlink()
    assert tool("verify", tmp_path)[0] == 0
    status, out, _ = tool("inspect", tmp_path, "--hist", "--json")
    assert status == 0
    assert json.loads(out)["tables"]["own"]["rows"] == 0
    assert tool("inspect", tmp_path, "--hist")[0] == 0
    assert tool("inspect", tmp_path, "--table", "own", "--key", 1)[0] == 2
    assert tool("diff", tmp_path, tmp_path)[0] == 0
    assert tool("export", tmp_path, tmp_path / "out", "--slots")[0] == 0
    assert np.load(tmp_path / "out/own.keys.npy").shape == (0,)
    assert np.load(tmp_path / "out/own.embedding.npy").shape == (0, model.DIM)


def test_an_empty_sparse_directory_is_damaged(tmp_path, tool):
    (tmp_path / "sparse-model-1").mkdir()
    status, out, _ = tool("verify", tmp_path)
    assert status == 1
    assert "neither a manifest.json nor tables" in out


# ---- diff.


def test_diff_counts_what_dicts_count(run, original, tool):
    status, out, _ = tool("diff", run / "model-3", run / "model-9", "--keys", 1000)
    assert status == 1
    for name in model.TABLES:
        a, b = read(run / "sparse-model-3", name), read(run / "sparse-model-9", name)
        both = a.keys() & b.keys()
        changed = {key for key in both if any(a[key][c].tobytes() != b[key][c].tobytes() for c in a[key])}
        assert changed and b.keys() - a.keys()
        expected = [len(a.keys() - b.keys()), len(b.keys() - a.keys()), len(changed), len(both) - len(changed)]
        section = out.partition(f"table '{name}'")[2].partition("\n\n")[0].splitlines()
        assert [int(part.split()[0]) for part in section[1].partition(": ")[2].split(", ")] == expected
        for column in ("embedding", *SLOTS):
            largest = max(np.abs(a[key][column].astype(float) - b[key][column]).max() for key in both)
            (line,) = [line for line in section if f"of {column}: " in line]
            np.testing.assert_allclose(float(line.rpartition(": ")[2]), largest, rtol=1e-8)
        listed = {line.split(":")[0].strip(): line.partition(": ")[2] for line in section[2:]}
        assert set(map(int, listed["changed"].split())) == changed
        assert set(map(int, listed["only in B"].split())) == b.keys() - a.keys()


def test_the_order_of_rows_is_no_difference(run, tool):
    shutil.copytree(run / "sparse-model-9", run / "sparse-other-9")
    (run / "sparse-other-9/manifest.json").unlink()
    for table in model.TABLES:
        order = None
        for column in ("key", "embedding", *SLOTS):
            path = run / "sparse-other-9" / table / column / "slice.data"
            width = 8 if column == "key" else 4 * model.DIM
            rows = np.fromfile(path, np.uint8).reshape(-1, width)
            order = np.random.RandomState(3).permutation(len(rows)) if order is None else order
            rows[order].tofile(path)
    status, out, _ = tool("diff", run / "sparse-model-9", run / "sparse-other-9")
    assert status == 0, out
    assert out.endswith("equal\n")


def test_one_bit_of_one_row_is_a_difference(run, tool):
    shutil.copytree(run / "sparse-model-9", run / "sparse-other-9")
    key = np.fromfile(run / "sparse-model-9/own/key/slice.data", np.int64)[4]
    flip(run / "sparse-other-9/own/LazyAdam_velocity/slice.data", 4 * model.DIM * 4 + 1)
    status, out, _ = tool("diff", run / "sparse-model-9", run / "sparse-other-9", "--keys", 3)
    assert status == 1
    assert "0 only in A, 0 only in B, 1 changed" in out
    assert f"    changed: {key}\n" in out
    assert "largest difference of embedding: 0\n" in out


def test_counts_and_tables_in_one_alone_are_differences(counted, run, tool):
    directory, known, rows = counted
    shutil.copytree(directory / "sparse-model-20", directory / "sparse-model-21")
    path = directory / "sparse-model-21/t/history_record/slice.data"
    words = np.fromfile(path, np.int64)
    words[2] += 5
    words.tofile(path)
    status, out, _ = tool("diff", directory / "sparse-model-20", directory / "sparse-model-21")
    assert status == 1
    assert "rows: 0 only in A, 0 only in B, 0 changed" in out
    assert f"counted keys: 0 only in A, 0 only in B, 1 changed, {len(known) - 1} equal" in out
    assert "largest difference of count: 5" in out
    status, out, _ = tool("diff", directory, run)
    assert status == 1
    assert "table 't': only in A" in out and "table 'own': only in B" in out


def test_diff_of_other_dims_and_slots(tmp_path, run, tool):
    write_original(tmp_path / "sparse-model-1", [1, 2], dim=2)
    write_original(tmp_path / "sparse-model-2", [2, 3], dim=3)
    status, out, _ = tool("diff", tmp_path / "model-1", tmp_path / "model-2")
    assert status == 1
    assert "dim: 2 in A, 3 in B" in out
    assert "1 only in A, 1 only in B, 1 changed, 0 equal" in out
    shutil.copytree(run / "sparse-model-9", run / "sparse-other-9")
    (run / "sparse-other-9/manifest.json").unlink()
    shutil.rmtree(run / "sparse-other-9/own/LazyAdam_momentum")
    status, out, _ = tool("diff", run / "sparse-model-9", run / "sparse-other-9")
    assert status == 1
    assert "slot LazyAdam_momentum: only in A" in out


def test_damaged_checkpoints_are_not_called_different(run, tool):
    path = run / "sparse-model-9/own/key/slice.data"
    path.write_bytes(path.read_bytes()[:-8])
    status, _, err = tool("diff", run / "model-6", run / "model-9")
    assert status == 2
    assert "own/key/slice.data' is cut off" in err


@pytest.mark.parametrize("seed", range(30))
def test_compare_agrees_with_dicts(seed, monkeypatch):
    random = np.random.RandomState(seed)
    monkeypatch.setattr(_table_files, "CHUNK", int(random.choice([1, 2, 7, 64, 1000])))
    pool = model.vocabulary(random.randint(13, 300), seed)
    values = np.array([0.0, -0.0, 1.5, np.nan, np.inf, -np.inf, 1e-40], np.float32)
    sides = []
    for _ in range(2):
        keys = random.permutation(pool)[: random.randint(0, len(pool))]
        columns = {
            "x": random.choice(values[: random.randint(1, 8)], (len(keys), 3)),
            "n": random.randint(0, 2, len(keys)),
        }
        sides.append((keys, columns))
    (keys_a, columns_a), (keys_b, columns_b) = sides
    found = diff.compare(keys_a, columns_a, keys_b, columns_b, examples=5)

    a, b = ({k: (c["x"][i], c["n"][i]) for i, k in enumerate(keys.tolist())} for keys, c in sides)
    both = a.keys() & b.keys()
    changed = {k for k in both if a[k][0].tobytes() != b[k][0].tobytes() or a[k][1] != b[k][1]}
    assert (found.only_a, found.only_b) == (len(a) - len(both), len(b) - len(both))
    assert (found.changed, found.equal) == (len(changed), len(both) - len(changed))
    for listed, all_of_them in (
        (found.keys_only_a, a.keys() - both),
        (found.keys_only_b, b.keys() - both),
        (found.keys_changed, changed),
    ):
        assert set(listed) <= all_of_them
        assert len(listed) == len(set(listed)) == min(5, len(all_of_them))
    steps = [abs(float(x) - float(y)) for k in both for x, y in zip(a[k][0], b[k][0]) if x.tobytes() != y.tobytes()]
    expected = np.nan if any(np.isnan(steps)) else max(steps, default=0.0)
    np.testing.assert_equal(found.largest["x"], expected)
    assert found.largest["n"] == max((abs(int(a[k][1]) - int(b[k][1])) for k in both), default=0)


# ---- prune.


def steps_of(directory):
    """(steps with a dense part, steps with tables)."""
    dense = sorted(int(path.stem.split("-")[1]) for path in directory.glob("model-*.index"))
    assert {f"model-{step}" for step in dense} == {path.name.split(".")[0] for path in directory.glob("model-*")}
    return dense, sorted(int(path.name.split("-")[2]) for path in directory.glob("sparse-model-*"))


def snapshot(directory):
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


def test_prune_removes_both_halves_and_tells_tensorflow(run, tool):
    before = snapshot(run)
    status, out, _ = tool("prune", run, "--keep", 1, "--dry-run")
    assert status == 0
    assert "would remove    model-6" in out and "would remove    model-3" in out and "keep            model-9" in out
    assert snapshot(run) == before
    gone = sum(path.stat().st_size for path in before if "model-3" in str(path.relative_to(run)))
    status, out, _ = tool("prune", run, "--keep", 2)
    assert status == 0
    assert "remove          model-3" in out and "model-6" in out
    assert steps_of(run) == ([6, 9], [6, 9])
    assert state_of(run) == ("model-9", ["model-6", "model-9"])
    assert not list(run.glob(".*"))
    assert f"freed {gone:,} bytes" in out
    assert tool("verify", run)[0] == 0
    after = snapshot(run)
    assert tool("prune", run, "--keep", 2)[0] == 0
    assert snapshot(run) == after


def test_what_is_left_can_be_restored_and_saved_on(run, original, tool):
    assert tool("prune", run, "--keep", 1)[0] == 0
    with training.Run(model.batches(STEPS[-1])) as again:
        saver = v1.train.Saver()
        saver.restore(again.session, tf.train.latest_checkpoint(str(run)))
        model.assert_same_rows(again.model.rows(), original[1][9])


def test_prune_keeps_multiples_of_every(run, tool):
    status, out, _ = tool("prune", run, "--keep", 1, "--every", 3)
    assert status == 0
    assert steps_of(run) == ([3, 6, 9], [3, 6, 9])
    status, out, _ = tool("prune", run, "--keep", 1, "--every", 2)
    assert "model-6   (a multiple of 2)" in out
    assert steps_of(run) == ([6, 9], [6, 9])
    assert state_of(run) == ("model-9", ["model-6", "model-9"])


def test_damaged_checkpoints_do_not_count(run, tool):
    flip(run / "sparse-model-6/own/key/slice.data")
    status, out, _ = tool("prune", run, "--keep", 2)
    assert status == 0
    assert "own/key/slice.data' is damaged" in out
    assert steps_of(run) == ([3, 9], [3, 9])
    assert state_of(run) == ("model-9", ["model-3", "model-9"])


def test_the_newest_whole_checkpoint_stays_though_a_newer_one_is_damaged(run, tool):
    flip(run / "sparse-model-9/own/key/slice.data")
    status, out, _ = tool("prune", run, "--keep", 1)
    assert status == 0
    assert "leave           model-9" in out
    assert steps_of(run) == ([6, 9], [6, 9])


def test_nothing_is_removed_where_nothing_is_whole(run, tool):
    for step in STEPS:
        flip(run / f"sparse-model-{step}/own/key/slice.data")
    before = snapshot(run)
    status, out, _ = tool("prune", run, "--keep", 1)
    assert status == 1
    assert snapshot(run) == before


def test_halves_go_if_they_are_older_and_stay_if_they_are_newer(run, tool):
    shutil.rmtree(run / "sparse-model-6")
    for path in run.glob("model-3.*"):
        path.unlink()
    for path in run.glob("model-9.*"):
        shutil.copy(path, run / path.name.replace("model-9", "model-12"))  # a save under way: its tables come later
    status, out, _ = tool("prune", run, "--keep", 3)
    assert status == 0
    assert "model-6   (without tables)" in out and "model-3   (without a dense part)" in out
    assert steps_of(run) == ([9, 12], [9])
    assert state_of(run) == ("model-9", ["model-9"])


_SAVING = """
import sys
from mx_rec.transaction import _lock
_lock.acquire(sys.argv[1])
print("locked", flush=True)
input()
"""


def test_leftovers_of_dead_processes_go_and_those_of_living_ones_stay(run, tool):
    """A process lives if it has the lock; its number may be that of another one here, or of none."""
    here = _owner.host()

    def make(step, owner):
        names = {f".{half}-model-{step}.{kind}-{owner}" for half in ("sparse", "dense") for kind in ("tmp", "old")}
        for name in names:
            (run / name / "own").mkdir(parents=True)
        return names

    ours, other = make(12, f"{here}-{GONE}"), make(18, f"far-off-{GONE}")
    command = [sys.executable, "-c", _SAVING, str(run)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as living:
        assert living.stdout.readline() == b"locked\n"
        status, out, _ = tool("prune", run, "--keep", 5)
        assert status == 0
        assert all(f"leave           {name} " in out for name in ours) and f"process {living.pid} on {here}" in out
        assert all(f"leave           {name} " in out for name in other) and "made on far-off" in out
        assert {path.name for path in run.glob(".*")} == ours | other | {".mx_rec-lock"}
        living.kill()
    status, out, _ = tool("prune", run, "--keep", 5)
    assert status == 0
    assert all(f"remove          {name} " in out for name in ours)
    assert {path.name for path in run.glob(".*")} == other
    assert tool("prune", run, "--keep", 5, "--other-hosts")[0] == 0
    assert not list(run.glob(".*"))


@pytest.mark.parametrize("is_visible", [True, False])
def test_a_save_that_was_killed_when_it_was_complete_is_completed(is_visible, run, tool):
    """Under a new name, and over a checkpoint whose first file it had replaced."""
    owner = f"{_owner.host()}-{GONE}"
    dense = run / f".dense-model-9.tmp-{owner}"
    dense.mkdir()
    if is_visible:
        shutil.copytree(run / "sparse-model-9", run / "sparse-model-6", dirs_exist_ok=True)
    for path in run.glob("model-9.*"):
        os.rename(path, dense / path.name)
    os.rename(run / "sparse-model-9", run / f".sparse-model-9.tmp-{owner}")
    if is_visible:
        os.link(dense / "model-9.data-00000-of-00001", run / "model-9.data-00000-of-00001")
    assert tool("verify", run / "model-9")[0] == 0
    assert f".sparse-model-9.tmp-{owner}: ok" in tool("verify", run / "model-9")[1]
    status, out, _ = tool("prune", run, "--keep", 1, "--dry-run")
    assert "would complete  model-9" in out
    assert dense.exists()
    assert tool("prune", run, "--keep", 1)[0] == 0
    assert steps_of(run) == ([9], [9]) and list(run.glob(".*")) == []
    assert tool("verify", run)[0] == 0


def test_the_latest_of_tensorflow_stays_after_going_back(run, tool):
    """Training went back to step 3: newer steps are of a run that was given up."""
    (run / "checkpoint").write_text('model_checkpoint_path: "model-3"\nall_model_checkpoint_paths: "model-3"\n')
    assert tool("prune", run, "--keep", 1)[0] == 0
    assert steps_of(run) == ([3, 9], [3, 9])
    assert state_of(run) == ("model-3", ["model-3"])


def test_other_names_have_their_own_count_and_other_files_stay(run, tool):
    for path in list(run.glob("*model-[36]*")):
        copy = run / path.name.replace("model", "best")
        (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)
    others = [run / "vocabulary-1.index", run / "plain-1.index", run / "plain-2.index", run / "model.txt"]
    for path in others:
        path.write_text("mine")
    shutil.copytree(run / "sparse-model-3", run / "sparse-final")  # no step
    (run / "checkpoint_best").write_text(
        'model_checkpoint_path: "best-6"\nall_model_checkpoint_paths: "best-3"\nall_model_checkpoint_paths: "best-6"\n'
    )
    assert tool("prune", run, "--keep", 1)[0] == 0
    assert {path.name for path in run.glob("sparse-*")} == {"sparse-model-9", "sparse-best-6", "sparse-final"}
    assert all(path.exists() for path in others)
    assert (run / "checkpoint_best").read_text().count("best-3") == 0
    assert (run / "checkpoint_best").read_text().startswith('model_checkpoint_path: "best-6"')


def test_prune_refuses_what_it_cannot_judge(run, tool, capsys):
    path = run / "sparse-model-9/manifest.json"
    path.write_text(json.dumps({"format": 99, "mx_rec": "9.0"}))
    before = snapshot(run)
    status, _, err = tool("prune", run, "--keep", 1)
    assert status == 2
    assert "has format 99" in err
    assert snapshot(run) == before
    assert tool("prune", run / "nowhere", "--keep", 1)[0] == 2
    with pytest.raises(SystemExit):
        tool("prune", run, "--keep", 0)
    assert "must be a whole number from 1, got '0'" in capsys.readouterr().err


# ---- export.


@pytest.mark.parametrize("has_slots", [False, True])
def test_exported_arrays_are_the_rows(has_slots, run, original, tool, monkeypatch):
    monkeypatch.setattr(_table_files, "CHUNK", 7)
    status, out, _ = tool("export", run / "model-6", run / "out" / "deep", *(["--slots"] if has_slots else []))
    assert status == 0
    for name in model.TABLES:
        keys, values = original[1][6][name]
        exported = np.load(run / f"out/deep/{name}.keys.npy")
        assert exported.dtype == np.int64
        order = np.argsort(exported)
        np.testing.assert_array_equal(exported[order], keys)
        for i, column in enumerate(("embedding", *SLOTS)):
            file = run / f"out/deep/{name}.{column}.npy"
            assert file.exists() == (has_slots or i == 0)
            if file.exists():
                np.testing.assert_array_equal(np.load(file)[order].view(np.int32), values[:, i].view(np.int32))
    assert not list((run / "out/deep").glob("*tmp*"))


def test_export_of_one_table_and_what_goes_wrong(run, tool):
    assert tool("export", run, run / "out", "--table", "own")[0] == 0
    assert {path.name for path in (run / "out").iterdir()} == {"own.keys.npy", "own.embedding.npy"}
    status, _, err = tool("export", run, run / "out", "--table", "none")
    assert status == 2
    assert "table 'none' is not in it" in err
    (run / "file").write_text("")
    status, _, err = tool("export", run, run / "file")
    assert status == 2
    assert "cannot write to" in err
    flip(run / "sparse-model-9/own/embedding/slice.data")
    status, _, err = tool("export", run, run / "new", "--table", "own")
    assert status == 1
    assert "own/embedding/slice.data' is damaged" in err
    assert not (run / "new").exists()


def test_parquet_without_pyarrow_says_how_to_get_it(run, tool, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    status, _, err = tool("export", run, run / "out", "--format", "parquet")
    assert status == 2
    assert "pip install pyarrow" in err
    assert not (run / "out").exists()


def test_parquet_holds_the_rows(run, original, tool, monkeypatch):
    from pyarrow import parquet

    monkeypatch.setattr(_table_files, "CHUNK", 7)
    assert tool("export", run, run / "out", "--format", "parquet", "--slots")[0] == 0
    for name in model.TABLES:
        keys, values = original[1][9][name]
        table = parquet.read_table(run / f"out/{name}.parquet")
        assert table.column_names == ["key", "embedding", *SLOTS]
        assert str(table.schema.field("embedding").type).startswith("fixed_size_list<")
        order = np.argsort(table["key"].to_numpy())
        np.testing.assert_array_equal(table["key"].to_numpy()[order], keys)
        for i, column in enumerate(("embedding", *SLOTS)):
            rows = np.array(table[column].to_pylist(), np.float32)
            np.testing.assert_array_equal(rows[order], values[:, i])


# ---- mx_rec.saver.export.


@pytest.fixture
def log(caplog):
    """The package's logger does not pass its lines on to pytest."""
    logging.getLogger("mx_rec").addHandler(caplog.handler)
    yield caplog
    logging.getLogger("mx_rec").removeHandler(caplog.handler)


def test_export_writes_a_dict_of_unsigned_keys(tmp_path, tool, log):
    with training.Run(model.batches(3)) as run:
        for _ in range(3):
            run.session.run(run.step)
        saver = v1.train.Saver()
        saver.save(run.session, str(tmp_path / "model"), global_step=3)
        assert export(["own", "nobody"]) == 1
        assert "table 'nobody' is not exported" in log.text
        rows = run.model.rows()
        assert not (tmp_path / "sparse-model-3/shared/key-emb.npy").exists()
        assert sparse.export() == 2
        for name, (keys, values) in rows.items():
            content = np.load(tmp_path / f"sparse-model-3/{name}/key-emb.npy", allow_pickle=True).item()
            assert {type(key) for key in content} == {np.uint64}
            assert set(map(int, content)) == {key % 2**64 for key in keys.tolist()}
            for key, row in zip(keys.tolist(), values[:, 0]):
                assert content[key % 2**64].dtype == np.float32
                np.testing.assert_array_equal(content[key % 2**64], row)
        status, out, _ = tool("verify", tmp_path)
        assert status == 0
        assert "warning" not in out
        saver.restore(run.session, str(tmp_path / "model-3"))
        (tmp_path / "sparse-model-3/manifest.json").unlink()
        status, out, _ = tool("verify", tmp_path)
        assert status == 0
        assert "key-emb" not in out


def test_a_directory_that_goes_while_it_is_read_is_read_again_if_another_took_its_place(run):
    directory, calls = run / "sparse-model-9", []

    def read(checkpoint, is_replaced):
        calls.append(checkpoint)
        if len(calls) == 1:
            if is_replaced:
                shutil.copy(run / "sparse-model-6" / "manifest.json", directory)
            raise FileNotFoundError(directory)
        return "whole"

    assert steadily([str(directory)], lambda checkpoint: read(checkpoint, True)) == "whole" and len(calls) == 2
    calls.clear()
    with pytest.raises(FileNotFoundError):
        steadily([str(directory)], lambda checkpoint: read(checkpoint, False))


@pytest.mark.parametrize("is_found", [False, True], ids=["before it is found", "after it was found"])
def test_a_checkpoint_without_a_name_for_an_instant_is_read_later(is_found, run, monkeypatch):
    directory, aside = run / "sparse-model-9", run / "aside"
    find, looks = _finding.find, []

    def find_while_a_save_renames(path):
        looks.append(path)
        if len(looks) == 1 and not is_found:
            directory.rename(aside)
        try:
            return find(path)
        finally:
            if len(looks) == 1 and is_found:
                directory.rename(aside)
            elif aside.exists():
                aside.rename(directory)

    monkeypatch.setattr(_finding, "find", find_while_a_save_renames)
    read = steadily([str(run / "model-9")], lambda checkpoint: checkpoint.directory)
    assert read == str(directory) and len(looks) > 2  # the second and third are of the attempt that succeeded


def test_export_with_nothing_to_export_warns(monkeypatch, tmp_path, log):
    monkeypatch.setattr(part(sparse.saver._Last), "sparse_dir", None)
    assert export() == 0
    assert "has saved no tables yet" in log.text
    monkeypatch.setattr(part(sparse.saver._Last), "sparse_dir", str(tmp_path / "gone"))
    assert export() == 0
    assert "no longer there" in log.text


@pytest.mark.parametrize("bad", [[], "own", ("own",), [1], ["own", None], 5])
def test_export_checks_its_argument(bad):
    with pytest.raises(ValueError, match="`table_list` must"):
        export(bad)


def test_a_killed_export_leaves_no_half_file(run, monkeypatch):
    monkeypatch.setattr(part(sparse.saver._Last), "sparse_dir", str(run / "sparse-model-9"))
    monkeypatch.setattr(np, "save", lambda file, rows: file.write(b"half") and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export()
    assert not list(run.rglob("key-emb*"))


def test_manifest_and_reader_agree_on_names(run):
    manifest = _manifest.read(str(run / "sparse-model-9"))
    assert list(_reading.open_checkpoint(str(run)).tables) == list(manifest.tables)
