"""What interrupted saves leave: which state of a checkpoint a restore finds, and what the next save does with it."""

import os
import shutil
import subprocess
import sys
import threading

import pytest
import tensorflow as tf

from mx_rec.checkpoint import _layout, _manifest, _owner
from mx_rec.transaction import _recovery
from mx_rec.transaction._pair import Pair
from mx_rec.transaction._transaction import Transaction
from tests.shared.checkpoint_files import hidden_names, tree
from tests.shared.saver_model import Model

pytestmark = pytest.mark.usefixtures("installed")

v1 = tf.compat.v1
HERE = _owner.host()
ELSEWHERE = "else-where"


@pytest.fixture(scope="module")
def gone():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def save(model, value, directory, name="model", step=1):
    """Dense part and tables of checkpoint <name>-<step> tell the value."""
    model.set(value)
    return model.saver().save(model.session, str(directory / name), global_step=step)


def restored(model, directory, name="model-1"):
    """What a restore brings back: the value, which dense part and tables must agree on."""
    model.set(-1.0)
    model.saver().restore(model.session, str(directory / name))
    dense, tables = model.get()
    assert tables == [dense, dense]
    return dense


def interrupt(model, value, directory, owner, installed_files=0, step=1):
    """Leaves what a process named `owner` leaves that is killed while it saves `value` as model-<step>: its pair is
    complete, and that many dense files are in their place."""
    aside = directory.parent / f"aside-{len(os.listdir(directory.parent))}"
    if directory.exists():
        shutil.copytree(directory, aside)
    else:
        aside.mkdir()
    save(model, value, aside, step=step)
    prefix = str(directory / f"model-{step}")
    pair = Pair(prefix, owner)
    os.rename(aside / f"sparse-model-{step}", pair.sparse)
    os.mkdir(pair.dense)
    names = sorted(n for n in os.listdir(aside) if n.startswith(f"model-{step}."))
    names.sort(key=lambda name: name.endswith(".index"))
    for i, name in enumerate(names):
        os.rename(aside / name, os.path.join(pair.dense, name))
        if i < installed_files:
            if (directory / name).exists():
                os.remove(directory / name)
            os.link(os.path.join(pair.dense, name), directory / name)
    assert pair.read() is not None
    return pair


def test_hidden_names_say_who_made_them():
    for host in ("a-b", "a%2Eb", "x-1"):
        for name in ("model-7", "my.tmp-a-1", "my.tmp-a-1.old-b-2"):
            path = _layout.hidden(f"D/{name}", "sparse", "old", f"{host}-12")
            assert _layout.parse(path) == (path, "sparse", f"D/{name}", "old", host, 12)
    own = _layout.parse(_layout.hidden("model", "dense", "tmp"))
    assert own.owner == _owner.name() and own.prefix == "model"
    for other in ("sparse-model-7", ".sparse-model-7", ".sparse-model-7.tmp-12", ".git", ".sparse-m.bad-a-1"):
        assert _layout.parse(other) is None


def test_a_host_name_with_dots_has_none_as_an_owner(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "node-1.some/where.org")
    assert "." not in _owner.host() and "/" not in _owner.host()
    hidden = _layout.parse(_layout.hidden("D/model", "sparse", "tmp"))
    assert (hidden.prefix, hidden.host, hidden.pid) == ("D/model", _owner.host(), os.getpid())


def test_leftovers_of_this_machine_go_and_those_of_others_stay(tmp_path, gone):
    def names(step, owner):
        kinds = [("sparse", "tmp"), ("sparse", "old"), ("dense", "tmp"), ("dense", "new")]
        return [f".{half}-model-{step}.{kind}-{owner}" for half, kind in kinds]

    # Numbers of processes tell nothing: who is alive would have the lock.
    dead, numbered, other = f"{HERE}-{gone}", f"{HERE}-{os.getppid()}", f"{ELSEWHERE}-{gone}"
    goes = [*names(1, dead), *names(2, numbered), *names(2, _owner.name())]
    # Where a process may be at work, it may build on what a dead one left of the same checkpoint.
    stays = [*names(3, other), *names(3, dead), *names(4, other)]
    for name in goes + stays:
        os.makedirs(tmp_path / name / "user")
    (tmp_path / f".state-checkpoint.tmp-{dead}").write_text("half")
    (tmp_path / ".mine").write_text("")
    save(Model(), 1.0, tmp_path)
    assert hidden_names(tmp_path) == sorted([*stays, ".mine"])


