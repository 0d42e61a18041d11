"""A checkpoint as the original SDK writes it, for that SDK to restore: its reader refuses what it does not know beside
the tables, so there is no manifest, and no column but its own."""

import os
import re
import shutil

import numpy as np

from mx_rec.checkpoint import _table_files
from mx_rec.checkpoint._errors import CheckpointError

_DENSE = r"\.(index|meta|data-\d{5}-of-\d{5})"


def writer(checkpoint):
    """Returns the function that `export` calls for each table of the checkpoint."""
    folder = f"sparse-{os.path.basename(checkpoint.prefix)}"

    def write(table, columns, out, advance):
        def column(name, attribute):
            paths, temporaries = zip(
                *(out.new(f"{folder}/{table.name}/{name}/slice.{kind}") for kind in ("data", "attribute"))
            )
            np.array(attribute, np.int64).tofile(temporaries[1])
            written.append(os.path.dirname(paths[0]))
            return open(temporaries[0], "wb")

        written = []
        rows, keys = table.rows, table.keys()
        with column("key", [rows, 8]) as file:
            for part in _table_files.chunks(rows):
                np.asarray(keys[part]).tofile(file)
        for name in columns:
            floats = table.floats(name)
            with column(name, [rows, table.dim, 4]) as file:
                for part in _table_files.chunks(rows):
                    np.asarray(floats[part]).tofile(file)
                    if name == "embedding":
                        advance(part.stop - part.start)
        if table.tracking is not None:
            _write_tracking(table, column)
        return written

    return write


def _write_tracking(table, column):
    tracking, history = table.tracking, table.history()
    with column("table_2_threshold", [3, 4]) as file:
        np.array([tracking.access_threshold, tracking.eviction_threshold, 1], np.int32).tofile(file)
    if history is None:
        return
    with column("history_record", [len(history.keys), 3, 8]) as file:
        np.array([history.now], np.int64).tofile(file)
        for part in _table_files.chunks(len(history.keys)):
            np.stack([history.keys[part], history.counts[part], history.times[part]], axis=1).tofile(file)


def copy_dense(checkpoint, out) -> None:
    """Copies the files of the dense part."""
    parent, name = os.path.split(checkpoint.dense_prefix)
    found = sorted(file for file in os.listdir(parent or ".") if re.fullmatch(re.escape(name) + _DENSE, file))
    if not found or checkpoint.dense == "differs":
        raise CheckpointError(
            f"checkpoint '{checkpoint.prefix}' has no dense part that belongs to its tables; `--format original` "
            "writes a whole checkpoint"
        )
    for file in found:
        shutil.copyfile(os.path.join(parent, file), out.new(file)[1])
