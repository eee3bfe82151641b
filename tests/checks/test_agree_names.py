"""agree.names: the node that is led astray is told from the record that is wrong for all; what no
node knows, as the names of pods, is nobody's worry."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology

from preflight.check import conforms
from preflight.checks import agree_names
from preflight.checks.agree_names import PeerName, ResolvedNames
from preflight.domains.net.dns import NO_ANSWER, Lookup
from preflight.domains.net.pairing import dials
from preflight.host import Host
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Confidence,
    Fact,
    Missing,
    Node,
    Status,
    Topology,
)

conforms(agree_names)

NONAME = "EAI_NONAME"


def ip(number: int) -> str:
    return f"10.0.0.{number + 1}"


def nodes(count: int) -> Topology:
    return topology(count, nodes=tuple(Node(f"n{i + 1}", (i,)) for i in range(count)))


Odd = Mapping[tuple[int, int], str | None]


def views(
    count: int, master: Mapping[int, Any] | None = None, odd: Odd | None = None, met: bool = True
) -> dict[str, Any]:
    """Nodes h1, h2 … of which each sees all. `master`: number -> what MASTER_ADDR is there;
    `odd`: (looker, owner) -> what that name is there, None for an unknown one."""
    master, odd = master or {}, odd or {}
    made = {}
    for i in range(count):
        peers = []
        for other in dials(i, count)[: agree_names.LOOKED_UP]:
            found = odd.get((i, other), ip(other))
            seen = Lookup(f"h{other + 1}", (found,) if found else (), "" if found else NONAME)
            peers.append(PeerName(other, seen))
        where = master.get(i, (ip(0),))
        name = Lookup("h1", tuple(where), "" if where else NONAME)
        made[f"n{i + 1}"] = ResolvedNames(
            f"h{i + 1}", (ip(i), f"fd00::{i + 1}"), name, met, tuple(peers)
        )
    return made


def inside(seen: dict[str, Any], node: str) -> dict[str, Any]:
    """One of them is a container, with a subnet of its own."""
    ip = seen[node].addresses[0]
    return seen | {node: dataclasses.replace(seen[node], inside=(f"{ip}/24",))}


def case(name: str, seen: dict[str, Any], *rest: Any, **more: Any) -> Case:
    return Case(name, seen, *rest, topology=nodes(len(seen)), **more)


def unknown(*edges: tuple[int, int]) -> Odd:
    return dict.fromkeys(edges)


def to(address: str, *edges: tuple[int, int]) -> Odd:
    return dict.fromkeys(edges, address)


ALL4 = [(a, b) for a in range(4) for b in range(4) if a != b]
STALE = "10.9.9.9"
NAT = ("203.0.113.5",)

CASES = (
    case("two nodes", views(2)),
    case("four nodes", views(4)),
    case("many nodes", views(100)),
    case("rank 0 knows itself by the loopback", views(3, {0: ("127.0.1.1",)})),
    case("both families here, one there", views(3, {1: ("fd00::1", ip(0)), 2: ("fd00::1",)})),
    case("no node resolves another, as in pods", views(4, odd=unknown(*ALL4))),
    case("the first node alone knows all", views(4, odd=unknown(*(e for e in ALL4 if e[0])))),
    case(
        "the others know the first node alone",
        views(4, odd=unknown(*(e for e in ALL4 if e[0] and e[1]))),
    ),
    case("a name that is the loopback elsewhere", views(3, odd=to("127.0.1.1", (1, 2)))),
    case("one node does not know MASTER_ADDR (net.name)", views(3, {1: ()})),
    case("all come through a translated address", views(3, dict.fromkeys(range(3), NAT))),
    case("one comes through a translated address", views(3, {2: NAT})),
    case("everybody has the ambiguous name", views(3, dict.fromkeys(range(3), (STALE, ip(0))))),
    case("a single agent's part", views(1)),
    Case("not come", views(2) | {"n3": Missing(Cause.NOT_ARRIVED)}, topology=nodes(3)),
    case(
        "another node's address on one of two",
        views(2, {1: (ip(1),)}),
        "master-addr-elsewhere",
        Status.FAIL,
        subject="n2 · MASTER_ADDR",
    ),
    case(
        "another node's address on one of four",
        views(4, {2: (ip(3),)}),
        "master-addr-elsewhere",
        Status.FAIL,
        subject="n3 · MASTER_ADDR",
    ),
    case(
        "a dead address, met by another name",
        views(3, {1: (STALE,)}, met=False),
        "master-addr-elsewhere",
        Status.FAIL,
        subject="n2 · MASTER_ADDR",
    ),
    case(
        "a stale address is tried first",
        views(3, {1: (STALE, ip(0))}),
        "master-addr-elsewhere",
        Status.WARN,
        subject="n2 · MASTER_ADDR",
    ),
    case(
        "nobody has the address, one takes another",
        views(3, {0: NAT, 1: NAT, 2: (STALE,)}, met=False),
        "master-addr-elsewhere",
        Status.FAIL,
        subject="n3 · MASTER_ADDR",
    ),
    case(
        "nobody has the address, of two",
        views(2, {0: NAT, 1: (STALE,)}, met=False),
        "master-addr-elsewhere",
        Status.FAIL,
    ),
    case(
        "a node that takes another for a third",
        views(4, odd=to(STALE, (1, 3))),
        "resolution-differs",
        Status.WARN,
        subject="n2",
    ),
    case(
        "a node that knows no names",
        views(4, odd=unknown((3, 0), (3, 1), (3, 2))),
        "resolution-differs",
        Status.WARN,
        subject="n4",
    ),
    case(
        "a wrong record",
        views(4, odd=to(STALE, (0, 2), (1, 2), (3, 2))),
        "record-wrong",
        Status.WARN,
        subject="n3",
    ),
    case(
        "a container whose name is its host's",
        inside(views(4, odd=to(STALE, (0, 2), (1, 2), (3, 2))), "n3"),
    ),
    case(
        "a container whose name is a neighbour's",
        inside(views(4, odd=to("10.0.0.77", (0, 2), (1, 2), (3, 2))), "n3"),
        "record-wrong",
        Status.WARN,
        subject="n3",
    ),
    case(
        "a container whose name is another node's",
        inside(views(4, odd=to(ip(1), (0, 2), (1, 2), (3, 2))), "n3"),
        "record-wrong",
        Status.WARN,
        subject="n3",
    ),
    case(
        "a missing record",
        views(4, odd=unknown((0, 2), (1, 2), (3, 2))),
        "record-wrong",
        subject="n3",
    ),
    case(
        "a wrong record, seen by one", views(2, odd=to(STALE, (0, 1))), "record-wrong", subject="n2"
    ),
    case(
        "one of many nodes",
        views(100, odd={(i, 40): STALE for i in range(100)}),
        "record-wrong",
        subject="n41",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(agree_names, case)


def one(seen: dict[str, Any]) -> Any:
    (finding,) = judged(agree_names, case("", seen))
    return finding


def test_what_rank_0_has_is_right_even_of_two() -> None:
    finding = one(views(2, {1: (ip(1),)}))
    assert finding.confidence is Confidence.CERTAIN
    assert [s.node for s in finding.subjects] == ["n2"]
    assert finding.fields["right"] == ip(0)
    assert finding.blame is Blame.NODE


def test_whose_address_it_is_instead_is_said() -> None:
    finding = one(views(4, {2: (ip(3),)}))
    assert f"n3 resolves 'h1' to {ip(3)} of n4" in finding.saw


def test_of_two_addresses_of_nobody_both_are_named() -> None:
    finding = one(views(2, {0: NAT, 1: (STALE,)}, met=False))
    assert finding.confidence is Confidence.POSSIBLE
    assert [s.node for s in finding.subjects] == ["n1", "n2"]
    assert len(finding.alternatives) == 2


def test_of_two_nodes_the_record_and_the_witness_are_both_possible() -> None:
    finding = one(views(2, odd=to(STALE, (0, 1))))
    assert finding.confidence is Confidence.POSSIBLE
    assert [s.node for s in finding.subjects] == ["n2", "n1"]
    assert len(finding.alternatives) == 2


def test_a_node_led_astray_is_one_finding_however_many_names_it_has_wrong() -> None:
    finding = one(views(4, odd=to(STALE, (3, 0), (3, 1), (3, 2))))
    assert [s.node for s in finding.subjects] == ["n4"]
    assert "and 2 more; right on" in finding.saw


def test_a_name_of_two_machines_is_nobodys() -> None:
    """agree.hardware's; the record can lead to one of them only."""
    seen = views(3, odd=to(ip(1), (0, 2), (1, 2)))
    twin = [PeerName(p.number, Lookup("h2", p.seen.found)) for p in seen["n1"].peers]
    seen["n3"] = ResolvedNames(
        "h2", seen["n3"].addresses, seen["n3"].master, True, seen["n3"].peers
    )
    seen["n1"] = ResolvedNames("h1", seen["n1"].addresses, seen["n1"].master, True, tuple(twin))
    assert not judged(agree_names, case("", seen))


