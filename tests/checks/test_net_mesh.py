"""net.mesh: the node, the link or the address is named; what can't be told is not told."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology, world
from support.relay import Numbers, Relay, case, every, into, nodes, out_of, together

from preflight.check import conforms
from preflight.checks import net_mesh
from preflight.domains.net import pairing
from preflight.domains.net.arp import Neighbour
from preflight.domains.net.interfaces import GLOO, NCCL, ListenAddress
from preflight.domains.net.mesh_probe import Edge, Flows, MeshPeer, Opened, Retried, Target
from preflight.domains.net.mesh_view import Mesh
from preflight.domains.net.port_owners import PeerConnection
from preflight.domains.net.reverse_path import Detour
from preflight.domains.net.tcp import ConversationLoop
from preflight.host import Host
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Confidence,
    Finding,
    Kind,
    Missing,
    Node,
    Status,
    Topology,
)

conforms(net_mesh)


def mesh(
    count: int,
    bad: Mapping[Numbers, str | Edge] | None = None,
    *,
    at_once: Mapping[Numbers, str | Edge] | None = None,
    ways: Mapping[int, tuple[ListenAddress, ...]] | None = None,
    libraries: str = "Gloo",
    absent: Collection[Numbers] = (),
    heard: Collection[Numbers] = (),
    meeting: str = "eth0",
    flows: Mapping[Numbers, tuple[int, int]] | None = None,
) -> dict[str, Any]:
    """What `count` nodes saw when the edges of `bad` came to these results."""

    def edge(to: int, what: str | Edge) -> Edge:
        return what if isinstance(what, Edge) else Edge(to, libraries, what, 0.001)

    seen = {}
    for i in range(count):
        mine = {j: edge(j, r) for (a, j), r in (bad or {}).items() if a == i}
        burst = {j: edge(j, r) for (a, j), r in (at_once or {}).items() if a == i}
        fine = [
            j
            for j in pairing.dials(i, count)
            if (i, j) not in absent and (j not in mine or mine[j].result == "ok")
        ]
        default = tuple(
            ListenAddress(w, "eth0", f"10.0.0.{i + 1}", 1500) for w in libraries.split("+")
        )
        seen[f"n{i}"] = Mesh(
            place=pairing.NodeNumber(i, count),
            ways=(ways or {}).get(i, default),
            meeting=meeting,
            times={libraries: {str(j): 0.0003 for j in fine}} if fine else {},
            rough=tuple(mine.values()),
            heard=tuple(a for a, b in heard if b == i),
            burst_rough=tuple(burst.values()),
            ports=(32768, 60999),
            each=16,
            flows=tuple(
                Flows(b, libraries, 16, dead, again)
                for (a, b), (dead, again) in (flows or {}).items()
                if a == i
            ),
        )
    return seen


def idle(seen: dict[str, Any], number: int, *nics: str) -> dict[str, Any]:
    """That node has these interfaces, without a link."""
    node = f"n{number}"
    return seen | {node: dataclasses.replace(seen[node], idle=nics)}


def filters(seen: dict[str, Any], *numbers: int | str) -> dict[str, Any]:
    """The reverse path filter of those nodes drops what comes in on the interface named last."""
    *nodes, nic = numbers
    more = {f"n{n}": dataclasses.replace(seen[f"n{n}"], filtered=(nic,)) for n in nodes}
    return seen | more


def detour(seen: dict[str, Any], number: int, to: int) -> dict[str, Any]:
    """That node has a route of its own to another one, by eth1."""
    way = Detour(f"10.0.0.{to + 1}/32", "eth1", "eth0")
    return seen | {f"n{number}": dataclasses.replace(seen[f"n{number}"], detours=(way,))}


def diverted(
    seen: dict[str, Any],
    number: int,
    to: int,
    leaves: str = "tailscale0",
    table: int = 52,
    **more: Any,
) -> dict[str, Any]:
    """That node did not reach another one, and sends to it by a VPN."""
    way = Detour(f"10.0.0.{to + 1}/32", leaves, "eth0", table, **more)
    return seen | {f"n{number}": dataclasses.replace(seen[f"n{number}"], diverted=(way,))}


def ranged(seen: dict[str, Any], **ports: tuple[int, int]) -> dict[str, Any]:
    """The same with ephemeral ranges of their own."""
    return seen | {node: dataclasses.replace(seen[node], ports=own) for node, own in ports.items()}


def looked(seen: dict[str, Any], number: int, **more: Any) -> dict[str, Any]:
    """That node has looked at who reached it, and at the connections of others."""
    node = f"n{number}"
    return seen | {node: dataclasses.replace(seen[node], looked=True, **more)}


def led_away(seen: dict[str, Any], number: int) -> dict[str, Any]:
    """The connections of all others to that node are at its port 15006."""
    taken = tuple(
        PeerConnection("ESTABLISHED", 15006, f"10.0.0.{i + 1}", 40001) for i in range(len(seen))
    )
    return looked(seen, number, taken=taken, holders={"15006": "envoy"})


def first(seen: dict[str, Any], number: int, *, ip: str = "192.168.99.2") -> dict[str, Any]:
    """That node's eth0 has this address before the one by which it comes to MASTER_ADDR."""
    mesh = seen[f"n{number}"]
    ways = (*mesh.ways[:-1], dataclasses.replace(mesh.ways[-1], ip=ip, prefix=24))
    source = f"10.0.0.{number + 1}"
    return seen | {f"n{number}": dataclasses.replace(mesh, ways=ways, source=source)}


def says(to: int, firewall: int) -> Edge:
    """An edge to node `to` that 10.0.0.`firewall` rejects by ICMP."""
    return Edge(to, "Gloo", "ECONNREFUSED", 0.001, rejected_by=f"10.0.0.{firewall}")


EITHER_END = "link-or-end-closed"
TWO_OF_ONE = {(1, 0): says(0, 2), (0, 1): says(1, 2)}
TWO_OWN = {(1, 0): says(0, 2), (0, 1): says(1, 1)}

OLD_MAC = "02:de:ad:00:00:01"


