"""Training runs in every mode, each rank with its part of every batch: python -m tests.ranks.training FOLDER [CASE...].

Writes FOLDER/<case>-<rank>.npz: the losses over all ranks, the dense weight, and this rank's rows of every table.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.graph.modifier import modify_graph_and_start_emb_cache
from mx_rec.util.communication import hccl_ops
from mx_rec.util.initialize import get_rank_id, get_rank_size
from mx_rec.util.variable import get_dense_and_sparse_variable
from tests.shared import admission, model
from tests.shared.optimizers import OPTIMIZERS

v1 = tf.compat.v1

STEPS, BATCH, DIM = 40, 24, 6  # a batch can be dealt out to 1, 2, 3 and 4 ranks
CASES = {name: {"optimizer": name} for name in OPTIMIZERS}
CASES.update(
    modified={"mode": "modified"},
    in_step={"mode": "in_step"},
    static={"settings": {"use_dynamic": False}},
    expanding={"settings": {"use_dynamic_expansion": True}, "table": {"rows": 1}},
    padding={"table": {"padding_keys": [1, 1000], "padding_keys_mask": True, "padding_keys_len": 2}},
    disk={"table": {"rows": 64, "host_vocabulary_size": 64, "ssd_vocabulary_size": 100_000}},
    mean={"table": {"all2all_gradients_op": "sum_gradients_and_div_by_ranksize"}},
    replicated={"table": {"is_dp": True}},
    replicated_mean={
        "table": {"is_dp": True, "all2all_gradients_op": "sum_gradients_and_div_by_ranksize"},
        "optimizer": "adagrad",
    },
    replicated_in_step={"table": {"is_dp": True}, "mode": "in_step"},
    replicated_on_disk={
        "table": {"is_dp": True, "rows": 64, "host_vocabulary_size": 64, "ssd_vocabulary_size": 100_000}
    },
)
REPLICATED = {name for name, case in CASES.items() if case.get("table", {}).get("is_dp")}
ADMISSION = {
    "admitted_spec": {"mode": "spec", "access_threshold": 3},
    "admitted_modified": {"mode": "modified", "access_threshold": 3},
    "evicted": {"mode": "spec", "access_threshold": 2, "eviction_threshold": 60},
}


def mine(arrays, axis):
    """This rank's part of arrays, each a batch for every step."""
    rank, size = get_rank_id(), get_rank_size()
    part = {}
    for name, array in arrays.items():
        each = array.shape[axis] // size
        part[name] = np.take(array, range(rank * each, (rank + 1) * each), axis)
    return part


def train(folder, optimizer="lazy_adam", mode="spec", settings=None, table=None):
    """(losses, weight, rows) of a model of three features in two tables."""
    table = {"rows": 1000, **(table or {})}
    if "ssd_vocabulary_size" in table:
        table["ssd_data_path"] = [str(folder)]
    with model.process(**(settings or {})):
        data = model.batches(STEPS, batch=BATCH, dim=DIM)
        data = {name: array.reshape(STEPS, BATCH, *array.shape[1:]) for name, array in data.items()}
        dataset = tf.data.Dataset.from_tensor_slices(mine(data, 1))
        specs = {name: FeatureSpec(name, table_name=model.TABLE_OF[name]) for name in model.TABLE_OF}
        if mode == "spec":
            dataset = dataset.map(get_asc_insert_func(list(specs.values()))).prefetch(3)
        batch = v1.data.make_one_shot_iterator(dataset).get_next()
        initializer = v1.truncated_normal_initializer(stddev=0.3, seed=3)
        tables = {name: model.table(name, initializer, DIM, **table) for name in model.TABLES}
        embeddings = {
            name: sparse_lookup(
                tables[model.TABLE_OF[name]],
                spec if mode == "spec" else batch[name],
                BATCH * 3,
                batch=batch,
                modify_graph=mode == "modified",
            )
            for name, spec in specs.items()
        }
        weight = v1.get_variable("weight", initializer=np.linspace(0.5, 1.5, DIM, dtype=np.float32))
        loss = model.loss(embeddings, batch["target"], weight)  # the mean over this rank's part
        is_mean = table.get("all2all_gradients_op") is not None
        share = loss if is_mean else loss / get_rank_size()
        dense, sparse = get_dense_and_sparse_variable()
        gradients = tf.gradients(share, dense + sparse)
        summed = [hccl_ops.allreduce(gradient / get_rank_size() if is_mean else gradient) for gradient in gradients[:1]]
        step = tf.group(
            v1.train.AdamOptimizer(0.01).apply_gradients(zip(summed, dense)),
            OPTIMIZERS[optimizer]().apply_gradients(zip(gradients[1:], sparse)),
        )
        total = hccl_ops.allreduce(loss) / get_rank_size()
        (modify_graph_and_start_emb_cache if mode == "modified" else start_asc_pipeline)()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            losses = [session.run([total, step])[0] for _ in range(STEPS)]
            # A seed that depends on it would give other rows.
            return losses, session.run(weight), {name: model.dump(one) for name, one in tables.items()}


def count(mode, **thresholds):
    """(sums of embeddings, nothing, rows) of a table that counts its keys."""
    with model.process():
        data = admission.stream(30, seed=4)
        times = data.pop("time")
        data = {**mine({name: array.repeat(3, axis=1) for name, array in data.items()}, 1), "time": times}
        trainer = admission.build(data, mode, **thresholds)
        total = hccl_ops.allreduce(tf.reduce_sum(trainer.embeddings))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            losses = [session.run([total, trainer.update])[0] for _ in range(len(times))]
            keys, values = model.dump(trainer.table)
            facts = trainer.table.key_facts(keys) if hasattr(trainer.table, "key_facts") else None
            assert facts is None or len(facts) == len(keys)
            return losses, np.zeros(1), {"t": (keys, values)}


def main(folder, *names):
    folder = pathlib.Path(folder)
    every = {**CASES, **ADMISSION}
    for name in names or every:
        case = every[name]
        losses, weight, rows = count(**case) if name in ADMISSION else train(folder, **case)
        arrays = {
            f"{table}/{what}": array for table, pair in rows.items() for what, array in zip(("keys", "values"), pair)
        }
        np.savez(folder / f"{name}-{get_rank_id()}.npz", losses=losses, weight=weight, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
