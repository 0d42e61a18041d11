"""What the ranks agree on before a session first runs a lookup: that they train the same tables in the same graph, and
which initial values the dense variables have.

Ranks that disagree would train another model on each, or wait for each other in vain; both are found here, and named.
A session costs two small exchanges, and every rank a look at its dense variables.
"""

import hashlib
import json
import weakref

import numpy as np
import tensorflow as tf

from mx_rec import _process, _ranks
from mx_rec._log import logger
from mx_rec._ops.ranked import streams_of
from mx_rec._tables import anchors, graphs
from mx_rec._tf import variables
from mx_rec._tf.walking import ancestors

# Of a table's options, what each rank may have its own of.
_OF_RANK = ("ssd_data_path", "key_dtype")
_UNINITIALIZED = ""


def observer(session):
    """What shall see the runs of a session of one of several ranks (_sessions/watching.py)."""

    watched = weakref.ref(session)  # who is watched keeps the observers

    def see(ops, is_lookup):
        if is_lookup:
            _check_same(watched().graph, ops)
            _agree_on_variables(watched())

    return see


def _check_same(graph, ops):
    mine = {
        "settings": {"use_dynamic_expansion": _process.config().use_dynamic_expansion},
        "tables": {name: _facts(table) for name, table in graphs.state(graph).tables.items()},
        "ops": sorted(op.name for op in ancestors(ops, with_control=True) if streams_of(op)),
    }
    everyone = [json.loads(data) for data in _ranks.gather("tables of a session", json.dumps(mine).encode())]
    for rank, other in enumerate(everyone):
        difference = _difference(everyone[0], other, rank)
        if difference:
            raise ValueError(f"the ranks train different models: {difference}; all ranks must build the same")


def _facts(table):
    options, start, tracking = vars(table.options), table.initializer, table.native.tracking
    facts = {name: str(value) for name, value in options.items() if name not in _OF_RANK}
    pool = b"" if start.pool is None else np.ascontiguousarray(start.pool).tobytes()
    return {
        **facts,
        "emb_initializer": f"{start.kind}({start.a:g}, {start.b:g}) times {start.scale:g}",
        "seed of emb_initializer": str(start.seed),
        "rows of emb_initializer": hashlib.sha256(pool).hexdigest(),
        "access_threshold": str(None if tracking is None else tracking.access_threshold),
        "eviction_threshold": str(None if tracking is None else tracking.eviction_threshold),
        "faae_coefficient": str(None if tracking is None else tracking.coefficient),
        "slots of the optimizer": ", ".join(table.native.slots) or "none",
    }


def _difference(first, other, rank):
    """What differs between rank 0 and rank number `rank`, in words; "" if nothing does."""
    for name, value in first["settings"].items():
        if other["settings"][name] != value:
            return f"init has {name}={value} on rank 0 and {other['settings'][name]} on rank {rank}"
    for name in sorted({*first["tables"], *other["tables"]}):
        one, two = first["tables"].get(name), other["tables"].get(name)
        if one is None or two is None:
            return f"there is no table '{name}' on rank {0 if one is None else rank}"
        for field, value in one.items():
            if two[field] != value:
                return f"table '{name}' has {field} {value} on rank 0 and {two[field]} on rank {rank}"
    for name in sorted({*first["ops"]} ^ {*other["ops"]}):
        runs, lacks = (0, rank) if name in first["ops"] else (rank, 0)
        return f"the session of rank {runs} runs '{name}', and that of rank {lacks} does not"
    return ""


def _agree_on_variables(session):
    """Gives each dense variable the value that it has on rank 0, where a rank has another."""
    dense = [variable for variable in variables.of_graph(session.graph) if anchors.table_of(variable) is None]
    known = {variable.name: variable for variable in dense}
    values = variables.read(session, known)
    mine = {name: _UNINITIALIZED if value is None else _digest(value) for name, value in values.items()}
    everyone = [json.loads(data) for data in _ranks.gather("variables of a session", json.dumps(mine).encode())]
    chosen = []
    for name, digest in everyone[0].items():
        if any(other.get(name) != digest for other in everyone):
            empty = [rank for rank, other in enumerate(everyone) if other.get(name) == _UNINITIALIZED]
            shapes = [other.get(name, "").rpartition(" ")[0] for other in everyone]
            different = [rank for rank, shape in enumerate(shapes) if shape != shapes[0]]
            if different and not empty:
                raise ValueError(
                    f"the ranks train different models: variable '{name}' is {shapes[0]} on rank 0 and "
                    f"{shapes[different[0]] or 'not there'} on rank {different[0]}; all ranks must build the same"
                )
            if empty:
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    f"variable '{name}' is initialized on some ranks, and not on rank {empty[0]}: initialize or "
                    "restore variables on all ranks",
                )
            chosen.append(name)
    if not chosen:
        return
    is_first = _ranks.facts().rank == 0
    data = b"".join(values[name].tobytes() for name in chosen) if is_first else b""
    data, at = _ranks.gather("values of variables", data)[0], 0
    for name in chosen:
        value = values[name]
        if not is_first:
            variables.load(session, known[name], np.frombuffer(data, value.dtype, value.size, at).reshape(value.shape))
        at += value.nbytes
    logger.info("%d of %d dense variables begin with the values of rank 0", len(chosen), len(known))


def _digest(value):
    return f"{value.dtype} of shape {list(value.shape)} {hashlib.sha256(value.tobytes()).hexdigest()}"