def sends_to(
    seen: dict[str, Any], number: int, wrong: Mapping[int, str], *, permanent: bool = False
) -> dict[str, Any]:
    """All have MAC addresses, and that node has the others' in its ARP table, or these."""
    macs = {f"n{i}": f"02:00:00:00:00:0{i}" for i in range(len(seen))}
    made = {n: dataclasses.replace(m, macs={"eth0": macs[n]}) for n, m in seen.items()}
    arp = tuple(
        Neighbour(f"10.0.0.{i + 1}", wrong.get(i, macs[f"n{i}"]), "eth0", permanent and i in wrong)
        for i in range(len(seen))
        if i != number
    )
    node = f"n{number}"
    return made | {node: dataclasses.replace(made[node], arp=arp)}


def both(a: int, count: int, dead: int, again: int = 0) -> dict[Numbers, tuple[int, int]]:
    """Of the connections into and out of node `a` these get no answer, or pass the second time."""
    return {e: (dead, again) for b in range(count) if b != a for e in ((a, b), (b, a))}


def full(seen: dict[str, Any], number: int, queue: int) -> dict[str, Any]:
    """Listeners on that node found their queue full now and then."""
    node = f"n{number}"
    return seen | {node: dataclasses.replace(seen[node], queue=queue, overflowed=9)}


def crowd(
    seen: dict[str, Any],
    late: int,
    dead: int,
    *edges: Numbers,
    again: int = 0,
    revived: int = 4,
    refused: int = 0,
) -> dict[str, Any]:
    """On these edges some of 8 connections are late, and some dead, when all are opened at once."""
    for a in {a for a, _ in edges}:
        node, mine = f"n{a}", [b for one, b in edges if one == a]
        rough = tuple(
            Edge(b, "Gloo", "timed out" if dead else "ok", 3.0, "", None, 1) for b in mine
        )
        seen |= {
            node: dataclasses.replace(
                seen[node],
                opens=8,
                burst_rough=rough,
                opened=tuple(Opened(b, "Gloo", 8, late, dead, refused, 3.0) for b in mine),
                retried=tuple(
                    Retried(
                        b, "Gloo", 4, revived, 4 if dead else 0, revived if dead else 0, 36, again
                    )
                    for b in mine
                ),
            )
        }
    return seen


def asking_for_ecn(seen: dict[str, Any], *nodes: int) -> dict[str, Any]:
    return seen | {f"n{n}": dataclasses.replace(seen[f"n{n}"], ecn=True) for n in nodes}


def met_from(*addresses: str) -> Topology:
    """As the host of a meeting knows it: who came has an address."""
    made = tuple(Node(f"n{i}", (i,), addr) for i, addr in enumerate(addresses))
    return topology(len(made), nodes=made)


def test_the_meeting_knows_who_is_behind_nat() -> None:
    twice = {i: (ListenAddress(GLOO, "eth0", "172.17.0.2", 1500),) for i in (1, 2)}
    seen = mesh(
        3, into(1, 3, DROP) | into(2, 3, DROP) | {(1, 2): REJECT, (2, 1): REJECT}, ways=twice
    )
    seen = {n: dataclasses.replace(m, source=m.ways[0].ip) for n, m in seen.items()}

    def codes(*addresses: str) -> list[tuple[str, list[str]]]:
        found = judged(net_mesh, Case("", seen, topology=met_from(*addresses)))
        return [(f.code, [s.node for s in f.subjects]) for f in found]

    assert codes("", "10.0.0.2", "10.0.0.3") == [("behind-nat", ["n1", "n2"])]
    assert codes("", "172.17.0.2", "172.17.0.2") == [("address-duplicate", ["n1", "n2"])]


FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED

BRIDGE = {i: (ListenAddress(GLOO, "docker0", "172.17.0.1", 1500),) for i in range(4)}
LOOPS = {i: (ListenAddress(GLOO, "lo", "127.0.1.1", 65536),) for i in range(4)}
ONE_LOOPS_IN_10 = {2: (ListenAddress(GLOO, "lo", "127.0.1.1", 65536),)}
ONE_LOOPS = ONE_LOOPS_IN_10 | {
    i: (ListenAddress(GLOO, "eth0", f"192.168.0.{i + 1}", 1500),) for i in (0, 1, 3)
}
TWINS = {i: (ListenAddress(GLOO, "eth0", "10.0.0.7", 1500),) for i in (1, 2)}
SECOND_NET = {i: (ListenAddress(NCCL, "ib0", f"10.9.0.{i + 1}", 4092),) for i in range(3)}
NO_IB_ON_ONE = SECOND_NET | {1: (ListenAddress(NCCL, "eth0", "10.0.0.2", 1500),)}
SECOND_ON_MOST = {
    i: (ListenAddress(NCCL, "eth0" if i == 1 else "eth1", f"10.9.0.{i + 1}", 1500),)
    for i in range(3)
}
SAME_NETWORK = {i: (dataclasses.replace(way[0], prefix=24),) for i, way in SECOND_ON_MOST.items()}
GLOO_ASIDE = {
    i: (
        ListenAddress(NCCL, "ib0", f"10.9.0.{i + 1}", 4092),
        ListenAddress(GLOO, "eth0" if i == 1 else "eth1", f"10.0.0.{i + 1}", 1500),
    )
    for i in range(3)
}
BESIDE_IB = {
    i: (
        ListenAddress(NCCL, "ib0", f"10.9.0.{i + 1}", 4092),
        ListenAddress(GLOO, "eth0", f"10.0.0.{i + 1}", 1500),
    )
    for i in range(3)
}
BOTH_WAYS = {
    i: (
        ListenAddress(NCCL, "eth0", f"10.0.0.{i + 1}", 1500),
        ListenAddress(GLOO, "lo", "127.0.1.1", 65536),
    )
    for i in range(3)
}
MORE_WAYS = {
    i: (
        ListenAddress(NCCL, "eth0", f"10.0.0.{i + 1}", 1500),
        ListenAddress("NCCL-2", "usb0", f"169.254.3.{i + 1}", 1500),
    )
    for i in range(4)
}
TWO_OF_GLOO = {
    i: (
        ListenAddress(GLOO, "eth0", f"10.0.0.{i + 1}", 1500),
        ListenAddress("Gloo-2", "eth1", f"10.9.0.{i + 1}", 1500),
    )
    for i in range(4)
}
NO_GPU = {i: (ListenAddress("NCCL-1", "usb0", f"169.254.3.{i + 1}", 1500),) for i in range(4)}
OWN_IPV6 = ListenAddress(GLOO, "eth0", "fd77::2", 1500)
DROP, REJECT = "timed out", "ECONNREFUSED"
OWN_ROUTE = {(2, 1): "unreachable route", (1, 2): DROP}