def test_numbers_and_names_out_of_range_accuse_nobody() -> None:
    strange = tuple(PeerName(n, Lookup("h2", (STALE,))) for n in (-1, 7, 1 << 40, 0))
    seen = views(2)
    seen["n1"] = ResolvedNames("h1", (ip(0),), seen["n1"].master, True, strange)
    assert not judged(agree_names, case("", seen))


def test_a_resolver_that_is_silent_accuses_nobody() -> None:
    """That is net.name's, and it knows the node."""
    silent = tuple(PeerName(n, Lookup(f"h{n + 1}", (), NO_ANSWER, 2.0)) for n in (1, 2))
    seen = views(3)
    seen["n1"] = ResolvedNames("h1", (ip(0),), seen["n1"].master, True, silent)
    assert not judged(agree_names, case("", seen))


# --- observe ---


class Told:
    """Peers who have said this already."""

    def __init__(self, heard: Mapping[int, Any]) -> None:
        self.heard, self.said = heard, list[tuple[str, Any, tuple[int, ...]]]()

    def say(self, topic: str, value: Any = None, to: Sequence[int] | None = None) -> None:
        self.said.append((topic, value, tuple(to or ())))

    def hear(self, topic: str, count: int, seconds: float) -> Mapping[int, Any]:
        return self.heard


