"""Tables that nothing trains are told, minimize of a sparse optimizer trains them, without a graph all is refused."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from mx_rec._tables.anchors import table_of
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers.gradient_descent import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from tests.shared import model

v1 = tf.compat.v1
pytestmark = pytest.mark.border


def lookup(name="t", **options):
    return sparse_lookup(model.table(name), tf.constant([1, 2, 2]), **options)


def loss_of(*embeddings):
    weight = v1.get_variable("weight", [model.DIM], initializer=tf.ones_initializer())
    return tf.reduce_sum(sum(embeddings) * weight)


def warnings_of_a_session(caplog, *fetches):
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="mx_rec"), v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run([*v1.get_collection(v1.GraphKeys.TRAIN_OP), *fetches])
    return [record.getMessage() for record in caplog.records]


def test_a_table_that_only_a_dense_optimizer_trains_on_is_told_once_with_the_line_to_add(started, caplog):
    v1.train.AdamOptimizer().minimize(loss_of(lookup("first"), lookup("second")))
    messages = warnings_of_a_session(caplog)
    assert len(messages) == 2
    for name, message in zip(("first", "second"), messages):
        assert f"table '{name}' gets rows, but nothing trains them" in message
        assert "create_hash_optimizer().minimize(loss)" in message
    assert not any("nothing trains" in message for message in warnings_of_a_session(caplog))


def test_a_session_that_was_made_before_the_table_tells_it_too(started, caplog):
    with caplog.at_level(logging.WARNING, logger="mx_rec"), v1.Session() as session:
        assert session.run(tf.constant(1)) == 1
        train = v1.train.AdamOptimizer().minimize(loss_of(lookup()))
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            session.run(train)
        assert "run" not in vars(session), "later steps cost nothing"
    (message,) = [record.getMessage() for record in caplog.records]
    assert "table 't' gets rows, but nothing trains them" in message


def test_a_table_that_is_left_out_beside_one_that_is_trained_is_told(started, caplog):
    first, second = lookup("first"), lookup("second")
    variable = started.get_collection("ASCEND_GLOBAL_HASHTABLE_COLLECTION")[0]
    train = create_hash_optimizer(0.1).minimize(tf.reduce_sum(first * second), var_list=[variable])
    (message,) = warnings_of_a_session(caplog, train)
    assert "table 'second'" in message


@pytest.mark.parametrize(
    "build",
    [
        lambda: lookup(),
        lambda: loss_of(lookup(is_train=False)),
        lambda: v1.train.AdamOptimizer().minimize(loss_of(lookup(is_train=False))),
        lambda: v1.train.AdamOptimizer().minimize(loss_of(lookup(is_grad=False))),
        lambda: v1.train.AdamOptimizer().minimize(loss_of(tf.stop_gradient(lookup()))),
        lambda: [v1.train.AdamOptimizer().minimize(loss_of(tf.ones([1]))), lookup()],
        lambda: v1.metrics.mean(lookup()),
        lambda: tf.group(*both(loss_of(lookup()))),
    ],
    ids=["fetched", "read", "read and trained on", "no gradient", "stopped", "beside", "measured", "trained"],
)
def test_there_is_no_false_alarm(started, caplog, build):
    build()
    assert warnings_of_a_session(caplog) == []


def both(loss):
    return v1.train.AdamOptimizer().minimize(loss), create_hash_optimizer(0.1).minimize(loss)


def test_minimize_trains_the_tables_that_feed_the_loss_and_nothing_else(started, caplog):
    loss, other = loss_of(lookup("fed")), lookup("other")
    step = v1.train.get_or_create_global_step()
    with caplog.at_level(logging.INFO, logger="mx_rec"):
        train = create_hash_optimizer(0.5).minimize(loss, global_step=step)
    assert "trains the tables ['fed']; the tables ['other'] do not feed it; 1 dense variables are left" in caplog.text
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run([train, other])
        assert session.run(step) == 1
        (weight,) = session.run(v1.trainable_variables())
    np.testing.assert_array_equal(weight, np.ones(model.DIM))
    tables = {table.table_name: table for table in map(table_of, v1.global_variables()) if table is not None}
    keys, values = model.dump(tables["fed"])
    np.testing.assert_array_equal(keys, [1, 2])
    # The gradient of a row is how often its key occurs.
    np.testing.assert_array_equal(values[:, 0, 0], np.float32([0.25 - 0.5, 0.25 - 1.0]))
    np.testing.assert_array_equal(model.dump(tables["other"])[1], np.full([2, 1, model.DIM], 0.25, np.float32))


def test_minimize_without_a_table_that_feeds_the_loss_is_an_error(started):
    with pytest.raises(ValueError, match="no table in this graph"):
        create_hash_optimizer(0.1).minimize(tf.constant(1.0))
    lookup()
    with pytest.raises(ValueError, match="no gradient for any table|No gradients"):
        create_hash_optimizer(0.1).minimize(loss_of(tf.ones([1])))


# ---- Modes that have no graph for a session. -------------------------------------------------------------------------


@pytest.fixture
def eager():
    assert tf.executing_eagerly()
    init()
    yield
    terminate_config_initializer()


def new_table():
    return create_table(tf.int64, 4, "t", tf.zeros_initializer(), device_vocabulary_size=10)


def in_a_function():
    tf.function(lambda: new_table(), autograph=False)()


def in_a_keras_layer():
    class Layer(tf.keras.layers.Layer):
        def call(self, ids):
            return sparse_lookup(new_table(), ids)

    return Layer()(tf.keras.Input([2], dtype=tf.int64))


@pytest.mark.parametrize(
    "call, mode",
    [(new_table, "in eager mode"), (in_a_function, "tf.function"), (in_a_keras_layer, "in a Keras model")],
)
def test_without_a_graph_there_is_an_error_that_names_the_mode_and_the_remedy(eager, call, mode):
    with pytest.raises(RuntimeError, match=rf"create_table was called .*{mode}(.|\n)*disable_eager_execution"):
        call()


def test_a_lookup_in_eager_mode_is_an_error_too(eager):
    with tf.Graph().as_default():
        table = new_table()
    with pytest.raises(RuntimeError, match="sparse_lookup was called in eager mode"):
        sparse_lookup(table, tf.constant([1]))


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: tf.function(f, autograph=False)], ids=["graph", "function"])
def test_a_gradient_tape_around_a_training_lookup_is_an_error(started, wrap):
    table = model.table("t")

    def step():
        with tf.GradientTape():
            return sparse_lookup(table, tf.constant([1]))

    with pytest.raises(RuntimeError, match="table 't'.*GradientTape.*tf.gradients"):
        wrap(step)()
    with tf.GradientTape():
        sparse_lookup(table, tf.constant([1]), is_train=False)


def test_a_session_that_is_made_before_the_sparse_optimizer_does_not_warn(started, caplog):
    loss = loss_of(lookup())
    dense = v1.train.AdamOptimizer().minimize(loss)
    with caplog.at_level(logging.WARNING, logger="mx_rec"), v1.Session() as session:
        train = create_hash_optimizer(0.1).minimize(loss)
        session.run(v1.global_variables_initializer())
        session.run([dense, train])
    assert not caplog.records
