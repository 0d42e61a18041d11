"""mx_rec as a peer: FeatureSpec mode through its public API, as in examples/session_feature_spec.py.

The input pipeline and the preparation in it run on the same cores and count; every other peer gets its ids for nothing.
"""

import statistics
import time

import numpy as np
import tensorflow as tf

from benchmarks import clicks, scratch, worker, workloads
from benchmarks.peers import deep_net
from mx_rec._native import snapshot
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.core.feature_process import EvictHook
from mx_rec.graph import modify_graph_and_start_emb_cache
from mx_rec.optimizers import adagrad, gradient_descent, lazy_adam
from mx_rec.util.initialize import init
from mx_rec.util.variable import get_dense_and_sparse_variable

v1 = tf.compat.v1
v1.disable_eager_execution()

PREFETCH = 4
LEAD = PREFETCH + 2  # steps until every batch was prepared while the step before it ran
REST = 0.02  # seconds between steps, in which an input pipeline gets ahead
POPULATE = 50_000  # ids a step while filling the tables
START, AGE = 1_600_000_000, 1_000  # data time of the first batch, each of which takes a second; when keys are old

OPTIMIZERS = {  # name -> (its maker, slots)
    "adam": (lambda: lazy_adam.create_hash_optimizer(1e-3), 2),
    "adagrad": (lambda: adagrad.create_hash_optimizer(1e-2, initial_accumulator_value=0.1), 1),
    "sgd": (lambda: gradient_descent.create_hash_optimizer(1e-6), 0),
}


