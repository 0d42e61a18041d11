"""Suite: which peers are compared on what, in full and in quick mode."""

import dataclasses

from benchmarks import environments, workloads
from benchmarks.runner import Group, Worker

OURS, STOCK, TFRA, TFRA_FILES, TORCH, FBGEMM, LIMIT, DISK, DENSE_ADAM = (
    "mx_rec",
    "TensorFlow",
    "TFRA",
    "TFRA's files",  # checkpoints by its own ops instead of the Saver
    "PyTorch",
    "FBGEMM",
    "memory limit",
    "disk",
    "TensorFlow AdamOptimizer",
)
IN_STEP = "lookup in the step"  # the graph that modification begins with
UNTRACKED = "without admission"
LIMITED = "limited tables"
IN_MEMORY = "all rows in memory"
UNFOLLOWED = "changes not followed"
_MODULES = {  # label -> (module in benchmarks.peers, environment)
    OURS: ("ours", environments.OWN),
    STOCK: ("stock", environments.OWN),
    DENSE_ADAM: ("stock", environments.OWN),
    TFRA: ("tfra", environments.TFRA),
    TFRA_FILES: ("tfra", environments.TFRA),
    TORCH: ("torch_bag", environments.TORCH),
    FBGEMM: ("fbgemm", environments.FBGEMM),
    LIMIT: ("limit", environments.OWN),
    DISK: ("disk", environments.OWN),
}
_SLOTS = {"adam": 2, "adagrad": 1, "sgd": 0}
SCENARIOS = (
    "w1",
    "w2",
    "w3",
    "e2e",
    "modify",
    "admission",
    "expansion",
    "disk",
    "size",
    "growth",
    "checkpoint",
    "saving",
    "startup",
)
SIZES = (100_000, 1_000_000, 10_000_000)
_GROWTH_LEAD, _GROWTH_STEPS = 6, 8


@dataclasses.dataclass(frozen=True)
class Mode:
    name: str  # of the result files
    scale: int  # tables have 1/scale of their rows
    rounds: int
    seconds: float
    retries: int
    optimizers: tuple[str, ...]
    peers: tuple[str, ...]
    checkpoints: tuple[tuple[str, int], ...]  # workload, further scale
    growth: tuple[tuple[int, object], ...]  # dim, keys
    growth_rounds: int
    training: int  # steps before the AUC is taken
    modify: tuple[str, ...]  # groups of graph modification
    admission: bool = True  # and expansion, and rows on disk
    growth_batch: int = 100_000


FULL = Mode(
    name="latest",
    scale=1,
    rounds=5,
    seconds=0.8,
    retries=5,
    optimizers=("adam", "sgd", "adagrad"),
    peers=(OURS, STOCK, LIMIT, TFRA, TFRA_FILES, TORCH, FBGEMM, DENSE_ADAM, DISK),
    checkpoints=(("w3", 2),),
    growth=((32, "scattered"), (32, 1), (32, 2**20)),
    growth_rounds=4,
    training=112,
    modify=("modify-w1-1", "modify-w1", "modify-e2e"),
)
QUICK = Mode(
    name="quick",
    scale=10,
    rounds=2,
    seconds=0.4,
    retries=1,
    optimizers=("adam",),
    peers=(OURS, STOCK, LIMIT, TFRA, DISK),
    checkpoints=(),  # these, graph modification and admission take their time
    growth=((32, "scattered"),),
    growth_rounds=2,
    training=10,
    modify=(),
    admission=False,
)


def groups(scenario: str, mode: Mode, memory: float) -> list[Group]:
    """The groups of a scenario, each small enough for `memory` gigabytes."""
    if scenario in ("w1", "w2", "w3"):
        made = [_workload_group(scenario, optimizer, mode) for optimizer in mode.optimizers]
    else:
        make = {
            "e2e": _e2e,
            "modify": _modify,
            "admission": _admission,
            "expansion": _expansion,
            "disk": _disk,
            "size": _size,
            "growth": _growth,
            "checkpoint": _checkpoint,
            "saving": _saving,
        }
        made = make[scenario](mode)
    return [part for group in made for part in _split(group, memory)]


def environment_of(label: str) -> environments.Environment:
    return _MODULES[label][1]


def data_of(group: Group) -> set:
    """(workload, scale) of the batches a group reads; they are made before its workers start."""
    return {
        (worker.options.get("workload", "w1"), worker.options["scale"])
        for worker in group.workers
        if "scale" in worker.options
    }


