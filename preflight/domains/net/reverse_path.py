"""On which interface this machine sends to an address, and where it would take the answer.

With rp_filter=1 the kernel silently drops packets that come in on another interface than the one
by which it would send to their source, ARP requests of the same subnet included (RFC 3704, Linux:
Documentation/networking/ip-sysctl.rst). So a route that leaves by eth1 with eth0's address gets no
answer.
"""

from __future__ import annotations

import contextlib
from ipaddress import ip_address, ip_network

from preflight.frozen import dataclass
from preflight.host import Host, Route
from preflight.model import CannotObserve

CONF = "/proc/sys/net/ipv4/conf"


@dataclass(frozen=True, slots=True)
class OutgoingWay:
    """How this machine sends to an address.

    leaves  the interface of its route, by the main routing table
    source  the interface that has the address which it sends from: where answers come in
    filter  rp_filter in force on `source`: 0 none, 1 strict, 2 loose
    """

    leaves: str
    source: str
    filter: int

    @property
    def answers_are_dropped(self) -> bool:
        return self.leaves != self.source and self.filter == 1


def outgoing_way(host: Host, ip: str) -> OutgoingWay | None:
    """None where it can't be told, or `ip` is of IPv6, which has no such filter."""
    if ":" in ip:
        return None
    with contextlib.suppress(OSError, CannotObserve, ValueError):
        mine = host.source_of(ip)
        source = next((i.name for i in host.interfaces for a in i.addresses if a.ip == mine), "")
        fits = [r for r in host.routes() if ":" not in r.network and _covers(r, ip)]
        if source and fits:
            leaves = max(fits, key=lambda r: (r.prefix, -r.metric)).interface
            return OutgoingWay(leaves, source, _filter(host, source))
    return None


def _covers(route: Route, ip: str) -> bool:
    network = ip_network(f"{route.network}/{route.prefix}", strict=False)
    return ip_address(ip) in network


def _filter(host: Host, interface: str) -> int:
    """The kernel takes the greater one of the interface's and of all's."""
    return max(host.read_int(f"{CONF}/{of}/rp_filter") or 0 for of in ("all", interface))
