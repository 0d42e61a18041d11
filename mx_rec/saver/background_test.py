"""init(is_async_checkpoint=True): saves that are written while training goes on."""

import resource
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from mx_rec._native.snapshot import Snapshot
from mx_rec._process import process
from mx_rec._tf import patches
from mx_rec.saver import export, wait
from mx_rec.transaction import _lock
from mx_rec.util.initialize import init, terminate_config_initializer
from tests.shared.checkpoint_files import hidden_names, kinds, rows_of, tree
from tests.shared.saver_model import Model, assert_restores, contents, fill, native, save

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")


def start():
    init(is_async_checkpoint=True)
    patches.install()


@pytest.fixture(autouse=True)
def started():
    start()
    yield
    if process.config is not None:
        terminate_config_initializer()


@pytest.fixture
def gate(monkeypatch):
    """Writing of tables waits until it is set."""
    opened, write = threading.Event(), Snapshot.write

    def held(self, directory, share):
        assert opened.wait(60)
        return write(self, directory, share)

    monkeypatch.setattr(Snapshot, "write", held)
    yield opened
    opened.set()


def opens_soon(gate):
    """Lets the writer go on while the caller waits for it: whoever returns before has not waited."""
    threading.Timer(0.2, gate.set).start()


def latest(directory):
    return v1.train.latest_checkpoint(str(directory))


# ---- Training goes on.


@pytest.mark.parametrize("delta", [False, True])
def test_the_checkpoint_has_the_bits_of_the_instant(delta, gate, tmp_path):
    model = Model()
    model.set(1.0, keys=range(500))
    gate.set()
    save(model, tmp_path, 1)
    wait()
    gate.clear()
    fill(model.anchors["user"], list(range(100, 200)), 2.0)
    native(model.anchors["user"]).erase(range(50))
    expected, dense = contents(model), model.session.run(model.dense).tolist()
    assert save(model, tmp_path, 2, delta=delta) == str(tmp_path / "model-2")
    assert latest(tmp_path) == str(tmp_path / "model-1") and kinds(tmp_path) == ["sparse-model-1"]
    # Rows change, go, come, and come back; so does the dense variable.
    for anchor in model.anchors.values():
        fill(anchor, list(range(150, 300)), 3.0)
        native(anchor).erase(range(250, 400))
        fill(anchor, list(range(280, 290)), 4.0)
        fill(anchor, list(range(1000, 3000)), 5.0)
    fill(model.anchors["user"], list(range(25)), 6.0)
    model.session.run(model.assign, {model.value: [9.0, 9.0]})
    after = contents(model)
    gate.set()
    wait()
    assert contents(model) == after
    assert latest(tmp_path) == str(tmp_path / "model-2")
    if delta:
        rows, gone = rows_of(tmp_path / "delta-sparse-model-2")
        assert (set(rows), set(gone)) == (set(range(100, 200)), set(range(50)))
    save(model, tmp_path, 3)
    wait()
    assert_restores(tmp_path / "model-2", expected=expected)
    model.saver().restore(model.session, str(tmp_path / "model-2"))
    assert model.session.run(model.dense).tolist() == dense
    assert_restores(tmp_path / "model-3", expected=after)


def test_a_table_that_is_emptied_meanwhile_is_told(gate, tmp_path):
    """Scripts cannot: restores wait. Whoever reaches for the native table can."""
    model = Model()
    model.set(1.0)
    save(model, tmp_path, 1)
    native(model.anchors["user"]).clear()
    gate.set()
    with pytest.raises(RuntimeError, match="table 'user' was emptied or restored while being saved"):
        wait()
    assert [path.name for path in tmp_path.iterdir()] == [_lock.NAME]


@pytest.mark.parametrize("seed", range(2))
def test_any_changes_while_the_writer_runs(seed, tmp_path):
    """Nothing is held up: writer and changes meet where they meet."""
    random = np.random.RandomState(seed)
    model, states = Model(), {}
    model.set(0.0, keys=range(20000))
    for step in range(6):
        states[step] = contents(model)
        save(model, tmp_path, step)
        for _ in range(5):
            for anchor in model.anchors.values():
                begin = random.randint(20000)
                if random.rand() < 0.5:
                    fill(anchor, list(range(begin, begin + 3000)), float(random.randint(1000)))
                else:
                    native(anchor).erase(range(begin, begin + 3000))
    wait()
    for step, state in states.items():
        assert_restores(tmp_path / f"model-{step}", expected=state)


# ---- Who waits.


def second_save(model, directory):
    save(model, directory, 2)
    assert (directory / "sparse-model-1/manifest.json").exists() and latest(directory) == str(directory / "model-1")


