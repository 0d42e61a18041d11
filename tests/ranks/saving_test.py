"""What some ranks save, any number of ranks restores, to the bit, and goes on as if it had not been interrupted."""

import numpy as np
import pytest

from tests.ranks import mpi
from tests.ranks.saving import CASES, STEPS

pytestmark = [pytest.mark.slow, mpi.needed]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The arrays of every rank, by what ran: "2" ranks that saved, or "2to3", that restored."""
    folders = {}

    def of(saved_by, ranks, case, when):
        if saved_by not in folders:
            folders[saved_by] = tmp_path_factory.mktemp(f"saved{saved_by}")
            mpi.run("tests.ranks.saving", saved_by, folders[saved_by], "save")
        folder = folders[saved_by]
        label = str(saved_by) if ranks is None else f"{saved_by}to{ranks}"
        if ranks is not None and not (folder / f"{case}-{label}-0-end.npz").exists():
            mpi.run("tests.ranks.saving", ranks, folder, "restore", saved_by)
        count = saved_by if ranks is None else ranks
        return [dict(np.load(folder / f"{case}-{label}-{rank}-{when}.npz")) for rank in range(count)]

    of.folders = folders
    return of


def together(parts, is_replicated):
    """{table: {key: row}} of all ranks, the dense weight, and the sums of what they know of all keys."""
    tables, known = {}, {}
    for rank, part in enumerate(parts):
        np.testing.assert_array_equal(part["weight"], parts[0]["weight"])
        for name in (name.removesuffix("/keys") for name in part if name.endswith("/keys")):
            rows = dict(zip(part[f"{name}/keys"].tolist(), part[f"{name}/values"]))
            held = tables.setdefault(name, {})
            if is_replicated and rank > 0:
                assert held.keys() == rows.keys() and all((held[key] == rows[key]).all() for key in rows)
                continue
            assert not held.keys() & rows.keys(), "a key is on two ranks"
            held.update(rows)
            if f"{name}/known" in part:
                known[name] = known.get(name, 0) + part[f"{name}/known"]
    return tables, parts[0]["weight"], known


@pytest.mark.parametrize("saved_by, ranks", [(1, 3), (2, 1), (2, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("case", CASES)
def test_any_number_of_ranks_restores_what_others_saved(ran, case, saved_by, ranks):
    is_replicated = "replicated" in case
    saved, restored = (together(ran(saved_by, n, case, "half"), is_replicated) for n in (None, ranks))
    assert saved[0].keys() == restored[0].keys() == {"shared", "own"}
    for name, rows in saved[0].items():
        assert len(rows) > 20 and restored[0][name].keys() == rows.keys()
        for key, row in rows.items():
            np.testing.assert_array_equal(restored[0][name][key], row, err_msg=f"{name} {key}")
    np.testing.assert_array_equal(restored[1], saved[1])
    assert saved[2].keys() == restored[2].keys()
    for name, known in saved[2].items():
        np.testing.assert_array_equal(restored[2][name], known)
    if not is_replicated and ranks > 1:
        assert all(len(part["shared/keys"]) > 0 for part in ran(saved_by, ranks, case, "half"))


@pytest.mark.parametrize("saved_by, ranks", [(2, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("case", CASES)
def test_training_goes_on_as_if_it_had_not_been_interrupted(ran, case, saved_by, ranks):
    is_replicated = "replicated" in case
    expected, actual = (together(ran(saved_by, n, case, "end"), is_replicated) for n in (None, ranks))
    same = np.testing.assert_array_equal if saved_by == ranks else _close
    for name, rows in expected[0].items():
        assert actual[0][name].keys() == rows.keys()
        for key, row in rows.items():
            same(actual[0][name][key], row)
    same(actual[1], expected[1])


def _close(actual, expected):
    np.testing.assert_allclose(actual, expected, atol=2e-5, rtol=1e-4)


def test_the_files_are_those_of_one_rank(ran):
    for ranks in (1, 2):
        ran(ranks, None, "tracked", "half")
    listings = [
        sorted(str(path.relative_to(folder)) for path in (folder / "tracked").rglob("*"))
        for folder in (ran.folders[1], ran.folders[2])
    ]
    assert listings[0] == listings[1] and f"tracked/sparse-model-{STEPS}/manifest.json" in listings[0]
    lists = [(ran.folders[ranks] / "tracked" / "checkpoint").read_text() for ranks in (1, 2)]
    assert all(text.count("all_model_checkpoint_paths") == 2 for text in lists)


@pytest.mark.parametrize("case", ["common", "deltas", "own"])
def test_the_tools_read_what_several_ranks_saved(ran, case, capsys):

    ran(2, None, case, "half")
    from mx_rec.__main__ import main

    name = f"model-0-{STEPS}" if case == "own" else f"model-{STEPS}"
    assert main(["verify", str(ran.folders[2] / case / name)]) in (0, None)
