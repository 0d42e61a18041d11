"""Checkpoints that somebody made to do harm: restores and tools refuse them with an error, without a crash, a hang, a
write anywhere else, or much memory; and they do not keep others from saving beside them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.__main__ import main
from mx_rec._native import file_facts
from mx_rec.checkpoint import _manifest
from mx_rec.core.embedding import sparse_lookup
from mx_rec.optimizers import lazy_adam
from tests.shared import model

v1 = tf.compat.v1
SECONDS = 20


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A folder with the checkpoint model-1 of the tables a and b."""
    folder = tmp_path_factory.mktemp("original")
    with model.process(), v1.Session() as session:
        saver = build(session)
        saver.save(session, str(folder / "model"), global_step=1)
    return folder


def build(session):
    tables = [model.table(name, dim=4) for name in ("a", "b")]
    rows = [sparse_lookup(table, tf.constant([1, 2, 3], tf.int64)) for table in tables]
    anchors = [table.variable for table in tables]
    gradients = tf.gradients(sum(map(tf.reduce_sum, rows)), anchors)
    step = lazy_adam.create_hash_optimizer(0.1).apply_gradients(zip(gradients, anchors))
    v1.get_variable("dense", initializer=np.float32(1))
    session.run(v1.global_variables_initializer())
    session.run(step)
    return v1.train.Saver(max_to_keep=None)


@contextlib.contextmanager
def no_hang():
    """An error in whatever takes longer than SECONDS."""

    def fail(*_):
        raise TimeoutError(f"still waiting after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# ---- What is done to the directory of tables. Each is a function of it.


def manifest(change):
    """Changes the content of the manifest, and seals it again: the checksum is no secret."""

    def harm(directory):
        path = directory / "manifest.json"
        content = json.loads(path.read_text())
        del content["crc32c"]
        change(content)
        path.write_bytes(_manifest.seal(content))

    return harm


def field(*names, value):
    def change(content):
        for name in names[:-1]:
            content = content[name]
        content[names[-1]] = value

    return manifest(change)


def renamed(name):
    def change(content):
        content["tables"][name] = content["tables"].pop("b")

    return manifest(change)


def raw(data):
    return lambda directory: (directory / "manifest.json").write_bytes(data)


def replaced(name, make):
    def harm(directory):
        path = directory / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path)

    return harm


def linked(name):
    """The thing itself, elsewhere, and a link to it."""

    def harm(directory):
        path, elsewhere = directory / name, directory.parent.parent / "elsewhere"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)

    return harm


def without_manifest(harm):
    def both(directory):
        (directory / "manifest.json").unlink()
        harm(directory)

    return both


def huge_keys(directory):
    """A file of 16 GiB that takes no room on the disk."""
    rows = 1 << 31
    os.truncate(directory / "b/key/slice.data", rows * 8)
    np.array([rows, 8], np.int64).tofile(directory / "b/key/slice.attribute")


