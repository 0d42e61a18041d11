"""A script in the manner of DLRM for TensorFlow 1: several tables, rows by address, gradients by collection."""

import os

import numpy as np
import tensorflow as tf

from mx_rec._log import logger
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.optimizers.gradient_descent_by_addr import create_hash_optimizer_by_addr
from mx_rec.util.communication.hccl_ops import get_rank_id, get_rank_size
from mx_rec.util.initialize import ConfigInitializer, init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

flags = tf.app.flags
flags.DEFINE_integer("steps", 40, "how long to train")
flags.DEFINE_float("loss_scale", 1024.0, "what the loss is multiplied with for its gradients")
FLAGS = flags.FLAGS
FIELDS, DENSE, DIM, BATCH = 6, 4, 16, 64


def batches():
    random = np.random.RandomState(7 + get_rank_id())
    sparse = random.randint(0, 50, [FLAGS.steps * BATCH, FIELDS]) + 1000 * np.arange(FIELDS)
    data = {
        "sparse": sparse.astype(np.int64),
        "dense": random.rand(FLAGS.steps * BATCH, DENSE).astype(np.float32),
        "label": (sparse[:, 0] % 2).astype(np.float32),
    }
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH, drop_remainder=True)
    return dataset.map(
        lambda batch: {**{f"field_{n}": batch["sparse"][:, n] for n in range(FIELDS)}, **batch}, num_parallel_calls=2
    )


def layers(x, sizes, name):
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE):
        for number, size in enumerate(sizes):
            width = x.get_shape().as_list()[-1]
            weight = tf.get_variable(f"w{number}", [width, size], initializer=tf.glorot_normal_initializer())
            bias = tf.get_variable(f"b{number}", [size], initializer=tf.zeros_initializer())
            x = tf.nn.xw_plus_b(x, weight, bias)
            x = tf.nn.relu(x) if number + 1 < len(sizes) else x
    return x


def main(_):
    assert os.environ["OMPI_COMM_WORLD_SIZE"] == str(get_rank_size())
    init(max_steps=FLAGS.steps, train_steps=FLAGS.steps, eval_steps=-1, use_dynamic=True, use_dynamic_expansion=True)
    specs = [FeatureSpec(f"field_{n}", table_name=f"table_{n}", batch_size=BATCH) for n in range(FIELDS)]
    dataset = batches().map(get_asc_insert_func(tgt_key_specs=specs, is_training=True, dump_graph=False))
    iterator = dataset.prefetch(100).make_initializable_iterator()
    batch = iterator.get_next()
    tables = [
        create_table(
            key_dtype=tf.int64,
            dim=tf.TensorShape([DIM]),
            name=spec.table_name,
            emb_initializer=tf.random_normal_initializer(stddev=0.1, seed=n),
            device_vocabulary_size=1000,
        )
        for n, spec in enumerate(specs)
    ]
    embeddings = [
        sparse_lookup(table, spec, is_train=True, name=f"{spec.table_name}_lookup", batch=batch)
        for table, spec in zip(tables, specs)
    ]
    bottom = layers(batch["dense"], [32, DIM], "bottom")
    stacked = tf.stack([bottom, *embeddings], axis=1)
    products = tf.matmul(stacked, stacked, transpose_b=True)
    pairs = tf.reshape(products, [-1, (FIELDS + 1) ** 2])
    logits = tf.squeeze(layers(tf.concat([bottom, pairs] + embeddings, axis=1), [32, 1], "top"), axis=1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=batch["label"], logits=logits))

    scaled = loss * FLAGS.loss_scale
    dense, _ = get_dense_and_sparse_variable()
    assert ConfigInitializer.get_instance().use_dynamic_expansion
    local = tf.get_collection("ASCEND_SPARSE_LOOKUP_LOCAL_EMB")
    addresses = tf.get_collection("ASCEND_SPARSE_LOOKUP_ID_OFFSET")
    assert len(local) == len(addresses) == FIELDS
    sparse_gradients = [gradient / FLAGS.loss_scale for gradient in tf.gradients(scaled, local)]
    sparse_optimizer = create_hash_optimizer_by_addr(learning_rate=1.0, weight_decay=0.0001)
    train_sparse = sparse_optimizer.apply_gradients(list(zip(sparse_gradients, addresses)))
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    dense_gradients = [(g / FLAGS.loss_scale, v) for g, v in optimizer.compute_gradients(scaled, dense)]
    with tf.control_dependencies([train_sparse]):
        train_op = optimizer.apply_gradients(dense_gradients, global_step=tf.train.get_or_create_global_step())

    start_asc_pipeline()
    losses = []
    with tf.Session() as session:
        session.run([iterator.initializer, tf.global_variables_initializer()])
        while True:
            try:
                losses.append(session.run([train_op, loss])[1])
            except tf.errors.OutOfRangeError:
                break
        rows = [table.size() for table in tables]
    logger.info("losses %s, rows %s", losses[::10], rows)
    assert len(losses) == FLAGS.steps and rows == [50] * FIELDS, rows
    assert np.mean(losses[-5:]) < np.mean(losses[:5]), losses
    terminate_config_initializer()
    print("dlrm done")


if __name__ == "__main__":
    tf.app.run()
