"""FBGEMM's table-batched embeddings on the CPU as a peer; the optimizer is fused into the backward pass.

It has no Adam on the CPU.
"""

import numpy as np
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    OptimType,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from benchmarks import worker, workloads

torch.set_flush_denormal(True)  # as TensorFlow does

OPTIMIZERS = {"adagrad": (OptimType.EXACT_ADAGRAD, 1e-2), "sgd": (OptimType.EXACT_SGD, 1e-6)}


def workload(workload, optimizer, scale):
    work = workloads.get(workload, scale)
    before = worker.resident_bytes()
    kind, rate = OPTIMIZERS[optimizer]
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(work.rows, work.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)] * work.tables,
        optimizer=kind,
        learning_rate=rate,
        eps=1e-8,
        pooling_mode=PoolingMode.SUM,
    )
    for weights in tables.split_embedding_weights():
        weights.uniform_(-0.05, 0.05)
    bytes_per_row = (worker.resident_bytes() - before) / (work.tables * work.rows)
    batches = [torch.from_numpy(np.array(batch).ravel()) for batch in work.indices()]
    offsets = torch.arange(0, work.ids_per_batch + 1, work.bag, dtype=torch.int64)
    target = torch.from_numpy(work.target())

    def forward(i):
        with torch.no_grad():
            return tables(batches[i % len(batches)], offsets)

    def train(i):
        output = tables(batches[i % len(batches)], offsets)
        output.backward(output.detach() - target)

    untrained = forward(0)
    train(0)
    assert (forward(0) != untrained).any(dim=1).all(), "training must change the rows"
    measures = {
        "forward": worker.Measure(forward, work.ids_per_batch),
        "train": worker.Measure(train, work.ids_per_batch),
    }
    return measures, {"bytes_per_row": bytes_per_row, "torch": torch.__version__}


if __name__ == "__main__":
    worker.main({"workload": workload})
