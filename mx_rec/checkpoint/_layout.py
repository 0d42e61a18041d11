"""Names of what a checkpoint consists of, visible and hidden.

D/sparse-model-7                  the tables of checkpoint D/model-7, complete
D/delta-sparse-model-7            instead of it, if they are what has changed since another checkpoint (_chain.py)
D/.sparse-model-7.tmp-<owner>     tables that are being saved (_pair.py), or left behind when their process was killed
D/.sparse-model-7.old-<owner>     tables that are being removed
D/.dense-model-7.tmp-<owner>      the directory of the dense part that belongs to the tables being saved
D/.dense-model-7.new-<owner>      a file of the dense part on its way into D
D/.state-checkpoint.tmp-<owner>   a list of checkpoints on its way to D/checkpoint

D/.mx_rec-lock                    locked by the process that saves into D (_lock.py)

Who an owner is, _owner.py says.
"""

import glob
import os
import re
from typing import NamedTuple, Optional

from mx_rec._log import logger
from mx_rec._native.file_facts import crc32c
from mx_rec.checkpoint import _files, _manifest, _owner

_WHOLE, _DELTA = "sparse-", "delta-sparse-"
_HIDDEN = re.compile(r"\.(sparse|dense|state)-(.*)\.(tmp|old|new)-([^.]+)-(\d+)")


class Hidden(NamedTuple):
    """A hidden file or directory."""

    path: str
    half: str  # "sparse", "dense", or "state": TensorFlow's list of checkpoints
    prefix: str  # the checkpoint it belongs to, or the file
    kind: str  # "tmp", "old" or "new"
    host: str
    pid: int

    @property
    def owner(self) -> str:
        return f"{self.host}-{self.pid}"


def base(prefix: str) -> str:
    """Returns `prefix` without the end that sharded checkpoints in TensorFlow's old format have."""
    return re.sub(r"-\?+-of-\d+$", "", prefix)


def target(prefix: str, is_delta: bool) -> str:
    """Returns where all tables of the checkpoint `prefix`, or a delta of them, belong: "D/model-7" ->
    "D/sparse-model-7"."""
    if not is_local(prefix):
        raise ValueError(f"tables can be saved and restored in local directories only, got '{prefix}'")
    parent, name = os.path.split(base(prefix))
    return os.path.join(parent, (_DELTA if is_delta else _WHOLE) + name)


def of(prefix: str) -> str:
    """Returns where the tables of the checkpoint `prefix` lie, if there are any: it is whole or a delta, not both."""
    whole, delta = (target(prefix, is_delta) for is_delta in (False, True))
    return delta if os.path.isdir(delta) and not os.path.isdir(whole) else whole


def table_directory(directory: str, name: str) -> str:
    """Returns where a table lies in a directory of tables; ValueError if no directory there can have its name."""
    if name in (".", "..") or "/" in name or name.startswith(_manifest.NAME):
        raise ValueError(f"table '{name}' cannot be saved: its name must serve as a directory beside {_manifest.NAME}")
    return os.path.join(directory, name)


def prefix_of(directory: str) -> str:
    """Returns the prefix whose tables are in a directory of that name, which may be hidden: the reverse of `of`."""
    named = parse(directory)
    if named is not None:
        return named.prefix
    parent, name = os.path.split(os.path.normpath(directory))
    return os.path.join(parent, name.removeprefix("delta-").removeprefix(_WHOLE))


def is_delta_name(name: str) -> bool:
    return name.startswith(_DELTA)


def has_dense(prefix: str) -> bool:
    """Tells whether the dense part of a checkpoint is there, in TensorFlow's format or its old one."""
    stem = base(prefix)
    return any(map(os.path.exists, (stem + ".index", stem))) or bool(glob.glob(glob.escape(stem) + "-?????-of-?????"))


def is_local(prefix: str) -> bool:
    return "://" not in prefix


def hidden(prefix: str, half: str, kind: str, owner: Optional[str] = None) -> str:
    """Returns the hidden name of that kind for the checkpoint `prefix` and this process, or another `owner`."""
    parent, name = os.path.split(base(prefix))
    return os.path.join(parent, f".{half}-{name}.{kind}-{owner or _owner.name()}")


def parse(path: str) -> Optional[Hidden]:
    """Returns what the name of `path` says; None if it is no hidden name."""
    parent, name = os.path.split(path.rstrip("/"))
    match = _HIDDEN.fullmatch(name)
    if match is None:
        return None
    half, stem, kind, host, pid = match.groups()
    return Hidden(path, half, os.path.join(parent, stem), kind, host, int(pid))


def list_hidden(parent: str) -> list[Hidden]:
    """Returns all that is hidden in the directory `parent`, by name; nothing if it cannot be read."""
    try:
        names = sorted(os.listdir(parent or "."))
    except OSError:
        return []
    found = (parse(os.path.join(parent, name)) for name in names if name.startswith("."))
    return [one for one in found if one is not None]


def make_parent(directory: str, save_path: str) -> None:
    """Makes the folder of checkpoints. One level only, as TensorFlow does where a save is not sharded."""
    parent = os.path.dirname(directory) or "."
    try:
        os.mkdir(parent)
    except FileExistsError:
        return
    except FileNotFoundError:
        raise ValueError(f"Parent directory of {save_path} doesn't exist, can't save.") from None
    _files.sync(os.path.dirname(parent))


def remove(prefix: str) -> None:
    """Removes the tables of a checkpoint, if there are any; a failure is only logged."""
    # Under another name first, so that a crash leaves no half directory under a name that can be restored.
    directory, old = of(prefix), hidden(prefix, "sparse", "old")
    try:
        os.rename(directory, old)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("cannot remove '%s': %s", directory, error)
        return
    _files.remove_later(old)


def dense_crc32c(prefix: str) -> Optional[int]:
    """Returns the checksum of the dense part's index, which has one of each variable; None without it."""
    try:
        with _files.open_regular(base(prefix) + ".index") as file:
            return crc32c_of(file)
    except (OSError, ValueError):
        return None


def crc32c_of(file) -> int:
    """Returns the checksum of an open file from where it stands to its end."""
    crc = 0
    while block := file.read(1 << 22):
        crc = crc32c(block, crc)
    return crc
