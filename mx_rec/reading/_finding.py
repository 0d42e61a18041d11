"""Which checkpoint a path means: a prefix ("D/model-7"), a directory of tables ("D/sparse-model-7", or a delta's
"D/delta-sparse-model-7"), the latest of the directory D, or the tables of the SavedModel in it."""

import os
import re
from typing import Optional

from mx_rec.checkpoint import _files, _layout, _manifest
from mx_rec.checkpoint._errors import CheckpointError
from mx_rec.transaction import _recovery

_TABLES = re.compile(r"\.?(delta-)?sparse-")


def find(path: str) -> str:
    """Returns the sparse directory that `path` means; of a directory with checkpoints, that of the latest one."""
    directory = _directory_of(path) or _of_saved_model(path)
    if directory is not None:
        return directory
    if not os.path.isdir(path):
        raise CheckpointError(
            f"no checkpoint with tables at '{path}'; give a prefix (D/model-7), a sparse directory (D/sparse-model-7), "
            "a SavedModel or a directory with checkpoints"
        )
    state = os.path.join(path, "checkpoint")
    latest = read_state(state)
    if latest:
        directory = _directory_of(latest[0])
        if directory is None:
            raise CheckpointError(
                f"the latest checkpoint, by '{state}', is '{latest[0]}', which has no tables; give the prefix of "
                "another one"
            )
        return directory
    prefixes = list_prefixes(path)
    if not prefixes:
        raise CheckpointError(f"directory '{path}' holds no checkpoints with tables")
    return _recovery.locate(max(prefixes, key=_age)).sparse


def is_saved_model(path: str) -> bool:
    """Tells whether `path` is the directory of an exported model."""
    return any(os.path.isfile(os.path.join(path, name)) for name in ("saved_model.pb", "saved_model.pbtxt"))


def _of_saved_model(path):
    """Returns the sparse directory in an exported model; None if `path` is none."""
    if not is_saved_model(path):
        return None
    directory = _directory_of(os.path.join(path, "variables", "variables"))
    if directory is None:
        raise CheckpointError(f"the SavedModel in '{path}' has no tables")
    return directory


def list_prefixes(directory: str) -> list[str]:
    """Returns the prefixes of all checkpoints with tables that lie in `directory`, by name and step."""
    paths = [os.path.join(directory, name) for name in os.listdir(directory) if _TABLES.match(name)]
    prefixes = {_layout.prefix_of(path) for path in paths if is_sparse_directory(path)}
    held = [prefix for prefix in prefixes if os.path.isdir(_recovery.locate(prefix).sparse)]
    return sorted(held, key=lambda prefix: (split_step(prefix)[0], split_step(prefix)[1] or 0))


def is_sparse_directory(path: str) -> bool:
    """Tells whether `path` is a directory for the tables of one checkpoint, whole or not, that is not being removed."""
    path = os.path.normpath(path)
    hidden = _layout.parse(path)
    if not os.path.isdir(path) or (hidden is not None and (hidden.half, hidden.kind) != ("sparse", "tmp")):
        return False
    names = os.listdir(path)
    if _manifest.NAME in names or any(os.path.isdir(os.path.join(path, name, "key")) for name in names):
        return True
    # By its name alone, as nothing in it may be left; yet somebody may call his folder of checkpoints "sparse-runs".
    is_folder = any(name == "checkpoint" or name.startswith(("sparse-", "delta-sparse-")) for name in names)
    return _TABLES.match(os.path.basename(path)) is not None and not is_folder


def split_step(prefix: str) -> tuple[str, Optional[int]]:
    """Returns name and step: ("D/model", 7) of "D/model-7", and (prefix, None) without a step."""
    match = re.fullmatch(r"(.+)-(\d+)", prefix)
    return (match.group(1), int(match.group(2))) if match else (prefix, None)


def read_state(path: str) -> list[str]:
    """Returns the checkpoints that TensorFlow's state file `path` names, the latest first; none if it is none."""
    try:
        content = _files.read_regular(path, 1 << 24)
        lines = re.findall(rb'^(model|all_model)_checkpoint_paths?: "(.*)"$', content, re.MULTILINE)
        # Protocol buffers write other bytes than ASCII in octal.
        named = [(kind, text.decode("unicode_escape").encode("latin-1").decode()) for kind, text in lines]
    except (OSError, ValueError):
        return []
    parent = os.path.dirname(path)
    paths = [os.path.join(parent, name) for _, name in sorted(named, key=lambda item: item[0] != b"model")]
    return list(dict.fromkeys(at_home(path, parent) for path in paths))


def at_home(prefix: str, directory: str) -> str:
    """Returns `prefix`, which a state file in `directory` names, as a path in that directory if it is there. A
    directory may have several names, and one that was copied or moved still names the place where it was written."""
    here = os.path.join(directory, os.path.basename(prefix))
    return prefix if exists(prefix) and not exists(here) else here


def exists(prefix: str) -> bool:
    """Tells whether a half of a checkpoint is there."""
    return os.path.exists(prefix + ".index") or os.path.isdir(_layout.of(prefix))


def _directory_of(path):
    """Returns the sparse directory that belongs to a prefix, or that `path` is itself; None if there is none."""
    if is_sparse_directory(path):
        return os.path.normpath(path)
    prefix = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path)
    if not _layout.is_local(prefix) or not os.path.basename(prefix):
        return None
    directory = _recovery.locate(prefix).sparse
    return directory if os.path.isdir(directory) else None


def _age(prefix):
    step = split_step(prefix)[1]
    return -1 if step is None else step, os.path.getmtime(_recovery.locate(prefix).sparse)
