"""Tables that get the rows of a checkpoint: what restores and warm starts have in common.

All files are opened first and verified before a table that holds something is touched. A table that holds nothing, as
after the start of a process, is filled while its files are verified: they are read once, and it is emptied again if
something is wrong.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Callable, Optional

from mx_rec._log import logger
from mx_rec._native import reader as native_reader
from mx_rec._native.table import Tracking
from mx_rec.checkpoint import _chain, _manifest
from mx_rec.checkpoint._table_files import TableFiles
from mx_rec.saver import _thresholds


@dataclasses.dataclass(eq=False)
class TableLoad:
    """A table of the model and what the links of a chain hold for it, opened."""

    table: object
    files: list[TableFiles]  # of the links
    readers: list[native_reader.Reader]  # of the links
    rows_only: bool
    # Whether the table holds nothing: then the contents of its files are verified by loading them.
    is_untouched: bool = False
    tracking: Optional[Tracking] = None  # as it was saved

    def verify(self) -> None:
        """Raises unless the files can be loaded, as far as sizes tell if the table is untouched."""
        self.is_untouched = self.table.native.facts().is_untouched
        for files, reader in zip(self.files, self.readers):
            _check_room(self.table, files)
            rows = reader.verify(contents=not self.is_untouched)
            if files.entry is not None and files.entry.rows != rows:
                raise ValueError(
                    f"checkpoint '{files.directory}' is damaged: table '{files.name}' has {rows} rows in its files, "
                    f"{files.entry.rows} in {_manifest.NAME}; restore another checkpoint"
                )
        self.tracking = None if self.rows_only else _thresholds.saved(self.table, self.files[-1])

    def verify_contents(self) -> None:
        """Verifies what is not going to be loaded, as another checkpoint replaces it, and closes it."""
        for reader in self.readers:
            if self.is_untouched:
                reader.verify()
            reader.close()

    def load(self) -> None:
        """Replaces the rows of the table."""
        for reader in self.readers:
            reader.load()
        last, rows = self.files[-1], self.table.native.facts().rows
        if last.entry is not None and last.entry.table_rows not in (None, rows):
            raise ValueError(
                f"checkpoint '{last.directory}' contradicts those it builds on: table '{last.name}' has {rows} rows, "
                f"expected {last.entry.table_rows} (table_rows in {_manifest.NAME}); restore another checkpoint"
            )
        if not self.rows_only:
            _thresholds.restore(self.table, last.path, self.tracking)


def open_table(
    table, name: str, chain: Sequence[_chain.Link], until: contextlib.ExitStack, rows_only: bool = False
) -> TableLoad:
    """Opens what each link holds of the table called `name` there, until the stack is closed."""
    load = TableLoad(table, [link.tables[name] for link in chain], [], rows_only)
    for link, files in zip(chain, load.files):
        files.check_no_links()
        expected = {} if files.entry is None else files.entry.files
        reader = native_reader.Reader(table.native, files.path, expected, link.is_delta, rows_only)
        until.callback(reader.close)
        load.readers.append(reader)
    return load


@contextlib.contextmanager
def filling(loads: Sequence[TableLoad], what: str, prepare: Callable[[list], object]) -> Iterator[None]:
    """Loads tables that hold nothing before the body runs, the others after it. If the files of the former turn out to
    be damaged, or the body raises, the tables are as they were. Calls `prepare` with tables that are to change."""
    untouched = [load for load in loads if load.is_untouched]
    others = [load for load in loads if not load.is_untouched]
    trackings = [load.table.native.tracking for load in untouched]
    try:
        _load_all(untouched, prepare)
        yield
    except BaseException:
        for load, tracking in zip(untouched, trackings):
            load.table.native.clear()
            if tracking is not None:
                load.table.native.restore_tracking(tracking)
        raise
    try:
        _load_all(others, prepare)
    except BaseException:
        # All was verified; so the disk failed, or memory ended, or somebody pressed Ctrl-C.
        logger.error(
            "the %s ended half way: tables %s may be empty, or of another state than the variables; restore again "
            "before you train or save",
            what,
            sorted(load.table.table_name for load in others),
        )
        raise


def _load_all(loads, prepare):
    if loads:
        prepare([load.table for load in loads])
    for load in loads:
        load.load()


def _check_room(table, files):
    """Raises MemoryError if a delta makes the table larger than it may become. Without one, opening its files tells."""
    native, rows = table.native, None if files.entry is None else files.entry.table_rows
    if rows is not None and 0 < native.max_rows < rows:
        raise MemoryError(
            f"table '{table.table_name}' may hold {native.max_rows} rows (device_vocabulary_size + "
            f"host_vocabulary_size + ssd_vocabulary_size), but with '{files.directory}' it has {rows}; raise "
            "device_vocabulary_size in create_table, or call init(use_dynamic_expansion=True) to let tables grow"
        )
