"""What a checkpoint says of how a table tracks its keys: thresholds and coefficient. The counts themselves come with
the rows."""

import dataclasses
import os
from typing import Optional

import numpy as np

from mx_rec._log import logger
from mx_rec._native.table import Tracking

# Directories beside those of the slots (native/checkpoint/layout.h).
COLUMNS = {"table_2_threshold", "history_record", "last_step", "admission_filter", "deleted"}


def saved(table, path, entry) -> Optional[Tracking]:
    """What `path` says of the tracking of `table`; `entry` is its part of the manifest, or None. ValueError if the
    table cannot take it."""
    now = table.native.tracking
    found = _of_original(path, now) if entry is None else entry.tracking
    if found is not None and now is not None:
        try:
            table.native.check_tracking(found)
        except ValueError as error:
            raise ValueError(f"checkpoint '{path}' is damaged: {error}") from error
    return found


def restore(table, path, saved: Optional[Tracking]) -> None:
    """Gives `table` the thresholds that `saved` found in `path`."""
    native, name = table.native, table.table_name
    now = native.tracking
    if now is None:
        if saved is not None:
            logger.info(
                "checkpoint '%s': table '%s' was saved with counts of its keys, which are not restored, as no lookup "
                "of the script sets a threshold",
                path,
                name,
            )
        return
    if saved is None:
        logger.warning("checkpoint '%s': table '%s' was saved without counts of its keys; they begin anew", path, name)
        return
    labels = ("access_threshold", "eviction_threshold", "coefficient")
    changed = [
        f"{label} {getattr(now, label)} -> {getattr(saved, label)}"
        for label in labels
        if getattr(now, label) != getattr(saved, label)
    ]
    if changed:
        logger.warning(
            "checkpoint '%s': the thresholds of table '%s' are now those it was saved with, not the script's: %s",
            path,
            name,
            ", ".join(changed),
        )
    if saved.filter_bytes != now.filter_bytes:
        logger.warning(
            "checkpoint '%s': table '%s' was saved with admission_filter_bytes=%d, not %d: the counts of keys without "
            "a row begin anew",
            path,
            name,
            saved.filter_bytes,
            now.filter_bytes,
        )
    native.restore_tracking(saved)


def _of_original(path, now) -> Optional[Tracking]:
    """The thresholds of a directory that the original wrote: three int32, and no coefficient."""
    file = os.path.join(path, "table_2_threshold", "slice.data")
    if not os.path.exists(file):
        return None
    numbers = np.fromfile(file, np.int32)
    if numbers.size != 3 or (numbers[:2] < -1).any():
        raise ValueError(f"checkpoint file '{file}' is damaged: expected 3 int32 from -1, got {numbers.tolist()}")
    saved = Tracking(int(numbers[0]), int(numbers[1]), 1, 0)
    return saved if now is None else dataclasses.replace(saved, coefficient=now.coefficient, step=now.step)
