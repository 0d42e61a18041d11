"""Simulation: the steps of many ranks message by message, with keys drawn by Zipf's law and ranks that are late.

An independent look at what scaling.py says in one formula: here nothing is a mean. Keys are drawn, dealt out to owners
by a hash, and counted; each rank's stages take times of their own; every message leaves its sender's link after those
before it and enters its receiver's link when that is free; and a rank goes on when the last message is there.
"""

import numpy as np


def simulate(job, keys, ranks, costs, network, head, steps=20, seed=1) -> float:
    """Seconds of a step: the mean of `steps`. `keys` tells how a table's keys are distributed, `head` is the bytes
    before each table's part of a message."""
    random = np.random.default_rng(seed)
    asked, rows = _loads(job, keys, ranks, random)
    away = asked * (1 - np.eye(ranks))
    heads = job.tables * head * (1 - np.eye(ranks))
    row = 8 + 4 * job.dim
    share = 4 * job.parameters / ranks * (1 - np.eye(ranks))
    mine, answered = asked.sum(1), asked.sum(0)
    positions = job.tables * job.positions

    def cost(stage, number):
        of_key, of_float = costs.stages[stage]
        return number * (of_key + of_float * job.dim)

    ask = costs.step + cost("prepare", positions) + cost("ask", mine)
    answer = cost("answer", answered)
    train = cost("finish", positions) + costs.value * positions / job.ids * job.dim + job.dense
    train = train + cost("send gradients", positions)
    update = cost("apply gradients", 0.5 * (answered + rows))

    def work(now, seconds):
        """Every rank works for about so long."""
        shape = costs.late**-2 if costs.late > 0 else None
        factor = random.gamma(shape, 1 / shape, ranks) if shape else 1.0
        return now + seconds * factor

    now = np.zeros(ranks)
    for number in range(steps + 2):
        if number == 2:  # the first ones begin all at once
            began = now.mean()
        now = _exchange(work(now, ask), 8 * away + heads, network)
        now = _exchange(work(now, answer), (row * away).T + heads, network)
        now = _exchange(work(now, train), row * away + heads, network)
        for _ in range(2 if job.parameters else 0):
            now = _exchange(now, share, network)
        now = work(now, update)
    return float((now.mean() - began) / steps)


def _loads(job, keys, ranks, random):
    """(keys that rank i asks rank j for, distinct rows that rank j updates)."""
    cumulated = np.cumsum(keys.count * keys.chance)
    before = np.concatenate([[0.0], np.cumsum(keys.count)])
    asked, everything = np.zeros((ranks, ranks)), []
    for rank in range(ranks):
        group = np.searchsorted(cumulated, random.random((job.tables, job.positions)) * cumulated[-1])
        group = np.minimum(group, len(keys.count) - 1)
        key = (before[group] + random.random(group.shape) * keys.count[group]).astype(np.uint64)
        key = np.unique(key + (np.arange(job.tables, dtype=np.uint64)[:, None] << np.uint64(48)))
        asked[rank] = np.bincount(_owner(key, ranks), minlength=ranks)
        everything.append(key)
    rows = np.bincount(_owner(np.unique(np.concatenate(everything)), ranks), minlength=ranks)
    return asked, rows


def _owner(key, ranks):
    x = (key + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)  # array arithmetic wraps
    x = (x ^ (x >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return ((x >> np.uint64(40)) * np.uint64(ranks) >> np.uint64(24)).astype(np.int64)


def _exchange(now, size, network):
    """When each rank has what all ranks give it, `size[i, j]` bytes from i to j, if rank i gives at now[i]."""
    ranks = len(now)
    # Rank i sends to i + 1, i + 2, ...: all receivers are equally busy.
    to = (np.arange(ranks)[:, None] + np.arange(1, ranks)) % ranks
    sizes = np.take_along_axis(size, to, 1)
    left = now[:, None] + np.cumsum(sizes / network.rate + network.each, 1)
    arrived = np.full((ranks, ranks), -np.inf)  # at the receiver (row), from the sender (column)
    arrived[to, np.arange(ranks)[:, None]] = left + network.latency
    order = np.argsort(arrived, 1)
    arrived = np.take_along_axis(arrived, order, 1)[:, 1:]
    taken = np.cumsum(np.take_along_axis(size.T, order, 1)[:, 1:] / network.rate, 1)
    ended = taken[:, -1] + (arrived - taken).max(1)  # one after another: a chain of the later of two
    return np.maximum(now, ended)
