"""Collectives and what dense variables need of them, case after case: python -m tests.ranks.collectives.

Every rank checks what it gets against NumPy, and prints "all cases passed" at the end.
"""

import numpy as np
import tensorflow as tf

from mx_rec.core.distributed import average_gradients, broadcast_variables, distributed_optimizer
from mx_rec.npu.distribution import npu_allreduce
from mx_rec.util.communication import hccl_ops
from mx_rec.util.initialize import get_rank_id, get_rank_size, init

v1 = tf.compat.v1
RANK, SIZE = get_rank_id(), get_rank_size()

REDUCTIONS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
SHAPES = ((), (0,), (1,), (3, 5), (2, 0, 4), (1000,))
EXACT = (np.float32, np.float64, np.int32, np.int64)
MOVED = (*EXACT, np.float16, np.uint8, np.bool_)


def of_rank(rank, shape, dtype, seed=0):
    """What a rank gives."""
    return np.random.RandomState(17 * rank + seed).randint(-3, 4, shape).astype(dtype)


def run(*fetches):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(fetches)


def reduces():
    fetches, expected = [], []
    for dtype in (*EXACT, np.float16, tf.bfloat16.as_numpy_dtype):
        for shape in SHAPES:
            for name, reduce in REDUCTIONS.items():
                fetches.append(hccl_ops.allreduce(tf.constant(of_rank(RANK, shape, dtype)), name, fusion=2))
                exact = np.float32 if np.dtype(dtype).itemsize == 2 else dtype
                all_ranks = np.stack([of_rank(rank, shape, dtype).astype(exact) for rank in range(SIZE)])
                expected.append(reduce(all_ranks, axis=0).astype(dtype))
    for got, want in zip(run(*fetches), expected):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def reduces_lists():
    values = [tf.constant(of_rank(RANK, (n + 1,), kind)) for n, kind in enumerate((np.float32, np.int64, np.float32))]
    means = npu_allreduce([values[0], None, values[2]])
    assert means[1] is None and npu_allreduce(None) is None
    sums = npu_allreduce(values, "sum")
    got = run(means[0], means[2], *sums)
    whole = [sum(of_rank(r, (n + 1,), np.float64) for r in range(SIZE)) for n in range(3)]
    for have, want in zip(got, [whole[0] / SIZE, whole[2] / SIZE, *whole]):
        np.testing.assert_allclose(have, want, rtol=1e-6)


def gathers():
    fetches, expected = [], []
    for dtype in MOVED:
        for rest in ((), (2,), (0,)):
            shapes = [(2 * rank, *rest) for rank in range(SIZE)]  # rank 0 gives nothing
            fetches.append(hccl_ops.allgather(tf.constant(of_rank(RANK, shapes[RANK], dtype)), SIZE))
            expected.append(np.concatenate([of_rank(rank, shapes[rank], dtype) for rank in range(SIZE)]))
    fetches.append(hccl_ops.allgather(tf.constant(RANK)))
    expected.append(np.arange(SIZE))
    for got, want in zip(run(*fetches), expected):
        np.testing.assert_array_equal(got, want)


def broadcasts():
    fetches, expected = [], []
    for root in range(SIZE):
        tensors = [tf.constant(of_rank(RANK, shape, dtype)) for dtype in MOVED for shape in SHAPES]
        fetches.extend(hccl_ops.broadcast(tensors, root))
        expected.extend(of_rank(root, shape, dtype) for dtype in MOVED for shape in SHAPES)
    fetches.append(hccl_ops.broadcast(tf.constant(RANK), SIZE - 1))
    expected.append(np.asarray(SIZE - 1))
    for got, want in zip(run(*fetches), expected):
        np.testing.assert_array_equal(got, want)


def deals():
    fetches, expected = [], []
    for dtype in MOVED:
        for each in (0, 1, 3):
            shape = (each * SIZE, 2)
            fetches.append(hccl_ops.alltoall(tf.constant(of_rank(RANK, shape, dtype))))
            mine = slice(RANK * each, (RANK + 1) * each)
            expected.append(np.concatenate([of_rank(rank, shape, dtype)[mine] for rank in range(SIZE)]))
    shape = (2 * SIZE, 3)
    fetches.append(hccl_ops.reduce_scatter(tf.constant(of_rank(RANK, shape, np.float32)), "sum", SIZE))
    expected.append(sum(of_rank(rank, shape, np.float32) for rank in range(SIZE))[2 * RANK : 2 * RANK + 2])
    for got, want in zip(run(*fetches), expected):
        np.testing.assert_array_equal(got, want)