@pytest.mark.parametrize("installed_files", [0, 1, 2, 3])
@pytest.mark.parametrize("host", [HERE, ELSEWHERE])
def test_a_complete_pair_is_the_checkpoint(tmp_path, gone, host, installed_files):
    directory = tmp_path / "run"
    model = Model()
    save(model, 1.0, directory)
    interrupt(model, 2.0, directory, f"{host}-{gone}", installed_files)
    before = tree(directory)
    assert restored(model, directory) == 2.0
    assert model.saver([model.dense]).restore(model.session, str(directory / "model-1")) is None
    assert tree(directory) == before, "a restore writes nothing"
    # On this machine the next save puts it in its place; that it is of another checkpoint does not matter.
    save(model, 3.0, directory, step=2)
    assert restored(model, directory) == 2.0 and restored(model, directory, "model-2") == 3.0
    assert len(hidden_names(directory)) == (0 if host == HERE else 2)
    save(model, 4.0, directory)
    assert restored(model, directory) == 4.0, "not the pair of another machine, which is older now"


def test_pairs_of_several_machines_follow_each_other(tmp_path, gone):
    directory = tmp_path / "run"
    model = Model()
    save(model, 1.0, directory)
    first = interrupt(model, 2.0, directory, f"b-{gone}", 1)
    # The second machine has restored that, trained, and was killed, too.
    second = interrupt(model, 3.0, directory, f"a-{gone}", 2)
    assert second.read().replaces.manifest_crc32c != first.read().replaces.manifest_crc32c
    assert restored(model, directory) == 3.0
    # Killed between the renames of the tables.
    os.rename(directory / "sparse-model-1", directory / f".sparse-model-1.old-a-{gone}")
    assert restored(model, directory) == 3.0


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("failing", ["link", "rename", "fsync"])
def test_tidying_up_that_fails_can_be_repeated(tmp_path, gone, monkeypatch, failing, step):
    """After a kill between the renames of the tables, the worst of all moments."""
    directory = tmp_path / "run"
    model = Model()
    save(model, 1.0, directory)
    interrupt(model, 2.0, directory, f"{HERE}-{gone}", 1)
    os.rename(directory / "sparse-model-1", directory / f".sparse-model-1.old-{_owner.name()}")
    original, calls = getattr(os, failing), []

    def failed(*args, **kwargs):
        calls.append(args)
        # Of the renames, that of the tables; of the others, the first.
        if ".sparse-model-1." in args[0] if failing == "rename" else len(calls) == 1:
            raise OSError(5, "Input/output error")
        return original(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, failed)
        try:
            save(model, 3.0, directory, step=step)
        except OSError as error:
            assert f"model-{step}' could not be saved: Input/output error" in str(error)
    assert calls and restored(model, directory) in ((2.0, 3.0) if step == 1 else (2.0,))
    save(model, 4.0, directory, step=step)
    assert hidden_names(directory) == [] and restored(model, directory, f"model-{step}") == 4.0


def test_relative_names_with_detours_are_settled(tmp_path, gone, monkeypatch):
    directory = tmp_path / "run"
    model = Model()
    save(model, 1.0, directory, step=9)
    interrupt(model, 2.0, directory, f"{HERE}-{gone}")
    monkeypatch.chdir(tmp_path)
    s = model.saver()
    s.restore(model.session, "./run//model-1")
    assert model.get()[0] == 2.0
    s.save(model.session, "./run//model", global_step=1)
    assert hidden_names(directory) == [] and restored(model, directory) == 2.0


