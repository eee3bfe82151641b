"""Which network interfaces NCCL and Gloo would take: their own rules, as pure functions.

NCCL  ncclFindInterfaces (src/misc/socket.cc), ncclOsFindInterfaces (src/os/linux.cc),
      and the list of names (domains/params.py). NCCL_COMM_ID is in nccl_root.py.
Gloo  createDefaultDevice (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp) and gloo's
      transport/tcp/device.cc

Both walk getifaddrs(), which lists all IPv4 addresses, in the order of the interfaces, before the
first IPv6 address: an interface that has only IPv6 comes after all that have IPv4.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import ip_interface

from preflight.domains.params import NameList, name_list
from preflight.host import Address, Interface

IPV4, IPV6, ANY = 4, 6, 0

MAX_IFS = 16
"""Names that NCCL reads from a list, and interfaces that it takes at most."""

AUTOMATIC = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
"""What NCCL tries, in this order, when nobody names an interface."""


# bridges that docker, libvirt, LXC, LXD, podman, VirtualBox and VMware make: each host has its own,
# often with the same address, and no other host gets there
BRIDGES = ("docker", "virbr", "lxcbr", "lxdbr", "podman", "cni-podman", "vboxnet", "vmnet")
# ends of containers, overlays, tunnels, dummies: other hosts may get there or not
VIRTUAL = (
    *("veth", "cni", "cali", "flannel", "cilium", "tun", "tap", "wg", "tailscale", "zt"),
    *("kube-", "nodelocaldns", "dummy", "ifb"),
)


@lru_cache(64)
def nccl_rule(text: str | None) -> NameList | None:
    """The rule in a value of NCCL_SOCKET_IFNAME; None when NCCL ignores the value and looks for
    itself, which it also does for a single character."""
    return None if text is None or len(text) < 2 else name_list(text, MAX_IFS)


def nccl_family(text: str | None) -> int:
    """What NCCL_SOCKET_FAMILY asks for; a word that NCCL doesn't know asks for nothing."""
    return {"AF_INET": IPV4, "AF_INET6": IPV6}.get(text or "", ANY)


def nccl_choice(
    interfaces: Iterable[Interface], rule: str | None, family: int = ANY
) -> tuple[Interface, ...]:
    """The interfaces that NCCL takes, in its order: the first carries the bootstrap, all of them
    the data where there is no RDMA."""
    parsed = nccl_rule(rule)
    if parsed is not None:
        return _found(interfaces, parsed, family)
    for text in AUTOMATIC:
        found = _found(interfaces, nccl_rule(text), family)
        if found:
            return found
    return ()


def nccl_address(interface: Interface, family: int = ANY) -> Address | None:
    """The address that NCCL would take of an interface; None when it can't take any."""
    return next(_addresses(interface, family), None)


def _found(
    interfaces: Iterable[Interface], rule: NameList | None, family: int
) -> tuple[Interface, ...]:
    able = [i for i in interfaces if i.running and (rule is None or rule.admits(i.name))]
    found: dict[str, Interface] = {}
    for wanted in (IPV4, IPV6):
        for interface in able:
            addresses = _addresses(interface, family)
            if any(a.family == wanted for a in addresses):
                found.setdefault(interface.name, interface)
    return tuple(found.values())[:MAX_IFS]


def _addresses(interface: Interface, family: int) -> Iterator[Address]:
    """In the order of getifaddrs, without ::1, which NCCL leaves out."""
    for wanted in (IPV4, IPV6) if family == ANY else (family,):
        for address in interface.addresses:
            if address.family == wanted and address.ip != "::1":
                yield address


def gloo_names(text: str | None) -> tuple[str, ...]:
    """The interfaces that GLOO_SOCKET_IFNAME names, each to be matched exactly; empty when Gloo
    goes by the node's name, which it also does for a value of a single character."""
    if text is None or len(text) < 2:
        return ()
    return tuple(name for name in text.split(",") if name)


def gloo_choice(
    interfaces: Iterable[Interface], rule: str | None, own: Iterable[str] | None = None
) -> tuple[Interface, ...]:
    """The interfaces that Gloo takes: one a name of the rule, else the one that has the first of
    `own`, the addresses of the node's name, else the loopback interface. Empty when a name is
    none or has no address (Gloo then fails), or when there is no rule and `own` is unknown."""
    known = list(interfaces)
    names = gloo_names(rule)
    if names:
        by_name = {i.name: i for i in known if i.addresses}
        return tuple(by_name[n] for n in names) if all(n in by_name for n in names) else ()
    if own is None:
        return ()
    for ip in own:
        for interface in known:
            if holds(interface, ip):
                return (interface,)
    return tuple(i for i in known if i.loopback)[:1]


def gloo_address(interface: Interface) -> Address | None:
    """The address that Gloo takes of an interface: the first that getifaddrs lists."""
    return min(interface.addresses, key=lambda a: a.family, default=None)


def holds(interface: Interface, ip: str) -> bool:
    """Whether an address is one of this interface's; all of 127.0.0.0/8 is the loopback's."""
    loops = interface.loopback and ip.startswith("127.")
    return loops or any(a.ip == ip for a in interface.addresses)


def leads_from(interfaces: Iterable[Interface], source: str) -> Interface | None:
    """The interface whose address `source` is; None where it is none's or the loopback's."""
    return next((i for i in interfaces if holds(i, source) and not i.loopback), None)


def isolated(name: str) -> bool:
    """Whether an interface is by its name a bridge that ends on this host. A docker network is
    called br- and twelve hex digits; br-ex and the like may well lead outside."""
    network = name.removeprefix("br-")
    return name.startswith(BRIDGES) or (network != name and len(network) == 12)


def virtual(name: str) -> bool:
    """Whether an interface is by its name one that other hosts may or may not reach."""
    return name.startswith(VIRTUAL)


def shared_subnet(interfaces: Iterable[Interface]) -> tuple[Interface, Interface, str] | None:
    """The first two interfaces with IPv4 addresses in one subnet, and that subnet."""
    owner: dict[str, Interface] = {}
    for interface in interfaces:
        for network in networks(interface):
            first = owner.setdefault(network, interface)
            if first.name != interface.name:
                return first, interface, network
    return None


def networks(interface: Interface, family: int = IPV4) -> tuple[str, ...]:
    """The networks of an interface in which there is room for other machines. Every interface is in
    the link-local one of IPv6, which says nothing."""
    found = []
    most = 126 if family == IPV6 else 30
    for address in interface.addresses:
        far = not address.ip.lower().startswith("fe80:")
        if address.family == family and address.prefix <= most and far:
            with contextlib.suppress(ValueError):  # a report that somebody edited
                found.append(str(ip_interface(f"{address.ip}/{address.prefix}").network))
    return tuple(found)


def family_of(address: str) -> int:
    """The version of IP of an address or a network."""
    return IPV6 if ":" in address else IPV4


def state(interface: Interface) -> str:
    """What hinders an interface that a rule names, in words."""
    if not interface.up:
        return "is down"
    if not interface.running:
        return "has no link"
    return "has no address of that family" if interface.addresses else "has no address"


def listing(interfaces: Iterable[Interface], more: int = 0) -> str:
    """The interfaces in one line, those with addresses first; `more` were never listed."""
    some = sorted(interfaces, key=lambda i: not i.addresses)
    parts = [f"{i.name} {i.addresses[0].ip if i.addresses else '-'}" for i in some[:8]]
    more += len(some) - len(parts)
    return ", ".join(parts) + (f" and {more} more" if more else "")
