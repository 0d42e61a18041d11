"""Which rank a process is, by the variables of every launcher, and which MPI library belongs to it."""

import os
import subprocess
import sys

import pytest

from mx_rec import _ranks

_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "MPI_LOCAL", "SLURM_", "RANK_", "MX_REC_MPI")


@pytest.fixture(autouse=True)
def launched(monkeypatch):
    """Sets the variables of a launcher; no other is left."""
    for name in os.environ:
        if name.startswith(_PREFIXES):
            monkeypatch.delenv(name)

    def launch(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    return launch


def ompi(rank, size, local_rank, local_size):
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    return {f"OMPI_COMM_WORLD_{name}": str(n) for name, n in zip(names, (rank, size, local_rank, local_size))}


SLURM = {"SLURM_STEP_NUM_TASKS": "7", "SLURM_PROCID": "4", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1"}
PMI = {"PMI_SIZE": "4", "PMI_RANK": "3"}
HYDRA = {**PMI, "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("variables", "expected", "name"),
    [
        (ompi(5, 6, 2, 3), (5, 6, 2, 3), "Open MPI"),
        ({**ompi(1, 2, 1, 2), "PMIX_RANK": "1", "RANK_SIZE": "2", "RANK_ID": "1"}, (1, 2, 1, 2), "Open MPI"),
        (HYDRA, (3, 4, 1, 2), "MPICH or Intel MPI"),
        (PMI, (3, 4, 3, 4), "MPICH or Intel MPI"),
        # What `mx_rec run` adds for scripts, and a Slurm job around MPICH's own launcher.
        ({**HYDRA, **ompi(3, 4, 1, 2)}, (3, 4, 1, 2), "MPICH or Intel MPI"),
        ({**HYDRA, **SLURM}, (3, 4, 1, 2), "MPICH or Intel MPI"),
        ({**SLURM, **ompi(1, 2, 1, 2)}, (1, 2, 1, 2), "Open MPI"),
        ({**SLURM, "SLURM_NODEID": "2"}, (4, 7, 0, 2), "Slurm"),
        ({**SLURM, "SLURM_NODEID": "3", "SLURM_PROCID": "6", "PMIX_RANK": "6"}, (6, 7, 0, 1), "Slurm"),
    ],
)
def test_a_launcher_s_variables_tell_which_rank_this_is(variables, expected, name, launched):
    launched(**variables)
    facts = _ranks.facts()
    assert facts[:4] == expected
    assert facts.launcher.name == name


@pytest.mark.parametrize(
    "variables",
    [{}, ompi(0, 1, 0, 1), {"PMI_SIZE": "1", "PMI_RANK": "0"}, {"RANK_SIZE": "1", "RANK_ID": "0"}, {"PMIX_RANK": "0"},
     {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}],  # a job's own script, which srun has not started
)  # fmt: skip
def test_without_others_it_is_one_rank(variables, launched):
    launched(**variables)
    assert _ranks.facts() == _ranks.Facts()


@pytest.mark.parametrize(
    ("variables", "error", "words"),
    [
        ({"PMI_SIZE": "two"}, ValueError, "PMI_SIZE must be a whole number, got 'two'"),
        ({"OMPI_COMM_WORLD_SIZE": "2.0"}, ValueError, "OMPI_COMM_WORLD_SIZE must be a whole number, got '2.0'"),
        ({**ompi(0, 2, 0, 2), "OMPI_COMM_WORLD_LOCAL_RANK": "x"}, ValueError, "LOCAL_RANK must be a whole number"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x"}, ValueError, r"must be like 2\(x3\),1, got '2\(x'"),
        ({"PMIX_RANK": "first"}, ValueError, "PMIX_RANK must be a whole number"),
        (ompi(2, 2, 0, 1), ValueError, r"OMPI_COMM_WORLD_RANK must be in \[0, 1\].*got 2: start the script by mpirun"),
        ({**PMI, "PMI_RANK": "-1"}, ValueError, r"PMI_RANK must be in \[0, 3\].*got -1"),
        ({"RANK_SIZE": "2"}, OSError, "RANK_SIZE=2, but no MPI launcher has started.*mpirun -np 2.*RANK_SIZE unset"),
        ({"PMIX_RANK": "1"}, OSError, "PMIX_RANK=1, but no variable says how many.*mpirun or srun"),
    ],
)
def test_variables_that_make_no_sense_are_refused(variables, error, words, launched):
    launched(**variables)
    with pytest.raises(error, match=words):
        _ranks.facts()


@pytest.mark.parametrize(
    ("variables", "library"), [(ompi(0, 2, 0, 2), "libmpi.so.40"), (HYDRA, "libmpi.so.12"), (SLURM, "libmpi.so.40")]
)
def test_the_library_is_the_one_beside_the_launcher(variables, library, launched, tmp_path):
    # A program with Python's face that starts Python.
    launched(**variables)
    for folder in ("mpi/bin", "mpi/lib", "path/bin", "path/lib"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("mpi", "path"):
        (tmp_path / name / "lib" / library).touch()
    launcher = tmp_path / "mpi" / "bin" / "launcher"
    launcher.write_bytes(open("/bin/sh", "rb").read())
    launcher.chmod(0o755)
    (tmp_path / "path" / "bin" / "mpiexec").write_text("#!/bin/sh\n")
    (tmp_path / "path" / "bin" / "mpiexec").chmod(0o755)
    script = "from mx_rec import _ranks\nprint(*_ranks.find_libraries(_ranks.facts().launcher), sep='\\n')"
    done = subprocess.run(
        [launcher, "-c", '"$@"; exit $?', "sh", sys.executable, "-c", script],
        env={**os.environ, "PATH": f"{tmp_path / 'path' / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    found = done.stdout.splitlines()
    assert found[:2] == [str(tmp_path / name / "lib" / library) for name in ("mpi", "path")], done.stderr
    assert found[-1] in ("libmpi.so.40", "libmpich.so.12")


def test_the_library_that_is_told_is_the_only_one(launched):
    launched(**HYDRA, MX_REC_MPI_LIBRARY="/opt/mpi.so")
    assert _ranks.find_libraries(_ranks.facts().launcher) == ["/opt/mpi.so"]
