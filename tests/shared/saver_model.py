"""A model as a Saver sees it, with tables that are filled by hand: no lookups, no training."""

import pathlib
import types

import numpy as np
import tensorflow as tf

from mx_rec._native import table as native_table
from mx_rec._native.table_config import InitializerSpec, TableConfig
from mx_rec._tables import anchors

v1 = tf.compat.v1
ADAM = (("LazyAdam_momentum", 0.0), ("LazyAdam_velocity", 0.0))
COLLECTION = "ASCEND_GLOBAL_HASHTABLE_COLLECTION"


def add_table(name, dim=4, slots=ADAM, is_save=True, max_rows=0, optimizer="LazyAdam"):
    """What create_table leaves behind, as far as a Saver sees it."""
    native = native_table.NativeTable(TableConfig(name, dim, InitializerSpec("constant"), max_rows=max_rows))
    if slots:
        native.set_slots(slots)
    anchor = v1.get_variable(name, [0, dim], trainable=False, use_resource=True, initializer=v1.zeros_initializer())
    v1.add_to_collection(COLLECTION, anchor)
    table = types.SimpleNamespace(
        is_dp=False,
        table_name=name,
        is_save=is_save,
        key_dtype=tf.int64,
        native=native,
        optimizer_name=optimizer,
    )
    anchors.bind(anchor, table)
    return anchor


def native(anchor):
    return anchors.table_of(anchor).native


def fill(anchor, keys, value):
    table = native(anchor)
    shape = (len(keys), 1 + len(table.slots), table.dim)
    table.write(keys, value + np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


def content(anchor):
    table = native(anchor)
    keys = table.keys()
    return dict(zip(keys.tolist(), table.read(keys)[0].tolist()))


def contents(model):
    return {name: content(anchor) for name, anchor in model.anchors.items()}


class Model:
    """A graph with one dense variable and tables, and a session in which everything is initialised."""

    def __init__(self, tables=("user", "item"), dense=True, **options):
        self.graph = tf.Graph()
        with self.graph.as_default():
            if dense:
                self.dense = v1.get_variable("dense", [2], use_resource=True, initializer=v1.zeros_initializer())
                self.value = v1.placeholder(tf.float32, [2])
                self.assign = self.dense.assign(self.value)
            self.anchors = {name: add_table(name, **options) for name in tables}
            self.initializer = v1.global_variables_initializer()
        self.session = v1.Session(graph=self.graph)
        self.session.run(self.initializer)

    def set(self, value, keys=(1, 2, 3)):
        """Dense variable and tables tell which save they belong to."""
        self.session.run(self.assign, {self.value: [value, value]})
        for anchor in self.anchors.values():
            native(anchor).clear()
            fill(anchor, list(keys), float(value))

    def get(self):
        """(dense value, first number of key 1 in each table): what `set` was last called with."""
        tables = [float(native(anchor).read([1])[0][0, 0, 0]) for anchor in self.anchors.values()]
        return float(self.session.run(self.dense)[0]), tables

    def saver(self, *args, **kwargs):
        with self.graph.as_default():
            return v1.train.Saver(*args, **kwargs)


def save(model, directory, step, delta=True, name="model", **options):
    """Saves a checkpoint that deltas may build on, or a delta."""
    if not hasattr(model, "kept"):
        model.kept = model.saver(max_to_keep=1000)
    path = str(pathlib.Path(directory) / name)
    options = {"is_incremental_checkpoint": True, "save_delta": delta, "write_meta_graph": False, **options}
    return model.kept.save(model.session, path, global_step=step, **options)


def assert_restores(path, tables=("user", "item"), *, expected):
    """A restore gives the tables these contents. It is of the tables of this process, so what they have now is gone."""
    other = Model(tables)
    for anchor in other.anchors.values():
        native(anchor).erase(range(0, 1000, 2))
        fill(anchor, [1, -5], -5.0)
    other.saver().restore(other.session, str(path))
    assert contents(other) == expected
