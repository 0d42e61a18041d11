"""Scratch directories for checkpoints, and how saving and restoring is measured."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks import memory, paths
from benchmarks.worker import Measure


def directory(name: str) -> pathlib.Path:
    """A new, empty directory of one worker."""
    path = paths.SCRATCH / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def clean() -> None:
    """Removes all of them."""
    shutil.rmtree(paths.SCRATCH, ignore_errors=True)


def saver_measures(session, saver, name: str, payload: int) -> dict:
    """checkpoint_measures of a stock Saver."""

    def save(home):
        saver.save(session, os.path.join(home, "model"), global_step=0, write_meta_graph=False)

    return checkpoint_measures(name, payload, save, lambda home: saver.restore(session, saver_path(home)))


def saver_path(home) -> str:
    """The checkpoint that saver_measures saves below `home`."""
    return os.path.join(home, "model-0")


def checkpoint_measures(name: str, payload: int, save: Callable, restore: Callable) -> dict:
    """Measures "save", "restore" over rows that are there, and "restart", a restore in a new process, in bytes of
    embeddings and slots.

    `save(home)` and `restore(home)` write and read below a directory. The new process is the worker again, with
    "restart" as its scenario and `home` and `payload` as further options (see `restarted`).

    The file system is flushed after a save, and files are thrown out of the page cache before each measurement. Without
    that one would measure memory: how soon a system's writes reach the disk is the kernel's choice. (What the host of a
    virtual machine has in its memory stays there.)
    """
    home = directory(name)

    def flushed(i):
        save(home)
        os.sync()

    def before():
        prepare(home, payload)

    flushed(0)
    written = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    assert written >= payload, f"the checkpoint has {written:,} bytes, the rows have {payload:,}"
    return {
        "save": Measure(flushed, payload, lead=0, before=before),
        "restore": Measure(lambda i: restore(home), payload, lead=0, before=before),
        "restart": Measure(lambda i: _restart(home, payload), payload, lead=0, reports=True),
    }


def _restart(home, payload):
    """Seconds that a new process of this peer takes to restore."""
    module = sys.modules["__main__"].__spec__.name
    options = {**json.loads(sys.argv[1]), "scenario": "restart", "home": str(home), "payload": payload}
    command = [sys.executable, "-m", module, json.dumps(options)]
    answers = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(answers.splitlines()[-1])["info"]["seconds"]


def restarted(home: str, payload: int, restore: Callable, size: Callable, rows: int) -> tuple[dict, dict]:
    """What the scenario of a new process returns: it calls restore() once, after which size() must be `rows`."""
    prepare(pathlib.Path(home), payload)
    start = time.perf_counter()
    restore()
    seconds = time.perf_counter() - start
    assert size() == rows, f"{size():,} rows were restored, {rows:,} were saved"
    return {}, {"seconds": seconds}


def prepare(home: pathlib.Path, payload: int) -> None:
    """Throws the files below `home` out of the page cache, once they are written, and has enough free memory ready for
    rows or for the page cache (see memory.py)."""
    os.sync()
    for parent, _, names in os.walk(home):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # what a save replaced is being removed
                handle = os.open(os.path.join(parent, name), os.O_RDONLY)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(handle)
    memory.touch(1.5 * payload / 1e9)