def plain_save(model, directory):
    with model.graph.as_default():
        v1.train.Saver([model.dense]).save(model.session, str(directory / "plain"))


def restore(model, directory):
    model.saver().restore(model.session, str(directory / "model-1"))
    assert contents(model)["user"].keys() == {1, 2, 3}


def exported(model, directory):
    assert export() == 2
    assert (directory / "sparse-model-1/user/key-emb.npy").exists()


WAITERS = {
    "save": second_save,
    "save of dense variables alone": plain_save,
    "restore": restore,
    "export": exported,
    "wait": lambda model, directory: wait(),
    "terminate": lambda model, directory: terminate_config_initializer(),
}


@pytest.mark.parametrize("waits", WAITERS.values(), ids=WAITERS.keys())
def test_who_waits_for_a_save_under_way(waits, gate, tmp_path):
    model = Model()
    model.set(1.0)
    save(model, tmp_path, 1)
    fill(model.anchors["user"], [50], 5.0)
    opens_soon(gate)
    waits(model, tmp_path)
    assert gate.is_set()
    assert latest(tmp_path) is not None
    assert (tmp_path / "sparse-model-1/manifest.json").exists()


def test_a_save_that_ends_with_the_process_is_not_remembered_by_the_next(gate, tmp_path):
    model = Model()
    for step in (1, 2):
        model.set(float(step))
        save(model, tmp_path, step, delta=False)
        if step == 1:
            gate.set()
            wait()
            gate.clear()
    opens_soon(gate)
    terminate_config_initializer()
    init(restore_model_version=1)
    patches.install()
    model = Model()
    model.saver().restore(model.session, str(tmp_path / "model-2"))
    assert model.get() == (1.0, [1.0, 1.0])


def test_nothing_to_wait_for(gate, tmp_path):
    """A wait before the first save, or after the last one has ended, returns at once and writes nothing."""

    def files():
        return {name: (tmp_path / name).stat().st_mtime_ns for name in tree(tmp_path)}

    wait()
    model = Model()
    model.set(1.0)
    gate.set()
    save(model, tmp_path, 1)
    wait()
    assert latest(tmp_path) == str(tmp_path / "model-1")
    assert kinds(tmp_path) == ["sparse-model-1"] and hidden_names(tmp_path) == []
    before = files()
    gate.clear()  # whatever still wrote would now wait for ever
    fill(model.anchors["user"], [50], 5.0)
    wait()
    assert files() == before
    assert contents(model)["user"].keys() == {1, 2, 3, 50}


# ---- Failures.


@pytest.fixture
def failing(tmp_path):
    """(directory, model) whose checkpoint 2 fails in the background, as its files become too large; 1 is whole."""
    model = Model(("user",))
    model.set(1.0, keys=range(10))
    save(model, tmp_path, 1)
    wait()
    fill(model.anchors["user"], list(range(100, 9000)), 2.0)
    native(model.anchors["user"]).erase([1, 2, 3])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        assert save(model, tmp_path, 2) == str(tmp_path / "model-2")
        for thread in threading.enumerate():
            if thread.name == "mx_rec save":
                thread.join()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    return tmp_path, model


@pytest.mark.parametrize("where", ["save", "wait", "restore"])
def test_a_failure_is_told_once_and_made_up_for(where, failing):
    directory, model = failing
    call = {
        "save": lambda: save(model, directory, 3),
        "wait": wait,
        "restore": lambda: model.kept.restore(model.session, str(directory / "model-1")),
    }[where]
    before = contents(model)
    with pytest.raises(RuntimeError, match="the save of '.*model-2' in the background failed: .*checkpoints before it"):
        call()
    assert contents(model) == before
    assert kinds(directory) == ["sparse-model-1"] and hidden_names(directory) == []
    assert latest(directory) == str(directory / "model-1")
    wait()
    native(model.anchors["user"]).erase([4])
    expected = contents(model)
    save(model, directory, 4)
    wait()
    rows, gone = rows_of(directory / "delta-sparse-model-4")
    assert (set(rows), set(gone)) == (set(range(100, 9000)), {1, 2, 3, 4})
    assert_restores(directory / "model-4", ("user",), expected=expected)


def test_a_failure_at_the_end_is_told_and_all_is_freed(failing):
    directory, _ = failing
    with pytest.raises(RuntimeError, match="the save of '.*model-2' in the background failed"):
        terminate_config_initializer()
    assert process.config is None
    start()
    model = Model(("user",))
    assert contents(model) == {"user": {}}
    model.saver().restore(model.session, str(directory / "model-1"))
    assert set(contents(model)["user"]) == set(range(10))


# ---- The end of the process.

