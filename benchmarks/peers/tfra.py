"""TensorFlow Recommenders Addons as a peer: `dynamic_embedding` on the CPU, graph mode, ids fed.

Its fastest settings, as found by trying: new rows are zeros (a random initializer computes a row for every id, known or
not), `init_size` is the final size, ids are made distinct before the tables are asked, bags go through
`embedding_lookup_sparse`. The forward pass is the quickest of its three ways. Checkpoints go through the stock Saver,
or through the ops of its FileSystemSaver (that one itself writes no rows with this TensorFlow).
"""

import numpy as np
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

from benchmarks import clicks, paths, scratch, worker, workloads
from benchmarks.peers import deep_net
from benchmarks.peers.feeding import Fed

v1 = tf.compat.v1
v1.disable_eager_execution()

CHUNK = 100_000  # rows written at once while filling the tables
OPTIMIZERS = {  # name -> (its maker, initial value of its slots)
    "adam": (lambda: v1.train.AdamOptimizer(1e-3, name="AdamTables"), 0.0),
    "adagrad": (lambda: v1.train.AdagradOptimizer(1e-2), 0.1),
    "sgd": (lambda: v1.train.GradientDescentOptimizer(1e-6), 0.0),
}


class Tables:
    """Dynamic variables of a workload, with an optimizer."""

    def __init__(self, work, optimizer):
        self._work = work
        maker, self._slot_value = OPTIMIZERS[optimizer]
        self._optimizer = de.DynamicEmbeddingOptimizer(maker())
        self.variables = [
            de.get_variable(
                f"table{t:02d}",
                key_dtype=tf.int64,
                value_dtype=tf.float32,
                dim=work.dim,
                initializer=v1.zeros_initializer(),
                devices=["/CPU:0"],
                init_size=work.rows,
            )
            for t in range(work.tables)
        ]
        self._trainables = []

    def training_output(self, ids):
        """[examples, tables * dim] that `train_op` can train; once."""
        if self._work.bag > 1:
            output, trainable = de.embedding_lookup_sparse(
                self.variables[0], self._sparse(ids), None, combiner="sum", name="lookup", return_trainable=True
            )
            output.set_shape([self._work.examples, self._work.dim])
            self._trainables = [trainable]
            return output
        pairs = [
            de.embedding_lookup_unique(variable, ids[t], name=f"lookup{t}", return_trainable=True)
            for t, variable in enumerate(self.variables)
        ]
        self._trainables = [trainable for _, trainable in pairs]
        return self._join([embedding for embedding, _ in pairs])

    def reading_outputs(self, ids):
        """{way: output} without training."""
        variables = list(enumerate(self.variables))
        ways = {"lookup": self._join([variable.lookup(ids[t]) for t, variable in variables])}
        if self._work.bag > 1:
            ways["embedding_lookup_sparse"] = de.embedding_lookup_sparse(
                self.variables[0], self._sparse(ids), None, combiner="sum", name="read_bag"
            )
        unique = [de.embedding_lookup_unique(variable, ids[t], name=f"read{t}") for t, variable in variables]
        ways["embedding_lookup_unique"] = self._join(unique)
        return ways

    def train_op(self, output, gradient):
        pairs = self._optimizer.compute_gradients(output, var_list=self._trainables, grad_loss=gradient)
        return self._optimizer.apply_gradients(pairs)

    def populate(self, session, low, high):
        """Writes all rows and all slots."""
        work = self._work
        keys = v1.placeholder(tf.int64, [work.tables, None])
        values, slot_values = (v1.placeholder(tf.float32, [None, work.dim]) for _ in range(2))
        slots = [list(trainable._optimizer_vars.value) for trainable in self._trainables]
        # One op for all: every new one costs a session the time to look through the whole graph.
        writes = [variable.upsert(keys[t], values) for t, variable in enumerate(self.variables)]
        writes += [slot.upsert(keys[t], slot_values) for t in range(work.tables) for slot in slots[t]]
        write = session.make_callable(tf.group(*writes), feed_list=[keys, values, slot_values])
        random = np.random.default_rng(0).uniform(low, high, (CHUNK, work.dim)).astype(np.float32)
        constant = np.full_like(random, self._slot_value)
        for first in range(0, work.rows, CHUNK):
            rows = np.arange(first, min(first + CHUNK, work.rows))
            chunk = np.stack([workloads.key_of(t, rows) for t in range(work.tables)])
            write(chunk, random[: len(rows)], constant[: len(rows)])
        sizes = session.run([part.size() for t in range(work.tables) for part in (self.variables[t], *slots[t])])
        assert set(sizes) == {work.rows}

    def file_system_ops(self, home):
        """(op that writes all rows and slots to a directory, op that reads them)"""
        parts = [*self.variables]
        for trainable in self._trainables:
            parts += trainable._optimizer_vars.value
        save, load = (
            [getattr(part, f"{verb}_file_system")(home) for part in parts] for verb in ("save_to", "load_from")
        )
        return tf.group(*save), tf.group(*load)

    def size(self, session):
        return int(sum(session.run([variable.size() for variable in self.variables])))

    def slots(self):
        return len(list(self._trainables[0]._optimizer_vars.value))

    def _sparse(self, ids):
        where = [[example, position] for example in range(self._work.examples) for position in range(self._work.bag)]
        return tf.SparseTensor(
            np.array(where, np.int64), tf.reshape(ids[0], [-1]), [self._work.examples, self._work.bag]
        )

    def _join(self, embeddings):
        if self._work.bag > 1:
            embeddings = [tf.reduce_sum(embedding, axis=1) for embedding in embeddings]
        return embeddings[0] if len(embeddings) == 1 else tf.concat(embeddings, axis=1)