def _workload_group(name, optimizer, mode):
    peers = [OURS, STOCK]
    peers += {"adam": [LIMIT, TFRA, TORCH], "sgd": [TORCH, FBGEMM, TFRA], "adagrad": [TORCH, FBGEMM, TFRA]}[optimizer]
    if optimizer == "adam" and name != "w2":  # its temporary arrays are as large as the table
        peers.append(DENSE_ADAM)
    workers = [_workload_worker(label, name, optimizer, mode.scale) for label in peers if label in mode.peers]
    return Group(
        name=f"{name}-{optimizer}",
        title=f"{name.upper()}, {optimizer}",
        workers=tuple(workers),
        measures=("train",) if optimizer == "adagrad" else ("forward", "train"),
        rounds=mode.rounds,
        seconds=mode.seconds,
        retries=mode.retries,
    )


def _workload_worker(label, name, optimizer, scale, **more):
    module, environment = _MODULES[label]
    options = {"scenario": "workload", "workload": name, "optimizer": optimizer, "scale": scale, **more}
    memory = _gigabytes(label, workloads.get(name, scale), optimizer)
    if label == DENSE_ADAM:
        options["optimizer"] = "adam_optimizer"
    return Worker(label, module, environment, options, memory)


def _gigabytes(label, work, optimizer):
    """An upper estimate, from measured ones."""
    arrays = 1 + _SLOTS[optimizer]
    row = arrays * work.dim * 4 + (50 if label in (OURS, STOCK) else 25)
    if label in (TFRA, TFRA_FILES):
        row = arrays * (work.dim * 4 + 105)
    elif label == DENSE_ADAM:  # one temporary array
        row = 4 * work.dim * 4
    elif label == DISK:
        row = 0
    return work.tables * work.rows * row / 1e9 + 0.9


def _e2e(mode):
    workers = []
    for label in (OURS, STOCK, TFRA, TORCH, DENSE_ADAM):
        if label in mode.peers:
            module, environment = _MODULES[label]
            optimizer = "adam_optimizer" if label == DENSE_ADAM else "adam"
            options = {"scenario": "e2e", "optimizer": optimizer, "scale": mode.scale, "training": mode.training}
            memory = 0.5 + _gigabytes(label, workloads.get("w1", mode.scale), "adam")
            workers.append(Worker(label, module, environment, options, memory))
    return [Group("e2e", "End to end", tuple(workers), ("train",), mode.rounds, 2 * mode.seconds, retries=mode.retries)]


def _modify(mode):
    """A graph that was modified automatically, beside the same graph as it was."""
    memory = 0.5 + _gigabytes(OURS, workloads.get("w1", mode.scale), "adam")
    common = {"optimizer": "adam", "scale": mode.scale}
    made = []
    for name, title, options in (
        ("modify-w1-1", "Graph modification, W1, steps on one thread", {"scenario": "workload", "threads": 1}),
        ("modify-w1", "Graph modification, W1", {"scenario": "workload"}),
        ("modify-e2e", "Graph modification, end to end", {"scenario": "e2e", "training": 1}),
    ):
        if name not in mode.modify:
            continue
        if options["scenario"] == "workload":
            options["workload"] = "w1"
        workers = [
            Worker(label, *_MODULES[OURS], {**options, **common, "lookup": lookup}, memory)
            for label, lookup in ((OURS, "modified"), (IN_STEP, "step"))
        ]
        measures = ("train",) if name == "modify-w1-1" else ("train", "train_rested")
        made.append(Group(name, title, tuple(workers), measures, mode.rounds, mode.seconds, retries=mode.retries))
    return made


def _admission(mode):
    """Tables that count and date their keys beside tables that do not, and the steps during an eviction."""
    if not mode.admission:
        return []
    workers = [
        dataclasses.replace(
            _workload_worker(OURS, "w1", "adam", mode.scale, has_times=True, is_tracked=is_tracked), label=label
        )
        for label, is_tracked in ((OURS, True), (UNTRACKED, False))
    ]
    options = {"scenario": "eviction", "workload": "w3", "scale": mode.scale}
    memory = _gigabytes(OURS, workloads.get("w3", mode.scale), "adam")
    evicting = Worker(OURS, *_MODULES[OURS], options, memory)
    return [
        Group("admission", "Feature admission, W1", tuple(workers), ("train",), mode.rounds, mode.seconds,
              retries=mode.retries),
        Group("eviction", "Eviction, W3", (evicting,), (), 1, 0.0, retries=0),
    ]  # fmt: skip


def _expansion(mode):
    """Tables that may grow without limit beside tables that may not."""
    made = []
    for name in ("w1", "w2", "w3") if mode.admission else ():
        workers = [
            dataclasses.replace(_workload_worker(OURS, name, "adam", mode.scale, expansion=expansion), label=label)
            for label, expansion in ((OURS, True), (LIMITED, False))
        ]
        made.append(
            Group(f"expansion-{name}", f"Dynamic expansion, {name.upper()}", tuple(workers), ("train",), mode.rounds,
                  mode.seconds, retries=mode.retries)
        )  # fmt: skip
    return made