SCRIPT = """
import sys, threading
import numpy as np, tensorflow as tf
from mx_rec._native.snapshot import Snapshot
from mx_rec.core.embedding import create_table
from mx_rec.util.initialize import init

v1 = tf.compat.v1
v1.disable_eager_execution()
init(is_async_checkpoint=True)
table = create_table(tf.int64, 4, "t", v1.zeros_initializer(), device_vocabulary_size=1000)
v1.train.get_or_create_global_step()
table.native.write(np.arange(500), np.ones((500, 1, 4), np.float32))
write = Snapshot.write

def held(self, directory, share):
    threading.main_thread().join()  # until nothing but this thread is left of the script
    return write(self, directory, share)

Snapshot.write = held
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    v1.train.Saver().save(session, sys.argv[1] + "/model", global_step=1)
{end}
"""


@pytest.mark.parametrize("end, code", [("", 0), ("sys.exit(3)", 3), ("raise KeyError", 1)])
def test_the_process_ends_when_the_save_has(end, code, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("{end}", end))
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert latest(tmp_path) == str(tmp_path / "model-1")
    assert (tmp_path / "sparse-model-1/manifest.json").exists()
    keys = np.fromfile(tmp_path / "sparse-model-1/t/key/slice.data", np.int64)
    np.testing.assert_array_equal(np.sort(keys), np.arange(500))
    assert hidden_names(tmp_path) == []


INTERRUPTED = """
import os, sys, threading, time
import numpy as np, tensorflow as tf
from mx_rec import saver
from mx_rec._native.snapshot import Snapshot
from mx_rec.core.embedding import create_table
from mx_rec.saver import _background
from mx_rec.util.initialize import init, terminate_config_initializer

v1 = tf.compat.v1
v1.disable_eager_execution()
init(is_async_checkpoint=True)
table = create_table(tf.int64, 4, "t", v1.zeros_initializer(), device_vocabulary_size=1000)
table.native.write(np.arange(500), np.ones((500, 1, 4), np.float32))
write = Snapshot.write

def held(self, directory, share):
    while not os.path.exists(sys.argv[1] + "/go"):
        time.sleep(0.01)
    return write(self, directory, share)

class Told(threading.Event):
    def wait(self, timeout=None):
        print("waits", file=sys.stderr, flush=True)
        return super().wait(timeout)

Save = _background._Save
_background._Save = lambda what: Save(what, ended=Told())
Snapshot.write = held
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    saver_of_all = v1.train.Saver()
    saver_of_all.save(session, sys.argv[1] + "/model", global_step=1)
    print("saved", flush=True)
    {then}
"""
WAITS = {
    "the_next_save": 'saver_of_all.save(session, sys.argv[1] + "/model", global_step=2)',
    "a_restore": 'saver_of_all.restore(session, sys.argv[1] + "/model-1")',
    "wait": "saver.wait()",
    "terminate": "terminate_config_initializer()",
    "the_end_of_the_process": "pass",
}


def interrupted(directory, then, times):
    """A script that is interrupted while it waits for a save in the background: what it wrote to stderr."""
    script = directory / "script.py"
    script.write_text(INTERRUPTED.replace("{then}", then))
    child = subprocess.Popen(
        [sys.executable, "-u", str(script), str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(120, child.kill)
    watchdog.start()
    seen = ""

    def await_line(words):
        nonlocal seen
        while words not in seen:
            line = child.stderr.readline()
            assert line, f"ended, or was ended, before it said '{words}': {seen}"
            seen += line

    await_line("waits")
    child.send_signal(signal.SIGINT)
    await_line("interrupt again")
    if times == 1:
        (directory / "go").touch()
    else:
        child.send_signal(signal.SIGINT)
    _, rest = child.communicate()
    watchdog.cancel()
    assert child.returncode != -signal.SIGKILL, seen + rest
    return seen + rest


@pytest.mark.parametrize("then", WAITS.values(), ids=WAITS.keys())
def test_an_interrupt_waits_for_the_save_under_way(then, tmp_path):
    said = interrupted(tmp_path, then, times=1)
    assert "is finished first; interrupt again to give it up" in said
    assert latest(tmp_path) == str(tmp_path / "model-1")
    keys = np.fromfile(tmp_path / "sparse-model-1/t/key/slice.data", np.int64)
    np.testing.assert_array_equal(np.sort(keys), np.arange(500))


@pytest.mark.parametrize("then", [WAITS["the_next_save"], WAITS["the_end_of_the_process"]])
def test_a_second_interrupt_gives_the_save_up_and_says_so(then, tmp_path):
    said = interrupted(tmp_path, then, times=2)
    assert "the save of" in said and "was given up and is lost" in said
    assert latest(tmp_path) is None and not (tmp_path / "sparse-model-1").exists()
