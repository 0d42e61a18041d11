"""A click model in the manner of the small session demos: two tables, evaluations and checkpoints in between.

python little_demo.py MODE...: each mode is words with "+" between them, and runs in the current directory one after the
other. Without a word of use (load_and_train, predict) a mode trains from the start.
"""

import glob
import os
import sys
import time

import numpy as np
import tensorflow as tf

from mx_rec.constants.constants import ASCEND_TIMESTAMP
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.optimizers.lazy_adam_by_addr import create_hash_optimizer_by_address
from mx_rec.util.initialize import ConfigInitializer, init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable
from rec_sdk_common.communication.hccl.hccl_info import get_rank_id, get_rank_size

tf.compat.v1.disable_eager_execution()

BATCH, USERS, ITEMS, DIM = 64, 100, 900, 8
MAX_STEPS, TRAIN_STEPS, EVAL_STEPS, SAVE_STEPS = 30, 10, 3, 15


def generator(is_training):
    random = np.random.RandomState(1 if is_training else 2)
    while True:
        user = random.randint(0, USERS, [BATCH, 1])
        item = random.randint(0, ITEMS, [BATCH, 3])
        label = user[:, 0] % 2
        yield {"user_ids": user, "item_ids": item, "label": label.astype(np.float32), "timestamp": int(time.time())}


