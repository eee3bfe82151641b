"""The servers of the Lustre file systems that are mounted, and which of them this node has lost.

A client keeps a connection to each object store (OST) and metadata target (MDT). The state of each
is in a file of debugfs, root's alone, or of /proc in older releases: that which `lctl get_param
osc.*.state mdc.*.state` prints, with its last 16 changes. Formats and names: lprocfs_state_seq_show
and lprocfs_server_uuid_seq_show of lustre/obdclass/lprocfs_status.c, ptlrpc_import_state_name of
lustre/include/lustre_import.h. No request goes to any server for it, but a file may have to wait
for a lock: read them in a process that may be left behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

from preflight.frozen import dataclass
from preflight.host import Host, Mount
from preflight.sanitize import one_line

FOLDERS = ("/sys/kernel/debug/lustre", "/proc/fs/lustre")
NETWORK = "/sys/fs/lustre"
KINDS = {"mdc": "mds", "osc": "ost"}
"""Folder of the clients of one kind of target -> what their files call the server."""
# `scratch-OST0003-osc-ffff9d6153c91000`; the connections of a server end in -MDT0000
CLIENT = re.compile(r"([\w.-]{1,16})-((?:OST|MDT)[0-9a-f]{4})-(?:osc|mdc)-[0-9a-f]{6,16}", re.ASCII)
# `10.1.1.5@o2ib:10.1.1.6@o2ib:/scratch/home`: the network identifiers of the management servers
SOURCE = re.compile(r".*@[a-z0-9]{1,15}:/([\w.-]{1,16})(?:/.*)?", re.ASCII)
CURRENT = re.compile(r"current_state: ([A-Z_]{1,32})$", re.MULTILINE)
CHANGE = re.compile(r"^ - \[ ([0-9]{1,12}), ([A-Z_]{1,32}) \]$", re.MULTILINE)
# IDLE: closed since nothing was asked for a while, and opened again when something is
CONNECTED = ("FULL", "IDLE")
LOST = ("DISCONN", "CONNECTING", "REPLAY", "REPLAY_LOCKS", "REPLAY_WAIT", "RECOVER", "EVICTED")
DEACTIVATED = "DEACTIVATED"
KEPT = 64


@dataclass(frozen=True, slots=True)
class LostTarget:
    """A target to which there is no connection: `scratch-OST0003`, the state of it, the server's
    network identifier (`10.1.1.5@o2ib`; empty: not known), and for how many seconds; at_least: it
    may be longer, since the changes that are kept do not reach back to its loss."""

    name: str
    state: str
    server: str
    seconds: float
    at_least: bool = False


def file_system(mount: Mount | None) -> str:
    """The name of the Lustre file system that is mounted; empty where it is no Lustre."""
    found = SOURCE.fullmatch(mount.source) if mount else None
    return found[1] if found else ""


def lost_targets(host: Host, file_systems: Iterable[str], now: float) -> Iterator[LostTarget]:
    """Those of these file systems, at most KEPT. `now`: seconds since the epoch, as the kernel
    writes them. What an administrator has deactivated is not waited for, and left out."""
    wanted = frozenset(file_systems)
    kept = 0
    for kind, server in KINDS.items():
        for top in FOLDERS:
            for name in host.listdir(f"{top}/{kind}"):
                client = CLIENT.fullmatch(name)
                if not client or client[1] not in wanted or kept >= KEPT:
                    continue
                lost = _lost(host.read_or_none(f"{top}/{kind}/{name}/state") or "", now)
                if lost and not _deactivated(host, f"{top}/{kind}/{name}/{server}_server_uuid"):
                    kept += 1
                    state, seconds, at_least = lost
                    at = host.read_or_none(f"{NETWORK}/{kind}/{name}/{server}_conn_uuid") or ""
                    target = f"{client[1]}-{client[2]}"
                    yield LostTarget(target, state, one_line(at, 64), seconds, at_least)


def _lost(text: str, now: float) -> tuple[str, float, bool] | None:
    """The state, for how long there has been no connection, and whether it may be longer."""
    current = CURRENT.search(text)
    if not current or current[1] not in LOST:
        return None
    changes = [(int(at), state) for at, state in CHANGE.findall(text)]
    without = [*takewhile(lambda change: change[1] not in CONNECTED, reversed(changes))]
    began = without[-1][0] if without else now
    return current[1], round(max(0.0, now - began), 1), len(without) == len(changes)


def _deactivated(host: Host, path: str) -> bool:
    return DEACTIVATED in (host.read_or_none(path) or "")
