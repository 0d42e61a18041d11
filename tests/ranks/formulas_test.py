"""Several ranks train what an optimizer's formula in NumPy gives for their batches together, after 200 steps."""

import numpy as np
import pytest

from tests.ranks import mpi
from tests.ranks.formulas import BATCH, CHOSEN, LABELS, STEPS, batches
from tests.shared import model
from tests.shared.formulas import assert_close, train_numpy
from tests.shared.optimizer_cases import each
from tests.shared.optimizers import FACTORIES

pytestmark = [pytest.mark.slow, mpi.needed]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """{table: {key: row}} of all ranks together, by their number and the case's label."""
    folders = {}

    def of(ranks, label):
        if ranks not in folders:
            folders[ranks] = tmp_path_factory.mktemp(f"ranks{ranks}")
            mpi.run("tests.ranks.formulas", ranks, folders[ranks])
        tables = {name: {} for name in model.TABLES}
        for rank in range(ranks):
            with np.load(folders[ranks] / f"{label}-{rank}.npz") as arrays:
                for name, rows in tables.items():
                    held = dict(zip(arrays[f"{name}/keys"].tolist(), arrays[f"{name}/values"]))
                    assert held and not held.keys() & rows.keys(), "a key is on two ranks, or none is on one"
                    rows.update(held)
        return tables

    return of


@pytest.fixture(scope="module")
def expected():
    """What NumPy has of a case."""
    known = {}

    def of(case):
        if case.label not in known:
            known[case.label] = train_numpy(case, batches(), STEPS, batch=BATCH)
        return known[case.label]

    return of


@pytest.mark.parametrize("ranks", [2, 3, 4])
@each(CHOSEN)
def test_ranks_together_follow_the_formula(case, ranks, trained, expected):
    actual = trained(ranks, case.label)
    assert {name: set(rows) for name, rows in actual.items()} == {
        name: set(rows) for name, rows in expected(case).items()
    }
    assert_close(actual, expected(case))


def test_every_optimizer_is_there():
    assert LABELS.keys() == FACTORIES.keys()
    assert {case.label for case in CHOSEN} == {*LABELS.values()}
