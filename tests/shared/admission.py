"""A table that counts its keys, admits and evicts, trained on gradients and times that the data say."""

import dataclasses

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.optimizers.adagrad import create_hash_optimizer
from tests.shared import model

v1 = tf.compat.v1

DIM, RATE, ACCUMULATOR, INITIAL = 6, 0.1, 0.1, 0.25


def stream(steps, seed, per_sample=False, keys=60):
    """Batches of two features, `one` [B] and `many` [B, 3], with the gradient of each position and timestamps that
    mostly move on, but also stand still and go back."""
    random = np.random.RandomState(seed)
    vocabulary = model.vocabulary(keys, seed)
    clock = 1_600_000_000 + np.cumsum(random.choice([0, 0, 1, 5, 40, -30], steps))
    data = {
        "one": model.zipf(random, vocabulary, (steps, 8)),
        "many": model.zipf(random, vocabulary, (steps, 8, 3)),
        "weight": random.normal(size=(steps, 8, 4, DIM)).astype(np.float32),
        "time": clock[:, None] + random.randint(-9, 9, (steps, 8)) if per_sample else clock,
    }
    return {name: np.asarray(array, np.float32 if name == "weight" else np.int64) for name, array in data.items()}


@dataclasses.dataclass
class Trainer:
    """A model whose gradient at each position is what the data say."""

    table: object
    embeddings: object  # [B, 4, DIM]: of `one`, then of `many`
    update: object
    session: object = None

    def step(self):
        return self.session.run([self.embeddings, self.update])[0]


def build(data, mode, prefetch=2, has_times=True, admission_filter_bytes=0, **thresholds):
    table = model.table(
        "t",
        v1.constant_initializer(INITIAL),
        DIM,
        rows=10_000,
        admission_filter_bytes=admission_filter_bytes,
    )
    dataset = tf.data.Dataset.from_tensor_slices(data)
    if mode == "spec":
        specs = [FeatureSpec(name, table_name="t", **thresholds) for name in ("one", "many")]
        timestamp = [FeatureSpec("time", is_timestamp=True)] if has_times else []
        dataset = dataset.map(get_asc_insert_func(specs + timestamp))
        batch = v1.data.make_one_shot_iterator(dataset.prefetch(prefetch)).get_next()
        one, many = (sparse_lookup(table, spec, batch=batch) for spec in specs)
    else:
        batch = v1.data.make_one_shot_iterator(dataset.prefetch(prefetch)).get_next()
        one, many = (
            sparse_lookup(
                table, batch[name], modify_graph=mode == "modified", access_and_evict_config=thresholds, batch=batch
            )
            for name in ("one", "many")
        )
        if has_times:
            v1.add_to_collection("ASCEND_TIMESTAMP", batch["time"])
    embeddings = tf.concat([one[:, None], many], axis=1)
    loss = tf.reduce_sum(embeddings * batch["weight"])
    optimizer = create_hash_optimizer(RATE, ACCUMULATOR)
    gradients = tf.gradients(loss, [table.variable])
    update = optimizer.apply_gradients([(gradients[0], table.variable)])
    if mode == "modified":
        modify_graph_and_start_emb_cache()
    else:
        start_asc_pipeline()
    return Trainer(table, embeddings, update)


def train_all(data, mode="spec", **options):
    """The trainer after all batches of `data`, in an open process."""
    trainer = build(data, mode, **options)
    trainer.session = v1.Session()
    trainer.session.run(v1.global_variables_initializer())
    for _ in range(len(data["time"])):
        trainer.step()
    return trainer


def keys_and_counts(data):
    ids = np.concatenate([data["one"].ravel(), data["many"].ravel()])
    return np.unique(ids, return_counts=True)
