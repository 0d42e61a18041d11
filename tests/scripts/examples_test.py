"""Every script in examples/ runs, in a directory of its own, and so do those in the documentation."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import movielens_data
from tests.shared.paths import ROOT

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
CHECKED = {  # each by a test below
    "estimator",
    "estimator_warm_start",
    "monitored_admission",
    "movielens_four_ways",
    "session_by_address",
    "session_disk_tier",
    "session_feature_spec",
    "session_graph_modification",
    "session_incremental",
}


def run(script, directory, *arguments):
    command = [sys.executable, script, *arguments]
    done = subprocess.run(list(map(str, command)), cwd=directory, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


def run_example(name, directory, *arguments):
    return run(EXAMPLES / f"{name}.py", directory, *arguments)


def test_every_example_is_checked():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == CHECKED


def aucs(output):
    return dict(re.findall(r"^(\w.*?) +AUC ([0-9.]+)", output, re.MULTILINE))


@pytest.mark.parametrize("data", ["generated", "MovieLens"])
def test_four_ways_to_train_a_model_reach_the_same_auc(data, tmp_path):
    arguments = ["--count", 10_000]
    if data == "MovieLens":
        arguments = ["--ratings", tmp_path / "u.data"]
        write_ratings(tmp_path / "u.data", 20_000)
    found = {way: float(auc) for way, auc in aucs(run_example("movielens_four_ways", tmp_path, *arguments)).items()}
    assert list(found) == ["stock", "feature specs", "graph modification", "estimator"]
    assert max(found.values()) - min(found.values()) <= 0.003
    assert min(found.values()) > 0.6, "it learns: 0.5 is a guess"


def write_ratings(path, count):
    """The first ratings of MovieLens-100K as its file u.data has them, if they can be had."""
    try:
        ratings = movielens_data.load(pathlib.Path("~/.cache/mx_rec").expanduser()).first(count)
    except movielens_data.Missing as reason:
        pytest.skip(f"MovieLens-100K is not there: {reason}")
    columns = (ratings.user + 1, ratings.movie + 1, np.where(ratings.label > 0, 5, 1), ratings.time)
    np.savetxt(path, np.stack(columns, axis=1), "%d", "\t")


def test_by_address_example_goes_on_from_its_last_step(tmp_path):
    first, second = run_example("session_by_address", tmp_path), run_example("session_by_address", tmp_path)
    rows = re.search(r"step 60: loss [0-9.]+, (user_table .*, item_table .* rows)", first).group(1)
    assert f"restored step 60: {rows}" in second
    losses = [float(re.search(r"loss ([0-9.]+)", output).group(1)) for output in (first, second)]
    assert max(losses) < 0.5, "it learns: 0.69 is a guess"


def test_incremental_example_goes_back_to_the_rows_it_had(tmp_path):
    output = run_example("session_incremental", tmp_path)
    rows = re.search(r"step 160: loss [0-9.]+, ([0-9,]+) rows, saving what has changed", output).group(1)
    assert re.search(f"restored step 160: loss [0-9.]+, {rows} rows", output)
    kinds = {path.name for path in (tmp_path / "saved-model").glob("*sparse-model-*")}
    whole = {"sparse-model-20", "sparse-model-120"}
    assert kinds == whole | {f"delta-sparse-model-{step}" for step in range(20, 201, 20) if step not in (20, 120)}


def test_the_script_in_the_page_on_addresses_runs(tmp_path):
    page = (ROOT / "docs" / "shapes_and_addresses.md").read_text()
    (script,) = re.findall(r"```python\n(import .*?)```", page, re.DOTALL)
    (tmp_path / "script.py").write_text(script)
    assert "row of id 7: [0.9 0.9 0.9 0.9]" in run(tmp_path / "script.py", tmp_path)


def test_estimator_example_goes_on_from_its_last_checkpoint(tmp_path):
    for line in ("from step 0 to 200: AUC 1.000", "from step 200 to 400: AUC 1.000"):
        output = run_example("estimator", tmp_path)
        assert line in output and "predicted and served" in output
    assert sorted(path.name for path in (tmp_path / "estimator-model").glob("sparse-*")) == [
        "sparse-model.ckpt-200",
        "sparse-model.ckpt-300",
        "sparse-model.ckpt-400",
    ]


def test_warm_start_example_starts_warm(tmp_path):
    output = run_example("estimator_warm_start", tmp_path)
    cold, warm = re.search(r"([0-9.]+) from scratch, ([0-9.]+) after", output).groups()
    assert float(warm) < 0.1 < float(cold)


@pytest.mark.parametrize("version", ["before", "after"])
@pytest.mark.parametrize("number", [0, 1])
def test_the_scripts_of_the_page_on_migration_run_and_learn(number, version, tmp_path):
    page = (ROOT / "docs" / "migration.md").read_text()
    lines = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)[number].splitlines()
    left_out = "+" if version == "before" else "-"
    script = "\n".join(line[1:] for line in lines if not line.startswith(left_out))
    assert ("mx_rec" in script) == (version == "after")
    (tmp_path / "script.py").write_text(script)
    loss = float(re.search(r"^loss ([0-9.e-]+)$", run(tmp_path / "script.py", tmp_path), re.MULTILINE).group(1))
    assert loss < 0.05


def test_session_example_saves_and_restarts_from_its_step_0(tmp_path):
    first = run_example("session_feature_spec", tmp_path)
    assert "restored step 0" not in first
    assert "Encounter the end of Sequence" in first and "Demo done!" in first
    saved = sorted(path.name for path in (tmp_path / "saved-model").glob("sparse-model-0-*"))
    assert saved == [
        "sparse-model-0-0",
        "sparse-model-0-100",
        "sparse-model-0-30",
        "sparse-model-0-60",
        "sparse-model-0-90",
    ]
    assert "restored step 0" in run_example("session_feature_spec", tmp_path)


def test_admission_example_admits_evicts_and_learns(tmp_path):
    output = run_example("monitored_admission", tmp_path)
    told = re.search(r"([0-9,]+) ids seen: ([0-9,]+) never got a row, ([0-9,]+) lost theirs, ([0-9,]+) have", output)
    seen, refused, evicted, rows = (int(number.replace(",", "")) for number in told.groups())
    assert seen == refused + evicted + rows and refused > 10 * rows and evicted > rows > 100
    directory = tmp_path / "monitored-admission"
    assert list(directory.glob("events.out.tfevents.*"))
    saved = directory / "sparse-model.ckpt-300" / "item_table"
    keys = np.fromfile(saved / "key/slice.data", np.int64)
    embeddings = np.fromfile(saved / "embedding/slice.data", np.float32).reshape(len(keys), 8)
    assert len(keys) == rows
    weights = tf.train.load_variable(str(directory / "model.ckpt-300"), "weights")
    logits, is_clicked = (embeddings @ weights)[:, 0], keys % 3 == 0
    auc = np.mean(logits[is_clicked][:, None] > logits[~is_clicked])
    assert auc > 0.75, "it learns: 0.5 is a guess"


def test_disk_tier_example_keeps_to_its_memory_and_learns(tmp_path):
    output = run_example("session_disk_tier", tmp_path)
    lines = re.findall(r"step (\d+): loss ([0-9.]+), ([0-9,]+) rows in memory, ([0-9,]+) on disk", output)
    assert [int(step) for step, *_ in lines] == [50, 100, 150, 200]
    assert {in_memory for _, _, in_memory, _ in lines} == {"2,000"}
    on_disk = [int(number.replace(",", "")) for *_, number in lines]
    assert on_disk == sorted(set(on_disk)) and on_disk[0] > 2_000
    assert float(lines[-1][1]) < 0.45, "it learns: 0.64 is a guess"


def test_graph_modification_example_moves_its_lookups_and_learns(tmp_path):
    output = run_example("session_graph_modification", tmp_path)
    moved = re.findall(
        r"^moved: lookup '(\w+)/sparse_lookup_\d' in table '\1'.* into the dataset", output, re.MULTILINE
    )
    assert sorted(moved) == sorted(2 * ["user", "city", "cross", "item"])  # of training, and of evaluation
    assert "the training data ended after 200 steps" in output
    told = re.findall(r"evaluation: loss ([0-9.]+), (\d+) % right", output)
    losses, right = [float(loss) for loss, _ in told], [int(percent) for _, percent in told]
    assert len(losses) == 5 and losses[-1] < min(losses[0], 0.3), "it learns: 0.69 is a guess"
    assert right[-1] > 80, "it learns: 56 is a guess"
    rows = {name: int(count) for name, count in re.findall(r"table (\w+): (\d+) rows", output)}
    for name, count in rows.items():
        saved = tmp_path / "saved-model" / "sparse-model-200" / name / "key" / "slice.data"
        assert saved.stat().st_size == 8 * count > 0
    assert set(rows) == {"user", "city", "cross", "item"}
