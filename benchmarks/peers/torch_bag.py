"""PyTorch as a peer: EmbeddingBag with sparse gradients, and the optimizers that take such gradients."""

import numpy as np
import torch
from torch import nn

from benchmarks import clicks, worker, workloads

torch.set_flush_denormal(True)  # as TensorFlow does

OPTIMIZERS = {
    "adam": lambda weights: torch.optim.SparseAdam(weights, lr=1e-3),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, lr=1e-2, initial_accumulator_value=0.1),
    "sgd": lambda weights: torch.optim.SGD(weights, lr=1e-6),
}


def make_tables(work, low, high):
    tables = [nn.EmbeddingBag(work.rows, work.dim, mode="sum", sparse=True) for _ in range(work.tables)]
    for table in tables:
        nn.init.uniform_(table.weight, low, high)
    return tables


def look_up(work, tables, ids):
    """[examples, tables * dim]"""
    outputs = [table(ids[t].reshape(work.examples, work.bag)) for t, table in enumerate(tables)]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)


def workload(workload, optimizer, scale):
    work = workloads.get(workload, scale)
    batches = [torch.from_numpy(np.array(batch)) for batch in work.indices()]
    before = worker.resident_bytes()
    tables = make_tables(work, -0.05, 0.05)
    weights = [table.weight for table in tables]
    update = OPTIMIZERS[optimizer](weights)
    target = torch.from_numpy(work.target())

    def forward(i):
        with torch.no_grad():
            return look_up(work, tables, batches[i % len(batches)])

    def train(i):
        update.zero_grad(set_to_none=True)
        output = look_up(work, tables, batches[i % len(batches)])
        output.backward(output.detach() - target)
        update.step()

    untrained = forward(0)
    train(0)
    assert (forward(0) != untrained).any(dim=1).all(), "training must change the rows"
    bytes_per_row = (worker.resident_bytes() - before) / (work.tables * work.rows)
    measures = {
        "forward": worker.Measure(forward, work.ids_per_batch),
        "train": worker.Measure(train, work.ids_per_batch),
    }
    return measures, {"bytes_per_row": bytes_per_row, "torch": torch.__version__, "threads": torch.get_num_threads()}


def e2e(optimizer, scale, training):
    data = clicks.Clicks(scale, training)
    tables = make_tables(data.work, clicks.INITIAL, clicks.INITIAL)
    units = [data.work.tables * data.work.dim, 400, 400, 1]
    layers = [nn.Linear(units[i], units[i + 1]) for i in range(3)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    updates = [
        torch.optim.Adam(net.parameters(), lr=1e-3),
        OPTIMIZERS[optimizer]([table.weight for table in tables]),
    ]
    loss = nn.BCEWithLogitsLoss()
    batches = [torch.from_numpy(np.array(batch)) for batch in data.train.indices]
    labels = torch.from_numpy(data.train.labels)[..., None]
    held_out = [torch.from_numpy(np.array(batch)) for batch in data.held_out.indices]

    def train(i):
        for update in updates:
            update.zero_grad(set_to_none=True)
        i %= len(batches)
        loss(net(look_up(data.work, tables, batches[i])), labels[i]).backward()
        for update in updates:
            update.step()

    def logits(i):
        with torch.no_grad():
            return net(look_up(data.work, tables, held_out[i])).numpy()

    auc = data.auc_after_training(train, logits)
    return {"train": worker.Measure(train, data.work.examples)}, {"auc": auc, "torch": torch.__version__}


if __name__ == "__main__":
    worker.main({"workload": workload, "e2e": e2e})