CASES = (
    case("four nodes", 4, mesh(4)),
    case("two nodes", 2, mesh(2, libraries="NCCL+Gloo")),
    case("a sample of 100", 100, mesh(100)),
    case("not here", 2, {"n0": Missing(Cause.NOT_APPLICABLE, "no other agent")}),
    case("nobody could look", 2, {"n0": Missing(Cause.CRASHED), "n1": Missing(Cause.TIMED_OUT)}),
    case(
        "one is gone, the rest is fine",
        3,
        mesh(3, absent=[(0, 2), (1, 2)]) | {"n2": Missing(Cause.CRASHED)},
    ),
    case(
        "a node that died in the middle",
        3,
        mesh(3, into(2, 3, REJECT)) | {"n2": Missing(Cause.CRASHED)},
    ),
    case("MASTER_PORT only", 4, mesh(4, every(4, DROP)), "ephemeral-closed", FAIL, "job"),
    case("two, both ways", 2, mesh(2, every(2, DROP)), "ephemeral-closed", FAIL, "n0->n1"),
    case("two, one way", 2, mesh(2, {(1, 0): REJECT}), "link-or-end-closed", FAIL, "n1->n0"),
    case("own route", 2, mesh(2, {(1, 0): "EINVAL"}), "outbound-closed", FAIL, "n1"),
    case("own route among 4", 4, mesh(4, OWN_ROUTE), "outbound-closed", FAIL, "n2"),
    case("inbound", 4, mesh(4, into(2, 4, DROP)), "inbound-closed", FAIL, "n2"),
    case("inbound of three", 3, mesh(3, into(1, 3, REJECT)), "inbound-closed", FAIL, "n1"),
    case(
        "into the one that Gloo has connect to all others",
        3,
        mesh(3, into(2, 3, DROP)),
        "unused-direction-closed",
        WARN,
        "n2",
    ),
    case(
        "out of the one to which Gloo has all others connect",
        3,
        mesh(3, out_of(0, 3, DROP)),
        "unused-direction-closed",
        WARN,
        "n0",
    ),
    case(
        "a link in the direction that Gloo does not use",
        4,
        mesh(4, {(1, 2): DROP}),
        "unused-direction-closed",
        WARN,
        "n1->n2",
    ),
    case(
        "the same with GPUs: NCCL uses both",
        3,
        mesh(3, into(2, 3, DROP), libraries="NCCL+Gloo"),
        "inbound-closed",
        FAIL,
        "n2",
    ),
    case(
        "the greatest of those that were seen, and one is not known",
        4,
        mesh(4, into(2, 3, DROP), absent=[(3, 2), (2, 3)]) | {"n3": Missing(Cause.CRASHED)},
        "inbound-closed",
        FAIL,
        "n2",
    ),
    case("outbound", 4, mesh(4, out_of(1, 4, "EPERM")), "outbound-closed", FAIL, "n1"),
    case("two, its ICMP", 2, mesh(2, {(1, 0): says(0, 1)}), "inbound-closed", FAIL, "n0"),
    case("two, own ICMP", 2, mesh(2, {(1, 0): says(0, 2)}), "outbound-closed", FAIL, "n1"),
    case("two, a router's ICMP", 2, mesh(2, {(1, 0): says(0, 9)}), EITHER_END, FAIL, "n1->n0"),
    case("two, each its own", 2, mesh(2, TWO_OWN), "ephemeral-closed", FAIL, "n0->n1"),
    case("a pair of 4, its ICMP", 4, mesh(4, {(1, 0): says(0, 1)}), "inbound-closed", FAIL, "n0"),
    case(
        "cut off",
        4,
        mesh(4, into(3, 4, "EHOSTUNREACH") | out_of(3, 4, "EHOSTUNREACH")),
        "node-cut-off",
        FAIL,
        "n3",
    ),
    case("two, one's, both ways", 2, mesh(2, TWO_OF_ONE), "node-cut-off", FAIL, "n1"),
    case(
        "behind NAT, as a listener saw",
        3,
        mesh(3, into(2, 3, DROP) | out_of(2, 3, Edge(0, "Gloo", "ok", 0.001, "192.0.2.9"))),
        "behind-nat",
        FAIL,
        "n2",
    ),
    case(
        "behind NAT, of two",
        2,
        mesh(2, {(0, 1): DROP, (1, 0): Edge(0, "Gloo", "ok", 0.001, "192.0.2.9")}),
        "behind-nat",
        FAIL,
        "n1",
    ),
    case(
        "a proxy on the node that hides its address is no NAT",
        3,
        mesh(3, into(1, 3, DROP) | out_of(1, 3, Edge(0, "Gloo", "ok", 0.001, "127.0.0.6"))),
        "inbound-closed",
        FAIL,
        "n1",
    ),
    case("one link, one way", 4, mesh(4, {(2, 1): DROP}), "link-closed", FAIL, "n2->n1"),
    case(
        "one link, both ways",
        5,
        mesh(5, {(1, 2): DROP, (2, 1): DROP}),
        "link-closed",
        FAIL,
        "n1->n2",
    ),
    case(
        "a bad node of 100",
        100,
        mesh(100, {(a, 7): DROP for a in pairing.dialled_by(7, 100)}),
        "inbound-closed",
        FAIL,
        "n7",
    ),
    case(
        "two halves",
        4,
        mesh(4, {(a, b): DROP for a in range(4) for b in range(4) if (a < 2) != (b < 2)}),
        "network-split",
        FAIL,
        "job",
    ),
    case("docker0", 4, mesh(4, every(4, REJECT), ways=BRIDGE), "interface-wrong", FAIL),
    case("127.0.1.1", 4, mesh(4, every(4, REJECT), ways=LOOPS), "interface-wrong", FAIL),
    case(
        "127.0.1.1 on one",
        4,
        mesh(4, into(2, 4, REJECT), ways=ONE_LOOPS),
        "interface-wrong",
        FAIL,
        "n2 · lo",
    ),
    case("127.0.1.1 on one, in 10.0.0.0/8", 4, mesh(4, into(2, 4, REJECT), ways=ONE_LOOPS_IN_10)),
    case(
        "another network than the meeting's",
        3,
        mesh(3, every(3, DROP), ways=SECOND_NET, libraries="NCCL"),
        "interface-wrong",
        FAIL,
        "n0 · ib0",
    ),
    case(
        "the second NIC of one subnet, and a strict reverse path filter",
        3,
        filters(mesh(3, into(1, 3, "EHOSTUNREACH")), 1, "eth0"),
        "reverse-path",
        FAIL,
        "n1 · eth0",
    ),
    case(
        "a route back to one node by another interface, and a strict filter",
        3,
        detour(mesh(3, {(1, 2): DROP}), 2, 1),
        "return-route-differs",
        FAIL,
        "n2 · eth0",
    ),
    case(
        "the same of Gloo alone, beside NCCL on another network",
        3,
        detour(mesh(3, {(1, 2): DROP}, ways=BESIDE_IB, libraries="Gloo"), 2, 1),
        "return-route-differs",
        WARN,
        "n2 · eth0",
    ),
    case(
        "such a route to another node than the one that gets no answer",
        3,
        detour(mesh(3, {(2, 1): DROP}), 1, 0),
        "link-closed",
        FAIL,
    ),
    case("such a route, and all connections pass", 3, detour(mesh(3), 2, 1)),
    case(
        "a route to one node by a VPN",
        3,
        diverted(mesh(3, {(1, 2): DROP, (2, 1): DROP}), 1, 2),
        "route-diverted",
        FAIL,
        "n1 · tailscale0",
    ),
    case(
        "the same of Gloo alone, beside NCCL on another network",
        3,
        diverted(mesh(3, {(1, 2): DROP}, ways=BESIDE_IB, libraries="Gloo"), 1, 2),
        "route-diverted",
        WARN,
        "n1 · tailscale0",
    ),
    case(
        "a static route to a node of the same network",
        3,
        diverted(
            mesh(
                3,
                {(1, 2): DROP, (2, 1): DROP},
                ways={
                    i: (ListenAddress("Gloo", "eth0", f"10.0.0.{i + 1}", 1500, 24),)
                    for i in range(3)
                },
                libraries="Gloo",
            ),
            1,
            2,
            table=0,
        ),
        "route-diverted",
        FAIL,
        "n1 · tailscale0",
    ),
    case(
        "a table of an ip rule has a router for a neighbour",
        3,
        diverted(
            mesh(3, {(1, 2): "EHOSTUNREACH", (2, 1): DROP}), 1, 2, "eth0", 200, gateway="10.0.0.250"
        ),
        "route-diverted",
        FAIL,
        "n1 · eth0",
    ),
    case(
        "the address of one on the loopback interface of another",
        3,
        diverted(mesh(3, {(1, 2): REJECT, (2, 1): DROP}), 1, 2, "lo", 0, own=True),
        "address-held-elsewhere",
        FAIL,
        "n1 · lo",
    ),
    case(
        "the same of Gloo alone, where NCCL goes by another network",
        3,
        diverted(
            mesh(3, {(1, 2): REJECT}, ways=BESIDE_IB, libraries="Gloo"), 1, 2, "lo", 0, own=True
        ),
        "address-held-elsewhere",
        WARN,
        "n1 · lo",
    ),
    case(
        "the default route leads to another network",
        3,
        diverted(mesh(3, {(1, 2): DROP, (2, 1): DROP}), 1, 2, table=0),
        "link-closed",
        FAIL,
    ),
    case(
        "a route by a VPN to another node than the one that gets no answer",
        3,
        diverted(mesh(3, {(1, 2): DROP, (2, 1): DROP}), 1, 0),
        "link-closed",
        FAIL,
    ),
    case(
        "a node that nobody reaches, to which one of them sends by a VPN",
        3,
        diverted(mesh(3, into(2, 3, DROP) | {(2, 0): DROP, (2, 1): DROP}), 1, 2),
        "node-cut-off",
        FAIL,
    ),
    case(
        "the same on all nodes",
        3,
        filters(mesh(3, every(3, DROP), ways=SECOND_NET, libraries="NCCL"), 0, 1, 2, "ib0"),
        "reverse-path",
        FAIL,
        "n0 · ib0",
    ),
    case(
        "the same of Gloo's side road, with a strict filter",
        3,
        filters(mesh(3, into(1, 3, DROP), ways=GLOO_ASIDE), 1, "eth0"),
        "reverse-path",
        WARN,
        "n1 · eth0",
    ),
    case(
        "the second interface of GLOO_SOCKET_IFNAME is closed on one",
        4,
        mesh(4, into(2, 4, DROP), ways=TWO_OF_GLOO, libraries="Gloo-2"),
        "interface-wrong",
        FAIL,
        "n2 · eth1",
    ),
    case(
        "one hostname leads to IPv6, the others to IPv4",
        3,
        mesh(3, ways={1: (ListenAddress(GLOO, "eth0", "fd77::2", 1500),)}),
        "ip-versions-mixed",
        FAIL,
        "n1 · eth0",
    ),
    case(
        "of two nodes one has IPv6",
        2,
        mesh(2, ways={1: (ListenAddress(GLOO, "eth0", "fd77::2", 1500),)}),
        "ip-versions-mixed",
        FAIL,
        "n0 · eth0",
    ),
    case(
        "Gloo's side road on one has IPv6",
        3,
        mesh(3, ways=GLOO_ASIDE | {1: (GLOO_ASIDE[1][0], OWN_IPV6)}, libraries="NCCL+Gloo"),
        "ip-versions-mixed",
        WARN,
        "n1 · eth0",
    ),
    case("all hostnames lead to IPv6", 3, mesh(3, ways=dict.fromkeys(range(3), (OWN_IPV6,)))),
    case(
        "another network's address comes first on one node's interface",
        3,
        first(mesh(3, into(1, 3, DROP)), 1),
        "first-address-unreachable",
        FAIL,
        "n1 · eth0",
    ),
    case(
        "the same of Gloo's side road, where that is the first address",
        3,
        first(mesh(3, into(1, 3, DROP), ways=GLOO_ASIDE), 1),
        "first-address-unreachable",
        WARN,
        "n1 · eth0",
    ),
    case("another network's address comes first, and is reached", 3, first(mesh(3), 1)),
    case(
        "another address of the same network, and a firewall",
        3,
        first(mesh(3, into(1, 3, DROP)), 1, ip="10.0.0.77"),
        "unused-direction-closed",
        WARN,
        "n1",
    ),
    case(
        "a permanent ARP entry with an old MAC address",
        3,
        sends_to(mesh(3, {(1, 2): DROP, (2, 1): DROP}), 1, {2: OLD_MAC}, permanent=True),
        "arp-differs",
        FAIL,
        "n1",
    ),
    case(
        "a stranger has a node's address, and one of the others asks it",
        3,
        sends_to(mesh(3, {(1, 2): REJECT, (2, 1): DROP}), 1, {2: OLD_MAC}),
        "arp-differs",
        FAIL,
        "n2 · eth0",
    ),
    case(
        "the same of Gloo's side road, with an old MAC address",
        3,
        sends_to(mesh(3, {(0, 1): DROP, (1, 0): DROP}, ways=GLOO_ASIDE), 0, {1: OLD_MAC}),
        "arp-differs",
        WARN,
        "n1 · eth0",
    ),
    case(
        "the right MAC addresses, and a firewall",
        3,
        sends_to(mesh(3, {(2, 1): DROP}), 2, {}),
        "link-closed",
        FAIL,
        "n2->n1",
    ),
    case(
        "a router that answers for all addresses, and a firewall",
        3,
        sends_to(mesh(3, {(2, 1): DROP}), 2, {0: OLD_MAC, 1: OLD_MAC}),
        "link-closed",
        FAIL,
        "n2->n1",
    ),
    case(
        "an edge that another node's ARP table does not explain",
        3,
        sends_to(mesh(3, into(0, 3, DROP)), 1, {2: OLD_MAC}),
        "inbound-closed",
        FAIL,
        "n0",
    ),
    case("a strange MAC address, and all is reached", 3, sends_to(mesh(3), 1, {2: OLD_MAC})),
    case("a strict filter, and all is reached", 3, filters(mesh(3), 1, "eth0")),
    case(
        "a strict filter, and a refusal",
        3,
        filters(mesh(3, into(1, 3, REJECT)), 1, "eth0"),
        "inbound-closed",
        FAIL,
        "n1",
    ),
    case(
        "a strict filter on another node than the closed one",
        3,
        filters(mesh(3, into(1, 3, DROP)), 2, "eth0"),
        "inbound-closed",
        FAIL,
        "n1",
    ),
    case(
        "one node has no ib0, and NCCL takes eth0 there",
        3,
        mesh(3, out_of(1, 3, DROP), ways=NO_IB_ON_ONE, libraries="NCCL"),
        "interface-down",
        FAIL,
        "n1 · ib0",
    ),
    case(
        "the same of two nodes",
        2,
        mesh(2, {(1, 0): DROP}, ways=NO_IB_ON_ONE, libraries="NCCL"),
        "interface-down",
        FAIL,
        "n1 · ib0",
    ),
    case(
        "eth1 is down on one node, and NCCL takes eth0 there",
        3,
        idle(mesh(3, out_of(1, 3, DROP), ways=SECOND_ON_MOST, libraries="NCCL"), 1, "eth1"),
        "interface-down",
        FAIL,
        "n1 · eth1",
    ),
    case(
        "a NIC that is down on one node, whose other one is in the same network",
        3,
        idle(mesh(3, out_of(1, 3, DROP), ways=SAME_NETWORK, libraries="NCCL"), 1, "eth1"),
        "outbound-closed",
        FAIL,
        "n1",
    ),
    case(
        "the same of Gloo's side road",
        3,
        idle(mesh(3, out_of(1, 3, DROP), ways=GLOO_ASIDE), 1, "eth1"),
        "interface-down",
        WARN,
        "n1 · eth1",
    ),
    case("ib0 on most nodes, and all is reached", 3, mesh(3, ways=NO_IB_ON_ONE, libraries="NCCL")),
    case(
        "a firewall on one node whose NIC has another name",
        3,
        idle(mesh(3, out_of(1, 3, DROP), ways=SECOND_ON_MOST, libraries="NCCL"), 1, "eth7"),
        "outbound-closed",
        FAIL,
        "n1",
    ),
    case(
        "a firewall on one node of another network",
        3,
        mesh(3, into(1, 3, DROP), ways=SECOND_NET, libraries="NCCL"),
        "inbound-closed",
        FAIL,
        "n1",
    ),
    case(
        "Gloo's side road",
        3,
        mesh(3, every(3, REJECT), ways=BOTH_WAYS),
        "interface-wrong",
        WARN,
        "n0 · lo",
    ),
    case(
        "one address twice",
        4,
        mesh(
            4,
            {(1, 2): REJECT, (2, 1): REJECT, (0, 1): Edge(1, "Gloo", "wrong machine", 0.1, "", 2)},
            ways=TWINS,
        ),
        "address-duplicate",
        FAIL,
        "n1 · eth0",
    ),
    case(
        "a sidecar takes what comes in",
        3,
        led_away(mesh(3, into(1, 3, Edge(1, "Gloo", "silent", 0.001, port=40001))), 1),
        "intercepted",
        FAIL,
        "n1",
    ),
    case(
        "a sidecar that closes what comes in at the one that Gloo has connect to all others",
        3,
        led_away(mesh(3, into(2, 3, Edge(2, "Gloo", "closed", 0.001, port=40001))), 2),
        "intercepted",
        WARN,
        "n2",
    ),
    case(
        "something between two accepts, and the node knows nothing of it",
        3,
        looked(mesh(3, {(2, 1): Edge(1, "Gloo", "silent", 0.001, port=40001)}), 1),
        "intercepted",
        FAIL,
        "n2->n1",
    ),
    case(
        "data is lost after the handshake",
        3,
        looked(
            mesh(3, into(1, 3, Edge(1, "Gloo", "silent", 0.001, port=40001))),
            1,
            accepted=("10.0.0.1", "10.0.0.3"),
        ),
        "inbound-closed",
        FAIL,
        "n1",
    ),
    case(
        "so is the last packet of the handshake",
        3,
        looked(
            mesh(3, into(1, 3, Edge(1, "Gloo", "silent", 0.001, port=40001))),
            1,
            half=("10.0.0.1", "10.0.0.3"),
        ),
        "inbound-closed",
        FAIL,
        "n1",
    ),
    case(
        "it listens on other ports than the others",
        4,
        ranged(mesh(4, into(2, 4, DROP)), n2=(50000, 51000)),
        "inbound-range-closed",
        FAIL,
        "n2",
    ),
    case("it has another range, and is reached", 4, ranged(mesh(4), n2=(50000, 51000))),
    case(
        "each has a range of its own",
        3,
        ranged(mesh(3, into(1, 3, REJECT)), n0=(40000, 41000), n1=(50000, 51000)),
        "inbound-closed",
        FAIL,
        "n1",
    ),
    case("a proxy", 4, mesh(4, into(2, 4, "silent")), "inbound-closed", FAIL, "n2"),
    case(
        "answered too late is no evidence",
        4,
        mesh(4, into(2, 4, "silent"), heard=[(0, 2), (1, 2), (3, 2)]),
        "edges-untested",
        UNDECIDED,
    ),
    case("no descriptors", 3, mesh(3, {(0, 1): "no socket"}), "edges-untested", UNDECIDED),
    case("one flow of four", 4, mesh(4, flows=both(2, 4, 4)), "flows-lost", FAIL, "n2"),
    case(
        "one flow of four, and the first connections are among them",
        4,
        mesh(4, {(0, 2): DROP, (2, 3): DROP}, flows=both(2, 4, 4)),
        "flows-lost",
        FAIL,
        "n2",
    ),
    case(
        "one path of four refuses, the first connection among those on it",
        4,
        mesh(4, {(0, 2): REJECT, (2, 3): REJECT}, flows=both(2, 4, 4)),
        "flows-lost",
        FAIL,
        "n2",
    ),
    case(
        "all connections of a node are refused: it is closed",
        4,
        mesh(4, into(2, 4, REJECT), flows={(a, 2): (16, 0) for a in (0, 1, 3)}),
        "inbound-closed",
        FAIL,
        "n2",
    ),
    case(
        "one flow of sixteen shows on some edges",
        4,
        mesh(4, flows={(0, 2): (1, 0), (2, 3): (1, 0), (1, 2): (2, 0)}),
        "flows-lost",
        FAIL,
        "n2",
    ),
    case(
        "a path between two",
        4,
        mesh(4, flows={(1, 2): (5, 0), (2, 1): (3, 0)}),
        "flows-lost",
        FAIL,
        "n1->n2",
    ),
    case(
        "a path between two racks",
        4,
        mesh(4, flows={(a, b): (4, 0) for a in (0, 1) for b in (2, 3)}),
        "flows-lost",
        FAIL,
        "job",
    ),
    case("of two", 2, mesh(2, flows=both(0, 2, 4)), "flows-lost", FAIL, "n0->n1"),
    case("one connection that died", 4, mesh(4, flows={(0, 2): (1, 0)})),
    case("packets lost by chance", 4, mesh(4, flows=both(2, 4, 1, 5))),
    case("a limit of new connections", 4, mesh(4, flows=both(2, 4, 6, 4))),
    case(
        "a limit, and the first connection is among those",
        4,
        mesh(4, {(0, 2): DROP, (1, 2): DROP}, flows=both(2, 4, 6, 6)),
        "syn-lost",
        WARN,
        "n2",
    ),
    case(
        "all flows of a node die: it is closed",
        4,
        mesh(4, into(2, 4, DROP), flows={(a, 2): (16, 0) for a in (0, 1, 3)}),
        "inbound-closed",
        FAIL,
        "n2",
    ),
    case(
        "a second interface of NCCL's that leads nowhere",
        3,
        mesh(3, every(3, DROP), ways=MORE_WAYS, libraries="NCCL-2"),
        "interface-wrong",
        FAIL,
        "n0 · usb0",
    ),
    case(
        "the same on one node only",
        4,
        mesh(4, into(2, 4, DROP), ways=MORE_WAYS, libraries="NCCL-2"),
        "interface-wrong",
        FAIL,
        "n2 · usb0",
    ),
    case(
        "an interface that is named for nodes with GPUs",
        3,
        mesh(3, every(3, DROP), ways=NO_GPU, libraries="NCCL-1"),
        "interface-wrong",
        WARN,
        "n0 · usb0",
    ),
    case("not tried", 3, mesh(3, absent=[(0, 1)]), "edges-untested", UNDECIDED, "n0->n1"),
    case("all at once", 4, mesh(4, at_once=into(2, 4, DROP)), "burst-failed", FAIL, "n2"),
    case(
        "a limit of connections at a time",
        4,
        crowd(mesh(4), 0, 5, (0, 2), (1, 2), (3, 2)),
        "connections-limited",
        FAIL,
        "n2",
    ),
    case(
        "the same, and one other node alone met it",
        4,
        crowd(mesh(4), 0, 5, (1, 2), refused=5),
        "connections-limited",
        FAIL,
        "n1->n2",
    ),
    case(
        "a limit of new connections per second",
        4,
        crowd(mesh(4), 5, 1, (0, 2), (1, 2), (3, 2)),
        "connections-limited",
        WARN,
        "n2",
    ),
    case(
        "first SYNs that ask for ECN are dropped",
        3,
        asking_for_ecn(crowd(mesh(3), 8, 0, (2, 0), (2, 1)), 2),
        "ecn-dropped",
        WARN,
        "n2",
    ),
    case(
        "a limit that a node meets whose SYNs ask for ECN: some get in",
        3,
        asking_for_ecn(crowd(mesh(3), 5, 0, (2, 0), (2, 1)), 2),
        "connections-limited",
        WARN,
        "n2",
    ),
    case(
        "a limit that lets nobody in at once, and no SYN asks for ECN",
        3,
        crowd(mesh(3), 8, 0, (2, 0), (2, 1)),
        "connections-limited",
        WARN,
        "n2",
    ),
    case("SYNs that ask for ECN and pass", 3, asking_for_ecn(mesh(3), 0, 1, 2)),
    case(
        "a limit of what goes out",
        4,
        crowd(mesh(4), 0, 5, (2, 0), (2, 1), (2, 3)),
        "connections-limited",
        FAIL,
        "n2",
    ),
    case(
        "packets are lost on open connections, too",
        4,
        crowd(mesh(4), 2, 1, (0, 2), (1, 2), (3, 2), (2, 0), (2, 1), (2, 3), again=9),
        "syn-lost",
        FAIL,
        "n2",
    ),
    case("a SYN of a busy machine", 4, crowd(mesh(4), 1, 0, (0, 2))),
    case(
        "a full listen queue, and everything passes alone",
        4,
        full(crowd(mesh(4), 3, 0, (0, 2), (1, 2), (3, 2)), 2, 128),
        "listen-queue-full",
        WARN,
        "n2",
    ),
    case(
        "some flows of a node die, and die alone as well",
        4,
        crowd(mesh(4, flows=both(2, 4, 4)), 0, 2, (0, 2), (1, 2), revived=0),
        "flows-lost",
        FAIL,
        "n2",
    ),
    case("all at once everywhere", 4, mesh(4, at_once=every(4, DROP)), "burst-failed", FAIL, "job"),
    case(
        "a slow start is no failure",
        4,
        mesh(4, at_once={(0, 1): "silent"}, heard=[(0, 1)]),
    ),
    case(
        "a full listen queue",
        4,
        full(
            mesh(
                4, at_once={(a, 2): Edge(2, "Gloo", "ok", 1.02, retransmits=1) for a in (0, 1, 3)}
            ),
            2,
            128,
        ),
        "listen-queue-full",
        WARN,
        "n2",
    ),
    case(
        "a full listen queue that resets",
        4,
        full(mesh(4, at_once={(0, 2): "ECONNRESET"}), 2, 4),
        "listen-queue-full",
        FAIL,
        "n2",
    ),
    case(
        "a short listen queue that was full",
        4,
        full(mesh(4), 2, 4),
        "listen-queue-full",
        WARN,
        "n2",
    ),
    case("somebody else's listener was full", 4, full(mesh(4), 2, 4096)),
    case(
        "lost SYNs",
        4,
        mesh(4, {(a, 2): Edge(2, "Gloo", "ok", 1.02, retransmits=1) for a in (0, 1, 3)}),
        "syn-lost",
        WARN,
        "n2",
    ),
    case(
        "a rate limit",
        4,
        mesh(4, {(0, 2): Edge(2, "Gloo", "ok", 1.0, retransmits=1), (3, 2): DROP}),
        "syn-lost",
        FAIL,
        "n2",
    ),
    case(
        "one lost packet is no fault",
        4,
        mesh(4, {(0, 2): Edge(2, "Gloo", "ok", 1.02, retransmits=1)}),
    ),
    case(
        "NAT",
        3,
        mesh(3, {(0, b): Edge(b, "Gloo", "ok", 0.001, "192.0.2.9") for b in (1, 2)}),
        "source-translated",
        WARN,
        "n0",
    ),
    case(
        "numbers and addresses of nobody",
        2,
        {
            "n0": Mesh(
                pairing.NodeNumber(0, 2),
                (ListenAddress(GLOO, "eth0", "10.0.0.1"),),
                times={"Gloo": {"1": 0.1, "99": 0.1, "-1": 0.1, "x": 0.1, "0": 0.1}},
                rough=(Edge(77, "Gloo", DROP, 1.0), Edge(-1, "Gloo", DROP, 1.0)),
                heard=(-5, 900),
                ports=(1,),
            ),
            "n1": dataclasses.replace(mesh(2)["n1"], heard=(10**12,)),
        },
    ),
)


