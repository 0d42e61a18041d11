"""Ranks on two hosts, which have nothing but TCP between them, train what one rank trains."""

import pathlib
import socket
import textwrap

import numpy as np
import pytest

from tests.ranks import hosts, mpi
from tests.shared.paths import ROOT

pytestmark = pytest.mark.slow
CASE = "lazy_adam"
FAMILIES = [
    pytest.param(mpi.MPIRUN, id="openmpi", marks=mpi.needed),
    pytest.param(mpi.MPICH, id="mpich", marks=mpi.mpich_needed),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    try:
        with hosts.two(tmp_path_factory.mktemp("hosts")) as pair:
            yield pair
    except OSError as error:
        pytest.skip(f"needs two hosts: {error}")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    mpi.run("tests.ranks.training", 1, folder, CASE)
    return dict(np.load(folder / f"{CASE}-0.npz"))


@pytest.mark.parametrize("mpiexec", FAMILIES)
def test_two_hosts_train_what_one_rank_trains(mpiexec, both, alone, tmp_path):
    before = both.bytes_sent()
    done = both.run(
        "-n", 2, "--mpiexec", mpiexec, ROOT / "tests" / "ranks" / "training.py", tmp_path, CASE, MXREC_LOG_LEVEL="INFO"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("joined 2 ranks by") == 2
    assert both.bytes_sent() - before > 40 * 24 * 6 * 4  # at least the rows of half the lookups, and as many gradients
    parts = [dict(np.load(tmp_path / f"{CASE}-{rank}.npz")) for rank in (0, 1)]
    for part in parts:
        np.testing.assert_allclose(part["losses"], alone["losses"], rtol=1e-5)
        np.testing.assert_allclose(part["weight"], alone["weight"], atol=1e-5)
    for table in ("shared", "own"):
        keys, rows = (np.concatenate([part[f"{table}/{what}"] for part in parts]) for what in ("keys", "values"))
        order, expected = np.argsort(keys), np.argsort(alone[f"{table}/keys"])
        np.testing.assert_array_equal(keys[order], alone[f"{table}/keys"][expected])
        np.testing.assert_allclose(rows[order], alone[f"{table}/values"][expected], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("mpiexec", FAMILIES)
def test_a_rank_that_is_killed_on_one_host_ends_those_on_the_other(mpiexec, both, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, pathlib, socket, sys, time
            print(socket.gethostname(), os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"], os.environ["MXREC_LOG_LEVEL"])
            begun = pathlib.Path(sys.argv[1])
            if os.environ["RANK_ID"] == "0":
                begun.touch()
                time.sleep(150)
            while not begun.exists():
                time.sleep(0.1)
            time.sleep(1)  # the other's line is on its way
            os.kill(os.getpid(), 9)
            """
        )
    )
    done = both.run("-n", 2, "--mpiexec", mpiexec, script, tmp_path / "begun", seconds=100, MXREC_LOG_LEVEL="ERROR")
    assert done.returncode == 137
    assert done.stderr.endswith("\nmx_rec run: rank 1 failed first: killed by SIGKILL (out of memory?)\n")
    names = {line[:3]: line.split()[1:] for line in done.stdout.splitlines()}
    assert names["[0]"][1:] == names["[1]"][1:] == ["1", "ERROR"]
    assert len({socket.gethostname(), names["[0]"][0], names["[1]"][0]}) == 3
    needle = str(script).encode()
    assert not [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if needle in _read(p)]


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has ended
