"""Scratch directories for checkpoints, and how saving and restoring is measured."""

import contextlib
import os
import pathlib
import shutil

from benchmarks import paths
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
    """Measures "save" and "restore" of a stock Saver, in bytes of embeddings and slots.

    The file system is flushed after a save, and files are thrown out of the page cache before a restore. Without that
    one would measure memory: how soon a system's writes reach the disk is the kernel's choice. (What the host of a
    virtual machine has in its memory stays there.)
    """
    home = directory(name)
    prefix = str(home / "model")

    def save(i):
        saver.save(session, prefix, global_step=0, write_meta_graph=False)
        os.sync()

    save(0)
    written = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    assert written >= payload, f"the checkpoint has {written:,} bytes, the rows have {payload:,}"
    return {
        "save": Measure(save, payload, lead=0),
        "restore": Measure(
            lambda i: saver.restore(session, f"{prefix}-0"), payload, lead=0, before=lambda: drop_from_page_cache(home)
        ),
    }


def drop_from_page_cache(home: pathlib.Path) -> None:
    """Throws the files below `home` out of the page cache, once they are written."""
    os.sync()
    for parent, _, names in os.walk(home):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # what a save replaced is being removed
                handle = os.open(os.path.join(parent, name), os.O_RDONLY)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(handle)