@pytest.mark.parametrize("row", CASES, ids=lambda c: c.name)
def test_judge(row: Case) -> None:
    assert_case(net_mesh, row)


def findings(count: int, saw: Any) -> list[Finding]:
    return judged(net_mesh, Case("", saw, topology=nodes(count)))


@pytest.mark.parametrize(
    "row", [c for c in CASES if c.code and c.status is not UNDECIDED], ids=lambda c: c.name
)
def test_nothing_else_is_said(row: Case) -> None:
    assert [f.code for f in judged(net_mesh, row)] == [row.code]


def test_who_did_not_come_to_the_meeting_has_no_number() -> None:
    """In the merged report n1 is the second node, in the meeting of the others n2 was."""
    came = mesh(3, {(0, 1): DROP})
    saw = {"n0": came["n0"], "n2": came["n1"], "n3": came["n2"]}
    (finding,) = findings(4, saw | {"n1": Missing(Cause.SKIPPED)})
    assert str(finding.subjects[0]) == "n0->n2"


def test_with_two_parties_nobody_is_excluded() -> None:
    for bad in (every(2, DROP), {(1, 0): DROP}):
        (finding,) = findings(2, mesh(2, bad))
        assert finding.confidence is Confidence.POSSIBLE
        assert finding.blame is not Blame.NODE
        said = " ".join(finding.alternatives)
        assert "n0" in said
        assert "n1" in said


