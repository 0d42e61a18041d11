"""A script in the manner of MMoE for TensorFlow 1: two tasks, experts, contrib layers, a text input."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.layers import fully_connected, l2_regularizer, xavier_initializer
from tensorflow.contrib.lookup import HashTable, KeyValueTensorInitializer

from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.optimizers.adagrad import create_hash_optimizer
from mx_rec.util.initialize import get_initializer, get_target_batch, init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

COLORS, DIM, BATCH, EXPERTS = ["red", "green", "blue"], 8, 32, 3


def write_lines(path):
    random = np.random.RandomState(5)
    with open(path, "w") as file:
        for user, color in zip(random.randint(0, 40, 960), random.choice(COLORS, 960)):
            file.write(f"{10**12 + user},{color},{user % 2},{int(color == 'red')}\n")


def parse(line):
    user, color, click, buy = tf.decode_csv(line, [[""], [""], [0.0], [0.0]])
    return {"user": user, "color": color, "click": click, "buy": buy}


init(max_steps=30, train_steps=30)
write_lines("data.csv")
dataset = tf.data.TextLineDataset("data.csv").map(parse).batch(BATCH, drop_remainder=True).prefetch(2)
batch = dataset.make_initializable_iterator().get_next()
colors = HashTable(KeyValueTensorInitializer(COLORS, [1, 2, 3], tf.string, tf.int64), 0)
tables = {
    name: create_table(key_dtype=tf.int64, dim=tf.Tensorshape([DIM]), name=name, value_dtype=tf.float32,
                       emb_initializer=xavier_initializer(), device_vocabulary_size=500, host_vocabulary_size=500)
    for name in ("user", "color")
}  # fmt: skip
ids = {"user": tf.string_to_number(batch["user"], tf.int64), "color": colors.lookup(batch["color"])}
x = tf.concat([sparse_lookup(tables[name], ids[name], is_train=True, modify_graph=True) for name in ids], axis=1)
regularizer = l2_regularizer(1e-4)
experts = tf.stack([fully_connected(x, 16, weights_regularizer=regularizer) for _ in range(EXPERTS)], axis=1)
losses = []
for task in ("click", "buy"):
    with tf.variable_scope(task):
        gate = fully_connected(x, EXPERTS, tf.nn.softmax, biases_initializer=None, scope="gate")
        tower = fully_connected(tf.reduce_sum(experts * tf.expand_dims(gate, -1), axis=1), 8, scope="tower")
        logits = tf.squeeze(fully_connected(tower, 1, activation_fn=None, scope="output"), [1])
    losses.append(tf.losses.sigmoid_cross_entropy(batch[task], logits))
loss = tf.losses.get_total_loss()
assert len(tf.losses.get_regularization_losses()) == EXPERTS

dense, sparse = get_dense_and_sparse_variable()
gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, dense), 5.0)
train_dense = tf.train.AdamOptimizer(0.02).apply_gradients(zip(gradients, dense))
train_sparse = create_hash_optimizer(learning_rate=0.1).apply_gradients(zip(tf.gradients(loss, sparse), sparse))
session = tf.Session(config=tf.ConfigProto(log_device_placement=False))
modify_graph_and_start_emb_cache()
assert set(get_target_batch(True)) == {"user", "color", "click", "buy"}
session.run([tf.global_variables_initializer(), tf.tables_initializer()])
session.run(get_initializer(True))
found = []
try:
    while True:
        found.append(session.run([train_dense, train_sparse, losses])[2])
except tf.errors.OutOfRangeError:
    pass
found = np.sum(found, axis=1)
assert len(found) == 30 and found[-5:].mean() < found[:5].mean(), found
assert (tables["user"].size(), tables["color"].size()) == (40, 3)
terminate_config_initializer()
print("mmoe done")