def looked(heard: Mapping[int, Any], count: int = 3, **changes: Any) -> tuple[ResolvedNames, Told]:
    peers = Told(heard)
    ctx = context(peers=peers, rank=1, world_size=count, seconds=7.0, **changes)
    return agree_names.observe(Host(), ctx), peers


def test_it_looks_up_what_the_others_say() -> None:
    seen, peers = looked({0: "localhost", 2: "no-such-host.invalid"})
    assert [p.number for p in seen.peers] == [2, 0]
    assert seen.peers[1].seen.found[0] in ("127.0.0.1", "::1")
    assert seen.peers[0].seen.error
    assert peers.said == [("name", socket.gethostname(), (0, 2))]
    round_trips(seen)


def test_it_speaks_to_seven_of_a_thousand() -> None:
    _, peers = looked({}, 1000)
    assert len(peers.said[0][2]) == 7


@pytest.mark.parametrize("name", [None, 7, {"a": 1}, "", "a b", "x" * 4000, "$(reboot)", "05"])
def test_what_is_no_name_is_not_looked_up(name: Any) -> None:
    seen, _ = looked({0: name})
    assert seen.peers == ()


def test_others_that_say_nothing_cost_no_more_than_their_time() -> None:
    began = time.monotonic()
    seen, _ = looked({})
    assert seen.peers == ()
    assert time.monotonic() - began < 6.5


def test_with_meet_it_is_the_jobs_name_that_counts() -> None:
    top = topology(3, facts={"master_addr": Fact("127.0.0.1:29600", "--meet")})
    ctx = context(peers=Told({}), world_size=3, topology=top, master_addr="127.0.0.1")
    seen = agree_names.observe(Host(environ={"MASTER_ADDR": "localhost"}), ctx)
    assert seen.master is not None
    assert seen.master.name == "localhost"
    assert not seen.met


def test_a_copied_tree_has_no_resolver(tmp_path: Any) -> None:
    with pytest.raises(CannotObserve):
        agree_names.observe(Host(str(tmp_path)), context())