def test_two_faults_at_once_are_both_named() -> None:
    bad = into(2, 6, DROP) | {(5, 4): REJECT}
    found = findings(6, mesh(6, bad))
    assert {(f.code, str(f.subjects[0])) for f in found} == {
        ("inbound-closed", "n2"),
        ("link-closed", "n5->n4"),
    }


def test_a_wrong_interface_does_not_hide_a_closed_node() -> None:
    bad = into(2, 6, REJECT) | into(4, 6, DROP) | {(2, 4): DROP}
    found = findings(6, mesh(6, bad, ways=ONE_LOOPS))
    assert {(f.code, str(f.subjects[0])) for f in found} == {
        ("interface-wrong", "n2 · lo"),
        ("inbound-closed", "n4"),
    }


@pytest.mark.parametrize(
    ("result", "seconds", "word"),
    [
        (DROP, 3.5, "drops"),
        (REJECT, 0.001, "rejects"),
        ("EHOSTUNREACH", 0.002, "ICMP"),
        ("EHOSTUNREACH", 3.05, "ARP"),
        ("closed", 0.1, "proxy"),
        ("EAFNOSUPPORT", 0.0, "IPv6"),
        ("EOWNERDEAD", 0.0, "EOWNERDEAD"),
    ],
)
def test_the_words_for_a_result(result: str, seconds: float, word: str) -> None:
    bad = {(a, 2): Edge(2, "Gloo", result, seconds) for a in (0, 1, 3)}
    (finding,) = findings(4, mesh(4, bad))
    assert word in finding.saw
    assert "3 of 3 connections into n2" in finding.saw


