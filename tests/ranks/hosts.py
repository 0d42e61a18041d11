"""Two hosts on one machine: network namespaces with an address and a name each, and a cable. Only root makes them.

MPIs start what belongs to another host by ssh; here it is a script that enters the other namespace.
"""

import contextlib
import os
import shutil
import subprocess
import sys

from tests.shared.paths import ROOT

NETWORK, ADDRESSES = "10.77.0.0/24", ("10.77.0.1", "10.77.0.2")

_AGENT = """#!/bin/sh
# Called as ssh is: OPTIONS HOST COMMAND. The environment is a login's.
while [ "${{1#-}}" != "$1" ]; do shift; done
shift
exec ip netns exec {name} unshare --uts env -i HOME="$HOME" PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
  sh -c "hostname {name}; cd /; $*"
"""
# Nothing but TCP between them, although they share a memory; and no address that only one of them has.
_OPEN_MPI = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_include": NETWORK,
    "PRTE_MCA_prte_if_include": NETWORK,
}
_MPICH = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp", "HYDRA_LAUNCHER": "ssh"}


class Hosts:
    """Both hosts; what is run, is run on the first."""

    def __init__(self, names, agent):
        self._names, self._agent = names, str(agent)

    def run(self, *arguments, seconds=200, **environment) -> subprocess.CompletedProcess:
        """Runs `mx_rec run --hosts (both) ARGUMENTS` on the first."""
        agents = {"PRTE_MCA_plm_ssh_agent": self._agent, "HYDRA_LAUNCHER_EXEC": self._agent}
        command = [sys.executable, "-m", "mx_rec", "run", "--hosts", ",".join(ADDRESSES), *map(str, arguments)]
        return subprocess.run(
            ["ip", "netns", "exec", self._names[0], "unshare", "--uts"]
            + ["sh", "-c", f'hostname {self._names[0]}; exec "$@"', "sh", *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **_OPEN_MPI, **_MPICH, **agents, **environment},
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def bytes_sent(self) -> int:
        """The bytes that the first has sent to the second so far."""
        counter = f"/sys/class/net/{self._names[0]}/statistics/tx_bytes"
        return int(_ip("netns", "exec", self._names[0], "cat", counter))


@contextlib.contextmanager
def two(folder):
    """Two hosts for as long as the block lasts. OSError if they cannot be made, with the reason."""
    if os.geteuid() != 0:
        raise OSError("only root makes network namespaces")
    for program in ("ip", "unshare"):
        if shutil.which(program) is None:
            raise OSError(f"there is no program `{program}` (Debian, Ubuntu: apt-get install iproute2 util-linux)")
    names = [f"mxrec{os.getpid()}{letter}" for letter in "ab"]  # of namespaces, interfaces and hosts
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", names[0], "netns", names[0], "type", "veth", "peer", "name", names[1], "netns", names[1])
        for name, address in zip(names, ADDRESSES):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
            for link in ("lo", name):
                _ip("-n", name, "link", "set", link, "up")
        agent = folder / "agent"
        agent.write_text(_AGENT.format(name=names[1]))
        agent.chmod(0o755)
        yield Hosts(names, agent)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"`ip {' '.join(words)}`: {done.stderr.strip()}")
    return done.stdout
