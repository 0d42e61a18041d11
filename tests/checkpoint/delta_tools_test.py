"""The command line's checkpoint tools on deltas, beside what the tables had in memory when they were saved, and beside
readings of the files that share no code with the tools."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.checkpoint import _manifest, _table_files
from mx_rec.saver import export
from tests.shared import model, training
from tests.shared.checkpoint_files import SLOTS, files_of, flip, state_of
from tests.shared.optimizers import OPTIMIZERS
from tests.shared.tracked import Tracked

v1 = tf.compat.v1
STEPS = {3: False, 6: True, 9: True, 12: False, 15: True}  # and whether a delta
NAMES = {step: f"{'delta-' if is_delta else ''}sparse-model-{step}" for step, is_delta in STEPS.items()}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A directory with the checkpoints of STEPS, and {step: {table: (keys, values)}} as the tables had them. Before
    every save some keys lose their rows; in between, some come back."""
    directory, rows = tmp_path_factory.mktemp("run"), {}
    with training.Run(model.batches(max(STEPS), keys=model.vocabulary(400))) as run:
        saver = v1.train.Saver(max_to_keep=10)
        for step in range(1, max(STEPS) + 1):
            run.session.run(run.step)
            if step in STEPS:
                for table in run.model.tables.values():
                    table.native.erase(np.sort(table.native.keys())[step % 4 :: 4])
                path = str(directory / "model")
                saver.save(run.session, path, global_step=step, is_incremental_checkpoint=True, save_delta=STEPS[step])
                rows[step] = run.model.rows()
    assert {path.name for path in directory.glob("*sparse-*")} == set(NAMES.values())
    return directory, rows


def read(path):
    """(keys, embeddings, deleted keys) of a table in one directory, by NumPy alone."""
    path = pathlib.Path(path)
    keys = np.fromfile(path / "key/slice.data", np.int64)
    deleted = path / "deleted/slice.data"
    gone = np.fromfile(deleted, np.int64).tolist() if deleted.exists() else []
    return keys.tolist(), np.fromfile(path / "embedding/slice.data", np.float32).reshape(len(keys), -1), gone


# ---- inspect.


def test_inspect_tells_the_chain_and_the_rows_of_the_whole_table(run, original, tool):
    status, out, _ = tool("inspect", run / "model-9", "--json")
    facts = json.loads(out)
    assert status == 0
    assert [os.path.basename(link["directory"]) for link in facts["chain"]] == [NAMES[step] for step in (3, 6, 9)]
    assert [link["step"] for link in facts["chain"]] == [3, 6, 9]
    assert [link["is_delta"] for link in facts["chain"]] == [False, True, True]
    for link in facts["chain"]:
        tables = [read(run / os.path.basename(link["directory"]) / name) for name in model.TABLES]
        assert link["rows"] == sum(len(keys) for keys, _, _ in tables)
        assert link["deleted"] == sum(len(gone) for _, _, gone in tables)
        files = pathlib.Path(link["directory"]).rglob("slice.*")
        assert link["bytes"] == sum(path.stat().st_size for path in files)
    for name in model.TABLES:
        assert facts["tables"][name]["rows"] == len(original[1][9][name][0])
    text = tool("inspect", run / "model-9")[1]
    assert "a delta" in text and "delta-sparse-model-6" in text and "all files are whole" in text
    assert json.loads(tool("inspect", run / "model-12", "--json")[1])["chain"] is None


def test_a_report_shows_how_tables_grew_over_the_chain(run, original, tool):
    status, _, _ = tool("inspect", run / "model-9", "--html", run / "report.html")
    assert status == 0
    page = (run / "report.html").read_text()
    for step in (3, 6, 9):
        rows = sum(len(keys) for keys, _ in original[1][step].values())
        kind = "delta" if STEPS[step] else "whole"
        line = f'<td>{NAMES[step]}</td><td>{kind}</td><td class="number">{step}</td><td class="number">{rows:,}</td>'
        assert line in page
    assert "model-12" not in page