class Tables:
    """The tables of a workload, and datasets that read them. `has_times`: batches carry a timestamp. `is_tracked`: the
    tables count and date their keys; a key gets its row at once, so that the same rows are trained. `expansion`: they
    have no limit. `settings` are init's, `options` create_table's."""

    def __init__(self, work, initializer, has_times=False, is_tracked=False, expansion=False, settings=None, **options):
        init(use_dynamic_expansion=expansion, **(settings or {}))
        self._work = work
        self._has_times = has_times
        self._thresholds = {"access_threshold": 1, "eviction_threshold": AGE} if is_tracked else {}
        self.names = [f"table{number:02d}" for number in range(work.tables)]
        self._tables = [
            create_table(
                key_dtype=tf.int64,
                dim=work.dim,
                name=name,
                emb_initializer=initializer,
                **{"device_vocabulary_size": work.rows, **options},
            )
            for name in self.names
        ]

    def read(self, dataset, is_train, tuned=True, lookup="spec", first_time=START):
        """(iterator, batch, embeddings by table) of a dataset of dicts: the ids under their table's name, and whatever
        else. Bags are summed. `lookup`: "spec", or for plain tensors "step" or "modified".
        """
        specs = [FeatureSpec(name, table_name=name, **self._thresholds) for name in self.names]
        timestamp = []
        if self._has_times:
            timestamp = [FeatureSpec("time", is_timestamp=True)]
            dataset = dataset.enumerate(first_time).map(lambda time, batch: {"time": time, **batch})
        if lookup == "spec":
            dataset = dataset.map(get_asc_insert_func(tgt_key_specs=specs + timestamp, is_training=is_train))
        dataset = dataset.prefetch(PREFETCH)
        if not tuned:
            options = tf.data.Options()
            options.autotune.enabled = False
            dataset = dataset.with_options(options)
        iterator = v1.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
        combiner = "sum" if batch[self.names[0]].shape.rank > 1 else None
        options = {"is_train": is_train, "batch": batch, "combiner": combiner, "modify_graph": lookup == "modified"}
        ids = specs if lookup == "spec" else [batch[name] for name in self.names]
        embeddings = [sparse_lookup(table, its_ids, **options) for table, its_ids in zip(self._tables, ids)]
        return iterator, batch, embeddings

    def features(self, ids):
        """Ids [batches, tables, ...] as arrays [batches, ...] by table."""
        return dict(zip(self.names, tf.unstack(ids, len(self.names), axis=1)))

    def make_populate(self, part=lambda keys: keys):
        """A function of a session that makes all rows and returns their resident bytes each. It calls `settled()` when
        the first rows are made: from there on memory is used by rows only. `part`: of keys [tables, rows], those that
        this rank asks for.

        To be called while the graph is being built.
        """
        ids = v1.placeholder(tf.int64, [1, self._work.tables, None])
        dataset = tf.data.Dataset.from_tensor_slices(self.features(ids))
        # Its iterator is initialised once a chunk: without tuning that is quick.
        iterator, _, embeddings = self.read(dataset, is_train=True, tuned=False)
        insert = tf.group(*(embedding.op for embedding in embeddings))

        def populate(session, settled=lambda: None):
            # Large steps would leave large temporary arrays behind, which are not the rows'.
            chunk = min(max(POPULATE // self._work.tables, 8_000), self._work.rows // 4)
            for first in range(0, self._work.rows, chunk):
                rows = np.arange(first, min(first + chunk, self._work.rows))
                keys = np.stack([workloads.key_of(table, rows) for table in range(self._work.tables)])
                session.run(iterator.initializer, {ids: part(keys)[np.newaxis]})
                session.run(insert)
                if first == 0:
                    resident, size = worker.resident_bytes(), self.size()
                    settled()
            return (worker.resident_bytes() - resident) / (self.size() - size)

        return populate

    def follow_changes(self):
        """From now on the tables remember which rows change, as for incremental checkpoints."""
        for table in self._tables:
            snapshot.follow_changes(table.native, keys=True)

    def size(self):
        return sum(table.size() for table in self._tables)

    def stats(self):
        return [table.stats() for table in self._tables]


def join(embeddings):
    """[examples, tables * dim]: the tables side by side."""
    return embeddings[0] if len(embeddings) == 1 else tf.concat(embeddings, axis=1)


def train_op(output, gradient, optimizer):
    _, sparse = get_dense_and_sparse_variable()
    gradients = tf.gradients(output, sparse, grad_ys=gradient)
    return OPTIMIZERS[optimizer][0]().apply_gradients(zip(gradients, sparse))


def start(lookup, threads):
    """Ends the building of the graph; a session whose steps run on so many threads, 0 for all."""
    if lookup == "modified":
        modify_graph_and_start_emb_cache()
    else:
        start_asc_pipeline()
    return v1.Session(config=v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads))


def make_training(work, tables, optimizer, lookup="spec"):
    """(placeholder of all batches, the dataset of them, its iterator for training, the train op)"""
    pool = v1.placeholder(tf.int64, [None, work.tables, *work.feature_shape])
    dataset = tf.data.Dataset.from_tensor_slices(tables.features(pool)).repeat()
    train_input, _, embeddings = tables.read(dataset, is_train=True, lookup=lookup)
    output = join(embeddings)
    return pool, dataset, train_input, train_op(output, output - tf.constant(work.target()), optimizer)


def workload(workload, optimizer, scale, checkpoint=False, lookup="spec", threads=0, follows=False, **options):
    work = workloads.get(workload, scale)
    tables = Tables(work, v1.random_uniform_initializer(-0.05, 0.05), **options)
    pool, dataset, train_input, train = make_training(work, tables, optimizer, lookup)
    forward_input, _, embeddings = tables.read(dataset, is_train=False, lookup=lookup)
    forward = join(embeddings)
    populate = tables.make_populate()
    saver = v1.train.Saver(max_to_keep=1)
    session = start(lookup, threads)
    session.run(v1.global_variables_initializer())
    keys = np.asarray(work.keys())
    bytes_per_row = populate(session)
    if follows:
        tables.follow_changes()

    session.run(forward_input.initializer, {pool: keys[:1]})
    untrained = session.run(forward)
    session.run([train_input.initializer, forward_input.initializer], {pool: keys})
    session.run(train)
    assert (untrained != 0).any(axis=1).all(), "every key must have a row"
    assert (session.run(forward) != untrained).any(axis=1).all(), "a training step must change the rows it touches"
    assert tables.size() == work.tables * work.rows

    run_train, run_forward = session.make_callable(train), session.make_callable(forward.op)
    measures = {
        "forward": worker.Measure(lambda i: run_forward(), work.ids_per_batch, LEAD),
        "train": worker.Measure(lambda i: run_train(), work.ids_per_batch, LEAD),
        "train_rested": worker.Measure(lambda i: run_train(), work.ids_per_batch, LEAD, pause=REST),
    }
    if checkpoint:
        payload = tables.size() * work.dim * 4 * (1 + OPTIMIZERS[optimizer][1])
        measures.update(scratch.saver_measures(session, saver, "ours", payload))
    return measures, {"rows": tables.size(), "bytes_per_row": bytes_per_row, "tensorflow": tf.__version__}


def restart(workload, optimizer, scale, checkpoint, home, payload):
    work = workloads.get(workload, scale)
    tables = Tables(work, v1.random_uniform_initializer(-0.05, 0.05))
    make_training(work, tables, optimizer)
    saver = v1.train.Saver()
    session = start("spec", 0)
    rows = work.tables * work.rows
    return scratch.restarted(home, payload, lambda: saver.restore(session, scratch.saver_path(home)), tables.size, rows)


def growth(dim, batches, batch_size, lead, keys):
    """Training steps on keys never seen before. `keys`: "scattered", or the distance between them."""
    work = workloads.Workload("growth", 1, batches * batch_size, dim, (batch_size,))
    tables = Tables(work, v1.random_uniform_initializer(-0.05, 0.05))

    def ids(i):
        row = tf.range(i * batch_size, (i + 1) * batch_size, dtype=tf.int64)
        # An odd factor modulo 2^64 is a permutation: all over the int64 range, in no pattern that a hash could like.
        return {tables.names[0]: row * (-7046029254386353131 if keys == "scattered" else keys)}

    dataset = tf.data.Dataset.range(batches).map(ids)
    iterator, _, embeddings = tables.read(dataset, is_train=True)
    output = join(embeddings)
    train = train_op(output, output - tf.constant(work.target()), "adam")
    start_asc_pipeline()
    session = v1.Session()
    session.run([v1.global_variables_initializer(), iterator.initializer])
    step = session.make_callable(train)
    step()
    assert tables.size() == batch_size
    return {"new_rows": worker.Measure(lambda i: step(), batch_size, lead)}, {"tensorflow": tf.__version__}


def eviction(workload, scale):
    """Training steps on a tenth of a table's rows while it loses the others, which are old: how long does the longest
    one take?"""
    work = workloads.get(workload, scale)
    tables = Tables(work, v1.random_uniform_initializer(-0.05, 0.05), has_times=True, is_tracked=True)
    young = np.random.default_rng(0).integers(0, work.rows // 10, (32, 1, *work.feature_shape))
    populate = tables.make_populate()
    pool = v1.placeholder(tf.int64, [None, work.tables, *work.feature_shape])
    dataset = tf.data.Dataset.from_tensor_slices(tables.features(pool)).repeat()
    train_input, _, embeddings = tables.read(dataset, is_train=True, first_time=START + 2 * AGE)
    output = join(embeddings)
    train = train_op(output, output - tf.constant(work.target()), "adam")
    start_asc_pipeline()
    plain, evicting = [], []
    with v1.train.MonitoredSession(hooks=[EvictHook(evict_enable=True, evict_time_interval=1)]) as session:

        def without_hooks(fn):
            session.run_step_fn(lambda step_context: fn(step_context.session))

        without_hooks(lambda plain: plain.run(train_input.initializer, {pool: workloads.key_of(0, young)}))
        session.run(train)  # TensorFlow's own preparations for the first step with hooks
        without_hooks(populate)  # takes longer than the hook's interval

        def run(times, fn):
            started = time.perf_counter()
            fn()
            times.append(1e3 * (time.perf_counter() - started))

        for _ in range(20):
            run(plain, lambda: without_hooks(lambda plain: plain.run(train)))
        before, left = tables.size(), None
        while tables.size() != left:  # until a step evicts nothing
            left = tables.size()
            run(evicting, lambda: session.run(train))
    return {}, {
        "rows": before,
        "evicted": before - tables.size(),
        "steps": len(evicting),
        "step_ms": statistics.median(plain[LEAD:]),
        "longest_ms": max(evicting),
    }


def e2e(optimizer, scale, training, lookup="spec", threads=0):
    data = clicks.Clicks(scale, training)
    tables = Tables(data.work, v1.constant_initializer(clicks.INITIAL))
    ids, label = v1.placeholder(tf.int64, [None, *data.shape]), v1.placeholder(tf.float32, [None, data.work.examples])
    dataset = tf.data.Dataset.from_tensor_slices({**tables.features(ids), "label": label}).repeat()
    train_input, batch, embeddings = tables.read(dataset, is_train=True, lookup=lookup)
    net = deep_net.DeepNet(join(embeddings), batch["label"])
    train = tf.group(net.train_dense, train_op(net.inputs, net.input_gradient, optimizer))
    held_out_input, batch, embeddings = tables.read(dataset, is_train=False, lookup=lookup)
    held_out = deep_net.logits(join(embeddings))
    populate = tables.make_populate()
    session = start(lookup, threads)
    session.run(v1.global_variables_initializer())
    populate(session)
    session.run(train_input.initializer, {ids: data.keys(data.train), label: data.train.labels})
    session.run(held_out_input.initializer, {ids: data.keys(data.held_out), label: data.held_out.labels})
    step = session.make_callable(train)
    auc = data.auc_after_training(lambda i: step(), lambda i: session.run(held_out))
    measures = {
        "train": worker.Measure(lambda i: step(), data.work.examples, LEAD),
        "train_rested": worker.Measure(lambda i: step(), data.work.examples, LEAD, pause=REST),
    }
    return measures, {"auc": auc}


if __name__ == "__main__":
    worker.main({"workload": workload, "restart": restart, "growth": growth, "eviction": eviction, "e2e": e2e})