TABLE = ("tables", "b")
NAMES = ["../x", "/tmp/x", "x\0y", "\ud800", "..", "", "key", "x" * 300]
HARMS = {
    "deep_json": raw(b"[" * 200_000),
    "deep_object": raw(b'{"a":' * 100_000),
    "infinite_format": raw(b'{"format": 1e999}'),
    "no_object": raw(b"7"),
    "no_utf8": raw(b"\xff\xfe"),
    "many_digits": raw(b'{"format": ' + b"9" * 10_000 + b"}"),
    "empty": raw(b""),
    "tables_a_list": field("tables", value=[]),
    "table_a_number": field(*TABLE, value=3),
    "rows_text": field(*TABLE, "rows", value="3"),
    "rows_negative": field(*TABLE, "rows", value=-1),
    "rows_wrong": field(*TABLE, "rows", value=2),
    "rows_huge": field(*TABLE, "rows", value=2**70),
    "dim_zero": field(*TABLE, "dim", value=0),
    "dim_infinite": field(*TABLE, "dim", value=float("inf")),
    "slots_text": field(*TABLE, "slots", value="momentum"),
    "slot_outside": field(*TABLE, "slots", value=["../../outside"]),
    "files_none": field(*TABLE, "files", value=None),
    "file_outside": field(*TABLE, "files", value={"../../outside/slice.data": {"bytes": 0, "crc32c": "00000000"}}),
    "file_nul": field(*TABLE, "files", value={"k\0/slice.data": {"bytes": 0, "crc32c": "00000000"}}),
    "crc_no_hex": field("dense_index_crc32c", value="xyz"),
    "replaces_a_list": field("replaces", value=[1]),
    "tracking_text": field(*TABLE, "tracking", value={"access_threshold": "three"}),
    "tracking_huge": field(*TABLE, "tracking", value={"access_threshold": 2**80, "coefficient": 1}),
    "step_a_list": field("step", value=[7]),
    "parent_outside": field("parent", value={"directory": "../outside", "manifest_crc32c": "00000000"}),
    "parent_itself": field("parent", value={"directory": "sparse-model-1", "manifest_crc32c": "00000000"}),
    "parent_text": field("parent", value="sparse-model-0"),
    **{
        f"name_{n}": renamed(name)
        for n, name in enumerate(["../x", "/tmp/x", "x\0y", "\ud800", "..", "", "key", "x" * 300])
    },
    "manifest_fifo": replaced("manifest.json", os.mkfifo),
    "manifest_endless": replaced("manifest.json", lambda path: path.symlink_to("/dev/zero")),
    "manifest_linked": linked("manifest.json"),
    "manifest_a_directory": replaced("manifest.json", os.mkdir),
    "data_fifo": replaced("b/key/slice.data", os.mkfifo),
    "attribute_fifo": replaced("b/embedding/slice.attribute", os.mkfifo),
    "data_a_directory": replaced("b/embedding/slice.data", os.mkdir),
    "data_linked": linked("b/embedding/slice.data"),
    "column_linked": linked("b/embedding"),
    "table_linked": linked("b"),
    "index_fifo": replaced("../model-1.index", os.mkfifo),
    "original_data_fifo": without_manifest(replaced("b/key/slice.data", os.mkfifo)),
    "original_data_linked": without_manifest(linked("b/key/slice.data")),
    "original_huge_keys": without_manifest(huge_keys),
}


@pytest.fixture
def folder(original, tmp_path):
    copy = tmp_path / "checkpoints"
    shutil.copytree(original, copy)
    return copy


def tree(path):
    return sorted(os.path.join(parent, name) for parent, _, names in os.walk(path) for name in names)