@pytest.mark.parametrize("installed_files", [0, 1, 2, 3])
def test_what_nobody_was_told_of_goes_with_its_files(tmp_path, gone, installed_files):
    directory = tmp_path / "run"
    model = Model()
    save(model, 1.0, directory)
    visible = sorted(os.listdir(directory))
    interrupt(model, 2.0, directory, f"{HERE}-{gone}", installed_files, step=2)
    assert restored(model, directory, "model-2") == 2.0
    save(model, 3.0, directory)
    assert restored(model, directory) == 3.0
    if installed_files == 3:  # with its index it is a checkpoint to TensorFlow
        assert restored(model, directory, "model-2") == 2.0 and hidden_names(directory) == []
    else:
        assert sorted(os.listdir(directory)) == visible


def test_an_incomplete_pair_counts_for_nothing(tmp_path, gone):
    directory = tmp_path / "run"
    model = Model()
    save(model, 1.0, directory)
    pair = interrupt(model, 2.0, directory, f"{HERE}-{gone}")
    os.remove(os.path.join(pair.dense, "model-1.index"))
    assert restored(model, directory) == 1.0
    save(model, 3.0, directory, step=2)
    assert hidden_names(directory) == [] and restored(model, directory) == 1.0


def test_dense_variables_saved_alone_replace_a_pair(tmp_path, gone):
    directory = tmp_path / "run"
    model = Model()
    save(model, 1.0, directory)
    interrupt(model, 2.0, directory, f"{ELSEWHERE}-{gone}")
    model.set(3.0)
    model.saver([model.dense]).save(model.session, str(directory / "model-1"))
    with pytest.raises(ValueError, match="written by another save"):
        restored(model, directory)


def test_threads_save_different_checkpoints_at_once_but_not_the_same(tmp_path):
    model = Model()
    save(model, 1.0, tmp_path)
    first = Transaction.begin(str(tmp_path / "model-1"))
    with pytest.raises(RuntimeError, match="model-1' is being saved by another thread"):
        save(model, 2.0, tmp_path)
    save(model, 3.0, tmp_path, step=2)  # tidies up, and leaves the other save alone
    assert os.path.isdir(first.sparse)
    first.abort()
    assert hidden_names(tmp_path) == []
    assert save(model, 4.0, tmp_path) and restored(model, tmp_path) == 4.0


def test_a_transaction_may_end_in_another_thread(tmp_path):
    model = Model()
    save(model, 1.0, tmp_path)
    manifest = _manifest.read(str(tmp_path / "sparse-model-1"))
    transaction = Transaction.begin(str(tmp_path / "model-2"))
    for name in os.listdir(tmp_path):
        if name.startswith("model-1."):
            shutil.copy(tmp_path / name, transaction.dense_prefix + name.removeprefix("model-1"))
    for name in manifest.tables:
        shutil.copytree(tmp_path / "sparse-model-1" / name, os.path.join(transaction.sparse, name))
    thread = threading.Thread(target=transaction.commit, args=(2, manifest.tables))
    thread.start()
    thread.join()
    assert restored(model, tmp_path, "model-2") == 1.0 and hidden_names(tmp_path) == []


def test_files_are_copied_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    model = Model()
    for value in (1.0, 2.0):
        save(model, value, tmp_path)
        assert restored(model, tmp_path) == value
    assert hidden_names(tmp_path) == []


def test_shards_of_an_earlier_save_do_not_stay(tmp_path):
    model = Model()
    save(model, 1.0, tmp_path)
    (tmp_path / "model-1.data-00001-of-00002").write_text("")
    (tmp_path / "model-10.data-00001-of-00002").write_text("")
    save(model, 2.0, tmp_path)
    assert sorted(name for name in os.listdir(tmp_path) if ".data" in name) == [
        "model-1.data-00000-of-00001",
        "model-10.data-00001-of-00002",
    ]


def test_a_directory_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    model = Model()
    with pytest.raises(OSError, match=r"'.*/file/model-1' could not be saved: .*directory.* then save again"):
        model.saver().save(model.session, str(tmp_path / "file" / "model"), global_step=1)
    assert _recovery.survey(str(tmp_path), True).busy == []
