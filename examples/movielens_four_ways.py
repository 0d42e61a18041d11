"""One model of movie ratings, trained in four ways on the same data: the AUC of all is the same.

    stock                TensorFlow alone: variables with a row for every id there may be
    feature specs        tables; the dataset names the features, and batches are prepared ahead of the step
    graph modification   tables; ids are plain tensors, and mx_rec moves their preparation into the dataset
    estimator            tables in the model_fn of an Estimator

Rows begin at zero in all of them, and the net with the same numbers, so what remains is the order of sums.

    python examples/movielens_four_ways.py                      # generated ratings
    python examples/movielens_four_ways.py --ratings ml-100k/u.data

The ratings of MovieLens-100K are at https://grouplens.org/datasets/movielens/100k/: u.data, a line for each rating with
user, movie, rating and time.
"""

import argparse
import logging
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.optimizers.adagrad import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable
from tf_adapter import NPUEstimator, NPURunConfig

v1 = tf.compat.v1
logging.getLogger("mx_rec").setLevel(logging.WARNING)
logging.getLogger("tensorflow").setLevel(logging.ERROR)

BATCH_SIZE, DIM, HIDDEN, EPOCHS = 256, 8, 32, 3
RATE, INITIAL_ACCUMULATOR = 0.05, 0.1
LIKED = 5  # movies a user liked last
NOTHING = -1  # in the place of those that there are not yet
TOLERANCE = 0.003


# ---- Data.


def generate(count, seed=0):
    """Ratings in the manner of MovieLens: a few users and movies have most of them; tastes have four dimensions."""
    rng = np.random.default_rng(seed)
    users, movies = 943, 1682
    tastes, traits = rng.normal(size=(users, 4)), rng.normal(size=(movies, 4))
    quality = rng.normal(size=movies)
    user = rng.permutation(users)[np.minimum(rng.exponential(users / 4, count).astype(int), users - 1)]
    movie = rng.permutation(movies)[np.minimum(rng.exponential(movies / 6, count).astype(int), movies - 1)]
    score = np.einsum("ij,ij->i", tastes[user], traits[movie]) / 2 + quality[movie] + rng.normal(size=count)
    return user, movie, (score > 0).astype(np.float32)


def read(path):
    """(user, movie, whether it was rated 4 or 5) of the lines of u.data, in the order of time."""
    user, movie, rating, when = np.loadtxt(path, np.int64, ndmin=2).T
    order = np.lexsort((movie, user, when))
    return user[order], movie[order], (rating[order] >= 4).astype(np.float32)


def features_of(user, movie, label):
    """Adds what the user liked last, before each rating."""
    liked, memory = np.full((len(user), LIKED), NOTHING, np.int64), {}
    for i, (who, what, is_liked) in enumerate(zip(user.tolist(), movie.tolist(), label.tolist())):
        last = memory.setdefault(who, [])
        liked[i, : len(last)] = last
        if is_liked:
            memory[who] = [what, *last][:LIKED]
    return {"user": user, "movie": movie, "liked": liked, "label": label}


def split(data, is_training):
    """The first four fifths to train on, the rest to be predicted."""
    end = len(data["label"]) * 4 // 5
    return {name: array[:end] if is_training else array[end:] for name, array in data.items()}


def dataset_of(data, is_training):
    dataset = tf.data.Dataset.from_tensor_slices(split(data, is_training)).batch(BATCH_SIZE)
    return dataset.repeat(EPOCHS) if is_training else dataset


# ---- The model, whatever the embeddings come from.


def logits_of(user, movie, liked):
    inputs = tf.concat([user, movie, liked, user * movie, liked * movie], axis=-1)
    with v1.variable_scope("net", reuse=v1.AUTO_REUSE):
        glorot = [v1.glorot_uniform_initializer(seed=seed) for seed in (1, 2)]
        hidden = v1.get_variable("hidden", [5 * DIM, HIDDEN], initializer=glorot[0])
        output = v1.get_variable("output", [HIDDEN, 1], initializer=glorot[1])
        bias = v1.get_variable("bias", [HIDDEN], initializer=v1.zeros_initializer())
    return tf.squeeze(tf.tanh(inputs @ hidden + bias) @ output, axis=1)