def _disk(mode):
    """A table with a fifth of its rows in memory beside one with all, and one that does not fit into memory at all."""
    if not mode.admission:
        return []
    work = workloads.get("disk", mode.scale)
    memory = _gigabytes(OURS, work, "adam")
    workers = [
        Worker(label, "disk_tier", environments.OWN,
               {"scenario": "workload", "scale": mode.scale, "is_on_disk": is_on_disk}, memory)
        for label, is_on_disk in ((OURS, True), (IN_MEMORY, False))
    ]  # fmt: skip
    options = {"scenario": "large", "rows": 20_000_000, "memory": 2_000_000, "limit": 3 << 30}
    large = Worker(OURS, "disk_tier", environments.OWN, options, 4.0)
    return [
        Group("disk", "Rows on disk", tuple(workers), ("train", "train_cold"), mode.rounds, mode.seconds,
              retries=mode.retries),
        Group("disk-large", "A table larger than memory", (large,), (), 1, 0.0, retries=0),
    ]  # fmt: skip


def _size(mode):
    workers = []
    for rows in SIZES:
        worker = _workload_worker(OURS, f"size{rows}", "adam", mode.scale)
        workers.append(dataclasses.replace(worker, label=f"{OURS}, {rows // mode.scale:,} rows"))
    return [Group("size", "Table size", tuple(workers), ("train",), mode.rounds, mode.seconds, retries=mode.retries)]


def _growth(mode):
    made = []
    for dim, keys in mode.growth:
        name = f"growth-{dim}" if keys == "scattered" else f"growth-{dim}-step{keys}"
        title = f"New rows, dim {dim}" + ("" if keys == "scattered" else f", keys in steps of {keys:,}")
        batches = 1 + mode.growth_rounds * (_GROWTH_LEAD + _GROWTH_STEPS)
        options = {"scenario": "growth", "dim": dim, "batches": batches, "batch_size": mode.growth_batch}
        options.update(lead=_GROWTH_LEAD, keys=keys)
        work = workloads.Workload("growth", 1, batches * mode.growth_batch, dim, (mode.growth_batch,))
        workers = [
            Worker(label, *_MODULES[label], options, _gigabytes(label, work, "adam"))
            for label in (OURS, TFRA)
            if label in mode.peers and (label == OURS or keys == "scattered")
        ]
        made.append(
            Group(
                name=name,
                title=title,
                workers=tuple(workers),
                measures=("new_rows",),
                rounds=mode.growth_rounds,
                seconds=0.0,
                steps=_GROWTH_STEPS,
                retries=0,  # they would use up the keys
                is_growing=True,
            )
        )
    return made


def _checkpoint(mode):
    made = []
    for name, scale in mode.checkpoints:
        ways = {OURS: True, STOCK: True, TFRA: "saver", TFRA_FILES: "file_system", DISK: True}
        workers = [
            _workload_worker(label, name, "adam", mode.scale * scale, checkpoint=way)
            for label, way in ways.items()
            if label in mode.peers
        ]
        # Writing back to disk is the kernel's work; it would look like foreign load.
        title = f"Checkpoint of {name.upper()}"
        made.append(
            Group(
                name=f"checkpoint-{name}",
                title=title,
                workers=tuple(workers),
                measures=("save", "restore", "restart"),
                rounds=mode.rounds,
                seconds=0.0,
                steps=1,
                retries=0,
            )
        )
    return made


def _saving(mode):
    """Tables that remember which rows change beside tables that do not; and what checkpoints cost a training."""
    if not mode.admission:
        return []
    workers = [
        dataclasses.replace(_workload_worker(OURS, "w1", "adam", mode.scale, follows=follows), label=label)
        for label, follows in ((OURS, True), (UNFOLLOWED, False))
    ]
    options = {"scenario": "saving", "workload": "w3", "scale": 2 * mode.scale}
    memory = 2 * _gigabytes(OURS, workloads.get("w3", 2 * mode.scale), "adam")
    return [
        Group("follow", "Changes followed, W1", tuple(workers), ("train",), 2 * mode.rounds, mode.seconds,
              retries=mode.retries),
        Group("saving", "Saving, W3", (Worker(OURS, "saving", environments.OWN, options, memory),), (), 1, 0.0,
              retries=0),
    ]  # fmt: skip


def _split(group, memory):
    """Groups of the same name whose workers fit into memory together; the first worker is in each."""
    first, *others = group.workers
    parts, left_out = [[first]], {}
    for worker in others:
        need = first.gigabytes + worker.gigabytes
        if need > memory:
            left_out[worker.label] = f"needs {need:.0f} GB together with {first.label}, {memory:.0f} GB are available"
            continue
        for part in parts:
            if sum(member.gigabytes for member in part) + worker.gigabytes <= memory:
                part.append(worker)
                break
        else:
            parts.append([first, worker])
    made = [dataclasses.replace(group, workers=tuple(part)) for part in parts]
    return [dataclasses.replace(made[0], left_out=left_out), *made[1:]]
