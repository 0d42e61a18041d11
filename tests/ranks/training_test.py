"""Several ranks train the model that one rank trains, in every mode."""

import numpy as np
import pytest

from tests.ranks import mpi
from tests.ranks.training import ADMISSION, CASES, REPLICATED

pytestmark = [pytest.mark.slow, mpi.needed]
EVERY = [*CASES, *ADMISSION]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The arrays of every rank, by number of ranks and case."""
    results = {}

    def of(ranks, case):
        if ranks not in results:
            folder = results[ranks] = tmp_path_factory.mktemp(f"ranks{ranks}")
            mpi.run("tests.ranks.training", ranks, folder)
        return [dict(np.load(results[ranks] / f"{case}-{rank}.npz")) for rank in range(ranks)]

    return of


def whole(parts, is_replicated=False):
    """{table: {key: its row and slots}} of all ranks. No key is on two; or each is on all, with the same bits."""
    if is_replicated:
        for part in parts:
            for name, array in part.items():
                np.testing.assert_array_equal(array, parts[0][name], err_msg=name)
        parts = parts[:1]
    tables = {}
    for part in parts:
        for name in (name for name in part if name.endswith("/keys")):
            rows = tables.setdefault(name, {})
            for key, row in zip(part[name].tolist(), part[name.replace("/keys", "/values")]):
                assert key not in rows
                rows[key] = row
    return tables


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("case", EVERY)
def test_n_ranks_train_what_one_rank_trains(trained, case, ranks):
    (alone,), parts = trained(1, case), trained(ranks, case)
    for part in parts:
        np.testing.assert_array_equal(part["losses"], parts[0]["losses"])
        np.testing.assert_array_equal(part["weight"], parts[0]["weight"])
    np.testing.assert_allclose(parts[0]["losses"], alone["losses"], rtol=1e-5)
    np.testing.assert_allclose(parts[0]["weight"], alone["weight"], atol=1e-5)
    expected, actual = whole([alone]), whole(parts, case in REPLICATED)
    assert expected and actual.keys() == expected.keys()
    for table, rows in expected.items():
        assert actual[table].keys() == rows.keys()
        for key, row in rows.items():
            np.testing.assert_allclose(actual[table][key], row, atol=2e-5, rtol=1e-4, err_msg=f"{table} {key}")
    assert all(len(part[name]) > 0 for part in parts for name in part if name.endswith("/keys"))


def test_the_same_ranks_train_the_same_bits_again(trained, tmp_path):
    mpi.run("tests.ranks.training", 2, tmp_path)
    for case in EVERY:
        for rank, part in enumerate(trained(2, case)):
            again = dict(np.load(tmp_path / f"{case}-{rank}.npz"))
            for name in (name for name in part if name.endswith("/keys")):
                order, order_again = np.argsort(part[name]), np.argsort(again[name])
                np.testing.assert_array_equal(part[name][order], again[name][order_again])
                values = name.replace("/keys", "/values")
                np.testing.assert_array_equal(part[values][order], again[values][order_again], err_msg=case)
