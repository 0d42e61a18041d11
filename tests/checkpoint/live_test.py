"""What tells that a table still is what a checkpoint holds: everything that can change it must be noticed."""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.embedding import sparse_lookup
from mx_rec.core.feature_process import evict
from mx_rec.optimizers import gradient_descent
from mx_rec.saver import _live
from mx_rec.util.ops import import_host_pipeline_ops
from tests.shared.model import process, table

v1 = tf.compat.v1
TOKEN = (object(), None)  # stands for the part of a manifest


class Trained:
    """A table with rows 0 to 9, counted, and ops to do things to it."""

    def __init__(self):
        self.table = table("t", v1.constant_initializer(0.5))
        ids = tf.constant(np.arange(10))
        v1.add_to_collection("ASCEND_TIMESTAMP", tf.constant(1, tf.int64))
        config = {"access_threshold": 0, "eviction_threshold": 1000}
        embeddings = sparse_lookup(self.table, ids, access_and_evict_config=config)
        self.read = sparse_lookup(self.table, tf.constant([1, 99]), is_train=False)
        loss = tf.reduce_sum(embeddings)
        gradients = tf.gradients(loss, [self.table.variable])
        self.step = gradient_descent.create_hash_optimizer(0.1).apply_gradients(zip(gradients, [self.table.variable]))
        (addresses,) = v1.get_collection("ASCEND_SPARSE_LOOKUP_ID_OFFSET")
        self.fed = v1.placeholder_with_default(addresses, [None])
        self.addresses = addresses
        self.threshold = import_host_pipeline_ops().set_threshold(tf.constant(3), emb_name="t", ids_name="")
        # As an update by address does it that reads no lookup.
        from mx_rec._ops import library

        self.by_address = library.ops().mxrec_update(
            handles=self.fed,
            gradient=tf.ones([10, self.table.embedding_size]),
            hyper=[0.1, 0.0],
            table="t",
            rule="gradient_descent",
            unique=True,
        )
        self.session = v1.Session()
        self.session.run(v1.global_variables_initializer())
        self.session.run(self.step)
        self.where = self.session.run(addresses)
        self.native = self.table.native
        self.graph = tf.compat.v1.get_default_graph()
        self.graph.finalize()

    def note(self, token=TOKEN):
        _live.note("t", token, _live.state_of(self.table))

    def holds(self):
        return _live.holds(self.table, TOKEN, self.graph)


@pytest.fixture
def trained():
    with process():
        yield Trained()


def erase_nothing_but_forget(trained):
    evict(by="count", below=1, tables="t")


CHANGES = {
    "a step without new keys": lambda t: t.session.run(t.step),
    "a lookup for training alone": lambda t: t.session.run(t.addresses),
    "an update of old addresses": lambda t: t.session.run(t.by_address, {t.fed: t.where}),
    "another threshold": lambda t: t.session.run(t.threshold),
    "a write": lambda t: t.native.write([1], np.zeros((1, 1, t.native.dim), np.float32)),
    "assigned rows": lambda t: t.table.assign([1], np.zeros((1, t.native.dim), np.float32)),
    "an erasure": lambda t: t.native.erase([1]),
    "an eviction that finds no row": erase_nothing_but_forget,
    "slots": lambda t: t.native.set_slots([("Adagrad_accumulator", 0.1)]),
    "emptiness": lambda t: t.native.clear(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_changes_are_noticed(change, trained):
    trained.note()
    assert trained.holds()
    change(trained)
    assert not trained.holds()
    trained.note()
    assert trained.holds()


def test_reading_changes_nothing(trained):
    trained.note()
    trained.session.run(trained.read)
    trained.native.read([1, 2])
    trained.table.read([1, 2])
    trained.table.stats()
    assert trained.holds()


def test_another_checkpoint_is_another(trained):
    trained.note()
    assert not _live.holds(trained.table, object(), trained.graph)
    assert not _live.holds(trained.table, None, trained.graph)
    trained.note(None)
    assert not trained.holds()


def test_a_table_of_the_same_name_in_a_later_life_is_another():
    with process():
        first = Trained()
        first.note()
    with process():
        assert not Trained().holds()


def test_a_script_that_restores_by_itself_reads_the_files(trained):
    trained.note()
    assert not _live.holds(trained.table, TOKEN, tf.Graph())