def loss_of(logits, label):
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits))


def stock_optimizer():
    return v1.train.AdagradOptimizer(RATE, INITIAL_ACCUMULATOR)


def make_tables():
    padding = {"padding_keys": [NOTHING], "padding_keys_mask": True, "padding_keys_len": 1}
    return {
        name: create_table(tf.int64, DIM, name, v1.zeros_initializer(), device_vocabulary_size=100_000, **more)
        for name, more in (("users", {}), ("movies", padding))
    }


def train_tables(loss, global_step=None):
    """The op that trains tables and net."""
    dense, sparse = get_dense_and_sparse_variable()
    update = create_hash_optimizer(RATE, INITIAL_ACCUMULATOR).apply_gradients(
        zip(tf.gradients(loss, sparse), sparse), global_step=global_step
    )
    return tf.group(update, stock_optimizer().minimize(loss, var_list=dense))


def train_and_predict(train, prediction, initializers):
    """Runs `train` to the end of its data, then `prediction`; the result of all."""
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(initializers[True])
        try:
            while True:
                session.run(train)
        except tf.errors.OutOfRangeError:
            pass
        session.run(initializers[False])
        found = []
        try:
            while True:
                found.append(session.run(prediction))
        except tf.errors.OutOfRangeError:
            return np.concatenate(found)


# ---- The four ways.


def stock(data):
    """Needs to know how many users and movies there are, and has a row for each."""
    rows = {name: int(data[name].max()) + 1 for name in ("user", "movie")}
    variables = {
        name: v1.get_variable(name, [count, DIM], initializer=v1.zeros_initializer()) for name, count in rows.items()
    }

    def logits(batch):
        user = tf.nn.embedding_lookup(variables["user"], batch["user"])
        movie = tf.nn.embedding_lookup(variables["movie"], batch["movie"])
        is_there = tf.cast(tf.expand_dims(batch["liked"] >= 0, -1), tf.float32)
        liked = tf.nn.embedding_lookup(variables["movie"], tf.maximum(batch["liked"], 0)) * is_there
        liked = tf.reduce_sum(liked, axis=1) / tf.maximum(tf.reduce_sum(is_there, axis=1), 1.0)
        return logits_of(user, movie, liked)

    iterators = {
        is_training: v1.data.make_initializable_iterator(dataset_of(data, is_training)) for is_training in (True, False)
    }
    batch = iterators[True].get_next()
    train = stock_optimizer().minimize(loss_of(logits(batch), batch["label"]))
    prediction = logits(iterators[False].get_next())
    return train_and_predict(train, prediction, {key: its.initializer for key, its in iterators.items()})


def feature_specs(data):
    """Ids may be any numbers, and nobody counts them; both lookups of movies read one table."""
    tables, iterators, logits, batches = make_tables(), {}, {}, {}
    for is_training in (True, False):
        specs = {
            "user": FeatureSpec("user", table_name="users"),
            "movie": FeatureSpec("movie", table_name="movies"),
            "liked": FeatureSpec("liked", table_name="movies"),
        }
        insert = get_asc_insert_func(tgt_key_specs=list(specs.values()), is_training=is_training)
        dataset = dataset_of(data, is_training).map(insert).prefetch(10)
        iterators[is_training] = v1.data.make_initializable_iterator(dataset)
        batch = batches[is_training] = iterators[is_training].get_next()
        logits[is_training] = logits_of(
            sparse_lookup(tables["users"], specs["user"], is_train=is_training, batch=batch),
            sparse_lookup(tables["movies"], specs["movie"], is_train=is_training, batch=batch),
            sparse_lookup(tables["movies"], specs["liked"], is_train=is_training, batch=batch, combiner="mean"),
        )
    train = train_tables(loss_of(logits[True], batches[True]["label"]))
    start_asc_pipeline()
    return train_and_predict(train, logits[False], {key: its.initializer for key, its in iterators.items()})