def workload(workload, optimizer, scale, checkpoint=""):
    """`checkpoint`: "", "saver" or "file_system"."""
    work = workloads.get(workload, scale)
    before = worker.resident_bytes()  # the tables' arrays of `init_size` count
    tables = Tables(work, optimizer)
    ids = v1.placeholder(tf.int64, [work.tables, *work.feature_shape])
    output = tables.training_output(ids)
    train = tables.train_op(output, output - tf.constant(work.target()))
    ways = tables.reading_outputs(ids)
    saver = v1.train.Saver(max_to_keep=1) if checkpoint == "saver" else None
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    tables.populate(session, -0.05, 0.05)
    bytes_per_row = (worker.resident_bytes() - before) / (work.tables * work.rows)

    fed = Fed(session, ids, work.keys())
    train = fed.step(train)
    fed.check_training(next(iter(ways.values())), train)
    assert tables.size(session) == work.tables * work.rows
    forward = worker.Fastest({way: fed.step(output.op) for way, output in ways.items()})
    measures = {
        "forward": worker.Measure(forward, work.ids_per_batch),
        "train": worker.Measure(train, work.ids_per_batch),
    }
    if checkpoint:
        payload = work.tables * work.rows * work.dim * 4 * (1 + tables.slots())
        if checkpoint == "saver":
            measures.update(scratch.saver_measures(session, saver, "tfra", payload))
        else:
            name = "tfra-file-system"
            save, load = tables.file_system_ops(str(paths.SCRATCH / name))
            measures.update(
                scratch.checkpoint_measures(
                    name, payload, lambda home: session.run(save), lambda home: session.run(load)
                )
            )
    return measures, {"bytes_per_row": bytes_per_row, "tensorflow": tf.__version__}


def restart(workload, optimizer, scale, checkpoint, home, payload):
    work = workloads.get(workload, scale)
    tables = Tables(work, optimizer)
    output = tables.training_output(v1.placeholder(tf.int64, [work.tables, *work.feature_shape]))
    tables.train_op(output, output)
    saver = v1.train.Saver()
    _, load = tables.file_system_ops(home)
    session = v1.Session()
    session.run(v1.global_variables_initializer())

    def restore():
        if checkpoint == "saver":
            saver.restore(session, scratch.saver_path(home))
        else:
            session.run(load)

    return scratch.restarted(home, payload, restore, lambda: tables.size(session), work.tables * work.rows)


def growth(dim, batches, batch_size, lead, keys):
    """Training steps on keys never seen before."""
    assert keys == "scattered"
    work = workloads.Workload("growth", 1, batches * batch_size, dim, (batch_size,))
    tables = Tables(work, "adam")
    ids = v1.placeholder(tf.int64, [1, batch_size])
    output = tables.training_output(ids)
    train = tables.train_op(output, output - tf.constant(work.target()))
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    call = session.make_callable(train, feed_list=[ids])
    keys = workloads.key_of(0, np.arange(batches * batch_size).reshape(-1, 1, batch_size))
    call(keys[0])
    assert tables.size(session) == batch_size
    info = {"tensorflow": tf.__version__}
    return {"new_rows": worker.Measure(lambda i: call(keys[i + 1]), batch_size, lead)}, info


def e2e(optimizer, scale, training):
    data = clicks.Clicks(scale, training)
    tables = Tables(data.work, optimizer)
    ids, label = v1.placeholder(tf.int64, [None, *data.shape]), v1.placeholder(tf.float32, [None, data.work.examples])
    dataset = tf.data.Dataset.from_tensor_slices((ids, label)).repeat().prefetch(2)
    train_input, held_out_input = (v1.data.make_initializable_iterator(dataset) for _ in range(2))
    batch_ids, batch_label = train_input.get_next()
    net = deep_net.DeepNet(tables.training_output(batch_ids), batch_label)
    train = tf.group(net.train_dense, tables.train_op(net.inputs, net.input_gradient))
    held_out = deep_net.logits(tables.reading_outputs(held_out_input.get_next()[0])["lookup"])
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    tables.populate(session, clicks.INITIAL, clicks.INITIAL)
    session.run(train_input.initializer, {ids: data.keys(data.train), label: data.train.labels})
    session.run(held_out_input.initializer, {ids: data.keys(data.held_out), label: data.held_out.labels})
    step = session.make_callable(train)
    auc = data.auc_after_training(lambda i: step(), lambda i: session.run(held_out))
    return {"train": worker.Measure(lambda i: step(), data.work.examples, lead=4)}, {"auc": auc}


if __name__ == "__main__":
    worker.main({"workload": workload, "restart": restart, "growth": growth, "e2e": e2e})