@pytest.mark.parametrize("step", STEPS)
def test_inspect_finds_every_key_in_the_newest_link_that_has_it(step, run, original, tool):
    for name in model.TABLES:
        keys, values = original[1][step][name]
        arguments = [f"--key={key}" for key in keys]
        status, out, _ = tool("inspect", run / f"model-{step}", "--table", name, *arguments, "--json", "--no-check")
        assert status == 0
        for row, expected in zip(json.loads(out)["rows"], values):
            for i, column in enumerate(("embedding", *SLOTS)):
                np.testing.assert_array_equal(np.array(row[column], np.float32), expected[i])
            assert row["key"] in read(run / row["in"] / name)[0]
        ever = {key for at in NAMES for key in original[1][at][name][0].tolist() if at < step}
        gone = sorted(ever - set(keys.tolist()))
        assert gone or step == 3
        for key in gone[:5]:
            status, _, err = tool("inspect", run / f"model-{step}", "--table", name, f"--key={key}", "--no-check")
            assert status == 2
            assert f"key {key} is not in it ({len(keys)} keys are)" in err


def test_histograms_are_of_the_whole_table(run, original, tool):
    plots = json.loads(tool("inspect", run / "model-9", "--hist", "--json", "--no-check")[1])["histograms"]
    for name in model.TABLES:
        norms = np.linalg.norm(original[1][9][name][1][:, 0].astype(np.float64), axis=1)
        plot = plots[name]["embedding norm"]
        assert plot["n"] == len(norms) == sum(n for _, _, n in plot["bins"])
        np.testing.assert_allclose([plot["min"], plot["max"]], [norms.min(), norms.max()], 1e-6)


# ---- export and diff.


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_exported_arrays_are_the_rows(step, chunk, run, original, tool, monkeypatch):
    monkeypatch.setattr(_table_files, "CHUNK", chunk)
    assert tool("export", run / f"model-{step}", run / "out", "--slots")[0] == 0
    for name in model.TABLES:
        keys, values = original[1][step][name]
        exported = np.load(run / f"out/{name}.keys.npy")
        order = np.argsort(exported)
        np.testing.assert_array_equal(exported[order], keys)
        for i, column in enumerate(("embedding", *SLOTS)):
            array = np.load(run / f"out/{name}.{column}.npy")
            np.testing.assert_array_equal(array[order].view(np.int32), values[:, i].view(np.int32))


@pytest.mark.parametrize("step", [9, 12])
def test_a_checkpoint_in_the_originals_layout_is_restored_without_a_manifest(step, run, original, tool):
    out = run / "out"
    assert tool("export", run / f"model-{step}", out, "--format", "original")[0] == 0
    assert {path.name for path in (out / f"sparse-model-{step}").iterdir()} == set(model.TABLES)
    assert not list(out.rglob("*manifest*")) and not list(out.rglob("*tmp*")) and not list(out.rglob("deleted"))
    with training.Run(model.batches(1)) as other:
        v1.train.Saver().restore(other.session, str(out / f"model-{step}"))
        model.assert_same_rows(other.model.rows(), original[1][step])
    status, _, err = tool("export", run / f"model-{step}", out, "--format", "original", "--table", "own")
    assert status == 2 and "leave out --table" in err
    for path in run.glob(f"model-{step}.*"):
        path.unlink()
    status, _, err = tool("export", run / f"model-{step}", run / "other", "--format", "original")
    assert status == 2 and "has no dense part" in err and not list(run.glob("other/**/slice.*"))


def test_export_reads_no_damaged_link(run, tool):
    flip(run / NAMES[6] / "own/deleted/slice.data")
    status, _, err = tool("export", run / "model-9", run / "out", "--table", "own")
    assert status == 1
    assert f"{NAMES[6]}/own/deleted/slice.data' is damaged" in err
    assert not (run / "out").exists()


def test_diff_counts_what_dicts_count(run, original, tool):
    for first, second in ((3, 6), (6, 9), (9, 12), (9, 15), (15, 6)):
        status, out, _ = tool("diff", run / f"model-{first}", run / f"model-{second}", "--keys", 1000)
        assert status == 1
        for name in model.TABLES:
            a, b = ({k: v.tobytes() for k, v in zip(*original[1][step][name])} for step in (first, second))
            both = a.keys() & b.keys()
            changed = {key for key in both if a[key] != b[key]}
            expected = [len(a) - len(both), len(b) - len(both), len(changed), len(both) - len(changed)]
            section = out.partition(f"table '{name}'")[2].partition("\n\n")[0].splitlines()
            assert [int(part.split()[0]) for part in section[1].partition(": ")[2].split(", ")] == expected
    assert tool("diff", run / "model-9", run / "model-9")[0] == 0


