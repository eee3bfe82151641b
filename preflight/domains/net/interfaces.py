"""Which address of this node NCCL and Gloo will really use, found on the live machine.

The rules are interface_rules.py's; here they meet the environment, nccl.conf and the resolver.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from ipaddress import IPv4Address

from preflight.check import Context
from preflight.domains.net import interface_rules
from preflight.domains.net.dns import LookupBatch, addresses, is_loopback, parse_ip, source_of
from preflight.domains.net.rdma import rdma_ports
from preflight.domains.settings.nccl_conf import nccl_variables
from preflight.frozen import dataclass
from preflight.host import Host, Interface

NCCL, GLOO = "NCCL", "Gloo"
MORE = ("NCCL-1", "NCCL-2", "NCCL-3", "NCCL-4")
"""NCCL's interfaces in its order, where they are not simply its way: it uses all of them for data.
The first is NCCL itself where there are GPUs."""
MORE_OF_GLOO = ("Gloo-2", "Gloo-3")
"""Gloo's further interfaces: by each that GLOO_SOCKET_IFNAME names all ranks connect once more."""
LIBRARIES = (NCCL, GLOO, *MORE, *MORE_OF_GLOO)

RESOLVER_PATIENCE = 1.5
"""Seconds for the own name and MASTER_ADDR, which are asked at once."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address that one library would listen at here, with its interface and that one's MTU.
    `prefix` is its network's, 0: not known."""

    library: str
    interface: str
    ip: str
    mtu: int = 0
    prefix: int = 0


@dataclass(frozen=True, slots=True)
class ListenAddresses:
    """NCCL's way, where there is a GPU, then Gloo's, then NCCL's others; `meeting` is the interface
    that leads to MASTER_ADDR, empty where that is not known or leads nowhere, `source` the address
    from which this node goes there."""

    found: tuple[ListenAddress, ...]
    meeting: str = ""
    source: str = ""


def listen_addresses(host: Host, ctx: Context) -> ListenAddresses:
    """What the libraries of this node would take; NCCL's further interfaces where it has no RDMA
    port for its data."""
    rules = {name: fact.value for name, fact in nccl_variables(host).items()}
    gloo_rule = host.environ.get("GLOO_SOCKET_IFNAME")
    family = interface_rules.nccl_family(rules.get("NCCL_SOCKET_FAMILY"))
    named = bool(interface_rules.gloo_names(gloo_rule))
    asked = LookupBatch(time.monotonic() + RESOLVER_PATIENCE, ctx.mark)
    if not named:
        own_name = host.hostname()
        asked.put("own name", own_name, lambda: addresses(host, own_name))
    if ctx.master_addr:
        asked.put("MASTER_ADDR", ctx.master_addr, lambda: addresses(host, ctx.master_addr))
    own = None if named else asked.take("own name").found
    masters = asked.take("MASTER_ADDR").found if ctx.master_addr else ()
    found = []
    nccl = interface_rules.nccl_choice(host.interfaces, rules.get("NCCL_SOCKET_IFNAME"), family)
    gpus = bool(host.gpu_files())
    for interface in nccl[:1] if gpus else ():
        address = interface_rules.nccl_address(interface, family)
        if address is not None:
            found.append(_way(NCCL, interface, address.ip))
    gloo = interface_rules.gloo_choice(host.interfaces, gloo_rule, own)
    for interface in gloo[:1]:
        address = interface_rules.gloo_address(interface)
        # where the hostname counts, it is the name's very address: 127.0.1.1, not lo's 127.0.0.1
        ip = next((ip for ip in own or () if interface_rules.holds(interface, ip)), "")
        if ip or address is not None:
            ip = ip or (address.ip if address else "")
            found.append(_way(GLOO, interface, ip))
    # without a GPU it is what somebody has set for the nodes that have some
    if (gpus and not _over_rdma(host, rules)) or (not gpus and rules.get("NCCL_SOCKET_IFNAME")):
        for label, interface in list(zip(MORE, nccl, strict=False))[gpus:]:
            address = interface_rules.nccl_address(interface, family)
            # the ends of containers that have only a link-local address, and that nobody named
            chance = not rules.get("NCCL_SOCKET_IFNAME") and interface_rules.virtual(interface.name)
            if address is not None and not (chance and address.ip.startswith("fe80:")):
                found.append(_way(label, interface, address.ip))
    for label, interface in zip(MORE_OF_GLOO, gloo[1:], strict=False):
        address = interface_rules.gloo_address(interface)
        if address is not None and not interface.loopback:  # net.interface says that of lo
            found.append(_way(label, interface, address.ip))
    source = next((source for ip in masters if (source := source_of(host, ip))), "")
    meeting = interface_rules.leads_from(host.interfaces, source)
    return ListenAddresses(tuple(found), meeting.name if meeting else "", source)


