"""A session script of the year 2023 for TensorFlow 1: positional `init`, helper functions, graph modification."""

import os
import sys

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.optimizers.lazy_adam_by_addr import create_hash_optimizer_by_address
from mx_rec.util.initialize import (
    get_initializer,
    get_rank_id,
    get_rank_size,
    get_use_dynamic_expansion,
    init,
    terminate_config_initializer,
)
from mx_rec.util.variable import get_dense_and_sparse_variable

tf.logging.set_verbosity(tf.logging.INFO)
BATCH, DIM = 32, 8


def make_batch(specs, is_training, modify_graph):
    random = np.random.RandomState(3)
    data = {"user": random.randint(0, 99, [640]), "label": random.randint(0, 2, [640]).astype(np.float32)}
    dataset = tf.data.Dataset.from_tensor_slices(data).shard(get_rank_size(), get_rank_id())
    dataset = dataset.batch(BATCH, drop_remainder=True)
    if not modify_graph:
        dataset = dataset.map(get_asc_insert_func(tgt_key_specs=specs, is_training=is_training, dump_graph=False))
    iterator = dataset.prefetch(100).make_initializable_iterator()
    return iterator.get_next(), iterator


def train(modify_graph, use_expansion):
    init(
        True,
        rank_id=int(os.environ["RANK_ID"]),
        rank_size=int(os.environ["RANK_SIZE"]),
        train_interval=10,
        eval_steps=5,
        prefetch_batch_number=5,
        use_dynamic=0,
        use_hot=1,
        use_dynamic_expansion=use_expansion,
    )
    specs = [FeatureSpec("user", feat_count=1, table_name="user_table", batch_size=BATCH)]
    table = create_table(
        key_dtype=tf.int64,
        dim=tf.Tensorshape([DIM]),
        name="user_table",
        emb_initializer=tf.compat.v1.truncated_normal_initializer(),
        device_vocabulary_size=1000,
        host_vocabulary_size=0,
        optimizer_list=[],
    )

    def forward(is_training):
        batch, iterator = make_batch(specs, is_training, modify_graph)
        ids = batch["user"] if modify_graph else specs[0]
        embedding = sparse_lookup(
            table, ids, BATCH, dim=None, is_train=is_training, name=table.table_name + "_lookup",
            modify_graph=modify_graph, batch=batch,
        )  # fmt: skip
        with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
            weight = tf.get_variable("weight", [embedding.shape[-1].value, 1])
        logits = tf.squeeze(tf.matmul(embedding, weight), axis=1)
        return iterator, tf.losses.sigmoid_cross_entropy(batch["label"], logits)

    train_iterator, loss = forward(True)
    eval_iterator, eval_loss = forward(False)
    dense, sparse = get_dense_and_sparse_variable()
    train_dense = tf.train.AdamOptimizer(0.01).minimize(loss, var_list=dense)
    if get_use_dynamic_expansion():
        local = tf.get_collection("ASCEND_SPARSE_LOOKUP_LOCAL_EMB")
        addresses = tf.get_collection("ASCEND_SPARSE_LOOKUP_ID_OFFSET")
        optimizer = create_hash_optimizer_by_address(learning_rate=0.01)
        train_sparse = optimizer.apply_gradients(list(zip(tf.gradients(loss, local), addresses)))
    else:
        train_sparse = create_hash_optimizer(learning_rate=0.01).apply_gradients(
            list(zip(tf.gradients(loss, sparse), sparse))
        )
    saver = tf.train.Saver()
    if modify_graph:
        modify_graph_and_start_emb_cache(dump_graph=True)
    else:
        start_asc_pipeline()
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        session.run(get_initializer(True) if modify_graph else train_iterator.initializer)
        session.run(tf.global_variables_initializer())
        path = f"./saved-{modify_graph}-{use_expansion}/model-{get_rank_id()}"
        saver.save(session, path, global_step=0)
        for step in range(1, 100):
            try:
                session.run([train_dense, train_sparse, loss])
            except tf.errors.OutOfRangeError:
                tf.logging.info("end of sequence at step %d", step)
                break
            if step % 10 == 0:
                session.run(get_initializer(False) if modify_graph else eval_iterator.initializer)
                for _ in range(5):
                    assert np.isfinite(session.run(eval_loss))
        saver.save(session, path, global_step=step)
        saver.restore(session, f"{path}-0")
    assert step == 21, step
    terminate_config_initializer()


for modify_graph, use_expansion in ((False, False), (True, False), (True, True)):
    with tf.Graph().as_default():
        train(modify_graph, use_expansion)
    print("modify_graph", modify_graph, "expansion", use_expansion, "done", flush=True)
sys.exit(0)
