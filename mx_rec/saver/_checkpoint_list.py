"""TensorFlow's list of checkpoints, the file `checkpoint`, written so that it survives a power cut.

TensorFlow's own function renames a new file over the old one, but does not wait until its content is on the disk: the
file may then be empty after a power cut, and all checkpoints forgotten.
"""

import os
from collections.abc import Sequence
from typing import Optional

import tensorflow as tf
from google.protobuf import text_format

from mx_rec.checkpoint import _files, _layout


def write(
    directory: str,
    latest: str,
    every: Sequence[str],
    filename: str = "checkpoint",
    is_relative: bool = False,
    times: Optional[Sequence[float]] = None,
    last_preserved: Optional[float] = None,
) -> None:
    """Writes what TensorFlow's update_checkpoint_state_internal writes, given the same: `every` checkpoint from old to
    new, `latest` the last of them; `is_relative`: by their names relative to `directory`."""
    path = os.path.join(directory, filename)
    if path == latest:  # in TensorFlow's old format the dense part is a file of this very name
        raise RuntimeError(
            f"checkpoint '{latest}' has the name of TensorFlow's list of checkpoints; choose another save path or "
            "`latest_filename`"
        )

    def name(checkpoint):
        return os.path.relpath(checkpoint, directory) if is_relative and os.path.isabs(checkpoint) else checkpoint

    state = tf.compat.v1.train.generate_checkpoint_state_proto(
        directory,
        name(latest),
        all_model_checkpoint_paths=[name(checkpoint) for checkpoint in every],
        all_model_checkpoint_timestamps=times,
        last_preserved_timestamp=last_preserved,
    )
    temporary = _layout.hidden(path, "state", "tmp")
    _files.write(path, text_format.MessageToString(state).encode(), temporary, 0o666)
