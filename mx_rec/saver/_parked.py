"""Rows that an Estimator is training, kept safe while another graph of the process needs other ones.

Tables belong to the process: an evaluation reads those that are being trained. That is what it wants after a save. If
it restores another checkpoint, or if another model is trained in between, the rows of the training wait in a temporary
directory until its next step, or save.
"""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from typing import Optional

import tensorflow as tf

from mx_rec._log import logger
from mx_rec._native import reader as native_reader
from mx_rec._native.snapshot import Snapshot
from mx_rec._process import Part, part
from mx_rec._tables import graphs
from mx_rec.saver import _background
from mx_rec.transaction import _lock


@dataclasses.dataclass(eq=False)
class _Training:
    graph: object
    directory: str  # where there is room for the rows
    waiting: dict[str, str] = dataclasses.field(default_factory=dict)  # table -> where its rows are
    tracking: dict[str, object] = dataclasses.field(default_factory=dict)
    root: Optional[str] = None


class _Trainings(Part):
    """The trainings under way, in the order in which they began."""

    lasts = True  # each ends by itself

    def __init__(self):
        self.open: list[_Training] = []

    def forget(self, table):
        """Drops the rows of a table that wait for their training."""
        for one in self.open:
            _drop(one, table)


def _open():
    return part(_Trainings).open


_PREFIX = ".mx_rec-training-"


class _PutBackHook(tf.compat.v1.train.SessionRunHook):
    def __init__(self, training):
        self._training = training

    def before_run(self, run_context):
        del run_context
        if self._training.waiting:
            _put_back(self._training)


@contextlib.contextmanager
def training(graph, directory):
    """Marks the tables of `graph` as being trained while the block runs. Gives the hook that its session needs."""
    _tidy_up(directory)
    found = _Training(graph, directory)
    _open().append(found)
    try:
        yield _PutBackHook(found)
        if found.waiting:
            _put_back(found)
    finally:
        _open().remove(found)
        if found.root is not None:
            shutil.rmtree(found.root, ignore_errors=True)
            _lock.release(found.root)


def _tidy_up(directory):
    """Removes what trainings left that were killed during an evaluation."""
    in_use = {one.root for one in _open()}
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        path = os.path.join(directory, name)
        if name.startswith(_PREFIX) and path not in in_use:
            with _lock.borrowed(path) as is_left:
                if is_left:
                    shutil.rmtree(path, ignore_errors=True)


def is_beside(graph) -> bool:
    """Tells whether an Estimator is training in another graph."""
    return any(one.graph is not graph for one in _open())


def put_aside(tables, graph) -> None:
    """Keeps the rows of `tables` that other graphs are training; call it before `graph` replaces them. Waits for a save
    under way."""
    _background.wait()
    for one in _open():
        for table in tables:
            name = table.table_name
            if one.graph is graph:  # the training itself begins from other rows
                _drop(one, name)
                continue
            if name not in graphs.state(one.graph).tables or name in one.waiting:
                continue
            if one.root is None:
                one.root = tempfile.mkdtemp(prefix=_PREFIX, dir=one.directory)
                _lock.acquire(one.root)
            path = os.path.join(one.root, name)
            snapshot = Snapshot(table.native)
            try:
                snapshot.write(path)
            finally:
                snapshot.close()
            one.tracking[name] = table.native.tracking
            one.waiting[name] = path
            logger.info("table '%s': the rows that are being trained wait in '%s'", name, path)


def _drop(one, name):
    if name in one.waiting:
        shutil.rmtree(one.waiting.pop(name), ignore_errors=True)


def put_back(graph) -> None:
    """Loads the rows that wait for the training of `graph`; call it before its tables are saved."""
    for one in _open():
        if one.graph is graph and one.waiting:
            _put_back(one)


def _put_back(one):
    tables = graphs.state(one.graph).tables
    for name, path in list(one.waiting.items()):
        native = tables[name].native
        reader = native_reader.Reader(native, path, {})
        try:
            reader.load()
        finally:
            reader.close()
        tracking = one.tracking[name]
        if tracking is not None:
            native.restore_tracking(tracking)
        del one.waiting[name]
        shutil.rmtree(path, ignore_errors=True)