class Demo:
    def __init__(self, words):
        self.words = words
        self.is_modified = "modify" in words
        self.is_static = "static" in words
        self.is_expanding = "expansion" in words
        self.lookups = 127 if "many" in words else 1
        self.use = next((word for word in ("load_and_train", "predict") if word in words), "train")
        steps = [int(path.rpartition("-")[2]) for path in glob.glob("saved-model/sparse-model-*")]
        self.first_step = max(steps) if self.use != "train" else 0
        init(
            max_steps=MAX_STEPS,
            train_steps=TRAIN_STEPS,
            eval_steps=EVAL_STEPS,
            save_steps=SAVE_STEPS,
            if_load=self.use != "train",
            use_dynamic=not self.is_static,
            use_dynamic_expansion=self.is_expanding,
        )

    def run(self):
        with tf.Graph().as_default():
            tables = self.create_tables()
            if self.use != "predict":
                train_iterator, train_loss, _ = self.build(tables, True)
                train_op = self.optimize(train_loss)
            eval_iterator, _, auc = self.build(tables, False)
            saver = tf.compat.v1.train.Saver()
            # As the demos do: the session is there before the graph is modified.
            self.session = tf.compat.v1.Session()
            if self.is_modified:
                modify_graph_and_start_emb_cache(dump_graph=False)
            else:
                start_asc_pipeline()
            with self.session as session:
                if self.use != "predict":
                    self.initialize(train_iterator, True)
                session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
                if self.use != "train":
                    saver.restore(session, f"./saved-model/model-{self.first_step}")
                if self.use == "predict":
                    self.evaluate(eval_iterator, auc)
                    return
                losses = []
                for step in range(self.first_step + 1, self.first_step + MAX_STEPS + 1):
                    try:
                        _, loss = session.run([train_op, train_loss])
                    except tf.errors.OutOfRangeError:
                        print("end of data")
                        break
                    losses.append(loss)
                    if step % TRAIN_STEPS == 0:
                        self.evaluate(eval_iterator, auc)
                    if step % SAVE_STEPS == 0:
                        saver.save(session, "./saved-model/model", global_step=step)
                assert np.mean(losses[-5:]) < np.mean(losses[:5]), losses
                assert len(losses) == MAX_STEPS

    def create_tables(self):
        sizes = {"host": {"host_vocabulary_size": 5000}, "disk": {"host_vocabulary_size": 600}}
        options = next((sizes[word] for word in self.words if word in sizes), {})
        rows = 100 if options else 5000
        if "disk" in self.words:
            options = {**options, "ssd_vocabulary_size": 20000, "ssd_data_path": ["."]}
        if "padding" in self.words:
            options = {**options, "padding_keys": [0, 5], "padding_keys_mask": True, "padding_keys_len": 2}
        return {
            name: create_table(
                key_dtype=tf.int64,
                dim=tf.TensorShape([DIM]),
                name=name,
                emb_initializer=tf.compat.v1.truncated_normal_initializer(),
                device_vocabulary_size=rows,
                is_dp="dp" in self.words,
                **options,
            )
            for name in ("user_table", "item_table")
        }

    def build(self, tables, is_training):
        specs = [FeatureSpec("user_ids", table_name="user_table"), FeatureSpec("item_ids", table_name="item_table")]
        thresholds = {"access_threshold": 1, "eviction_threshold": 3600} if "timestamp" in self.words else {}
        if thresholds:
            specs = [FeatureSpec(spec.index_key, table_name=spec.table_name, **thresholds) for spec in specs]
        keys = ("user_ids", "item_ids", "label", "timestamp")
        types = {"user_ids": tf.int64, "item_ids": tf.int64, "label": tf.float32, "timestamp": tf.int64}
        shapes = {"user_ids": [BATCH, 1], "item_ids": [BATCH, 3], "label": [BATCH], "timestamp": []}
        dataset = tf.data.Dataset.from_generator(lambda: generator(is_training), types, shapes)
        dataset = dataset.shard(get_rank_size(), get_rank_id())
        if "tuple" in self.words:
            dataset = dataset.map(lambda batch: tuple(batch[key] for key in keys))
            specs = [
                FeatureSpec(spec.given_name, table_name=spec.table_name, index_key=number, **thresholds)
                for number, spec in enumerate(specs)
            ]
        if not self.is_modified:
            stamp = [FeatureSpec("timestamp", index_key=3 if "tuple" in self.words else None, is_timestamp=True)]
            every = specs + (stamp if thresholds else [])
            dataset = dataset.map(get_asc_insert_func(tgt_key_specs=every, is_training=is_training, dump_graph=False))
        dataset = dataset.take(MAX_STEPS).prefetch(10)
        if "one_shot" in self.words:
            iterator = tf.compat.v1.data.make_one_shot_iterator(dataset)
        else:
            iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
        named = dict(zip(keys, batch)) if "tuple" in self.words else batch
        if thresholds and self.is_modified:
            tf.compat.v1.add_to_collection(ASCEND_TIMESTAMP, named["timestamp"])
        embeddings = []
        for spec, table, count in zip(specs, tables.values(), (BATCH, 3 * BATCH)):
            for _ in range(self.lookups if spec is specs[0] else 1):
                ids = named[spec.given_name] if self.is_modified else spec
                config = {"access_and_evict_config": thresholds} if thresholds and self.is_modified else {}
                embedding = sparse_lookup(
                    table,
                    ids,
                    count if self.is_static else None,
                    is_train=is_training,
                    name=table.table_name + "_lookup",
                    modify_graph=self.is_modified,
                    batch=batch,
                    **config,
                )
                embeddings.append(tf.reduce_sum(embedding, axis=1))
        wide = tf.concat([tf.add_n(embeddings[:-1]) / self.lookups, embeddings[-1]], axis=1)
        with tf.compat.v1.variable_scope("net", reuse=tf.compat.v1.AUTO_REUSE):
            hidden = tf.compat.v1.get_variable("hidden", [2 * DIM, 16])
            output = tf.compat.v1.get_variable("output", [16, 1])
        logits = tf.squeeze(tf.nn.relu(wide @ hidden) @ output, axis=1)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=named["label"], logits=logits)
        return iterator, tf.reduce_mean(losses), tf.reduce_mean(tf.sigmoid(logits))

    def optimize(self, loss):
        dense, sparse = get_dense_and_sparse_variable()
        train_dense = tf.compat.v1.train.AdamOptimizer(0.05).minimize(loss, var_list=dense)
        if ConfigInitializer.get_instance().use_dynamic_expansion:
            local = tf.compat.v1.get_collection("ASCEND_SPARSE_LOOKUP_LOCAL_EMB")
            addresses = tf.compat.v1.get_collection("ASCEND_SPARSE_LOOKUP_ID_OFFSET")
            pairs, optimizer = zip(tf.gradients(loss, local), addresses), create_hash_optimizer_by_address(0.05)
        else:
            pairs, optimizer = zip(tf.gradients(loss, sparse), sparse), create_hash_optimizer(0.05)
        return tf.group(train_dense, optimizer.apply_gradients(pairs))

    def initialize(self, iterator, is_training):
        if self.is_modified:
            initializer = ConfigInitializer.get_instance().train_params_config.get_initializer(is_training)
        else:
            initializer = None if "one_shot" in self.words else iterator.initializer
        if initializer is not None:
            self.session.run(initializer)

    def evaluate(self, iterator, value):
        if "one_shot" not in self.words or not getattr(self, "has_evaluated", False):
            self.initialize(iterator, False)
            self.has_evaluated = True
            for _ in range(EVAL_STEPS):
                assert 0 < self.session.run(value) < 1


for mode in sys.argv[1:]:
    demo = Demo(mode.split("+"))
    demo.run()
    terminate_config_initializer()
    print(mode, "done", flush=True)
assert "RANK_ID" not in os.environ or os.environ["RANK_ID"] == "0"
