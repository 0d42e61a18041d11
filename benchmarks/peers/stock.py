"""Stock TensorFlow as a peer: variables of a fixed number of rows, array index, graph mode.

TensorFlow's own AdamOptimizer decays the moments of every row at every step; "adam" here is LazyAdam, composed of stock
ops as TensorFlow Addons did it; "adam_optimizer" is the built-in one. Ids are fed as aligned arrays, without a copy.
"""

import numpy as np
import tensorflow as tf

from benchmarks import clicks, scratch, worker, workloads
from benchmarks.peers import deep_net
from benchmarks.peers.feeding import Fed

v1 = tf.compat.v1
v1.disable_eager_execution()

OPTIMIZERS = {
    "adam_optimizer": lambda: v1.train.AdamOptimizer(1e-3, name="AdamTables"),
    "adagrad": lambda: v1.train.AdagradOptimizer(1e-2),
    "sgd": lambda: v1.train.GradientDescentOptimizer(1e-6),
}
FORWARD_ONLY = "lookup_sparse, allow_fast_lookup"  # its gradient is as large as the table
SLOTS = {"adam": 2, "adam_optimizer": 2, "adagrad": 1, "sgd": 0}


def make_tables(work):
    return [v1.get_variable(f"table{t:02d}", [work.rows, work.dim], use_resource=True) for t in range(work.tables)]


def outputs(work, tables, ids):
    """{way: output [examples, tables * dim]}: the ways in which one would write the lookup."""
    if work.bag == 1:
        embeddings = [tf.nn.embedding_lookup(table, ids[t]) for t, table in enumerate(tables)]
        return {"lookup": embeddings[0] if len(embeddings) == 1 else tf.concat(embeddings, axis=1)}
    where = [[example, position] for example in range(work.examples) for position in range(work.bag)]
    sparse = tf.SparseTensor(np.array(where, np.int64), tf.reshape(ids[0], [-1]), [work.examples, work.bag])
    ways = {
        "lookup, reduce_sum": tf.reduce_sum(tf.nn.embedding_lookup(tables[0], ids[0]), axis=1),
        "lookup_sparse": tf.nn.embedding_lookup_sparse(tables[0], sparse, None, combiner="sum"),
        FORWARD_ONLY: tf.nn.embedding_lookup_sparse(tables[0], sparse, None, combiner="sum", allow_fast_lookup=True),
    }
    for output in ways.values():
        output.set_shape([work.examples, work.dim])
    return ways


def make_trainer(tables, optimizer):
    """A function (output, gradient of it) -> op that trains the tables; all ops of a trainer share the slots."""
    apply = lazy_adam if optimizer == "adam" else OPTIMIZERS[optimizer]().apply_gradients

    def train_op(output, gradient):
        return apply(list(zip(tf.gradients(output, tables, grad_ys=gradient), tables)))

    return train_op


def lazy_adam(gradients_and_tables, rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """An op that updates the rows that have gradients, and no others."""
    with v1.variable_scope("lazy_adam", reuse=v1.AUTO_REUSE, use_resource=True):
        step = v1.get_variable("step", [], initializer=v1.zeros_initializer(), trainable=False)
        now = step + 1.0
        rate_now = rate * tf.sqrt(1 - tf.pow(beta2, now)) / (1 - tf.pow(beta1, now))
        updates = []
        for gradient, table in gradients_and_tables:
            slots = [v1.get_variable(f"{table.op.name}_{s}", table.shape, trainable=False) for s in ("m", "v")]
            rows, position = tf.unique(gradient.indices)
            summed = tf.math.unsorted_segment_sum(gradient.values, position, tf.shape(rows)[0])
            m = beta1 * tf.gather(slots[0], rows) + (1 - beta1) * summed
            v = beta2 * tf.gather(slots[1], rows) + (1 - beta2) * tf.square(summed)
            updates += [
                tf.raw_ops.ResourceScatterUpdate(resource=slots[0].handle, indices=rows, updates=m),
                tf.raw_ops.ResourceScatterUpdate(resource=slots[1].handle, indices=rows, updates=v),
                tf.raw_ops.ResourceScatterSub(
                    resource=table.handle, indices=rows, updates=rate_now * m / (tf.sqrt(v) + epsilon)
                ),
            ]
        with tf.control_dependencies(updates):
            return tf.group(*updates, step.assign_add(1.0, read_value=False))


def initialize(session, tables, low, high):
    """Fills tables and slots. The size is fed: a folded constant of gigabytes would stay in the session."""
    rows = v1.placeholder(tf.int32, [])
    names, size = {table.op.name for table in tables}, tables[0].shape
    assigns = []
    for variable in v1.global_variables():
        shape = [rows, size[1]]
        if variable.shape != size:
            assigns.append(variable.initializer)
            continue
        if variable.op.name not in names:
            value = tf.fill(shape, 0.1 if "Adagrad" in variable.op.name else 0.0)
        else:
            value = tf.random.uniform(shape, low, high, seed=1) if low < high else tf.fill(shape, low)
        assigns.append(tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value))
    for assign in assigns:  # one by one: equal values of one run would share their memory until they are written to
        session.run(assign, {rows: size[0]})


