"""On which interface this machine sends to an address, where it would take the answer, and whether
the interface that should lead there has a link.

With rp_filter=1 the kernel silently drops packets that come in on another interface than the one
by which it would send to their source, ARP requests of the same subnet included (RFC 3704, Linux:
Documentation/networking/ip-sysctl.rst). So a route that leaves by eth1 with eth0's address gets no
answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from ipaddress import ip_network

from preflight.domains.net.dns import in_network
from preflight.domains.net.interface_rules import isolated, virtual
from preflight.domains.net.kernel_route import KernelRoute, kernel_route
from preflight.frozen import dataclass
from preflight.host import Address, Host, Route
from preflight.model import CannotObserve

CONF = "/proc/sys/net/ipv4/conf"
FILTERED_KEPT = 32
DETOURS_KEPT = 16


@dataclass(frozen=True, slots=True)
class OutgoingWay:
    """How this machine sends to an address.

    leaves  the interface of its route
    source  the interface that has the address which it sends from: where answers come in
    filter  rp_filter in force on `source`: 0 none, 1 strict, 2 loose
    beside  another interface that has a link, and the address in its network, which `leaves` has
            not; empty where there is none
    table   the routing table to which an `ip rule` leads; 0: one that every machine has
    by_port other ports of that address are sent to by another interface
    gateway the router that it sends to first, though the address is in `source`'s own network
    """

    leaves: str
    source: str
    filter: int
    beside: str = ""
    table: int = 0
    by_port: bool = False
    gateway: str = ""

    @property
    def answers_are_dropped(self) -> bool:
        return self.leaves != self.source and self.filter == 1


@dataclass(frozen=True, slots=True)
class Detour:
    """A part of an interface's own subnet to which this machine sends by another one: what comes
    from there on `comes` is dropped, since rp_filter is strict there.

    network  in CIDR notation
    table    the routing table that has this route, where only an `ip rule` leads to it; else 0
    gateway  the router that it sends to first, by the same interface; empty: by another one
    own      `leaves` has that address itself: what is sent there never leaves this machine
    """

    network: str
    leaves: str
    comes: str
    table: int = 0
    gateway: str = ""
    own: bool = False


def outgoing_way(host: Host, ip: str, port: int = 0) -> OutgoingWay | None:
    """How a TCP connection to ip:port leaves. None where it can't be told, or `ip` is of IPv6,
    which has no such filter."""
    if ":" in ip:
        return None
    with contextlib.suppress(OSError, CannotObserve, ValueError):
        mine = host.source_of(ip)
        source = next((i.name for i in host.interfaces for a in i.addresses if a.ip == mine), "")
        way = _route(host, ip, port)
        leaves, table = way.interface, way.table_of_rule
        if source and leaves:
            beside = _beside(host, leaves, ip)
            by_port = bool(table) and _route(host, ip, 0).interface != leaves
            gateway = way.gateway if _has_in_network(host, leaves, ip) else ""
            kept = _filter(host, source)
            return OutgoingWay(leaves, source, kept, beside, table, by_port, gateway)
    return None


def _route(host: Host, ip: str, port: int) -> KernelRoute:
    """As the kernel says; of a recorded machine the main routing table is all there is."""
    if host.live:
        source = ""
        with contextlib.suppress(OSError):
            source = host.source_of(ip)
        if (told := kernel_route(ip, port, source)) is not None:
            return told
    fits = [r for r in host.routes() if ":" not in r.network and _covers(r, ip)]
    return KernelRoute(max(fits, key=lambda r: (r.prefix, -r.metric)).interface if fits else "", 0)


def _beside(host: Host, leaves: str, ip: str) -> str:
    """Unless `leaves` is in that network, too, and leads to other machines."""
    there = [i for i in host.interfaces for a in i.addresses if _in_network(a, ip) and i.running]
    names = [i.name for i in there if i.name != leaves]
    return "" if _leads_there(host, leaves, ip) else next(iter(names), "")


def _leads_there(host: Host, name: str, ip: str) -> bool:
    """Whether an interface has an address in the network of `ip`, and may lead to it: it has a
    link, and is no bridge of containers, whose network ends on this machine."""
    running = any(i.name == name and i.running for i in host.interfaces)
    return running and not isolated(name) and _has_in_network(host, name, ip)


def _has_in_network(host: Host, name: str, ip: str) -> bool:
    return any(_in_network(a, ip) for i in host.interfaces if i.name == name for a in i.addresses)


def filtered(host: Host) -> tuple[str, ...]:
    """The interfaces on which this machine drops what their own subnet sends, ARP requests for
    their addresses included: another interface of that subnet has the route back. None where there
    are further routing tables, which may have one for each."""
    if "\nId " in "\n" + (host.read_or_none("/proc/net/fib_trie") or ""):
        return ()
    found = []
    with contextlib.suppress(CannotObserve, ValueError):
        routes = [r for r in host.routes() if ":" not in r.network]
        for nic in (i for i in host.interfaces if i.running and not i.loopback):
            back = {_back(routes, a) for a in nic.addresses if a.family == 4 and a.prefix <= 30}
            if back - {"", nic.name} and nic.name not in back and _filter(host, nic.name) == 1:
                found.append(nic.name)
    return tuple(found[:FILTERED_KEPT])


def detours(host: Host) -> tuple[Detour, ...]:
    """The parts of this machine's subnets to which a more specific route leads by another interface
    than the one on which they come in, where that one drops them then."""
    if "\nId " in "\n" + (host.read_or_none("/proc/net/fib_trie") or ""):
        return ()
    found = []
    with contextlib.suppress(CannotObserve, ValueError):
        routes = [r for r in host.routes() if ":" not in r.network]
        for nic in (i for i in host.interfaces if i.running and not i.loopback):
            if _filter(host, nic.name) != 1:
                continue
            for address in (a for a in nic.addresses if a.family == 4 and a.prefix <= 30):
                found += [
                    Detour(f"{r.network}/{r.prefix}", r.interface, nic.name)
                    for r in routes
                    if r.interface != nic.name
                    and r.prefix > address.prefix
                    and in_network(f"{address.ip}/{address.prefix}", r.network)
                ]
    return tuple(found[:DETOURS_KEPT])


def diversions(host: Host, targets: Iterable[tuple[str, str]]) -> tuple[Detour, ...]:
    """Of addresses, each with the interface on which this machine has its own in that network,
    those that the kernel sends to by another interface, by a router, or to itself, whatever its
    reverse path filter. Not by an interface that leads into that network as well."""
    found = []
    with contextlib.suppress(OSError, CannotObserve, ValueError):
        others = [i.name for i in host.interfaces if not i.loopback]
        for ip, interface in sorted(set(targets))[:DETOURS_KEPT]:
            way = _route(host, ip, 0)
            leaves, table = way.interface, way.table_of_rule
            network = f"{ip}/{128 if ':' in ip else 32}"
            if way.local:
                holds = (i.name for i in host.interfaces if any(a.ip == ip for a in i.addresses))
                found.append(Detour(network, next(holds, leaves), interface, own=True))
            elif leaves != interface and leaves in others and not _leads_there(host, leaves, ip):
                found.append(Detour(network, leaves, interface, table))
            elif way.gateway and ":" not in ip and _has_in_network(host, leaves, ip):
                # of IPv6 a router may give out a prefix that is not on the link
                found.append(Detour(network, leaves, interface, table, way.gateway))
    return tuple(found)


def detour_of(ways: Iterable[Detour], comes: str, ip: str) -> Detour | None:
    """The detour by which what comes from an address on this interface is dropped."""
    fits = (d for d in ways if d.comes == comes and in_network(d.network, ip))
    return next(fits, None)


def _back(routes: list[Route], address: Address) -> str:
    """The interface by which the subnet of an address is reached; empty where it has no route."""
    subnet = ip_network(f"{address.ip}/{address.prefix}", strict=False)
    there = [
        r
        for r in routes
        if (r.network, r.prefix) == (str(subnet.network_address), subnet.prefixlen)
    ]
    return min(there, key=lambda r: r.metric).interface if there else ""


def link_down(host: Host, ip: str) -> str:
    """The interface without a link in whose network `ip` is; empty where there is none, or another
    one of that network has a link. The kernel drops the route to the network of an interface that
    is switched off, and sends what is for it by the default route.
    An empty bridge of Docker's has no link, and never led there."""
    with contextlib.suppress(CannotObserve, ValueError):
        real = [i for i in host.interfaces if not (isolated(i.name) or virtual(i.name))]
        there = [i for i in real for a in i.addresses if _in_network(a, ip)]
        if there and not any(i.running for i in there):
            return there[0].name
    return ""


def in_own_network(host: Host, ip: str) -> bool:
    """Whether an address is in a network of one of this machine's interfaces."""
    with contextlib.suppress(CannotObserve, ValueError):
        return any(_in_network(a, ip) for i in host.interfaces for a in i.addresses)
    return False


def _in_network(address: Address, ip: str) -> bool:
    return ip != address.ip and in_network(f"{address.ip}/{address.prefix}", ip)


def _covers(route: Route, ip: str) -> bool:
    return in_network(f"{route.network}/{route.prefix}", ip)


def _filter(host: Host, interface: str) -> int:
    """The kernel takes the greater one of the interface's and of all's."""
    return max(host.read_int(f"{CONF}/{of}/rp_filter") or 0 for of in ("all", interface))
