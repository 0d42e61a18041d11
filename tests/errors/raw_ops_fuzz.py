"""Runs the ops of the core with forged plans, attributes and shapes.

    python -m tests.errors.raw_ops_fuzz plans 1000 1    runs 1000 cases of seed 1

A graph may come from elsewhere, so whatever it passes, the answer is a TensorFlow error or a result, never the end of
the process. Prints the number of each case before it runs, so that the last line names the one that a crash belongs to.
"""

import sys

import numpy as np
import tensorflow as tf

from mx_rec._ops import library
from mx_rec.constants.constants import ASCEND_TIMESTAMP
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.util.initialize import init, terminate_config_initializer

v1 = tf.compat.v1
DIM = 4
TABLES = ["plain", "counted", "evicting"]
ODD = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1]
CLEAN = (tf.errors.OpError, ValueError, TypeError)


def make_tables():
    anchors = []
    for name, thresholds in zip(
        TABLES, [{}, {"access_threshold": 2}, {"access_threshold": 1, "eviction_threshold": 9}]
    ):
        table = create_table(key_dtype=tf.int64, dim=DIM, name=name, emb_initializer=tf.ones_initializer())
        v1.add_to_collection(ASCEND_TIMESTAMP, tf.constant(7, tf.int64))
        sparse_lookup(table, tf.constant([1, 2, 3], tf.int64), access_and_evict_config=thresholds or None)
        v1.get_default_graph().clear_collection(ASCEND_TIMESTAMP)
        anchors.append(v1.get_default_graph().get_tensor_by_name(f"{name}:0"))
    return anchors


def attributes(features=4):
    return {
        "tables": TABLES,
        "table_in_plan": [0, 1, 2],
        "dims": [DIM] * 3,
        "features": [2, 1, 1],
        "modes": [2] * 3,
        "with_rows": [1] * 3,
        "capacities": [0] * 3,
        "pads": [0, 1, 0],
        "table_of_feature": [0, 0, 1, 2],
        "feature_in_plan": [0, 1, 2, 3],
        "views": [1, 2, 1, 1],
        "leaders": [0, 1, 2, 3],
        "columns": [0] * features,
        "grouped": True,
    }


class Graph:
    """Every op that reads a plan, each by itself, and the results of a run with a good one."""

    def __init__(self, random):
        ops, anchors = library.ops(), make_tables()
        ids = [np.array(random.integers(0, 40, shape)) for shape in [(50,), (10, 5), (30,), (20,)]]
        self.plan = v1.placeholder(tf.int64, [None])
        prepare = {"tables": TABLES, "table_of_feature": [0, 0, 1, 2]}
        times = [tf.constant(random.integers(1, 99, 10), tf.int64)]
        good = ops.mxrec_prepare(ids=ids, times=times, grouped=True, **prepare)
        flat = ops.mxrec_prepare(ids=ids, times=times, grouped=False, **prepare)
        looked_up = ops.mxrec_lookup(plan=self.plan, anchors=anchors, F=4, **attributes())
        self.session = v1.Session()
        self.session.run(v1.global_variables_initializer())
        self.plans = self.session.run([good, flat])
        _, self.handles, _ = self.session.run(looked_up, {self.plan: self.plans[0]})
        gradients = [np.ones((50, DIM), np.float32), np.ones((10, DIM), np.float32), np.ones((30, DIM), np.float32)]
        common = {"plan": self.plan, "table": 0}
        self.reads = [
            looked_up,
            ops.mxrec_lookup(
                plan=self.plan, anchors=anchors, F=4, **{**attributes(), "grouped": False, "modes": [1] * 3}
            ),
            ops.mxrec_group(plan=self.plan, tables=TABLES),
            ops.mxrec_fold(gradient=gradients[0], feature=0, pooled=False, dim=DIM, **common),
            ops.mxrec_fold(gradient=gradients[1], feature=1, pooled=True, dim=DIM, **common),
            ops.mxrec_has_row(handles=self.handles[0], feature=1, ids_shape=[None, None], **common),
            ops.mxrec_padding(keys=[3, 1], feature=1, ids_shape=[None, None], **common),
            ops.mxrec_touched(handles=self.handles[0], features=[0, 1], **common),
            ops.mxrec_fold_update(
                plan=self.plan,
                handles=self.handles[:2],
                gradients=gradients,
                hyper=np.array([0.1], np.float32),
                tables=TABLES[:2],
                table_in_plan=[0, 1],
                table_of_gradient=[0, 0, 1],
                feature_of_gradient=[0, 1, 2],
                pooled=[0, 1, 0],
                columns=[0, 0, 0],
                rule="gradient_descent",
            ),
        ]


def forge(plan, random):
    """A plan with a few numbers changed, as 64-bit or as 32-bit ones, in its head or anywhere."""
    plan = plan.copy()
    for _ in range(random.integers(1, 4)):
        numbers = plan if random.random() < 0.4 else plan.view(np.int32)
        head = 60 * plan.itemsize // numbers.itemsize
        at = random.integers(0, min(head, numbers.size) if random.random() < 0.3 else numbers.size)
        kind = random.integers(0, 4)
        if kind == 0:
            numbers[at] = np.array(random.choice(ODD)).astype(numbers.dtype)
        elif kind == 1:
            numbers[at] += random.integers(-3, 4)
        elif kind == 2:
            other = random.integers(0, numbers.size)
            numbers[at], numbers[other] = numbers[other], numbers[at]
        else:
            numbers[at] = random.integers(0, 200)
    return plan[: random.integers(0, plan.size)] if random.random() < 0.05 else plan


