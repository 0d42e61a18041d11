"""The dense part of a checkpoint, opened: TensorFlow reads what was opened, not what has the name by then.

TensorFlow opens files by name, when its restore op runs. Another process may have given the name to another save by
that time. So the files are opened once, and TensorFlow is given links to them, in a directory of its own: it makes the
names of index and data out of one prefix, so that no other name, as /proc/self/fd/7 is one, can stand for both. Tables
need no links, as the core loads them from the files that it has opened.
"""

import contextlib
import io
import logging
import os
import re
import shutil
import tempfile
from typing import Optional

import tensorflow as tf

from mx_rec.checkpoint import _files, _layout


class DenseFiles:
    """The index and data files of the dense part `prefix`, open until `close`."""

    def __init__(self, prefix: str):
        """Raises FileNotFoundError without an index, as TensorFlow's old format has none; ValueError if one of the
        files is none that could be read."""
        self.prefix = prefix
        self._files: dict[str, io.FileIO] = {}  # by name
        self._scratch: Optional[str] = None
        parent, name = os.path.split(prefix)
        pattern = re.compile(re.escape(name) + r"\.data-\d{5}-of-\d{5}")
        try:
            index = self._open(parent, name + ".index")
            for other in filter(pattern.fullmatch, os.listdir(parent or ".")):
                self._open(parent, other)
            self.index_crc32c = _layout.crc32c_of(index)
        except BaseException:
            self.close()
            raise

    @property
    def readable(self) -> str:
        """A prefix that means these files, wherever they are now, until `close`."""
        if self._scratch is None:
            self._scratch = tempfile.mkdtemp(prefix="mx_rec-restore-")
            for name, file in self._files.items():
                os.symlink(f"/proc/self/fd/{file.fileno()}", os.path.join(self._scratch, name))
        return os.path.join(self._scratch, os.path.basename(self.prefix))

    @contextlib.contextmanager
    def named(self):
        """Makes errors and the log of TensorFlow say `prefix` where they would say `readable`, while the block runs."""

        def rename(text):
            return text.replace(self.readable, self.prefix) if isinstance(text, str) else text

        def rename_record(record):
            record.msg, record.args = rename(record.msg), tuple(map(rename, record.args or ()))
            return True

        logger = logging.getLogger("tensorflow")
        logger.addFilter(rename_record)
        try:
            yield
        except tf.errors.OpError as error:
            raise type(error)(error.node_def, error.op, rename(error.message)) from error
        except ValueError as error:
            error.args = tuple(map(rename, error.args))
            raise
        finally:
            logger.removeFilter(rename_record)

    def close(self) -> None:
        """Closes the files. Repeating it changes nothing."""
        for file in self._files.values():
            file.close()
        self._files = {}
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def _open(self, parent, name):
        self._files[name] = _files.open_regular(os.path.join(parent, name))
        return self._files[name]


def open_files(prefix: str) -> Optional[DenseFiles]:
    """Opens the dense part `prefix`; None if there is none, or in TensorFlow's old format."""
    try:
        return DenseFiles(_layout.base(prefix))
    except FileNotFoundError:
        return None
