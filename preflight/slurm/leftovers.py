"""What a job has left on its node, for a worker to look up: processes, files in /dev/shm, ports.

Who holds a GPU is read from the open files of processes: that needs no driver, and the epilog is
where a driver is likeliest to hang. Looks at everybody's processes: for root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight.domains.net.port_owners import LISTEN, PROCESSES_READ, SOCKETS_READ, STATES, program
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.process.worker import Channel

SEGMENTS = ("nccl-", "torch_")
"""How the files begin that NCCL and torch make in /dev/shm."""
KEPT, FILES_OF_ONE = 20, 10_000


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A process of the job's user. `job` is that of its first environment, which it can't change;
    empty where it has none, as after a login."""

    pid: int
    job: str


def find_leftovers(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, Any]:
    """`job` and `uid`: of the job that has ended."""
    return leftovers_of(Host(args["root"]), args["job"], args["uid"], channel)


def remove_file(args: Mapping[str, Any], channel: Channel, preloaded: object) -> None:
    """Remove what our own prolog has kept of the job."""
    try:
        os.unlink(args["path"])
    except FileNotFoundError:
        pass


def leftovers_of(host: Host, job: str, uid: int, channel: Channel) -> dict[str, Any]:
    """Its leftovers. A process is the job's by the SLURM_JOB_ID that it began with. What says no
    job's name, files among it, is taken for the job's only where its user has no other job here."""
    channel.mark("/proc")
    processes = list(_processes(host, uid))
    alone = all(process.job in ("", job) for process in processes)
    # root has daemons that belong to no job
    mine = [p for p in processes if p.job == job or (alone and uid and not p.job)]
    listening = _listening(host)
    found = []
    for process in mine:
        held = [host.readlink(name) for name in _files(host, process.pid)]
        gpus = sorted({g[5:] for g in held if re.fullmatch(r"/dev/(nvidia\d+|kfd|dxg)", g)})
        ports = sorted({listening[h[8:-1]] for h in held if h[8:-1] in listening})
        if gpus or ports:
            name = program(host, process.pid)
            found.append({"pid": process.pid, "name": name, "gpus": gpus, "ports": ports})
    channel.mark("/dev/shm")
    files = list(_segments(host, uid)) if alone else []
    return {"processes": found[:KEPT], "files": files}


def _processes(host: Host, uid: int) -> Iterator[JobProcess]:
    pids = [int(name) for name in host.listdir("/proc") if name.isdecimal()]
    for pid in sorted(pids)[:PROCESSES_READ]:
        status = host.read_or_none(f"/proc/{pid}/status") or ""
        owner = re.search(r"^Uid:\s*(\d+)", status, re.MULTILINE)
        if owner is None or int(owner[1]) != uid:
            continue
        environ = (host.read_or_none(f"/proc/{pid}/environ") or "").split("\0")
        jobs = (v.removeprefix("SLURM_JOB_ID=") for v in environ if v.startswith("SLURM_JOB_ID="))
        # what slurmd itself starts, this very hook too, is no work of the job
        if not any(v.startswith("SLURM_SCRIPT_CONTEXT=epilog") for v in environ):
            yield JobProcess(pid, next(jobs, ""))


def _files(host: Host, pid: int) -> Iterator[str]:
    for number in host.listdir(f"/proc/{pid}/fd")[:FILES_OF_ONE]:
        yield f"/proc/{pid}/fd/{number}"


def _listening(host: Host) -> dict[str, int]:
    """inode -> port of every TCP socket that listens."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in host.lines(f"/proc/net/{table}", SOCKETS_READ):
            parts = line.split()
            if len(parts) > 9 and STATES.get(parts[3]) == LISTEN:
                found[parts[9]] = int(parts[1].rpartition(":")[2], 16)
    return found


def _segments(host: Host, uid: int) -> Iterator[dict[str, Any]]:
    for name in host.listdir("/dev/shm"):
        if name.startswith(SEGMENTS):
            try:
                about = os.lstat(host.path(f"/dev/shm/{name}"))
            except OSError:
                continue  # gone by now
            if about.st_uid == uid:
                yield {"name": name[:80], "bytes": about.st_blocks * 512}
