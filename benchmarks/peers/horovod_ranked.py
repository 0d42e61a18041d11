"""Horovod as a peer: every rank has all tables as stock variables, and trains on its part of every batch.

"gathered": sparse gradients are gathered from all ranks, as Horovod does by default, and LazyAdam updates their rows.
"dense": they are made dense and summed over the ranks (sparse_as_dense), and the built-in Adam updates every row.
"""

import horovod.tensorflow as hvd
import tensorflow as tf

from benchmarks import clicks
from benchmarks.peers import deep_net, ranked, stock

v1 = tf.compat.v1


def _average(pairs):
    return [(hvd.allreduce(gradient), variable) for gradient, variable in pairs]


def e2e(scale, threads, seconds, way):
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (ranked.RANK, ranked.SIZE)
    data = clicks.Clicks(scale, 0)
    tables = stock.make_tables(data.work)
    ids, labels = ranked.part(data.train.indices, 2), ranked.part(data.train.labels, 1)
    fed_ids, fed_labels = v1.placeholder(tf.int64, ids.shape), v1.placeholder(tf.float32, labels.shape)
    dataset = tf.data.Dataset.from_tensor_slices((fed_ids, fed_labels)).repeat().prefetch(2)
    train_input = v1.data.make_initializable_iterator(dataset)
    batch_ids, batch_labels = train_input.get_next()
    embeddings = [tf.nn.embedding_lookup(table, batch_ids[t]) for t, table in enumerate(tables)]
    net = deep_net.DeepNet(tf.concat(embeddings, axis=1), batch_labels, _average)
    adam = hvd.DistributedOptimizer(v1.train.AdamOptimizer(1e-3, name="AdamTables"), sparse_as_dense=way == "dense")
    gradients = adam.compute_gradients(net.inputs, tables, grad_loss=net.input_gradient)
    apply = adam.apply_gradients if way == "dense" else stock.lazy_adam
    train = tf.group(net.train_dense, apply(gradients))
    session = v1.Session(
        config=v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    )
    stock.initialize(session, tables, clicks.INITIAL, clicks.INITIAL)
    session.run(train_input.initializer, {fed_ids: ids, fed_labels: labels})
    n = v1.placeholder(tf.int32, [])
    least = hvd.allreduce(n, op=hvd.Min)
    step = session.make_callable(train)
    return ranked.measure(step, seconds, 2 if way == "dense" else 8, lambda steps: int(session.run(least, {n: steps})))


if __name__ == "__main__":
    ranked.main({"e2e": e2e})
