"""NCCL's own logs of the rehearsed ranks: what has NCCL write them into the rehearsal's folder, and
what they say at the end. For workers only: this looks at /dev and reads files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from preflight.domains.collectives.nccl_log import ASKED, FILE, LINE, NcclLog, parse
from preflight.domains.settings.nccl_conf import nccl_setting
from preflight.host import Host
from preflight.redact import redact
from preflight.rehearsal import procfs

NAME = "nccl"
LEVEL = "NCCL_DEBUG"
ELSEWHERE = frozenset(
    {"srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun", "deepspeed"}
)
"""What starts ranks on other machines with this environment. The folder is not there, and an NCCL
that can't open its file writes to stdout."""

LOG, ALL = 2 << 20, 16 << 20
"""Bytes read of a log, its first ones, and of all of a node. With 8 GPUs and 32 channels a
communicator has some 100 KiB."""
ENTRIES = 8192
"""Of the folder, that are looked at."""


def offered(args: Mapping[str, Any], channel: object, preloaded: object) -> dict[str, Any]:
    """`set`: what is to be set for the command; `kept`: what the user has set himself, which is why
    that is nothing."""
    host = Host(environ={str(name): str(value) for name, value in args["environ"].items()})
    added, kept = variables(host, args["argv"], str(args["folder"]))
    return {"set": added, "kept": kept}


def variables(
    host: Host, argv: Sequence[str], folder: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Variables that have NCCL write a log into the folder, and those of the user that forbid it.
    Both are empty without a GPU, and where the ranks may start on other machines."""
    words = (os.path.basename(word) for argument in argv for word in argument.split())
    if not host.gpu_files() or ELSEWHERE.intersection(words):
        return {}, {}
    own = {name: value for name in (LEVEL, FILE) if (value := nccl_setting(host, name))}
    if own or LEVEL in host.environ or FILE in host.environ:
        return {}, {name: redact(name, value, 80) for name, value in own.items()}
    ours = {name: value for name, value in ASKED.items() if not nccl_setting(host, name)}
    return ours | {FILE: os.path.join(folder, f"{NAME}.%h.%p")}, {}


def read_logs(folder: str, ranks: Mapping[int, int | None]) -> dict[int, NcclLog]:
    """pid -> what its log says, for those of these processes (pid -> rank) that have one."""
    found: dict[int, NcclLog] = {}
    left = ALL
    for pid, path in _files(folder, ranks):
        lines = _lines(path, min(LOG, left))
        left -= sum(map(len, lines))
        if lines and left > 0:
            found[pid] = parse(lines, ranks[pid] or 0)
    return found


def _files(folder: str, pids: Collection[int]) -> Iterator[tuple[int, str]]:
    with os.scandir(folder) as entries:
        for _, entry in zip(range(ENTRIES), entries, strict=False):
            first, _, rest = entry.name.partition(".")
            pid = rest.rpartition(".")[2]  # a host's name may have dots
            if first == NAME and pid.isdecimal() and len(pid) < 10 and int(pid) in pids:
                yield int(pid), entry.path


def _lines(path: str, most: int) -> list[str]:
    """The whole lines at the beginning of a file."""
    data = procfs.read_regular(path, most)
    return [line[:LINE].decode(errors="replace") for line in data.split(b"\n")[:-1]]
