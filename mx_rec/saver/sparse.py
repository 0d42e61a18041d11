"""Tables as plain Python dicts, for programs that know nothing of checkpoints."""

import os
from typing import Optional

import numpy as np

from mx_rec import _check
from mx_rec._log import logger
from mx_rec.checkpoint import _columns, _table_files
from mx_rec.reading import _reading, _verifying
from mx_rec.saver import _background, saver


def export(table_list: Optional[list[str]] = None) -> int:
    """Writes tables of the checkpoint last saved by this process to `<sparse directory>/<table>/key-emb.npy`: all rows,
    also of a delta. Waits for a save in the background.

    A file holds a pickled dict {uint64 key: float32 row}: ``numpy.load(file, allow_pickle=True).item()``. Negative keys
    appear as their two's complement, `key % 2**64`. A table is held in memory while its file is written; `python -m
    mx_rec export` writes tables of any size.

    `table_list` names the tables, at least one; None means all. Names that are not in the checkpoint are warned of.
    Returns how many tables were exported: 0, with a warning, if there was nothing to export.
    """
    if table_list is not None:
        _check.instance("table_list", table_list, list, "a list of table names, or None")
        if not table_list:
            raise ValueError("`table_list` must name at least one table, got []; None means all of them")
        for name in table_list:
            _check.instance("table_list", name, str, "a list of strings")
    _background.wait()
    directory = saver.last_sparse_dir()
    if directory is None or not os.path.isdir(directory):
        what = "has saved no tables yet" if directory is None else f"saved '{directory}', which is no longer there"
        logger.warning("nothing to export: this process %s; call Saver.save first", what)
        return 0
    tables = _reading.open_checkpoint(directory).tables
    names = list(tables) if table_list is None else list(dict.fromkeys(table_list))
    for name in names:
        if name not in tables:
            logger.warning("table '%s' is not exported: checkpoint '%s' has only %s", name, directory, sorted(tables))
    known = [name for name in names if name in tables]
    if not known:
        logger.warning("nothing to export from checkpoint '%s'", directory)
    for name in known:
        _write(tables[name])
    return len(known)


def _write(table):
    _verifying.require_whole(table, _columns.ROWS)
    rows = dict(zip(table.keys().view(np.uint64), np.array(table.floats("embedding")[:])))
    path = os.path.join(table.path, _table_files.EXPORTED)
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640), "wb") as file:
            np.save(file, rows)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise
    logger.info("exported %d rows of table '%s': %s", table.rows, table.name, path)
