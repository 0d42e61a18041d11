"""Loading a table (native/checkpoint/reader.h)."""

import ctypes
import os
from collections.abc import Mapping

from mx_rec._native import library
from mx_rec._native.file_facts import FileFacts, to_c
from mx_rec._native.table import NativeTable


class Reader:
    """The files of a table in `directory`, all opened, and kept until `close`: what is verified is what is loaded,
    whatever becomes of the directory meanwhile.

    `expected` are the files as they were written, or nothing if that is not known; of others none is opened.
    `rows_only`: keys and embeddings, without slots and counts. `owner`: a rank and the number of ranks; only what it
    owns is loaded. `joins`: the files have one part of the table's rows, which joins others. Raises ValueError if one
    is missing.
    """

    def __init__(
        self,
        table: NativeTable,
        directory: str,
        expected: Mapping[str, FileFacts],
        is_delta: bool = False,
        rows_only: bool = False,
        owner: tuple[int, int] = (0, 1),
        joins: bool = False,
    ):
        files, path = to_c(expected), os.fsencode(directory)
        self._handle = ctypes.c_void_p()
        library.core().mxrec_reader_open(
            table.encoded, path, is_delta, rows_only, *owner, joins, files, len(files), self._handle
        )

    def verify(self, contents: bool = True) -> int:
        """Returns the number of rows. Raises unless the files can be loaded into the table: ValueError if one is
        damaged or cut, or holds rows of another dim; MemoryError if there are more rows than the table may hold.
        Without `contents`, as far as sizes tell. Touches nothing."""
        rows = ctypes.c_int64()
        library.core().mxrec_reader_verify(self._handle, contents, rows)
        return rows.value

    def load(self) -> int:
        """Replaces the table's rows by those of the files, or adds those of a delta to them. Returns their number.
        Unless the contents were verified before, it raises what `verify` would; then the table is as it was, or empty.
        """
        rows = ctypes.c_int64()
        library.core().mxrec_reader_load(self._handle, rows)
        return rows.value

    def close(self) -> None:
        """Closes the files. Repeating it changes nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        library.core().mxrec_reader_close(handle)