def workload(workload, optimizer, scale, checkpoint=False):
    work = workloads.get(workload, scale)
    tables = make_tables(work)
    ids = v1.placeholder(tf.int64, [work.tables, *work.feature_shape])
    ways = outputs(work, tables, ids)
    train_op = make_trainer(tables, optimizer)
    target = tf.constant(work.target())
    trains = {way: train_op(output, output - target) for way, output in ways.items() if way != FORWARD_ONLY}
    saver = v1.train.Saver(max_to_keep=1)
    session = v1.Session()
    before = worker.resident_bytes()
    initialize(session, tables, -0.05, 0.05)
    bytes_per_row = (worker.resident_bytes() - before) / (work.tables * work.rows)

    fed = Fed(session, ids, work.indices())
    trains = {way: fed.step(op) for way, op in trains.items()}
    fed.check_training(next(iter(ways.values())), next(iter(trains.values())))
    forward = worker.Fastest({way: fed.step(output.op) for way, output in ways.items()})
    measures = {
        "forward": worker.Measure(forward, work.ids_per_batch),
        "train": worker.Measure(worker.Fastest(trains), work.ids_per_batch),
    }
    if optimizer == "adam_optimizer":
        del measures["forward"]  # the same as with "adam"
    if checkpoint:
        payload = work.tables * work.rows * work.dim * 4 * (1 + SLOTS[optimizer])
        measures.update(scratch.saver_measures(session, saver, "stock", payload))
    return measures, {"bytes_per_row": bytes_per_row, "tensorflow": tf.__version__}


def restart(workload, optimizer, scale, checkpoint, home, payload):
    work = workloads.get(workload, scale)
    tables = make_tables(work)
    ids = v1.placeholder(tf.int64, [work.tables, *work.feature_shape])
    output = next(iter(outputs(work, tables, ids).values()))
    make_trainer(tables, optimizer)(output, output)
    saver = v1.train.Saver()
    session = v1.Session()
    rows = work.tables * work.rows
    return scratch.restarted(
        home, payload, lambda: saver.restore(session, scratch.saver_path(home)), lambda: rows, rows
    )


def e2e(optimizer, scale, training):
    data = clicks.Clicks(scale, training)
    tables = make_tables(data.work)
    ids, label = v1.placeholder(tf.int64, [None, *data.shape]), v1.placeholder(tf.float32, [None, data.work.examples])
    dataset = tf.data.Dataset.from_tensor_slices((ids, label)).repeat().prefetch(2)
    train_input, held_out_input = (v1.data.make_initializable_iterator(dataset) for _ in range(2))
    batch_ids, batch_label = train_input.get_next()
    net = deep_net.DeepNet(outputs(data.work, tables, batch_ids)["lookup"], batch_label)
    train = tf.group(net.train_dense, make_trainer(tables, optimizer)(net.inputs, net.input_gradient))
    held_out = deep_net.logits(outputs(data.work, tables, held_out_input.get_next()[0])["lookup"])
    session = v1.Session()
    initialize(session, tables, clicks.INITIAL, clicks.INITIAL)
    session.run(train_input.initializer, {ids: data.train.indices, label: data.train.labels})
    session.run(held_out_input.initializer, {ids: data.held_out.indices, label: data.held_out.labels})
    step = session.make_callable(train)
    info = {"tensorflow": tf.__version__}
    if optimizer == "adam":  # the built-in Adam takes over a second a step
        info["auc"] = data.auc_after_training(lambda i: step(), lambda i: session.run(held_out))
    return {"train": worker.Measure(lambda i: step(), data.work.examples, lead=4)}, info


if __name__ == "__main__":
    worker.main({"workload": workload, "restart": restart, "e2e": e2e})
