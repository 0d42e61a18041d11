"""Tables that get the rows of a checkpoint: what restores and warm starts have in common.

All files are opened first and verified before a table that holds something is touched. A table that holds nothing, as
after the start of a process, is filled while its files are verified: they are read once, and it is emptied again if
something is wrong.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Callable, Optional

from mx_rec import _ranks
from mx_rec._log import logger
from mx_rec._native import reader as native_reader
from mx_rec._native.table import Tracking
from mx_rec.checkpoint import _chain, _manifest
from mx_rec.checkpoint._table_files import TableFiles
from mx_rec.saver import _thresholds
from mx_rec.transaction import _recovery


@dataclasses.dataclass(eq=False)
class TableLoad:
    """A table of the model and what the links of a chain hold for it, opened."""

    table: object
    files: list[TableFiles]  # of the links
    readers: list[native_reader.Reader]  # of the links
    rows_only: bool
    is_part: bool = False  # whether the table gets but a part of the rows
    shares: int = 1  # of the last link: so many files at the end hold what several ranks have saved
    # Whether the table holds nothing: then the contents of its files are verified by loading them.
    is_untouched: bool = False
    tracking: Optional[Tracking] = None  # as it was saved

    def verify(self) -> None:
        """Raises unless the files can be loaded, as far as sizes tell if the table is untouched."""
        self.is_untouched = self.table.native.facts().is_untouched
        _check_room(self.table, self.files[-self.shares :])
        for files, reader in zip(self.files, self.readers):
            rows = reader.verify(contents=not self.is_untouched)
            if files.entry is not None and files.entry.rows != rows:
                raise ValueError(
                    f"checkpoint '{files.directory}' is damaged: table '{files.name}' has {rows} rows in its files, "
                    f"{files.entry.rows} in {_manifest.NAME}; restore another checkpoint"
                )
        self.tracking = None if self.rows_only else _thresholds.saved(self.table, self.files[-1])
        if self.tracking is not None:
            clocks = [files.thresholds.now for files in self.files if files.thresholds is not None]
            self.tracking = dataclasses.replace(self.tracking, now=max(self.tracking.now, *clocks))

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
        if not self.is_part and last.entry is not None and last.entry.table_rows not in (None, rows):
            raise ValueError(
                f"checkpoint '{last.directory}' contradicts those it builds on: table '{last.name}' has {rows} rows, "
                f"expected {last.entry.table_rows} (table_rows in {_manifest.NAME}); restore another checkpoint"
            )
        if not self.rows_only:
            _thresholds.restore(self.table, last.path, self.tracking)


def links(directory: str) -> list[_chain.Link]:
    """Returns what the tables in `directory`, and in other ranks' shares of the same save, consist of, in the order in
    which it is to be loaded. Raises ValueError as _chain.with_shares does."""
    return _chain.with_shares(directory, lambda prefix: _recovery.locate(prefix).sparse)


def own(chain: list[_chain.Link]) -> Optional[list[_chain.Link]]:
    """Returns the links of such a chain that hold what this rank's tables hold; None if they hold that of several
    ranks' shares."""
    share = None if chain[-1].manifest is None else chain[-1].manifest.share
    if share is None:
        return chain
    if (share.rank, len(share.directories)) != (_ranks.rank(), _ranks.size()):
        return None
    return [link for link in chain if link.manifest.share.rank == share.rank]


def open_table(
    table, name: str, chain: Sequence[_chain.Link], until: contextlib.ExitStack, rows_only: bool = False
) -> TableLoad:
    """Opens what each link holds of the table called `name` there, until the stack is closed."""
    owner = (0, 1) if table.is_dp else (_ranks.rank(), _ranks.size())
    share = None if chain[-1].manifest is None else chain[-1].manifest.share
    shares = 1 if share is None else len(share.directories)
    if share is not None and name in share.whole:
        chain, shares = [link for link in chain if link.manifest.share.rank == share.rank], 1
    files = [link.tables[name] for link in chain]
    load = TableLoad(table, files, [], rows_only, is_part=owner[1] > 1 or shares > 1, shares=shares)
    for link, files in zip(chain, load.files):
        files.check_no_links()
        expected = {} if files.entry is None else files.entry.files
        joins = bool(load.readers) and not link.is_delta
        reader = native_reader.Reader(table.native, files.path, expected, link.is_delta, rows_only, owner, joins)
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


def _check_room(table, last):
    """Raises MemoryError if the files of the `last` link make the table larger than it may become. Where they alone are
    its rows, opening them tells."""
    native = table.native
    if any(files.entry is None for files in last):
        return
    rows = sum(files.entry.rows if files.entry.table_rows is None else files.entry.table_rows for files in last)
    is_told = len(last) == 1 and last[0].entry.table_rows is None
    if not is_told and 0 < native.max_rows < rows:
        raise MemoryError(
            f"table '{table.table_name}' may hold {native.max_rows} rows (device_vocabulary_size + "
            f"host_vocabulary_size + ssd_vocabulary_size), but with '{last[-1].directory}' it has {rows}; raise "
            "device_vocabulary_size in create_table, or call init(use_dynamic_expansion=True) to let tables grow"
        )
