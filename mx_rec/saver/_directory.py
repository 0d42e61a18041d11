"""The sparse directory of a checkpoint: its name, and how it appears and disappears in one instant.

D/sparse-model-7              the tables of checkpoint D/model-7, complete
D/.sparse-model-7.tmp-<pid>   being written by that process, or left behind when it was killed
D/.sparse-model-7.old-<pid>   being removed
"""

import os
import re
import shutil
from typing import Optional

from mx_rec._native import checkpoint
from mx_rec.saver import _manifest
from mx_rec.util.log import logger


def of(prefix: str) -> str:
    """Where the tables of the checkpoint `prefix` lie: "D/model-7" -> "D/sparse-model-7"."""
    prefix = re.sub(r"-\?+-of-\d+$", "", prefix)  # of sharded checkpoints in TensorFlow's old format
    if "://" in prefix:
        raise ValueError(f"tables can be saved and restored in local directories only, got '{prefix}'")
    return os.path.join(os.path.dirname(prefix), "sparse-" + os.path.basename(prefix))


def hidden(directory: str, kind: str) -> str:
    """The name beside `directory` under which this process writes ("tmp") or removes ("old") it."""
    return os.path.join(os.path.dirname(directory), f".{os.path.basename(directory)}.{kind}-{os.getpid()}")


def make_parent(directory: str, save_path: str) -> None:
    """Makes the folder of checkpoints. One level only, as TensorFlow does where a save is not sharded."""
    try:
        os.mkdir(os.path.dirname(directory) or ".")
    except FileExistsError:
        pass
    except FileNotFoundError:
        raise ValueError(f"Parent directory of {save_path} doesn't exist, can't save.") from None


def put_in_place(source: str, directory: str) -> None:
    """Renames `source` to `directory`; what was there goes."""
    old = None
    if os.path.isdir(directory):
        old = hidden(directory, "old")
        shutil.rmtree(old, ignore_errors=True)
        os.rename(directory, old)
    try:
        os.rename(source, directory)
    except BaseException:
        if old is not None:
            os.rename(old, directory)
        raise
    _sync(os.path.dirname(directory) or ".")
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def remove(directory: str) -> None:
    """Removes `directory`, if it exists; a failure is only logged."""
    # Under another name first, so that a crash leaves no half directory under a name that can be restored.
    old = hidden(directory, "old")
    try:
        os.rename(directory, old)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("cannot remove '%s': %s", directory, error)
        return
    shutil.rmtree(old, ignore_errors=True)


def dense_crc32c(prefix: str) -> Optional[int]:
    """The checksum of the dense part's index file, which holds one of each dense variable; None without the file."""
    try:
        with open(prefix + ".index", "rb") as file:
            return checkpoint.crc32c(file.read())
    except OSError:
        return None


def sync_dense(prefix: str) -> None:
    """Returns when the dense part has reached the disk; TensorFlow does not wait for that."""
    parent = os.path.dirname(prefix) or "."
    files = re.escape(os.path.basename(prefix)) + r"(\.index|(\.data)?-\d{5}-of-\d{5})?"
    for name in os.listdir(parent):
        if re.fullmatch(files, name):
            _sync(os.path.join(parent, name))
    _sync(parent)


def locate(prefix: str) -> str:
    """The directory with the tables of checkpoint `prefix`: the usual one, unless a save was killed between the dense
    part and the rename. Then its temporary directory, which is complete, is the one that fits the dense part."""
    directory = of(prefix)
    dense = dense_crc32c(prefix)
    if not _fits(directory, dense):
        for leftover in _leftovers(directory, re.escape(os.path.basename(directory)), "tmp"):
            if _fits(leftover, dense):
                logger.warning("the save of '%s' was interrupted; its tables are complete in '%s'", prefix, leftover)
                return leftover
    return directory


def settle(prefix: str) -> None:
    """Tidies up after saves of `prefix` that were killed. Temporary directories of other checkpoints stay: on a shared
    disk their process may live on another machine."""
    directory = of(prefix)
    own = re.escape(os.path.basename(directory))
    temporaries = [path for path in _leftovers(directory, own, "tmp") if not is_alive(path)]
    if temporaries:
        found = locate(prefix)
        if found in temporaries:
            put_in_place(found, directory)
    for path in temporaries + _leftovers(directory, "sparse-.*", "old"):
        if not is_alive(path):
            shutil.rmtree(path, ignore_errors=True)


def _fits(directory, dense):
    try:
        manifest = _manifest.read(directory)
    except ValueError:
        return False
    # Without a checksum it was complete before its dense part was, and fits if no other directory does.
    return manifest is not None and manifest.dense_index_crc32c in (None, dense)


def _leftovers(directory, pattern, kind):
    parent = os.path.dirname(directory)
    try:
        names = sorted(os.listdir(parent or "."))
    except OSError:
        return []
    return [os.path.join(parent, name) for name in names if re.fullmatch(rf"\.{pattern}\.{kind}-\d+", name)]


def is_alive(path):
    """Whether the process that made this hidden directory may still be at work on it."""
    pid = int(path.rpartition("-")[2])
    if pid == os.getpid():
        return False  # a save of ours would be over; a process before us had the same number
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _sync(path):
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