def graph_modification(data):
    """As with stock TensorFlow, a lookup takes a tensor of ids."""
    tables, iterators, logits, batches = make_tables(), {}, {}, {}
    for is_training in (True, False):
        dataset = dataset_of(data, is_training).prefetch(10)
        iterators[is_training] = v1.data.make_initializable_iterator(dataset)
        batch = batches[is_training] = iterators[is_training].get_next()
        common = {"is_train": is_training, "modify_graph": True, "batch": batch}
        logits[is_training] = logits_of(
            sparse_lookup(tables["users"], batch["user"], **common),
            sparse_lookup(tables["movies"], batch["movie"], **common),
            sparse_lookup(tables["movies"], batch["liked"], combiner="mean", **common),
        )
    train = train_tables(loss_of(logits[True], batches[True]["label"]))
    modify_graph_and_start_emb_cache()
    return train_and_predict(train, logits[False], {key: its.initializer for key, its in iterators.items()})


def estimator(data):
    """The model_fn makes its tables anew for each mode; their rows are the same."""
    specs = {
        "user": FeatureSpec("user", table_name="users"),
        "movie": FeatureSpec("movie", table_name="movies"),
        "liked": FeatureSpec("liked", table_name="movies"),
    }

    def input_fn(is_training):
        insert = get_asc_insert_func(tgt_key_specs=list(specs.values()), is_training=is_training)
        return dataset_of(data, is_training).map(insert).prefetch(10)

    def model_fn(features, labels, mode):
        del labels
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        tables = make_tables()
        common = {"is_train": is_training, "batch": features}
        logits = logits_of(
            sparse_lookup(tables["users"], specs["user"], **common),
            sparse_lookup(tables["movies"], specs["movie"], **common),
            sparse_lookup(tables["movies"], specs["liked"], combiner="mean", **common),
        )
        if not is_training:
            return tf.estimator.EstimatorSpec(mode, predictions={"logit": logits})
        loss = loss_of(logits, features["label"])
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_tables(loss, v1.train.get_global_step()))

    with tempfile.TemporaryDirectory() as directory:
        model = NPUEstimator(model_fn, config=NPURunConfig(model_dir=directory))
        model.train(lambda: input_fn(True))
        return np.array([found["logit"] for found in model.predict(lambda: input_fn(False))])


WAYS = {
    "stock": stock,
    "feature specs": feature_specs,
    "graph modification": graph_modification,
    "estimator": estimator,
}


def auc(label, score):
    """How likely a liked movie scores higher than another."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    liked = label > 0
    return (rank[liked].mean() - (liked.sum() + 1) / 2) / (~liked).sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ratings", metavar="FILE", help="u.data of MovieLens-100K; if not given, they are generated")
    parser.add_argument("--count", type=int, default=30_000, help="how many are generated; default %(default)s")
    options = parser.parse_args()
    data = features_of(*(read(options.ratings) if options.ratings else generate(options.count)))
    held_out = split(data, False)["label"]
    print(f"{len(data['label']):,} ratings, {len(held_out):,} of them to predict\n")
    found = {}
    for name, way in WAYS.items():
        began = time.monotonic()
        with tf.Graph().as_default():
            if way is not stock:
                init()
            found[name] = auc(held_out, way(data))
            if way is not stock:
                terminate_config_initializer()
        print(f"{name:<20}AUC {found[name]:.4f}   {time.monotonic() - began:5.1f} s", flush=True)
    apart = max(found.values()) - min(found.values())
    print(f"\nat most {apart:.4f} apart (a difference up to {TOLERANCE} is as good as none)")
    return 0 if apart <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