def test_the_interface_of_the_meeting_is_advised() -> None:
    (finding,) = findings(4, mesh(4, every(4, REJECT), ways=BRIDGE))
    assert finding.fields["wanted"] == "eth0"
    assert [s.kind for s in finding.subjects] == [Kind.NIC] * 4
    assert "docker0 172.17.0.1" in finding.saw


def test_two_agents_of_one_machine_have_one_address() -> None:
    """One process per rank: the address is the same and the edge works, or lo's firewall drops."""
    same = {i: (ListenAddress(GLOO, "eth0", "10.0.0.1", 1500),) for i in range(2)}
    assert findings(2, mesh(2, ways=same)) == []
    codes = [f.code for f in findings(2, mesh(2, every(2, DROP), ways=same))]
    assert codes == ["ephemeral-closed"]


def text(count: int, saw: Any) -> str:
    return net_mesh.measured(world("net.mesh", saw, nodes(count))).text


def test_coverage_is_said() -> None:
    assert text(4, mesh(4)) == "12/12 connections on ephemeral ports · p99 0.3 ms"
    assert text(4, mesh(4, into(2, 4, DROP))).startswith("9/12 connections")
    assert text(100, mesh(100)).startswith("678 of 9900 connections")
    gone = mesh(3, absent=[(0, 2), (1, 2)]) | {"n2": Missing(Cause.CRASHED)}
    assert text(3, gone).startswith("2/6 connections")
    assert text(2, {"n0": Missing(Cause.CRASHED)}) == ""


