"""A small model that the tests train, and the words in which they speak of batches, keys and rows.

Three features, `single` [B], `multi` [B, 3] and `other` [B]; the first two read table "shared", the third "own":

    e = single + sum over positions of multi + other      [B, DIM]
    loss = 1/2B * sum (e - target)^2

so the gradient at every position of example b is (e_b - target_b) / B, which is all a reference needs to know.
"""

import contextlib
import dataclasses

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.util.initialize import init, terminate_config_initializer

v1 = tf.compat.v1

DIM = 10  # no multiple of a vector register
BATCH = 32
TABLES = ("shared", "own")
TABLE_OF = {"single": "shared", "multi": "shared", "other": "own"}

# Where a hash table with reserved keys, a weak hash, or a 32-bit corner would fail.
ODD_KEYS = (0, -1, 1, -2, 2**63 - 1, -(2**63), 2**31, -(2**31), 2**32, 2**20, 2**21, 3 * 2**20)


@contextlib.contextmanager
def process(**settings):
    """A new default graph in a process where mx_rec has just started; at the end its tables are freed."""
    init(**settings)
    try:
        with tf.Graph().as_default() as graph:
            yield graph
    finally:
        terminate_config_initializer()


def vocabulary(size, seed=0):
    """`size` distinct int64 keys: the odd ones, a run of neighbours, and any."""
    neighbours = range(1000, 1000 + size // 4)
    random = np.random.RandomState(seed).randint(-(2**63), 2**63 - 1, size, np.int64)
    return np.array(list(dict.fromkeys([*ODD_KEYS, *neighbours, *random.tolist()]))[:size], np.int64)


def zipf(random, keys, shape):
    """Keys as recommendation data brings them: the k-th with a probability of about 1 / k."""
    weights = 1.0 / np.arange(1, len(keys) + 1)
    return random.choice(keys, size=shape, p=weights / weights.sum())


def batches(steps, seed=0, keys=None, batch=BATCH, dim=DIM):
    """The features and targets of `steps` batches, as arrays with steps * batch rows."""
    random = np.random.RandomState(seed)
    keys = random.permutation(vocabulary(150)) if keys is None else keys
    rows = steps * batch
    return {
        "single": zipf(random, keys, (rows,)),
        "multi": zipf(random, keys, (rows, 3)),
        "other": zipf(random, keys, (rows,)),
        "target": random.normal(size=(rows, dim)).astype(np.float32),
    }


def table(name, initializer=None, dim=DIM, rows=1000, **options):
    """create_table with the arguments that most tests do not care about."""
    if initializer is None:
        initializer = v1.constant_initializer(0.25)
    return create_table(tf.int64, dim, name, initializer, device_vocabulary_size=rows, **options)


def one_batch(features, **insert):
    """(batch tensors, specs by feature): one dataset element holding `features`, prepared in the dataset.

    `features` maps a name to its ids; each reads the table of its own name.
    """
    specs = {name: FeatureSpec(name) for name in features}
    dataset = tf.data.Dataset.from_tensors(features).repeat()
    dataset = dataset.map(get_asc_insert_func(list(specs.values()), **insert))
    return v1.data.make_one_shot_iterator(dataset).get_next(), specs


def one_batch_each(features, **insert):
    """The same for a dataset with an element for every entry along the arrays' first axis."""
    specs = {name: FeatureSpec(name) for name in features}
    dataset = tf.data.Dataset.from_tensor_slices(features)
    # As datasets of unknown size give them: no static batch size.
    dataset = dataset.map(
        lambda batch: {k: tf.ensure_shape(_unknown(v), [None, *v.shape[1:]]) for k, v in batch.items()}
    )
    dataset = dataset.map(get_asc_insert_func(list(specs.values()), **insert))
    return v1.data.make_one_shot_iterator(dataset).get_next(), specs


def _unknown(tensor):
    return v1.placeholder_with_default(tensor, [None] * tensor.shape.rank)


def map_only(dataset, insert):
    return dataset.map(insert)


@dataclasses.dataclass
class Model:
    """The model of this module's head, built in the default graph."""

    tables: dict
    batch: dict
    embeddings: dict
    iterator: object
    loss: object
    plan_key: str

    def rows(self):
        """Every table's content."""
        return {name: dump(table) for name, table in self.tables.items()}


def build(
    data, pipeline=map_only, initializer=None, is_train=True, weight=None, dim=DIM, batch=BATCH, rows=1000, **options
):
    """A Model over the arrays of `batches`. `pipeline(dataset, insert)` applies the insert function.

    With `weight`, a dense variable [dim], e is multiplied by it. `options` are for create_table.
    """
    specs = {name: FeatureSpec(name, table_name=TABLE_OF[name]) for name in TABLE_OF}
    insert = get_asc_insert_func(list(specs.values()), is_training=is_train)
    dataset = pipeline(tf.data.Dataset.from_tensor_slices(data).batch(batch), insert)
    iterator = v1.data.make_initializable_iterator(dataset)
    values = iterator.get_next()
    tables = {name: table(name, initializer, dim, rows, **options) for name in TABLES}
    embeddings = {
        name: sparse_lookup(tables[TABLE_OF[name]], spec, is_train=is_train, batch=values)
        for name, spec in specs.items()
    }
    (plan_key,) = set(values) - set(data)
    return Model(tables, values, embeddings, iterator, loss(embeddings, values["target"], weight), plan_key)


def loss(embeddings, target, weight=None):
    e = embeddings["single"] + tf.reduce_sum(embeddings["multi"], 1) + embeddings["other"]
    if weight is not None:
        e = e * weight
    return tf.reduce_sum(tf.square(e - target)) / (2.0 * tf.cast(tf.shape(target)[0], tf.float32))


def dump(table):
    """(keys, values [n, 1 + slots, dim]) of a table, ordered by key."""
    keys = np.sort(table.native.keys())
    values, found = table.native.read(keys)
    assert found.all()
    return keys, values


def assert_same_rows(actual, expected):
    """Two results of Model.rows(): the same keys and the same bits."""
    assert actual.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(actual[name][0], expected[name][0], err_msg=f"keys of table '{name}'")
        # As integers: a NaN must equal itself, and -0.0 must not pass for 0.0.
        np.testing.assert_array_equal(
            actual[name][1].view(np.int32), expected[name][1].view(np.int32), err_msg=f"bits of table '{name}'"
        )
