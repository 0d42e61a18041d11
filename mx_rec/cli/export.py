"""`python -m mx_rec export`: the rows of a checkpoint in files that other programs read."""

import contextlib
import os

import numpy as np
from tqdm import tqdm

from mx_rec.cli import verify
from mx_rec.saver import _reading, _table_files
from mx_rec.saver._errors import CheckpointError, DamagedError

_DESCRIPTION = """\
Writes the tables of a checkpoint as NumPy files, T.keys.npy (int64 [n]) and T.embedding.npy (float32 [n, dim]), or as
one Parquet file per table with the columns `key` and `embedding`. Row i is the same in all of them. Files of the same
names are replaced. A delta gives all rows, of those it builds on, too. What is exported is checked before, and a
file appears when it is complete.
"""


def add_command(commands) -> None:
    """Adds `export` to the command line's subparsers."""
    parser = commands.add_parser("export", help="write tables as NumPy or Parquet files", description=_DESCRIPTION)
    parser.add_argument("path", metavar="PATH", help="as of `inspect`")
    parser.add_argument("out", metavar="OUT", help="the directory for the files; made if missing")
    parser.add_argument("--format", choices=("npy", "parquet"), default="npy", help="npy, if not given")
    parser.add_argument("--table", action="append", metavar="T", help="this one alone; repeatable")
    parser.add_argument("--slots", action="store_true", help="the optimizer's slots too")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Runs the command; returns the exit status."""
    write = _write_npy if options.format == "npy" else _parquet_writer()
    checkpoint = _reading.open_checkpoint(options.path)
    names = list(checkpoint.tables) if options.table is None else dict.fromkeys(options.table)
    tables = [checkpoint.table(name) for name in names]
    for table in tables:
        columns = ("embedding", *(table.slots if options.slots else ()))
        wanted = {"key", "deleted", *columns}
        damage = [text for link in table.links for text in verify.check_table(link, wanted)]
        if damage:
            raise DamagedError("; ".join(damage))
        try:
            os.makedirs(options.out, exist_ok=True)
            with tqdm(total=table.rows, desc=table.name, unit=" rows", disable=None, leave=False) as bar:
                files = write(table, columns, options.out, bar.update)
        except OSError as error:
            raise CheckpointError(f"cannot write to '{options.out}': {error.strerror or error}") from error
        print(f"table '{table.name}': {table.rows:,} rows of dim {table.dim} -> {', '.join(files)}", flush=True)
    return 0


@contextlib.contextmanager
def _new_file(path):
    """A name to write to; it becomes `path` when the block ends well, and goes otherwise."""
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def _write_npy(table, columns, out, advance):
    arrays = {"keys": table.keys(), **{name: table.floats(name) for name in columns}}
    files = []
    for name, array in arrays.items():
        files.append(os.path.join(out, f"{table.name}.{name}.npy"))
        with _new_file(files[-1]) as temporary, open(temporary, "wb") as file:
            header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
            np.lib.format.write_array_header_1_0(file, header)
            for part in _table_files.chunks(table.rows):
                file.write(np.ascontiguousarray(array[part]).data)
                if name == "embedding":
                    advance(part.stop - part.start)
    return files


def _parquet_writer():
    """The function that writes Parquet files, or an error that says how to get it."""
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
        path = os.path.join(out, f"{table.name}.parquet")
        with _new_file(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
            for part in _table_files.chunks(table.rows):
                lists = [pyarrow.FixedSizeListArray.from_arrays(f[part].ravel(), table.dim) for f in floats]
                arrays = [pyarrow.array(np.asarray(keys[part])), *lists]
                writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
                advance(part.stop - part.start)
        return [path]

    return write
