"""The kernel's connection tracking table (netfilter's conntrack), which a firewall or a NAT of this
network namespace goes by."""

from __future__ import annotations

import contextlib
import socket

from preflight.frozen import dataclass
from preflight.host import Host

FOLDER = "/proc/sys/net/netfilter"
LOCAL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class TrackingTable:
    """entries, and most: how many there may be, 0 where there is no table; idle: seconds without a
    packet after which an established TCP connection is forgotten, 0 where none is kept."""

    entries: int
    most: int
    idle: int


def tracking_table(host: Host) -> TrackingTable:
    """Reads three files, and where the table is empty makes a connection within this machine: the
    kernel has a table also where no rule needs it, and keeps nothing in it."""
    entries, most, idle = (
        host.read_int(f"{FOLDER}/nf_conntrack_{name}") or 0
        for name in ("count", "max", "tcp_timeout_established")
    )
    kept = entries > 0 or (idle > 0 and _is_kept(host))
    return TrackingTable(entries, most, idle if kept else 0)


def _is_kept(host: Host) -> bool:
    if not host.live:
        return False
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        made = stack.enter_context(socket.socket())  # create_connection() would look up a name
        made.settimeout(LOCAL_SECONDS)
        made.connect(server.getsockname())
        return bool(host.read_int(f"{FOLDER}/nf_conntrack_count"))
    return False
