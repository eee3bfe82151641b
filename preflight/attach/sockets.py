"""Where a process of the user's listens, and how it can be reached from here. Nothing is connected
to. Only in a worker."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator

from preflight.frozen import dataclass
from preflight.rehearsal.client import Address

PATH = 107
"""Bytes of the path of a Unix socket."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket of a process, and where it can be reached from here."""

    descriptor: int
    address: Address
    path: str = ""
    port: int = 0
    everywhere: bool = False
    """It takes what comes to any address of the machine."""


def listeners(pid: int) -> Iterator[Listener]:
    """Its sockets that listen; none where it is in another network, or may not be looked into."""
    import psutil

    try:
        process = psutil.Process(pid)
        # its name before psutil 6
        asked = getattr(process, "net_connections", None) or process.connections
        found = asked("all")
        same = os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net")
    except (psutil.Error, OSError):
        return
    for one in found:
        if one.family == socket.AF_UNIX:
            # in its own view of the files, which may be a container's
            path = f"/proc/{pid}/root{one.laddr}" if one.laddr else ""
            reached = one.laddr if os.path.exists(one.laddr or "/none") else path
            if one.laddr.startswith("/") and not one.raddr and len(os.fsencode(reached)) <= PATH:
                yield Listener(one.fd, reached, path=one.laddr)
        elif same and one.status == psutil.CONN_LISTEN and one.laddr:
            host = ipaddress.ip_address(one.laddr.ip)
            # of both kinds: a socket for IPv6 takes those of IPv4, too, and ::1 may be switched off
            local = "127.0.0.1" if host.is_unspecified else str(host)
            yield Listener(
                one.fd,
                (local, one.laddr.port),
                port=one.laddr.port,
                everywhere=host.is_unspecified,
            )
