"""Two ranks that save under one name again and again, and three beside them that must restore one save's state.

    python -m tests.ranks.torn_reads [restores]

After a save with number k, every row of both tables is k on every rank, and so is the dense variable: a state of two
saves cannot be mistaken for one.
"""

import itertools
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import tensorflow as tf

from mx_rec import _ranks
from mx_rec._native import world
from mx_rec._tf import patches
from tests.ranks import mpi
from tests.ranks.zygote import Job
from tests.shared import model
from tests.shared.forking import warm_up
from tests.shared.saver_model import Model, native

v1 = tf.compat.v1
TABLES, KEYS, DIM = ("user", "item"), np.arange(3000), 16
FLAGS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
PATHS = {"common path": "model", "own paths": "model-{}"}


def everyone(value):
    """What each rank says here."""
    return [json.loads(data) for data in _ranks.gather("what a test says", json.dumps(value).encode())]


def save_until(directory, name, stop, say):
    """Saves until a file called `stop` is there."""
    rank, size = _ranks.facts().rank, _ranks.facts().size
    path = os.path.join(directory, name.format(rank))
    with model.process():
        subject = Model(TABLES, dim=DIM)
        saver = subject.saver()
        mine = KEYS[world.owners(KEYS, size) == rank]
        for number in itertools.count(1):
            subject.session.run(subject.assign, {subject.value: [number, number]})
            for anchor in subject.anchors.values():
                rows = np.full((len(mine), 1 + len(native(anchor).slots), DIM), number, np.float32)
                native(anchor).write(mine, rows)
            saver.save(subject.session, path, write_meta_graph=False)
            say("saved", number)
            if any(everyone(os.path.exists(stop))):
                break


def restore(directory, name, times, say):
    """Restores, and says the numbers of the saves whose state that was."""
    path = os.path.join(directory, name.format(_ranks.facts().rank))
    with model.process():
        subject = Model(TABLES, dim=DIM)
        saver = subject.saver()
        for _ in range(times):
            saver.restore(subject.session, path)
            found = set(subject.session.run(subject.dense).tolist())
            count = 0
            for anchor in subject.anchors.values():
                keys = native(anchor).keys()
                found |= set(np.unique(native(anchor).read(keys)[0]).tolist())
                count += len(keys)
            told = everyone([sorted(found), count])
            numbers = {number for numbers, _ in told for number in numbers}
            assert len(numbers) == 1, f"torn: {told}"
            assert sum(count for _, count in told) == len(TABLES) * len(KEYS), told
            say("restored", int(numbers.pop()))


def read_beside(home, paths, times):
    """Restores `times` times beside ranks that save."""
    name, command = PATHS[paths], [mpi.MPIRUN, *FLAGS]
    places = [os.path.join(home, paths.replace(" ", "_"), place) for place in ("savers", "readers", "run")]
    for place in places:
        os.makedirs(place)
    stop = os.path.join(home, paths)
    savers = Job(command, 2, places[0], lambda say: save_until(places[2], name, stop, say))
    try:
        assert savers.tend(lambda: all(rank.lines for rank in savers.ranks)), savers.log()[-4000:]
        readers = Job(command, 3, places[1], lambda say: restore(places[2], name, times, say))
        try:
            assert readers.tend(lambda: savers.tend(readers.has_ended, 0), 300), readers.log()[-4000:]
            assert [rank.status for rank in readers.ranks] == [0] * 3, readers.log()[-8000:]
        finally:
            readers.end()
        saves = len(savers.ranks[0].lines)
        open(stop, "w").close()
        assert savers.tend(savers.has_ended), savers.log()[-4000:]
        assert [rank.status for rank in savers.ranks] == [0] * 2, savers.log()[-8000:]
    finally:
        savers.end()
    restored = {line[1] for line in readers.ranks[0].lines}
    assert len(restored) > 1, restored
    print(f"{paths}: {times} restores of {len(restored)} saves, beside {saves}", flush=True)


def main(times=20):
    home = tempfile.mkdtemp(prefix="mxrec_torn_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    warm_up()
    patches.install()
    try:
        for paths in PATHS:
            read_beside(home, paths, times)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