def test_a_delta_equals_all_rows_of_the_same_instant(tmp_path, tool):
    """With admission, eviction and counts, of which a delta has those that changed."""
    with model.process(), v1.Session() as session:
        tracked = Tracked(OPTIMIZERS["adagrad"], [{"by": "count", "below": 3}], rows=5000)
        session.run(v1.global_variables_initializer())
        for step, save_delta in ((0, False), (45, True), (95, True)):
            tracked.saver.save(
                session, str(tmp_path / "model"), step, save_delta=save_delta, is_incremental_checkpoint=True
            )
            if step == 95:
                tracked.saver.save(session, str(tmp_path / "whole"), step)
            tracked.train(session, 45 if step == 0 else 50, begin=step)
        known = tracked.table.native.keys()
    assert len(np.fromfile(tmp_path / "delta-sparse-model-95/t/deleted/slice.data", np.int64)) > 0
    assert (tmp_path / "sparse-whole-95").is_dir()
    status, out, _ = tool("diff", tmp_path / "model-95", tmp_path / "whole-95")
    assert status == 0, out
    assert "counted keys: 0 only in A, 0 only in B, 0 changed" in out
    key = next(key for key in known.tolist() if key in read(tmp_path / "sparse-whole-95/t")[0])
    facts = [
        json.loads(tool("inspect", tmp_path / f"{name}-95", f"--key={key}", "--json")[1]) for name in ("model", "whole")
    ]
    rows = [{name: value for name, value in one["rows"][0].items() if name not in ("row", "in")} for one in facts]
    assert rows[0] == rows[1] and "count" in rows[0] and "last_step" in rows[0]
    assert facts[0]["tables"]["t"]["tracking"] == facts[1]["tables"]["t"]["tracking"]


def test_export_in_a_script_writes_all_rows_of_a_delta(tmp_path):
    with training.Run(model.batches(6)) as run:
        for step, save_delta in ((2, False), (4, True)):
            run.train(2)
            path = str(tmp_path / "model")
            run.saver.save(run.session, path, step, save_delta=save_delta, is_incremental_checkpoint=True)
        rows = run.model.rows()
        assert export() == 2
    for name, (keys, values) in rows.items():
        content = np.load(tmp_path / f"delta-sparse-model-4/{name}/key-emb.npy", allow_pickle=True).item()
        assert set(map(int, content)) == {key % 2**64 for key in keys.tolist()}
        for key, row in zip(keys.tolist(), values[:, 0]):
            np.testing.assert_array_equal(content[key % 2**64], row)


# ---- verify.


def test_verify_has_a_line_for_every_checkpoint(run, tool):
    status, out, _ = tool("verify", run)
    assert status == 0
    lines = out.splitlines()
    assert [line.split(": ")[0] for line in lines] == [str(run / name) for name in NAMES.values()]
    assert lines[2].endswith("in a chain of 3")
    assert "warning" not in out