def fuzz_plans(cases, random):
    graph, refused = Graph(random), 0
    for case in range(cases):
        print(case, flush=True)
        plan = forge(graph.plans[case % 5 == 0], random)
        for op in graph.reads:
            try:
                graph.session.run(op, {graph.plan: plan})
            except CLEAN:
                refused += 1
    # It works as before.
    _, _, embeddings = graph.session.run(graph.reads[0], {graph.plan: graph.plans[0]})
    assert all(np.isfinite(values).all() for values in embeddings)
    assert refused > cases


def fuzz_attributes(cases, random):
    graph, ran = Graph(random), 0
    ops, anchors = library.ops(), [v1.get_default_graph().get_tensor_by_name(f"{name}:0") for name in TABLES]

    def changed(good):
        attributes = {key: list(value) if isinstance(value, list) else value for key, value in good.items()}
        for _ in range(random.integers(1, 3)):
            key = random.choice(
                [key for key, value in attributes.items() if isinstance(value, list) and key != "tables"]
            )
            values = attributes[key]
            at, how = random.integers(0, len(values)), random.random()
            if how < 0.6:
                values[at] = int(random.choice(ODD))
            elif how < 0.8 and len(values) > 1:
                values.pop(at)
            else:
                values.append(int(random.choice(ODD)))
        return attributes

    for case in range(cases):
        print(case, flush=True)
        plan = graph.plans[0]
        try:
            which = case % 4
            if which == 0:
                some = anchors[: random.integers(1, 4)]
                op = ops.mxrec_lookup(plan=plan, anchors=some, F=int(random.integers(1, 6)), **changed(attributes()))
            elif which == 1:
                numbers = changed({"table": [0], "feature": [0], "dim": [DIM]})
                op = ops.mxrec_fold(
                    gradient=np.ones((50, DIM), np.float32),
                    plan=plan,
                    pooled=bool(random.integers(0, 2)),
                    **{key: values[0] for key, values in numbers.items()},
                )
            elif which == 2:
                numbers = changed({"dims": [DIM], "rows": [1], "table_of_file": [0], "bytes": [1], "crc32c": [1]})
                asset = random.choice(["a", ["a", "b"], [["a"]]]) if case % 8 == 2 else ["/a/b", "c"]
                asset = v1.placeholder_with_default(tf.constant(asset), None)
                op = ops.mxrec_serve(asset=asset, tables=["served"], directories=["d"], files=["f"], **numbers)
            else:
                numbers = changed(
                    {
                        "table_in_plan": [0],
                        "table_of_gradient": [0],
                        "feature_of_gradient": [0],
                        "pooled": [0],
                        "columns": [0],
                    }
                )
                op = ops.mxrec_fold_update(
                    plan=plan,
                    handles=[graph.handles[0]],
                    gradients=[np.ones((50, DIM), np.float32)],
                    hyper=np.array([0.1], np.float32),
                    tables=["plain"],
                    rule="gradient_descent",
                    **numbers,
                )
            ran += 1
            graph.session.run(op)
        except CLEAN:
            pass
    assert ran > 0


# Without an id. Pooled, those that end with 0 are that many rows of zeros: more than any machine has, or none.
SHAPES = [(0, 2**32), (2**59, 0), (0, 3), (3, 0), (0, 0)]


def fuzz_shapes(cases, random):
    tables = [
        create_table(key_dtype=tf.int64, dim=DIM, name=name, emb_initializer=tf.ones_initializer()) for name in "ab"
    ]
    ids = v1.placeholder(tf.int64, [None, None])
    from mx_rec.core.asc.manager import start_asc_pipeline
    from mx_rec.optimizers import gradient_descent
    from mx_rec.util.variable import get_dense_and_sparse_variable

    pooled = tf.reduce_sum(sparse_lookup(tables[0], ids), axis=-2)
    each = sparse_lookup(tables[1], ids)
    loss = tf.reduce_sum(pooled) + tf.reduce_sum(each)
    _, sparse = get_dense_and_sparse_variable()
    optimizer = gradient_descent.create_hash_optimizer(learning_rate=0.1)
    train = optimizer.apply_gradients(zip(tf.gradients(loss, sparse), sparse))
    start_asc_pipeline()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for case in range(cases):
            shape = (
                SHAPES[case]
                if case < len(SHAPES)
                else (int(2 ** random.integers(45, 62)), 0)[:: random.choice([1, -1])]
            )
            print(case, flush=True)
            for fetch in (pooled, train):
                try:
                    session.run(fetch, {ids: np.empty(shape, np.int64)})
                except CLEAN:
                    pass
        session.run(train, {ids: [[1, 2]]})
        assert [table.size() for table in tables] == [2, 2]


def main():
    kind, cases, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    init(use_dynamic_expansion=True)
    with tf.Graph().as_default():
        {"plans": fuzz_plans, "attributes": fuzz_attributes, "shapes": fuzz_shapes}[kind](
            cases, np.random.default_rng(seed)
        )
    terminate_config_initializer()
    print("survived")


if __name__ == "__main__":
    main()
