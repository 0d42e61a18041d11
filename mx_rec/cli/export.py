"""`python -m mx_rec export`: the rows of a checkpoint in files that other programs read."""

import contextlib
import os

import numpy as np
from tqdm import tqdm

from mx_rec.checkpoint import _table_files
from mx_rec.checkpoint._errors import CheckpointError
from mx_rec.cli import _original_layout
from mx_rec.cli._steadily import steadily
from mx_rec.reading import _verifying

_DESCRIPTION = """\
Writes the tables of a checkpoint as NumPy files, T.keys.npy (int64 [n]) and T.embedding.npy (float32 [n, dim]), or as
one Parquet file per table with the columns `key` and `embedding`. Row i is the same in all of them. Or as a checkpoint
in the layout of the original SDK, which refuses directories with a manifest: tables with slots and counts, and the
dense part. Files of the same names are replaced. A delta gives all rows, of those it builds on, too. What is exported
is checked before, and the files appear when all of them are complete.
"""


def add_command(commands) -> None:
    """Adds `export` to the command line's subparsers."""
    parser = commands.add_parser("export", help="write tables as NumPy or Parquet files", description=_DESCRIPTION)
    parser.add_argument("path", metavar="PATH", help="as of `inspect`")
    parser.add_argument("out", metavar="OUT", help="the directory for the files; made if missing")
    parser.add_argument("--format", choices=("npy", "parquet", "original"), default="npy", help="npy, if not given")
    parser.add_argument("--table", action="append", metavar="T", help="this one alone; repeatable")
    parser.add_argument("--slots", action="store_true", help="the optimizer's slots too")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Runs the command; returns the exit status."""
    if options.format == "original" and options.table is not None:
        raise CheckpointError("`--format original` writes a whole checkpoint; leave out --table")
    parquet = _parquet_writer() if options.format == "parquet" else None
    try:
        with _Files(options.out) as files:
            status = steadily([options.path], lambda checkpoint: _export(checkpoint, options, parquet, files))
            files.keep()
    except OSError as error:
        raise CheckpointError(f"cannot write to '{options.out}': {error.strerror or error}") from error
    return status


def _export(checkpoint, options, parquet, files):
    """Writes the tables to new files, and prints where they will be."""
    is_original = options.format == "original"
    write = _original_layout.writer(checkpoint) if is_original else parquet or _write_npy
    names = list(checkpoint.tables) if options.table is None else dict.fromkeys(options.table)
    for table in [checkpoint.table(name) for name in names]:
        columns = ("embedding", *(table.slots if options.slots or is_original else ()))
        wanted = None if is_original else {"key", "deleted", *columns}
        _verifying.require_whole(table, wanted)
        with tqdm(total=table.rows, desc=table.name, unit=" rows", disable=None, leave=False) as bar:
            written = write(table, columns, files, bar.update)
        print(f"table '{table.name}': {table.rows:,} rows of dim {table.dim} -> {', '.join(written)}")
    if is_original:
        _original_layout.copy_dense(checkpoint, files)
    return 0


class _Files:
    """New files in a directory, which is made for the first; they have other names until all of them are complete, and
    go if they are not kept."""

    def __init__(self, directory: str):
        self._directory = directory
        self._names: dict[str, str] = {}  # final path -> where it is written

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for temporary in self._names.values():
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)

    def new(self, name: str) -> tuple[str, str]:
        """Returns (the path of the file called `name`, where to write it meanwhile). Repeating it returns the same."""
        path = os.path.join(self._directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._names[path] = f"{path}.tmp-{os.getpid()}"
        return path, self._names[path]

    def keep(self) -> None:
        """Gives all of them their names."""
        for path, temporary in self._names.items():
            os.replace(temporary, path)


def _write_npy(table, columns, out, advance):
    arrays = {"keys": table.keys(), **{name: table.floats(name) for name in columns}}
    files = []
    for name, array in arrays.items():
        path, temporary = out.new(f"{table.name}.{name}.npy")
        files.append(path)
        with open(temporary, "wb") as file:
            header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
            np.lib.format.write_array_header_1_0(file, header)
            for part in _table_files.chunks(table.rows):
                file.write(np.ascontiguousarray(array[part]).data)
                if name == "embedding":
                    advance(part.stop - part.start)
    return files


def _parquet_writer():
    """Returns the function that writes Parquet files, or an error that says how to get it."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise CheckpointError(
            f"`--format parquet` needs the package pyarrow ({error}); `pip install pyarrow`, with NumPy 1 "
            "`pip install 'pyarrow<22'`, or use `--format npy`"
        ) from error

    def write(table, columns, out, advance):
        kind = pyarrow.list_(pyarrow.float32(), table.dim)
        schema = pyarrow.schema([("key", pyarrow.int64()), *((name, kind) for name in columns)])
        keys, floats = table.keys(), [table.floats(name) for name in columns]
        path, temporary = out.new(f"{table.name}.parquet")
        with parquet.ParquetWriter(temporary, schema) as writer:
            for part in _table_files.chunks(table.rows):
                lists = [pyarrow.FixedSizeListArray.from_arrays(f[part].ravel(), table.dim) for f in floats]
                arrays = [pyarrow.array(np.asarray(keys[part])), *lists]
                writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
                advance(part.stop - part.start)
        return [path]

    return write
