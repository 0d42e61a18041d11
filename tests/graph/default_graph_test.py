"""Calls outside of `with graph.as_default()`: they find the tables, or say where they are."""

import logging

import pytest
import tensorflow as tf

from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.core.feature_process import evict
from mx_rec.core.table_stats import TableStatsHook
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.optimizers.gradient_descent import create_hash_optimizer
from mx_rec.saver import warm_start
from mx_rec.util.initialize import ConfigInitializer, export_table_name_set, get_initializer, get_target_batch
from mx_rec.util.ops import import_host_pipeline_ops
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import model

v1 = tf.compat.v1
pytestmark = pytest.mark.border
HINT = r"\['t'\] were created in another graph: make the call inside `with graph.as_default\(\):`"


@pytest.fixture
def elsewhere(started):
    """A table "t" with the keys 1 and 2, in a graph that is not the default graph."""
    with tf.Graph().as_default():
        table = model.table("t")
        embeddings = sparse_lookup(table, tf.constant([1, 2]), access_and_evict_config={"access_threshold": 0})
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(embeddings)
    assert table.size() == 2
    return table


@pytest.mark.parametrize("tables", [None, "t", ["t"]])
def test_evict_finds_the_tables_of_the_process(elsewhere, tables):
    assert evict(by="count", below=5, tables=tables) == {"t": 2}
    assert elsewhere.size() == 0


def test_evict_takes_a_table_of_another_graph(elsewhere):
    model.table("here")
    assert evict(by="norm", below=100.0, tables=elsewhere) == {"t": 2}
    with pytest.raises(ValueError, match=r"no table 'x' in this process; it has \['here', 't'\]"):
        evict(by="norm", below=1.0, tables="x")


def test_evict_keeps_to_the_default_graph_where_that_has_tables(elsewhere):
    model.table("here")
    assert evict(by="norm", below=100.0) == {"here": 0}
    assert elsewhere.size() == 2


def test_set_threshold_finds_the_tables_of_the_process(elsewhere):
    op = import_host_pipeline_ops().set_threshold(3)
    with v1.Session() as session:
        assert session.run(op) == 1
    assert elsewhere.native.tracking.access_threshold == 3


@pytest.mark.parametrize(
    "call",
    [
        start_asc_pipeline,
        modify_graph_and_start_emb_cache,
        lambda: import_host_pipeline_ops().set_threshold(3, ids_name="ids"),
        lambda: ConfigInitializer.get_instance().sparse_embed_config.get_table_instance_by_name("t"),
    ],
)
def test_calls_that_need_a_table_say_where_there_is_one(elsewhere, call):
    with pytest.raises((RuntimeError, ValueError, KeyError), match=HINT):
        call()


def _minimize_nothing():
    with pytest.raises(ValueError, match="no table in this graph"):
        create_hash_optimizer(0.1).minimize(tf.constant(1.0))


@pytest.mark.parametrize(
    "call",
    [
        get_dense_and_sparse_variable,
        export_table_name_set,
        lambda: get_initializer(True),
        lambda: get_target_batch(True),
        lambda: TableStatsHook().begin(),
        lambda: warm_start("/nowhere"),
        _minimize_nothing,
    ],
)
def test_calls_that_find_nothing_warn_where_there_is_something(elsewhere, caplog, call):
    with caplog.at_level(logging.WARNING, logger="mx_rec"):
        call()
    (message,) = {record.getMessage() for record in caplog.records}
    assert "the default graph has no table; ['t'] were created in another graph" in message


@pytest.mark.parametrize("call", [get_dense_and_sparse_variable, export_table_name_set, lambda: get_initializer(True)])
def test_without_tables_anywhere_nothing_is_said(started, caplog, call):
    call()
    assert caplog.records == [] or all(record.levelno < logging.WARNING for record in caplog.records)
