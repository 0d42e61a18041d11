"""One process saves into a directory: others are told who it is, until it ends, however it does."""

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from mx_rec._process import process
from mx_rec.checkpoint import _owner
from mx_rec.transaction import _lock
from mx_rec.transaction._transaction import Transaction
from tests.shared.checkpoint_files import hidden_names
from tests.shared.saver_model import Model

pytestmark = pytest.mark.usefixtures("installed")

# A trainer in another container: its host has our name, and its number is that of no process here.
_TRAINER = """
import os, sys
os.getpid = lambda: 2**22 + 7
from mx_rec.transaction._transaction import Transaction
transaction = Transaction.begin(sys.argv[1])
print("saving", flush=True)
for line in sys.stdin:
    if line == "end\\n":
        transaction.abort()
        from mx_rec._process import process
        process.end()
        print("ended", flush=True)
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(_lock, "PATIENCE_SECONDS", 0.2)
    yield
    process.end()


@pytest.fixture
def trainer(tmp_path):
    """Another process, in the middle of a save into tmp_path."""
    command = [sys.executable, "-c", _TRAINER, str(tmp_path / "other-1")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "saving\n"
        yield process
        process.kill()


def save(directory, value=1.0):
    model = Model()
    model.set(value)
    return model.saver().save(model.session, str(directory / "model"), global_step=1)


def test_a_second_process_is_told_who_saves_there_and_changes_nothing(tmp_path, trainer):
    before = {name: sorted(os.listdir(tmp_path / name)) for name in hidden_names(tmp_path)}
    assert len(before) == 2
    with pytest.raises(_lock.LockedError, match=f"process {2**22 + 7} on {_owner.host()} .*another directory, or end"):
        save(tmp_path)
    assert {name: sorted(os.listdir(tmp_path / name)) for name in hidden_names(tmp_path)} == before
    assert not list(tmp_path.glob("*model*"))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_the_lock_ends_with_its_process(tmp_path, trainer, end):
    if end is None:
        trainer.stdin.write("end\n")
        trainer.stdin.flush()
        assert trainer.stdout.readline() == "ended\n"
    else:
        trainer.send_signal(end)
        trainer.wait()
    assert save(tmp_path)
    assert hidden_names(tmp_path) == [], "what the other process left is removed"
    facts = json.loads((tmp_path / _lock.NAME).read_text())
    assert (facts["pid"], facts["host"]) == (os.getpid(), socket.gethostname())


def test_a_process_keeps_the_directory_between_its_saves_and_leaves_no_file(tmp_path):
    save(tmp_path)
    code = f"from mx_rec.transaction import _lock; _lock.PATIENCE_SECONDS = 0; _lock.acquire({str(tmp_path)!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert other.returncode == 1 and f"process {os.getpid()} on" in other.stderr
    save(tmp_path, 2.0)
    process.end()
    assert not (tmp_path / _lock.NAME).exists()
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_forked_child_has_no_lock_and_keeps_none_alive(tmp_path):
    """Such as the workers of a pool, which may outlive a process that was killed."""
    code = f"""
import os, signal, time
from mx_rec.transaction import _lock
_lock.PATIENCE_SECONDS = 0
_lock.acquire({str(tmp_path)!r})
if os.fork() == 0:
    try:
        _lock.acquire({str(tmp_path)!r})
    except _lock.LockedError:
        print("refused", flush=True)
    input()
    os._exit(0)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"refused\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        _lock.acquire(str(tmp_path))  # while the child lives
        process.stdin.close()


def test_a_lock_of_a_removed_directory_is_no_lock_of_its_successor(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    save(directory)
    shutil.rmtree(directory)
    directory.mkdir()
    assert not _lock.is_held(str(directory))
    save(directory)
    assert _lock.is_held(str(directory)) and (directory / _lock.NAME).exists()


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_lock_file_is_refused_and_not_written_to(tmp_path, kind):
    target = tmp_path / "precious"
    target.write_text("data")
    path, run = tmp_path / "run" / _lock.NAME, tmp_path / "run"
    run.mkdir()
    {"link": lambda: path.symlink_to(target), "fifo": lambda: os.mkfifo(path), "directory": path.mkdir}[kind]()
    with pytest.raises(ValueError, match="no regular file, so it cannot be locked: remove it"):
        save(run)
    assert target.read_text() == "data"
    with _lock.borrowed(str(run)) as is_free:
        assert not is_free


def test_a_holder_that_cannot_be_read_is_another_process(tmp_path):
    for content in (b"", b"{", b"\xff", b"[" * 4000, b'{"pid": "x", "host": 1, "command": 2, "since": 3}', b"[]"):
        (tmp_path / _lock.NAME).write_bytes(content)
        assert _lock.holder(str(tmp_path)) == "another process"


def test_where_there_are_no_locks_it_is_told_once_and_saves_go_on(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    # Who is not known to have ended may be at work.
    (tmp_path / f".sparse-other-1.tmp-{_owner.host()}-{2**22 + 1}").mkdir()
    with caplog.at_level(logging.WARNING, logger="mx_rec"):
        save(tmp_path)
        save(tmp_path, 2.0)
    assert caplog.text.count("has no locks (Operation not supported): see to it that no other process saves") == 1
    assert len(hidden_names(tmp_path)) == 1


def test_a_transaction_of_another_thread_is_no_leftover(tmp_path):
    first = Transaction.begin(str(tmp_path / "other-1"))
    save(tmp_path)
    assert os.path.isdir(first.sparse)
    first.abort()