@pytest.mark.parametrize("harm", HARMS)
def test_tools_refuse_it_and_write_nothing_elsewhere(harm, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    HARMS[harm](folder / "sparse-model-1")
    before = tree(tmp_path)
    prefix = str(folder / "model-1")
    out = str(tmp_path / "out")
    commands = [["inspect", prefix], ["verify", prefix], ["diff", prefix, prefix], ["export", prefix, out]]
    commands += [["inspect", str(folder)], ["prune", str(folder), "--keep", "1", "--dry-run"]]
    for command in commands:
        with no_hang():
            status = main(command)
        printed = capsys.readouterr()
        # The tables beside a dense part that is not one are whole.
        if command[0] in ("inspect", "verify", "export") and harm != "index_fifo":
            assert status in (1, 2), (command, printed)
            assert printed.err or printed.out
    assert [path for path in tree(tmp_path) if path not in before and not path.startswith(out)] == []


def test_restores_refuse_it_and_saves_go_on_beside_it(original, tmp_path):
    """All in one process, which must survive them."""
    with model.process(), v1.Session() as session:
        saver = build(session)
        dense = v1.global_variables("dense")[0]
        session.run(dense.assign(5.0))
        tables = {name: table.native for name, table in tables_of(session.graph).items()}
        before = state(tables, session, dense)
        for name, harm in HARMS.items():
            folder = tmp_path / name / "checkpoints"
            shutil.copytree(original, folder)
            harm(folder / "sparse-model-1")
            outside = tree(tmp_path / name)
            with no_hang():
                with pytest.raises((ValueError, OSError, tf.errors.OpError, MemoryError)):
                    saver.restore(session, str(folder / "model-1"))
                assert state(tables, session, dense) == before, name
                assert tree(tmp_path / name) == outside
                # As a delta it is looked at by every save into the folder.
                (folder / "sparse-model-1").rename(folder / "delta-sparse-model-1")
                saver.save(session, str(folder / "other"), global_step=2, write_state=False)
                saver.restore(session, str(folder / "other-2"))


def tables_of(graph):
    from mx_rec._tables import graphs

    return graphs.state(graph).tables


def state(tables, session, dense):
    rows = {name: table.read(np.sort(table.keys()))[0].tobytes() for name, table in tables.items()}
    return rows, float(session.run(dense))


def test_keys_are_compared_in_little_memory(folder):
    without_manifest(huge_keys)(folder / "sparse-model-1")
    command = [sys.executable, "-m", "mx_rec", "verify", str(folder / "model-1")]
    with open(folder / "out", "w") as out:
        child = subprocess.Popen(command, stdout=out)
    _, status, usage = os.wait4(child.pid, 0)  # of this child alone
    assert os.waitstatus_to_exitcode(status) == 1 and "has the key 0 twice" in (folder / "out").read_text()
    assert usage.ru_maxrss < 1 << 20  # in KiB


def test_a_key_that_comes_twice_far_apart_is_found(folder, monkeypatch):
    from mx_rec.checkpoint import _table_files
    from mx_rec.reading import _verifying

    monkeypatch.setattr(_verifying, "_KEYS_AT_ONCE", 1 << 16)
    keys = np.arange(200_000)
    keys[150_001] = 7
    keys.tofile(folder / "keys")
    files = _table_files.TableFiles("b", str(folder / "sparse-model-1/b"), None)
    monkeypatch.setattr(_table_files.TableFiles, "keys", lambda self: np.memmap(folder / "keys", np.int64, "r"))
    with pytest.raises(ValueError, match="has the key 7 twice, in rows 7 and 150001"):
        _verifying._check_keys(files)


@pytest.mark.parametrize("name", ["manifest.json", "manifest.json.new", "key"])
def test_a_table_with_a_name_of_the_checkpoints_own_is_refused(name):
    with model.process(), pytest.raises(ValueError, match="must not be 'key' nor begin with 'manifest.json'"):
        model.table(name)


@pytest.mark.parametrize("name", ["mo[d]el", "mod*", "mode?", "mo\\del"])
def test_a_path_that_tensorflow_takes_for_a_pattern_is_refused_when_it_is_saved(name, tmp_path):
    with model.process(), v1.Session() as session:
        saver = build(session)
        with pytest.raises(ValueError, match="`save_path` must not contain any of"):
            saver.save(session, str(tmp_path / name))
    assert os.listdir(tmp_path) == []


def test_rows_that_are_not_finite_are_reported(folder, capsys):
    path = folder / "sparse-model-1/b/embedding/slice.data"
    rows = np.fromfile(path, np.float32)
    rows[5] = np.nan  # of the second row
    rows.tofile(path)
    facts = file_facts.FileFacts(rows.nbytes, file_facts.crc32c(rows.tobytes()))
    files = json.loads((folder / "sparse-model-1/manifest.json").read_text())["tables"]["b"]["files"]
    files["embedding/slice.data"] = {"bytes": facts.bytes, "crc32c": f"{facts.crc32c:08x}"}
    field("tables", "b", "files", value=files)(folder / "sparse-model-1")
    key = np.fromfile(folder / "sparse-model-1/b/key/slice.data", np.int64)[1]
    for command in ("verify", "inspect"):
        assert main([command, str(folder / "model-1")]) == 1
        expected = f"table 'b': 1 of 3 rows of 'embedding' hold NaN or Inf, first key {key}"
        out = capsys.readouterr().out
        assert "NOT FINITE" in out and expected in out
