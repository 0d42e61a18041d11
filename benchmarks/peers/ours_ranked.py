"""mx_rec on one rank or several: the steps of ours.py, each rank with its part of every batch."""

import numpy as np
import tensorflow as tf

from benchmarks import clicks, workloads
from benchmarks.peers import deep_net, ours, ranked
from mx_rec import _ranks
from mx_rec.core.distributed import average_gradients

v1 = tf.compat.v1


def workload(workload, scale, threads, seconds):
    work = workloads.get(workload, scale)
    tables = ours.Tables(work, v1.random_uniform_initializer(-0.05, 0.05))
    keys = ranked.part(work.keys(), 2)
    pool = v1.placeholder(tf.int64, keys.shape)
    dataset = tf.data.Dataset.from_tensor_slices(tables.features(pool)).repeat()
    iterator, _, embeddings = tables.read(dataset, is_train=True)
    output = ours.join(embeddings)
    train = ours.train_op(output, output - tf.constant(ranked.part(work.target(), 0)), "adam")
    populate = tables.make_populate(_own_part)
    session = ours.start("spec", threads)
    session.run(v1.global_variables_initializer())
    populate(session)
    session.run(iterator.initializer, {pool: keys})
    return _measure(session.make_callable(train), seconds, tables)


def e2e(scale, threads, seconds):
    data = clicks.Clicks(scale, 0)
    # The loss is a mean over the rank's part: so is the sum of the ranks' gradients.
    mean = {"all2all_gradients_op": "sum_gradients_and_div_by_ranksize"}
    tables = ours.Tables(data.work, v1.constant_initializer(clicks.INITIAL), **mean)
    ids, labels = ranked.part(data.keys(data.train), 2), ranked.part(data.train.labels, 1)
    fed_ids, fed_labels = v1.placeholder(tf.int64, ids.shape), v1.placeholder(tf.float32, labels.shape)
    dataset = tf.data.Dataset.from_tensor_slices({**tables.features(fed_ids), "label": fed_labels}).repeat()
    train_input, batch, embeddings = tables.read(dataset, is_train=True)
    net = deep_net.DeepNet(ours.join(embeddings), batch["label"], average_gradients)
    train = tf.group(net.train_dense, ours.train_op(net.inputs, net.input_gradient, "adam"))
    held_out = ranked.part(data.keys(data.held_out), 2)
    fed_held_out = v1.placeholder(tf.int64, held_out.shape)
    dataset = tf.data.Dataset.from_tensor_slices(tables.features(fed_held_out)).repeat()
    held_out_input, _, embeddings = tables.read(dataset, is_train=False)
    logits = deep_net.logits(ours.join(embeddings))
    populate = tables.make_populate(_own_part)
    session = ours.start("spec", threads)
    session.run(v1.global_variables_initializer())
    populate(session)
    session.run(train_input.initializer, {fed_ids: ids, fed_labels: labels})
    session.run(held_out_input.initializer, {fed_held_out: held_out})
    step = session.make_callable(train)
    for _ in range(len(ids)):
        step()
    scores = np.concatenate([np.ravel(session.run(logits)) for _ in range(len(held_out))])
    scores = np.frombuffer(b"".join(_ranks.gather("benchmark/scores", scores.tobytes())), scores.dtype)
    truth = ranked.part(data.held_out.labels, 1).ravel().tobytes()
    truth = np.frombuffer(b"".join(_ranks.gather("benchmark/labels", truth)), np.float32)
    return {**_measure(step, seconds, tables), "auc": clicks.auc(truth, scores)}


def _agree(steps):
    return min(int(told) for told in _ranks.gather("benchmark/steps", str(steps).encode()))


def _own_part(keys):
    """Of keys [tables, rows], those that this rank asks for."""
    return ranked.part(keys, 1)


def _measure(step, seconds, tables):
    before = []
    measures = ranked.measure(step, seconds, 4 * ours.LEAD, _agree, lambda: before.append(_ranks.statistics()))
    if ranked.SIZE > 1:
        measures.update(_spent(before[0], measures["steps"]))
    rows = sum(int(told) for told in _ranks.gather("benchmark/rows", str(tables.size()).encode()))
    return {**measures, "rows": rows}


def _spent(before, steps):
    """What each of so many steps spent on exchanges; the milliseconds waited, of the rank that waited least first."""
    spent = [(now - then) / steps for now, then in zip(_ranks.statistics(), before)]
    waits = sorted(float(told) for told in _ranks.gather("benchmark/waits", str(spent[2] / 1e3).encode()))
    return {"exchanges": spent[0], "megabytes": spent[1] / 1e6, "waits": waits}


def ping(seconds):
    """How long an exchange takes, by the bytes that each rank gives each other: from giving to having got, which leaves
    out what Python does with the bytes. One of few bytes goes before each, so that the ranks begin together."""
    ours.init()
    times = {}
    for size in (64, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20):
        data = bytes(size)

        def step(stream=f"benchmark/{size}", data=data):
            _ranks.gather("benchmark/together", b"")
            _ranks.gather(stream, data)

        before = []
        steps = ranked.measure(step, seconds, 3, _agree, lambda to=before: to.append(_ranks.statistics()))["steps"]
        waits = _spent(before[0], steps)["waits"]
        both = sum(waits) / len(waits)
        times[size] = both - (times[64] if times else both / 2)
    return {"milliseconds_by_bytes": times}


if __name__ == "__main__":
    ranked.main({"workload": workload, "e2e": e2e, "ping": ping})
