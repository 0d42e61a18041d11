"""What lies in a directory of checkpoints, read by means that share no code with the package; and how to harm it."""

import os
import pathlib

import numpy as np
import tensorflow as tf

from mx_rec.transaction import _lock

SLOTS = ["LazyAdam_momentum", "LazyAdam_velocity"]


def tree(directory):
    return sorted(
        os.path.relpath(os.path.join(path, name), directory) for path, _, names in os.walk(directory) for name in names
    )


def hidden_names(directory):
    """But for the lock of this process."""
    return sorted(name for name in os.listdir(directory) if name.startswith(".") and name != _lock.NAME)


def sparse_names(directory):
    return sorted(name for name in os.listdir(directory) if "sparse-" in name)


def kinds(directory):
    return sorted(path.name for path in pathlib.Path(directory).glob("*sparse-*") if path.name[0] != ".")


def files_of(directory):
    return sorted(path for path in directory.rglob("slice.*") if path.stat().st_size)


def state_of(directory):
    state = tf.train.get_checkpoint_state(str(directory))
    names = [os.path.basename(path) for path in state.all_model_checkpoint_paths]
    return os.path.basename(state.model_checkpoint_path), names


def rows_of(directory, table="user"):
    """({key: all floats of its row}, deleted keys in a list) of one directory, by NumPy alone."""
    folder = pathlib.Path(directory) / table
    keys = np.fromfile(folder / "key/slice.data", np.int64).tolist()
    names = ("embedding", "LazyAdam_momentum", "LazyAdam_velocity")
    columns = [np.fromfile(folder / name / "slice.data", np.float32).reshape(len(keys), 4) for name in names]
    rows = {key: [column[i].tolist() for column in columns] for i, key in enumerate(keys)}
    gone = folder / "deleted/slice.data"
    return rows, np.fromfile(gone, np.int64).tolist() if gone.exists() else None


def crc32c(data):
    """Bit by bit, from the definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def flip(path, at=-1):
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def write_original(directory, keys, dim=2, table="t"):
    """A directory as the original SDK writes it: no manifest."""
    folder = directory / table
    rows = np.arange(len(keys) * dim, dtype=np.float32)
    for column, data, attribute in (("key", np.array(keys, np.int64), [8]), ("embedding", rows, [dim, 4])):
        (folder / column).mkdir(parents=True)
        data.tofile(folder / column / "slice.data")
        np.array([len(keys), *attribute], np.int64).tofile(folder / column / "slice.attribute")
