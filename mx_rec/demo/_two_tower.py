"""The demo's model: two towers of embeddings and dense layers, whose outputs' dot product is the logit of a click.

    user, segments, history -> [user tower] \
                                             dot product -> logit
    item, category ---------> [item tower] /
"""

import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.demo import _clicks

# Which table a feature reads. The history holds items, so it shares their table.
TABLE_OF_FEATURE = {
    "user": "user_table",
    "segments": "segment_table",
    "history": "item_table",
    "item": "item_table",
    "category": "category_table",
}
_TOWERS = {"user_tower": ("user", "segments", "history"), "item_tower": ("item", "category")}
_ROWS = {
    "user_table": _clicks.USERS,
    "item_table": _clicks.ITEMS,
    "segment_table": _clicks.SEGMENTS,
    "category_table": _clicks.CATEGORIES,
}
_DIM = 16  # of embeddings and of the towers' outputs
_HIDDEN = 64


# With --forget: the tables of users and items, which are many and mostly rare.
_FORGETFUL = ("user_table", "item_table")
_ACCESS_THRESHOLD = 3
_EVICTION_THRESHOLD = 8 * 60 * 60


def feature_specs(forget=False):
    """Returns the features; with `forget` also the timestamp, and thresholds for the large tables."""
    thresholds = {"access_threshold": _ACCESS_THRESHOLD, "eviction_threshold": _EVICTION_THRESHOLD}
    specs = [
        FeatureSpec(feature, table_name=table, **(thresholds if forget and table in _FORGETFUL else {}))
        for feature, table in TABLE_OF_FEATURE.items()
    ]
    return [*specs, FeatureSpec("time", is_timestamp=True)] if forget else specs


def create_tables(seed):
    """Returns the tables, by name."""
    # Rows start small, so that an id seen once or twice stays close to saying nothing.
    initializer = tf.compat.v1.truncated_normal_initializer(stddev=0.05, seed=seed)
    return {
        name: create_table(
            key_dtype=tf.int64,
            dim=tf.TensorShape([_DIM]),
            name=name,
            emb_initializer=initializer,
            device_vocabulary_size=rows,
        )
        for name, rows in _ROWS.items()
    }


def logits(tables, specs, batch, is_train):
    """Builds the model, for training and for evaluation, with the same dense variables; returns logits [batch]."""
    embeddings = {}
    for spec in specs:
        if spec.is_timestamp:
            continue
        rows = sparse_lookup(
            tables[spec.table_name],
            spec,
            is_train=is_train,
            name=f"{spec.index_key}_lookup",
            modify_graph=False,
            batch=batch,
        )
        # Features of several ids, [batch, ids, dim], count with their mean.
        embeddings[spec.index_key] = tf.reduce_mean(rows, axis=1) if rows.shape.rank == 3 else rows
    with tf.compat.v1.variable_scope("two_tower", reuse=tf.compat.v1.AUTO_REUSE):
        towers = [_tower(name, [embeddings[f] for f in features]) for name, features in _TOWERS.items()]
        offset = tf.compat.v1.get_variable("offset", [], initializer=tf.compat.v1.zeros_initializer())
    return tf.reduce_sum(towers[0] * towers[1], axis=1) + offset


def _tower(name, embeddings):
    with tf.compat.v1.variable_scope(name):
        x = tf.concat(embeddings, axis=1)
        hidden = tf.nn.relu(_dense("hidden", x, _HIDDEN))
        # The shortcut around the hidden layer lets an id's own embedding act from the first step on.
        return _dense("output", tf.concat([hidden, x], axis=1), _DIM)


def _dense(name, x, width):
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", [x.shape[1], width])
        bias = tf.compat.v1.get_variable("bias", [width], initializer=tf.compat.v1.zeros_initializer())
    return tf.matmul(x, kernel) + bias