def _way(library: str, interface: Interface, ip: str) -> ListenAddress:
    prefix = next((a.prefix for a in interface.addresses if a.ip == ip), 0)
    return ListenAddress(library, interface.name, ip, interface.mtu, prefix)


def _over_rdma(host: Host, rules: Mapping[str, str]) -> bool:
    """Whether NCCL has an RDMA port for its data, so that it needs one interface only."""
    off = rules.get("NCCL_IB_DISABLE", "0") not in ("", "0") or rules.get("NCCL_NET") == "Socket"
    return not off and any(True for _ in rdma_ports(host))


def dialled_by_gloo(mine: ListenAddress | None, theirs: ListenAddress | None) -> bool:
    """Whether Gloo may connect from one node to another: the side with the greater address does
    (memcmp of its bytes in gloo/transport/tcp/device.cc and pair.cc; only between equal ones the
    port decides, so ranks of two nodes all have one direction). True where it is not known."""
    if mine is None or theirs is None:
        return True
    ips = parse_ip(mine.ip), parse_ip(theirs.ip)
    if ips[0] is None or ips[1] is None or ips[0].version != ips[1].version:
        return True
    return int(ips[0]) >= int(ips[1])


def gloo_alone(ways: Mapping[str, Collection[ListenAddress]]) -> dict[str, ListenAddress]:
    """Each node's address of Gloo's, where no node has a way of NCCL's, which connects in both
    directions; empty otherwise."""
    if any(way.library == NCCL for some in ways.values() for way in some):
        return {}
    found = {node: [w for w in some if w.library == GLOO] for node, some in ways.items()}
    return {node: some[0] for node, some in found.items() if some}


def needs_none(
    gloo: Mapping[str, ListenAddress], edges: Collection[tuple[str, str]], nodes: Collection[str]
) -> bool:
    """Whether Gloo opens none of these connections, nor any other one into the node at the end of
    all of them, or out of the one at their start: of a large job only some are tested. `nodes`: all
    of the job."""
    if not edges or not {*nodes} <= gloo.keys():
        return False
    closed = {*edges}
    starts, ends = {a for a, _ in edges}, {b for _, b in edges}
    if len(edges) > 1 and len(ends) == 1:
        closed |= {(n, b) for b in ends for n in nodes if n != b}
    if len(edges) > 1 and len(starts) == 1:
        closed |= {(a, n) for a in starts for n in nodes if n != a}
    return not any(dialled_by_gloo(gloo.get(a), gloo.get(b)) for a, b in closed)


def never_dialled(mine: ListenAddress | None, theirs: ListenAddress | None) -> bool:
    """Of two nodes Gloo has the one with the greater address dial: one whose name leads to
    127.0.1.1 dials all nodes below, in 10.0.0.0/8, and none of them dials it. net.name says what
    is wrong there; an edge that nobody uses is no fault of today."""
    if mine is None or theirs is None or not is_loopback(theirs.ip):
        return False
    ips = parse_ip(mine.ip), parse_ip(theirs.ip)
    return isinstance(ips[0], IPv4Address) and isinstance(ips[1], IPv4Address) and ips[0] < ips[1]