def observed(count: int, tamper: Any = None) -> list[Mesh]:
    """observe() on as many nodes, which are all this machine."""
    relay = Relay(count, tamper)
    host = Host(environ={"GLOO_SOCKET_IFNAME": "lo", "HOME": "/nonexistent"})

    def one(number: int) -> Mesh:
        name, peers = f"n{number}", relay.peers(number)
        here = {"node": name, "topology": topology(2, name), "rank": number, "seconds": 12.0}
        return net_mesh.observe(host, context(**here, world_size=count, peers=peers))

    return together(count, one)


@pytest.mark.parametrize(("listens", "result"), [(False, "ECONNREFUSED"), (True, "ok")])
def test_a_refused_connection_is_tried_again_from_its_source_port(
    listens: bool, result: str
) -> None:
    """Where somebody listens by then it was not its path."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        target = Target(1, "Gloo", "127.0.0.1", server.getsockname()[1], b"", "lo")
        peer = MeshPeer(context(rank=0, world_size=1), ())
        loop = ConversationLoop()
        done: list[bool] = []
        loop.add(peer._flow(target, lambda: done.append(True)))
        until = time.monotonic() + 20
        while not done and time.monotonic() < until:
            loop.turn(0.05)
            if listens:
                server.listen()
        loop.close()
    assert peer.flows == [(target, result, int(listens))]


def test_observe_a_healthy_world() -> None:
    seen = observed(3)
    for number, one in enumerate(seen):
        round_trips(one)
        assert next(w for w in one.ways if w.library == GLOO).ip == "127.0.0.1"
        assert one.rough == one.burst_rough == ()
        assert set(one.heard) == {0, 1, 2} - {number}
    saw = {f"n{i}": one for i, one in enumerate(seen)}
    assert findings(3, saw) == []
    assert text(3, saw).startswith("6/6 connections")


def test_observe_a_node_whose_listener_is_not_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]

    def tamper(number: int, topic: str, value: Any) -> Any:
        if topic == "listen" and number == 1:
            return {**value, "ways": [[w, ip, closed] for w, ip, _ in value["ways"]]}
        return value

    seen = observed(4, tamper)
    # as if they were four machines: on one, an address that refuses is its own
    saw = {
        f"n{i}": dataclasses.replace(one, ways=(ListenAddress(GLOO, "eth0", f"10.0.0.{i}"),))
        for i, one in enumerate(seen)
    }
    (finding,) = findings(4, saw)
    assert (finding.code, str(finding.subjects[0])) == ("inbound-closed", "n1")


def test_observe_where_gloo_finds_no_address() -> None:
    relay = Relay(2)
    host = Host(environ={"GLOO_SOCKET_IFNAME": "eth99", "HOME": "/nonexistent"})
    with pytest.raises(CannotObserve, match=r"net\.interface"):
        net_mesh.observe(
            host, context(rank=0, world_size=2, peers=relay.peers(0), node="n1", seconds=3.0)
        )
    assert set(relay.said) == {(1, "listen"), (1, "met"), (1, "opened"), (1, "done")}
