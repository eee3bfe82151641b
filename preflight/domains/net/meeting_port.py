"""How the agents of a job on one machine know that one of theirs holds MASTER_PORT.

When nobody listens there, an agent beside that of rank 0 opens the meeting in its place; should
rank 0 still come, its port is taken, and by no other run. So whoever opens the meeting for it binds
an abstract Unix name. That belongs to the network namespace, as the port does, ends with its
process, and is told by /proc/net/unix: nobody has to connect, and containers with process numbers
of their own see it, too. By names like that an agent also knows of another one with its own ranks.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Mapping

from preflight.host import Host
from preflight.model import Topology

STEP = ("SLURM_STEP_ID", "PMIX_NAMESPACE", "TORCHELASTIC_RESTART_COUNT")
"""What tells one start of a job from another that runs at the same time."""
NAMES_READ = 200_000
"""Lines of /proc/net/unix: more than a busy machine has, and read within a second."""


def name_of(top: Topology, environ: Mapping[str, str]) -> str:
    """The same for all agents of one user, of one step of one job, who mean the same port."""
    step = [environ.get(name, "") for name in STEP]
    said = repr((top.job, top.size, top.meets_at, *step))
    return f"preflight-port-{os.geteuid()}-{hashlib.sha256(said.encode()).hexdigest()[:32]}"


def sign(top: Topology, environ: Mapping[str, str]) -> socket.socket | None:
    """Say it, until this is closed; None where another agent does, or a sandbox allows nobody."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind("\0" + name_of(top, environ))
    except OSError:
        sock.close()
        return None
    return sock


def signed(host: Host, top: Topology) -> bool:
    """Whether an agent of this job says so."""
    wanted = "@" + name_of(top, host.environ)
    return any(line.rstrip().endswith(wanted) for line in host.lines("/proc/net/unix", NAMES_READ))


# --- agents with the same ranks ---


def rank_name(top: Topology, environ: Mapping[str, str]) -> str:
    """The same for all agents of one user on one machine that mean the same meeting, of one step of
    one job, and have the same ranks: there should be one. What follows is its process."""
    step = [environ.get(name, "") for name in STEP]
    said = repr((top.job, top.meets_at, top.nodes[0].ranks if top.nodes else (), *step))
    return f"preflight-rank-{os.geteuid()}-{hashlib.sha256(said.encode()).hexdigest()[:32]}-"


def claim(top: Topology, environ: Mapping[str, str]) -> socket.socket | None:
    """Say that this process is the agent of these ranks, until that is closed; None where a sandbox
    allows it to nobody."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(f"\0{rank_name(top, environ)}{os.getpid()}")
    except OSError:
        sock.close()
        return None
    return sock


def claimants(host: Host, name: str) -> tuple[int, ...]:
    """The processes that say so, by rank_name(): one is the agent that asks."""
    wanted = f"@{name}"
    if not name:
        return ()
    names = (line.split(" ")[-1].rstrip() for line in host.lines("/proc/net/unix", NAMES_READ))
    pids = {name.removeprefix(wanted) for name in names if name.startswith(wanted)}
    return tuple(sorted(int(pid) for pid in pids if re.fullmatch(r"[0-9]{1,9}", pid)))