@pytest.mark.parametrize("harm", ["flip", "remove"])
def test_a_harmed_file_is_named_for_all_that_build_on_it(harm, run, tool):
    for step, broken in ((3, (3, 6, 9)), (6, (6, 9)), (9, (9,)), (12, (12, 15)), (15, (15,))):
        for path in files_of(run / NAMES[step] / "own"):
            good = path.read_bytes()
            if harm == "flip":
                flip(path, len(good) // 2)
            else:
                path.unlink()
            status, out, _ = tool("verify", run)
            assert status == 1
            lines = dict(zip(NAMES, out.splitlines()))
            assert [at for at in NAMES if f"{path}'" in lines[at]] == list(broken)
            assert [at for at in NAMES if ": ok: " in lines[at]] == [at for at in NAMES if at not in broken]
            path.write_bytes(good)


def test_a_missing_link_is_named(run, tool):
    shutil.rmtree(run / NAMES[6])
    for command in (["verify"], ["inspect"], ["export"]):
        status, out, err = tool(*command, run / "model-9", *([run / "out"] if command == ["export"] else []))
        assert status == 1
        assert f"'{run / NAMES[6]}', which is missing" in out + err
    status, _, err = tool("diff", run / "model-9", run / "model-3")
    assert status == 2
    assert "which is missing" in err
    status, out, _ = tool("verify", run)
    assert status == 1
    assert [line.split(": ")[1] for line in out.splitlines()] == ["ok", "FAILED", "ok", "ok"]


def test_a_replaced_link_is_named(run, tool):
    shutil.rmtree(run / NAMES[3])
    shutil.copytree(run / NAMES[12], run / NAMES[3])
    status, out, _ = tool("verify", run / "model-9")
    assert status == 1
    assert f"'{run / NAMES[3]}', but that has been replaced or damaged" in out


def test_links_that_contradict_each_other_are_told(run, tool):
    """Every file is as written, yet another number of rows comes out: the delta says what it must be."""
    path = run / NAMES[6] / "manifest.json"
    content = json.loads(path.read_text())
    content["tables"]["own"]["table_rows"] += 1
    del content["crc32c"]
    path.write_bytes(_manifest.seal(content))
    status, out, _ = tool("verify", run / "model-6")
    assert status == 1
    assert "table_rows" in out and f"{NAMES[6]}/own" in out


def test_tables_that_deltas_build_on_are_no_orphans(run, tool):
    for path in run.glob("model-3.*"):
        path.unlink()
    status, out, _ = tool("verify", run)
    assert status == 0
    assert f"its tables stay as {NAMES[6]} builds on them" in out.splitlines()[0]


# ---- prune.


def tables_of(directory):
    return {path.name for path in directory.glob("*sparse-*")}


def dense_of(directory):
    return {int(path.stem.split("-")[1]) for path in directory.glob("model-*.index")}


def restored(directory, step):
    with training.Run(model.batches(1)) as again:
        again.saver.restore(again.session, str(directory / f"model-{step}"))
        return again.model.rows()


def test_prune_keeps_what_kept_deltas_build_on(run, original, tool):
    status, out, _ = tool("prune", run, "--keep", 1, "--every", 9)
    assert status == 0
    assert dense_of(run) == {9, 15}
    assert tables_of(run) == set(NAMES.values())
    assert f"keep tables     model-3   ({NAMES[9]} builds on them)" in out
    assert state_of(run) == ("model-15", ["model-9", "model-15"])
    for step in (9, 15):
        model.assert_same_rows(restored(run, step), original[1][step])
    before = tables_of(run)
    status, out, _ = tool("prune", run, "--keep", 1, "--every", 9)  # tables without a dense part are no leftovers
    assert status == 0 and tables_of(run) == before and "freed 0 bytes" in out


def test_prune_removes_chains_that_nobody_needs(run, original, tool):
    gone = [path for path in run.rglob("*") if path.is_file() and not {"model-12", "model-15"} & name_parts(path, run)]
    size = sum(path.stat().st_size for path in gone if path.name != "checkpoint")
    size += sum(path.stat().st_size for path in run.glob("model-12.*"))
    status, out, _ = tool("prune", run, "--keep", 1, "--dry-run")
    assert tables_of(run) == set(NAMES.values()) and "would remove    model-12" in out
    status, out, _ = tool("prune", run, "--keep", 1)
    assert status == 0
    assert (dense_of(run), tables_of(run)) == ({15}, {NAMES[12], NAMES[15]})
    assert f"freed {size:,} bytes" in out
    model.assert_same_rows(restored(run, 15), original[1][15])


def name_parts(path, run):
    first = path.relative_to(run).parts[0]
    return {first.removeprefix("delta-").removeprefix("sparse-").split(".")[0]}


def test_a_damaged_base_takes_its_deltas_along(run, original, tool):
    flip(run / NAMES[12] / "own/key/slice.data")
    status, out, _ = tool("prune", run, "--keep", 1)
    assert status == 0
    assert "leave           model-15" in out and "leave           model-12" in out and "keep            model-9" in out
    assert dense_of(run) == {9, 12, 15}
    model.assert_same_rows(restored(run, 9), original[1][9])


def test_deltas_without_their_base_go_when_a_newer_one_is_whole(run, tool):
    shutil.rmtree(run / NAMES[3])
    status, out, _ = tool("prune", run, "--keep", 5)
    assert status == 0
    assert "which is missing" in out
    assert (dense_of(run), tables_of(run)) == ({12, 15}, {NAMES[12], NAMES[15]})


def test_names_without_a_step_need_their_base_too(run, original, tool):
    """A delta under another name, which prune leaves alone, builds on what it would remove."""
    os.rename(run / NAMES[9], run / "delta-sparse-final")
    for path in run.glob("model-9.*"):
        os.rename(path, run / path.name.replace("model-9", "final"))
    assert tool("prune", run, "--keep", 1)[0] == 0
    assert {NAMES[3], NAMES[6], "delta-sparse-final"} <= tables_of(run)
    assert tool("verify", run / "final")[0] == 0
