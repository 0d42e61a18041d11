"""reset_tables: tables that begin anew, while the process goes on."""

from mx_rec import _check, _process
from mx_rec._log import logger
from mx_rec._native import table as native_table


def reset_tables(*names: str) -> None:
    """Empties tables of the process: their rows with slots, what is known of keys without a row, and the clocks of
    admission and eviction. Without names, all of them. How they are configured stays, and so do thresholds.

    Cross-validation calls it between two folds. Call it between two `session.run`, never beside one; sessions and
    prepared batches may go on afterwards, and find the tables empty. Row addresses that were fetched before are
    refused. Dense variables, also those of sparse optimizers, are TensorFlow's to initialize.

    Waits for a save in the background. The next checkpoint holds all rows, also if it was to be a delta; a restore
    loads the tables from its files, also that of a checkpoint that they held before. Rows that an Estimator's training
    has put aside for an evaluation go as well.

    Raises ValueError naming the known tables for an unknown one, RuntimeError if the save in the background failed; no
    table has changed then. EnvironmentError before `init`.
    """
    _process.config()
    known = native_table.known()
    for name in names:
        _check.instance("names", name, str, "names of tables")
        if name not in known:
            raise ValueError(f"there is no table {name!r} in this process; it has {sorted(known)}")
    _process.process.settle()  # a save that is under way has the rows that were
    for name in dict.fromkeys(names or known):
        rows = known[name].facts().rows
        known[name].clear()
        _process.process.forget(name)
        logger.info("table '%s': %d rows are gone", name, rows)
