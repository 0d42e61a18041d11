"""What a checkpoint says of how a table tracks its keys: thresholds and coefficient. The counts themselves come with
the rows."""

import dataclasses
from typing import Optional

from mx_rec._log import logger
from mx_rec._native.table import Tracking
from mx_rec.checkpoint._table_files import TableFiles


def saved(table, files: TableFiles) -> Optional[Tracking]:
    """Returns what a checkpoint says of the tracking of `table`. ValueError if the table cannot take it."""
    now, found = table.native.tracking, files.thresholds
    if found is not None and now is not None:
        if files.entry is None:  # the original has no coefficient
            found = dataclasses.replace(found, coefficient=now.coefficient, step=now.step)
        try:
            table.native.check_tracking(found)
        except ValueError as error:
            raise ValueError(f"checkpoint '{files.path}' is damaged: {error}") from error
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
