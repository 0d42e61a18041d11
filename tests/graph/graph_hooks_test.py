"""The hooks before GraphModifierHook, and the end of data: they move work, or end it, and change no value."""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.embedding import sparse_lookup
from mx_rec.graph import GraphModifierHook, LookupSubgraphSlicerHook, OrphanLookupKeySlicerHook, last_report
from mx_rec.optimizers import lazy_adam
from mx_rec.util.initialize import get_initializer, get_target_batch, init, terminate_config_initializer
from tests.shared import model

v1 = tf.compat.v1
pytestmark = pytest.mark.border
STEPS = 12
TYPES = ["StringJoin", "StringToHashBucketFast"]


def train(hooks, is_one_shot=False, orphan=False, stays=True):
    """(rows, types of ops that a step runs to compute ids) of a training whose ids depend on a string, and, if
    `stays`, on a variable."""
    random = np.random.RandomState(0)
    data = {
        "city": np.array([f"city {n}" for n in random.randint(0, 40, STEPS * 8)]),
        "label": random.rand(STEPS * 8).astype(np.float32),
    }
    with model.process(), tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        dataset = tf.data.Dataset.from_tensor_slices(data).batch(8).repeat()
        if is_one_shot:
            batch = v1.data.make_one_shot_iterator(dataset).get_next()
        else:
            iterator = v1.data.make_initializable_iterator(dataset)
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            batch = iterator.get_next()
        offset = v1.get_variable("offset", initializer=np.int64(7), trainable=False)
        words = tf.strings.join([batch["city"], "_x_", tf.strings.lower(batch["city"])], name="words")
        ids = tf.strings.to_hash_bucket_fast(words, 1000, name="bucket")
        table = model.table("t", v1.truncated_normal_initializer(stddev=0.3, seed=3))
        embeddings = sparse_lookup(table, ids + offset if stays else ids, modify_graph=True)
        if orphan:
            embeddings += sparse_lookup(table, tf.constant([3]), modify_graph=True)
        out = tf.reduce_sum(embeddings, 1) + tf.cast(tf.strings.length(words), tf.float32)
        loss = tf.reduce_mean((out - batch["label"]) ** 2)
        gradients = tf.gradients(loss, [table.variable])
        train_op = lazy_adam.create_hash_optimizer(0.01).apply_gradients(zip(gradients, [table.variable]), step)
        with v1.train.MonitoredTrainingSession(hooks=[*hooks, v1.train.StopAtStepHook(STEPS)]) as session:
            losses = []
            while not session.should_stop():
                losses.append(session.run([loss, train_op])[0])
        seen, stack = {}, [train_op.op if isinstance(train_op, tf.Tensor) else train_op]
        while stack:
            op = stack.pop()
            if op.name not in seen:
                seen[op.name] = op.type
                stack += [*(source.op for source in op.inputs), *op.control_inputs]
        return losses, {"t": model.dump(table)}, sorted(set(seen.values()) & {"StringLower", *TYPES})


@pytest.fixture(scope="module")
def expected():
    return train([GraphModifierHook()])


def test_ids_that_depend_on_a_variable_stay_in_the_step(expected):
    assert expected[2] == ["StringJoin", "StringLower", "StringToHashBucketFast"]


@pytest.mark.parametrize("is_one_shot", [False, True])
@pytest.mark.parametrize("types", [TYPES, TYPES[:1], TYPES[1:]])
def test_ops_move_with_what_they_need_and_change_no_value(types, is_one_shot, expected):
    losses, rows, in_step = train([LookupSubgraphSlicerHook(types), GraphModifierHook()], is_one_shot)
    np.testing.assert_array_equal(losses, expected[0])
    model.assert_same_rows(rows, expected[1])
    # The join is read by the model itself too; its input is not.
    left = {("StringJoin", "StringToHashBucketFast"): [], ("StringJoin",): ["StringToHashBucketFast"]}
    if tuple(types) in left:
        assert in_step == left[tuple(types)]
    else:
        assert "StringToHashBucketFast" not in in_step


def test_a_lookup_that_can_move_moves_after_its_ops_did():
    plain = train([GraphModifierHook()], stays=False)
    sliced = train([LookupSubgraphSlicerHook(TYPES), GraphModifierHook()], stays=False)
    assert len(last_report().moved) == 1 and not last_report().stayed
    np.testing.assert_array_equal(sliced[0], plain[0])
    model.assert_same_rows(sliced[1], plain[1])


def test_ops_that_depend_on_a_variable_themselves_stay(expected):
    losses, rows, in_step = train([LookupSubgraphSlicerHook(["AddV2"]), GraphModifierHook()])
    np.testing.assert_array_equal(losses, expected[0])
    assert in_step == expected[2]