def gradients():
    """The loss of all ranks is a known function of what each gives; its gradient is what NumPy says."""
    x = [np.random.RandomState(rank).normal(size=(2 * SIZE, 3)).astype(np.float32) for rank in range(SIZE)]
    weight = [np.random.RandomState(90 + rank).normal(size=(SIZE, 2 * SIZE, 3)) for rank in range(SIZE)]
    mine = tf.constant(x[RANK])
    everywhere = sum(one[0] for one in weight)

    def gradient(output, factor):
        return tf.gradients(tf.reduce_sum(output * tf.constant(factor, tf.float32)), mine)[0]

    cases = [(gradient(hccl_ops.allreduce(mine), weight[RANK][0]), everywhere)]
    cases.append((gradient(npu_allreduce(mine), weight[RANK][0]), everywhere / SIZE))
    largest = np.argmax(np.stack(x), axis=0) == RANK
    cases.append((gradient(hccl_ops.allreduce(mine, "max"), weight[RANK][0]), everywhere * largest))
    smallest = np.argmin(np.stack(x), axis=0) == RANK
    cases.append((gradient(hccl_ops.allreduce(mine, "min"), weight[RANK][0]), everywhere * smallest))
    whole = sum(one.reshape(-1, 3) for one in weight)
    gathered = hccl_ops.allgather(mine)
    cases.append((gradient(gathered, weight[RANK].reshape(-1, 3)), whole[2 * SIZE * RANK : 2 * SIZE * (RANK + 1)]))
    root = SIZE - 1
    cases.append((gradient(hccl_ops.broadcast(mine, root), weight[RANK][0]), everywhere * (RANK == root)))
    dealt = np.concatenate([one[0][2 * RANK : 2 * RANK + 2] for one in weight])
    cases.append((gradient(hccl_ops.alltoall(mine), weight[RANK][0]), dealt))
    scattered = np.concatenate([one[0][:2] for one in weight])
    cases.append((gradient(hccl_ops.reduce_scatter(mine), weight[RANK][0][:2]), scattered))
    for number, (got, (_, want)) in enumerate(zip(run(*(tensor for tensor, _ in cases)), cases)):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=str(number))
    try:
        tf.gradients(hccl_ops.allreduce(mine, "prod"), mine)
    except LookupError as error:
        assert "logarithms" in str(error)
    else:
        raise AssertionError("a product has no gradient")


def fails(tensor, *words, kind=tf.errors.FailedPreconditionError):
    try:
        run(tensor)
    except kind as error:
        for word in words:
            assert word in str(error), error
    else:
        raise AssertionError(f"no error with {words}")


def differs():
    """One rank gives something else: an error on every rank that names it, and nobody waits."""
    odd = RANK == SIZE - 1
    for collective in (hccl_ops.allreduce, hccl_ops.alltoall, hccl_ops.broadcast):
        fails(collective(tf.zeros([SIZE, 2 * SIZE] if odd else [2 * SIZE, SIZE])), "other types or shapes", "rank")
        fails(collective(tf.zeros([2 * SIZE] if odd else [SIZE])), "other types or shapes", "rank")
        fails(collective(tf.constant([1] * SIZE, tf.int32 if odd else tf.float32)), "other types or shapes")
    fails(hccl_ops.allgather(tf.zeros([2, 3] if odd else [2, 4])), "other types or shapes")
    fails(hccl_ops.allgather(tf.zeros([2, 1] if odd else [2])), "other types or shapes")
    fails(hccl_ops.alltoall(tf.zeros([SIZE + 1])), "multiple of the number", kind=tf.errors.InvalidArgumentError)
    # After an error the next exchange is in step again.
    assert run(hccl_ops.allreduce(tf.constant(RANK)))[0] == sum(range(SIZE))
    # An error before the collective, on one rank: the others learn of it.
    number = tf.debugging.check_numerics(tf.constant(np.nan if odd else 1.0), f"it was rank {RANK}")
    fails(hccl_ops.allreduce(number), f"it was rank {SIZE - 1}", kind=tf.errors.InvalidArgumentError)


