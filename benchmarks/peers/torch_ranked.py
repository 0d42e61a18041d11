"""PyTorch as a peer: tables sharded row by row over the ranks, by plain torch.distributed over Gloo.

The tables are one array, row r of which is on rank r % ranks. Ids travel to their rows' ranks, rows back, and gradients
of rows again; each way is one all-to-all. "distinct": each id once; else as often as it occurs.
"""

import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from benchmarks import clicks
from benchmarks.peers import ranked

torch.set_flush_denormal(True)  # as TensorFlow does


def _swap(tensor, sent, got):
    """Gives rank r `sent[r]` rows of the tensor, and gets `got[r]` from it."""
    out = tensor.new_empty((sum(got), *tensor.shape[1:]))
    dist.all_to_all_single(out, tensor, got, sent)
    return out


class _Rows(torch.autograd.Function):
    """Rows travel from their owners, and their gradients back."""

    @staticmethod
    def forward(context, rows, sent, got):
        context.sizes = sent, got
        return _swap(rows, sent, got)

    @staticmethod
    def backward(context, gradient):
        sent, got = context.sizes
        return _swap(gradient.contiguous(), got, sent), None, None


class Sharded(nn.Module):
    """Tables of equal size, side by side in one array, of which this rank has every SIZE-th row."""

    def __init__(self, work, initial, way):
        super().__init__()
        self.rows = nn.Embedding(-(-work.tables * work.rows // ranked.SIZE), work.dim, sparse=True)
        nn.init.constant_(self.rows.weight, initial)
        self._first = torch.arange(work.tables)[:, None] * work.rows
        self._is_distinct = way == "distinct"

    def forward(self, ids):
        """[examples, tables * dim] of ids [tables, examples]."""
        tables, examples = ids.shape
        ids = (ids + self._first).reshape(-1)
        if self._is_distinct:
            ids, place = torch.unique(ids, return_inverse=True)
        owner = ids % ranked.SIZE
        order = torch.argsort(owner, stable=True)
        asked = torch.bincount(owner, minlength=ranked.SIZE)
        answered = torch.empty_like(asked)
        dist.all_to_all_single(answered, asked)
        asked, answered = asked.tolist(), answered.tolist()
        keys = _swap(ids[order] // ranked.SIZE, asked, answered)
        rows = _Rows.apply(self.rows(keys), answered, asked)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        if self._is_distinct:
            back = back[place]
        return rows[back].reshape(tables, examples, -1).transpose(0, 1).reshape(examples, -1)


def e2e(scale, threads, seconds, way):
    torch.set_num_threads(threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK=str(ranked.RANK), WORLD_SIZE=str(ranked.SIZE))
    dist.init_process_group("gloo")
    data = clicks.Clicks(scale, 0)
    tables = Sharded(data.work, clicks.INITIAL, way)
    units = [data.work.tables * data.work.dim, 400, 400, 1]
    torch.manual_seed(1)
    layers = [nn.Linear(units[i], units[i + 1]) for i in range(3)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]))
    dense = torch.optim.Adam(net.parameters(), lr=1e-3)
    sparse = torch.optim.SparseAdam(tables.parameters(), lr=1e-3)
    loss = nn.BCEWithLogitsLoss()
    ids = [torch.from_numpy(batch) for batch in ranked.part(np.asarray(data.train.indices), 2)]
    labels = torch.from_numpy(ranked.part(data.train.labels, 1))[..., None]
    done = 0

    def step():
        nonlocal done
        i, done = done % len(ids), done + 1
        dense.zero_grad(set_to_none=True)
        sparse.zero_grad(set_to_none=True)
        (loss(net(tables(ids[i])), labels[i])).backward()
        for parameter in tables.parameters():
            parameter.grad /= ranked.SIZE
        dense.step()
        sparse.step()

    def agree(steps):
        least = torch.tensor(steps)
        dist.all_reduce(least, dist.ReduceOp.MIN)
        return int(least)

    return ranked.measure(step, seconds, 8, agree)


if __name__ == "__main__":
    ranked.main({"e2e": e2e})