def test_bad_types_are_refused():
    for types, message in (([], "at least one"), ("StringJoin", "a list of types"), ([3], "a list of strings")):
        with pytest.raises(ValueError, match=message):
            LookupSubgraphSlicerHook(types)


def test_ids_without_a_dataset_are_looked_up_with_and_without_their_hook():
    with_hook = train([OrphanLookupKeySlicerHook(), GraphModifierHook()], orphan=True)
    without = train([GraphModifierHook()], orphan=True)
    np.testing.assert_array_equal(with_hook[0], without[0])
    assert 3 in with_hook[1]["t"][0]
    model.assert_same_rows(with_hook[1], without[1])


def elements(dataset):
    with tf.Graph().as_default(), v1.Session() as session:
        value = v1.data.make_one_shot_iterator(dataset()).get_next()
        found = []
        while True:
            try:
                found.append(int(session.run(value)))
            except tf.errors.OutOfRangeError:
                return found


def test_eos_map_ends_the_data_of_its_channel():
    init()
    try:
        assert elements(lambda: tf.data.Dataset.range(5).eos_map(None, 0, 3, 2)) == [0, 1, 2]
        assert elements(lambda: tf.data.Dataset.range(5).eos_map(None, 1, 3, 2)) == [0, 1]
        assert elements(lambda: tf.data.Dataset.range(5).map(lambda x: x * 2).eos_map(None, 0)) == [0, 2, 4, 6, 8]
        with pytest.raises(ValueError, match="`channel_id` must be one of 0, 1, got 2"):
            tf.data.Dataset.range(5).eos_map(None, 2)
    finally:
        terminate_config_initializer()
    assert not hasattr(tf.data.Dataset, "eos_map")


def train_several(hooks, batches):
    """(values of the batch, rows) of a training whose lookups read a batch directly, through ops that the slicers move,
    and through others; from one get_next() or from two."""
    data = {"n": np.arange(48), "city": np.array([f"city {n % 5}" for n in range(48)])}
    with model.process(), tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        iterator = v1.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(data).batch(4).repeat())
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        table = model.table("t", v1.truncated_normal_initializer(stddev=0.3, seed=3))
        loss, seen = 0.0, []
        for _ in range(batches):
            batch = iterator.get_next()
            seen.append(batch)
            bucket = tf.strings.to_hash_bucket_fast(tf.strings.lower(batch["city"]), 100)
            for ids in (batch["n"], bucket, bucket + 7, batch["n"] * 3):
                loss += tf.reduce_sum(sparse_lookup(table, ids, modify_graph=True) ** 2)
        train_op = lazy_adam.create_hash_optimizer(0.01).minimize(loss, step)
        with v1.train.MonitoredTrainingSession(hooks=[*hooks, v1.train.StopAtStepHook(STEPS)]) as session:
            values = [session.run([loss, seen, train_op])[:2] for _ in range(STEPS)]
        target = get_target_batch(True)
        assert target.keys() == data.keys() and target["n"] is not seen[0]["n"]
        return values, {"t": model.dump(table)}


@pytest.mark.parametrize("batches", [1, 2])
def test_all_lookups_of_a_batch_move_after_a_slicer_moved_ops_of_some(batches):
    slicers = [LookupSubgraphSlicerHook(["StringLower"]), LookupSubgraphSlicerHook(TYPES), OrphanLookupKeySlicerHook()]
    values, rows = train_several([*slicers, GraphModifierHook()], batches)
    assert not last_report().stayed
    assert len(last_report().moved) == 4 * batches
    expected, expected_rows = train_several([GraphModifierHook()], batches)
    if batches == 1:  # which of two gets which batch is up to TensorFlow
        tf.nest.map_structure(np.testing.assert_array_equal, values, expected)
        model.assert_same_rows(rows, expected_rows)


def test_after_a_slicer_an_iterator_has_the_initializer_of_the_script_alone():
    with model.process(), tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        words = tf.data.Dataset.from_tensor_slices(np.array([f"city {n}" for n in range(48)])).batch(4)
        batch = v1.data.make_initializable_iterator(words).get_next()
        ids = tf.strings.to_hash_bucket_fast(batch, 100)
        total = tf.reduce_sum(sparse_lookup(model.table("t"), ids, modify_graph=True))
        hooks = [LookupSubgraphSlicerHook(TYPES), GraphModifierHook()]
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            assert np.isfinite(session.run(total))
        assert get_initializer(True).type == "MakeIterator"
