"""The directory of a demo run, and what of an earlier run is in it.

DIR/demo.json                   what the run was started with
DIR/checkpoint, DIR/model-<n>.* TensorFlow's part of the checkpoints
DIR/sparse-model-<n>/           the tables' part
DIR/tensorboard/                event files
DIR/all-rows/                   with --forget, the run to compare with, which keeps every row
"""

import dataclasses
import glob
import json
import os
import re
import shutil

# What a run writes; --fresh removes this and nothing else, as DIR may be any directory.
_WRITTEN = ("demo.json", "checkpoint", ".state-checkpoint.*", "model-[0-9]*", ".dense-model-[0-9]*",
            "sparse-model-[0-9]*", ".sparse-model-[0-9]*", "tensorboard", "all-rows")  # fmt: skip
_FIXED = ("seed", "batch_size", "forget")  # a run resumed with others would be another run


class UnusableError(Exception):
    """The directory cannot be used as asked; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    path: str

    @property
    def prefix(self) -> str:
        """The prefix of checkpoints, for Saver.save."""
        return os.path.join(self.path, "model")

    @property
    def beside(self) -> str:
        """The directory of the run to compare with."""
        return os.path.join(self.path, "all-rows")

    @property
    def logs(self) -> str:
        return os.path.join(self.path, "tensorboard")


def open_run(options) -> RunDirectory:
    """Makes the directory ready: emptied of the last run if `options.fresh`, else checked against it."""
    path = options.dir
    settings = {name: getattr(options, name) for name in _FIXED}
    try:
        os.makedirs(path, exist_ok=True)
        if options.fresh:
            _remove_run(path)
        known = _read(os.path.join(path, "demo.json"))
        if known is None:
            with open(os.path.join(path, "demo.json"), "w", encoding="utf-8") as file:
                json.dump(settings, file)
    except OSError as error:
        raise UnusableError(f"directory '{path}' cannot be used: {error.strerror}; give another --dir") from error
    if known is not None and settings != {"forget": False, **known}:
        had = f"--seed {known.get('seed')} --batch-size {known.get('batch_size')}"
        had += " --forget" if known.get("forget") else ""
        raise UnusableError(f"the run in '{path}' was started with {had}: give the same, another --dir, or --fresh")
    return RunDirectory(path)


def step_of(checkpoint) -> int:
    """Returns the step that a checkpoint's path ends in."""
    return int(re.search(r"-(\d+)$", checkpoint).group(1))


def _remove_run(path):
    for pattern in _WRITTEN:
        for found in glob.glob(os.path.join(glob.escape(path), pattern)):
            if os.path.isdir(found) and not os.path.islink(found):
                shutil.rmtree(found)
            else:
                os.remove(found)


def _read(path):
    """Returns the settings, or None if there are none or a crash left half of them."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None