def optimizes():
    """A step with the averages of the ranks' gradients, dense, sparse, clipped and of several types."""
    target = [np.random.RandomState(rank).normal(size=(4, 3)).astype(np.float32) for rank in range(SIZE)]
    ids = [[rank, 3, rank, 2] for rank in range(SIZE)]
    for way in ("minimize", "clipped", "apply"):
        with tf.Graph().as_default():
            dense = v1.get_variable("dense", initializer=np.ones((4, 3), np.float32), use_resource=way != "apply")
            double = v1.get_variable("double", initializer=np.ones(3), use_resource=True)
            stock = v1.get_variable("stock", initializer=np.zeros((4, 3), np.float32), use_resource=True)
            unused = v1.get_variable("unused", initializer=np.zeros(2, np.float32), use_resource=True)
            loss = tf.reduce_sum(tf.square(dense - target[RANK])) / 2
            loss += tf.reduce_sum(tf.cast(double, tf.float32) * target[RANK])
            loss += tf.reduce_sum(tf.nn.embedding_lookup(stock, ids[RANK]) * target[RANK])
            stock_optimizer = v1.train.GradientDescentOptimizer(0.5)
            optimizer = distributed_optimizer(stock_optimizer)
            assert isinstance(optimizer, v1.train.GradientDescentOptimizer)
            assert distributed_optimizer(optimizer) is optimizer
            if way == "minimize":
                step = optimizer.minimize(loss)
            elif way == "clipped":
                pairs = [pair for pair in optimizer.compute_gradients(loss) if pair[0] is not None]
                step = optimizer.apply_gradients([(tf.clip_by_norm(gradient, 1e6), var) for gradient, var in pairs])
            else:
                chosen = [dense, double, stock, unused]
                step = optimizer.apply_gradients(zip(tf.gradients(loss, chosen), chosen))
            ops = v1.get_default_graph().get_operations()
            assert sum(op.type == "MxrecAllReduce" for op in ops) == 2, "the gradients of a type travel together, once"
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                session.run(step)
                got = session.run([dense, double, stock])
        mean = sum(target) / SIZE
        np.testing.assert_allclose(got[0], 1 - 0.5 * (1 - mean), rtol=1e-5)
        np.testing.assert_allclose(got[1], 1 - 0.5 * mean.sum(0), rtol=1e-5)
        want = np.zeros((4, 3), np.float32)
        for rank in range(SIZE):
            np.subtract.at(want, ids[rank], 0.5 * target[rank] / SIZE)
        np.testing.assert_allclose(got[2], want, rtol=1e-5, atol=1e-6)


def keras_optimizes():
    with tf.Graph().as_default():
        variable = v1.get_variable("v", initializer=np.zeros(3, np.float32), use_resource=True)
        optimizer = distributed_optimizer(tf.keras.optimizers.legacy.SGD(1.0))
        step = optimizer.apply_gradients([(tf.constant([1.0 * RANK] * 3), variable)])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(step)
            np.testing.assert_allclose(session.run(variable), -np.full(3, np.mean(range(SIZE))))


def broadcasts_variables():
    with tf.Graph().as_default():
        one = v1.get_variable("one", initializer=np.full(3, RANK, np.float32), use_resource=True)
        two = v1.get_variable("two", initializer=np.full(2, RANK, np.int64), use_resource=False)
        op = broadcast_variables(root_rank=SIZE - 1)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(op)
            assert session.run(one).tolist() == [SIZE - 1] * 3 and session.run(two).tolist() == [SIZE - 1] * 2


def averages_nothing():
    assert average_gradients([]) == []
    variable = v1.get_variable("nothing", initializer=0.0, use_resource=True)
    assert average_gradients([(None, variable)]) == [(None, variable)]


CASES = (
    *(reduces, reduces_lists, gathers, broadcasts, deals, gradients, differs, optimizes, keras_optimizes),
    *(broadcasts_variables, averages_nothing),
)

if __name__ == "__main__":
    init()
    for case in CASES:
        with tf.Graph().as_default():
            case()
        print(f"rank {RANK}: {case.__name__} passed", flush=True)
    print(f"rank {RANK}: all cases passed", flush=True)
