"""net.name: names that lead astray between nodes are named; on one node an odd /etc/hosts is
nobody's worry; a dead resolver is seen and survived."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology

from preflight.check import conforms
from preflight.checks import net_name
from preflight.checks.net_name import Names
from preflight.domains.net.dns import NO_ANSWER, Lookup
from preflight.host import Host
from preflight.model import Blame, CannotObserve, Cause, Mark, Missing, Node, Status, Topology

conforms(net_name)

IP = "10.0.0.7"
HERE = ("lo 127.0.0.1/8", f"eth0 {IP}/24", "eth0 fe80::7/64")


def resolved(name: str, *found: str, seconds: float = 0.001, error: str = "") -> Lookup:
    return Lookup(name, found, error, seconds)


def reverse(seconds: float = 0.001, error: str = "EAI_NONAME") -> tuple[Lookup, ...]:
    return (Lookup(f"::ffff:{IP}", (), error, seconds),)


FINE = Names(
    own=resolved("gpu-1", IP),
    full=resolved("gpu-1", "gpu-1.cluster", IP),
    master=resolved("gpu-1", IP),
    reverse=reverse(),
    local=(IP,),
    sources={IP: IP},
    addresses=HERE,
)
DEBIAN = resolved("gpu-1", "127.0.1.1")
LAPTOP = Names(
    own=resolved("laptop", "127.0.1.1"),
    full=resolved("laptop", "localhost", "127.0.0.1"),
    master=resolved("127.0.0.1", "127.0.0.1"),
    reverse=(resolved("::ffff:127.0.0.1", "::ffff:127.0.0.1"),),
    local=("127.0.0.1", "127.0.1.1"),
    sources={"127.0.0.1": "127.0.0.1"},
    addresses=("lo 127.0.0.1/8", "wlp3s0 192.168.1.20/24", "docker0 172.17.0.1/16"),
)


def but(base: Names = FINE, **changes: Any) -> Names:
    return dataclasses.replace(base, **changes)


def to(*found: str, name: str = "gpu-1", **changes: Any) -> Names:
    """MASTER_ADDR leads to these addresses."""
    return but(master=resolved(name, *found), **changes)


def lost(error: str, seconds: float = 0.01, **changes: Any) -> Names:
    """MASTER_ADDR leads nowhere."""
    return but(master=resolved("gpu-1", error=error, seconds=seconds), reverse=(), **changes)


FIRST, SECOND = Node("n1", (0, 1, 2, 3)), Node("n2", (4, 5, 6, 7))
NODES = topology(8, nodes=(FIRST, SECOND))
OTHER = Topology(size=8, nodes=(Node("n1", (4, 5, 6, 7)),))


def two(name: str, saw: Any, *rest: Any, top: Topology = NODES, **more: Any) -> Case:
    return Case(name, saw, *rest, topology=top, **more)


def killed(mark: str) -> Missing:
    return Missing(Cause.TIMED_OUT, "", 6.0, (Mark("resolve", 0.0), Mark(mark, 0.1)))


NEIGHBOUR = "10.0.0.8"
TEN = but(own=resolved("gpu-2", NEIGHBOUR), local=(NEIGHBOUR,), master=None)
ONE_NINETY = but(own=resolved("gpu-2", "192.168.0.8"), local=("192.168.0.8",), master=None)
LOOPING = but(own=DEBIAN, local=("127.0.1.1", IP))


def clones(network: str) -> dict[str, Names]:
    """Two nodes with the hostname of the first one, by which both find that one's address."""
    own = resolved("gpu-1", f"{network}.7")
    first = but(own=own, local=own.found, addresses=(f"eth0 {network}.7/24",), master=None)
    return {"n1": first, "n2": but(first, local=(), addresses=(f"eth0 {network}.8/24",))}


CASES = (
    Case("a node", FINE),
    Case("a laptop", LAPTOP),
    Case("no MASTER_ADDR", but(master=None, reverse=())),
    Case("the own name is unknown, on one node", but(own=resolved("vm", error="EAI_NONAME"))),
    Case("the own name is another's, on one node", but(own=resolved("vm", "10.9.9.9"))),
    Case("no reverse record", but(reverse=reverse(0.05))),
    Case("a reverse look-up without time", but(reverse=reverse(0.2, NO_ANSWER))),
    Case("a short form of the loopback", to("127.0.0.1", name="127.1", sources={})),
    Case("the loopback beside the address", to("127.0.1.1", IP)),
    Case("torchrun's agent is elsewhere", to(NEIGHBOUR, agent=True)),
    Case("an IPv6 address without IPv6 here", to("2001:db8::7", IP)),
    Case("killed elsewhere", killed("host.interfaces")),
    Case("not looked", Missing(Cause.CANNOT_OBSERVE)),
    two("two nodes", {"n1": FINE, "n2": TEN}),
    two("Debian's name with GLOO_SOCKET_IFNAME", but(LOOPING, gloo_by_name=False)),
    two("rank 0's name is the loopback at home", but(LOOPING, master=DEBIAN, gloo_by_name=False)),
    two("another node", to(NEIGHBOUR), top=OTHER),
    two(
        "another node by IPv6", to("fd00::8", NEIGHBOUR, sources={"fd00::8": "fd00::7"}), top=OTHER
    ),
    Case(
        "unknown", lost("EAI_NONAME"), "master-unresolved", Status.FAIL, subject="n1 · MASTER_ADDR"
    ),
    Case("it came late", but(late=(3.2, "EAI_NONAME")), "master-late", Status.WARN),
    Case("no address in it", lost("EAI_NODATA"), "master-unresolved", Status.FAIL),
    Case(
        "in Kubernetes, rank 0's own", lost("EAI_NONAME", inside="kubernetes"), "master-unresolved"
    ),
    two(
        "in Kubernetes, before the first pod",
        lost("EAI_NONAME", inside="kubernetes"),
        "master-unresolved",
        Status.WARN,
        top=OTHER,
    ),
    two(
        "one node does not know it",
        {"n1": FINE, "n2": lost("EAI_NONAME", own=TEN.own, local=TEN.local)},
        "master-unresolved",
        Status.FAIL,
        subject="n2",
    ),
    Case(
        "a hosts file for root alone",
        lost("EAI_AGAIN", closed=("/etc/hosts",)),
        "names-unreadable",
        Status.FAIL,
        subject="n1",
    ),
    Case("a file that no name needs", but(closed=("/etc/nsswitch.conf",))),
    Case("no name server", lost("EAI_AGAIN"), "resolver-silent", Status.FAIL, subject="n1"),
    Case("a silent one", lost(NO_ANSWER, 5.3), "resolver-silent", Status.FAIL),
    Case(
        "a silent one for the own name",
        but(own=resolved("vm", error=NO_ANSWER, seconds=5.3)),
        "resolver-silent",
        Status.WARN,
    ),
    Case("killed while asking", killed("wait: resolve MASTER_ADDR 'gpu-1'"), "resolver-silent"),
    Case("a dead first server", but(master=resolved("gpu-1", IP, seconds=5.01)), "resolver-slow"),
    Case("slow for the own name", but(own=resolved("gpu-1", IP, seconds=0.7)), "resolver-slow"),
    Case("slow, but Gloo goes by a rule", but(own=resolved("v", seconds=0.7), gloo_by_name=False)),
    Case("a silent reverse", but(reverse=reverse(5.0, NO_ANSWER)), "reverse-slow", Status.WARN),
    Case("a slow reverse", but(reverse=reverse(1.5)), "reverse-slow", Status.WARN),
    Case("digits", to("0.104.99.143", name="6841231"), "numeric-name", Status.FAIL),
    Case("a leading zero", to("8.0.0.7", name="010.0.0.7"), "numeric-name", Status.FAIL),
    Case("no scope", to("fe80::7", name="fe80::7"), "link-local", Status.FAIL),
    Case("a scope", to("fe80::7%eth0", name="fe80::7%eth0", local=("fe80::7%eth0",))),
    Case("a neighbour's", to(NEIGHBOUR), "master-elsewhere", Status.FAIL),
    Case(
        "a neighbour's, in a container",
        to(NEIGHBOUR, inside="container"),
        "master-elsewhere",
        Status.FAIL,
    ),
    Case(
        "the host's, in a container",
        to("10.5.0.1", inside="container"),
        "master-elsewhere",
        Status.WARN,
    ),
    Case("a service's", to("10.96.0.1", inside="kubernetes"), "master-elsewhere", Status.WARN),
    two(
        "a service's, and others met rank 0 at it",
        {"n1": to("10.96.0.1", inside="kubernetes"), "n2": but(master=None)},
        top=topology(nodes=(Node("n1", (0,)), Node("n2", (1,))), size=2),
    ),
    Case("a public address of a VM", to("8.8.8.8"), "master-elsewhere", Status.WARN),
    Case("a network of a load balancer", to("172.16.0.1"), "master-elsewhere", Status.WARN),
    two("on rank 0's node", to(NEIGHBOUR), "master-elsewhere", Status.FAIL),
    two("where torchrun's store is by is_host", to(NEIGHBOUR, is_host=True)),
    Case(
        "where it is to be, and nobody has met",
        to(NEIGHBOUR, is_host=True),
        "master-elsewhere",
        Status.WARN,
    ),
    Case(
        "an old record beside the right one",
        to(NEIGHBOUR, IP, sources={NEIGHBOUR: IP, IP: IP}),
        "master-ambiguous",
        Status.WARN,
    ),
    two("localhost", to("127.0.0.1", name="localhost"), "master-loopback", Status.FAIL),
    two("an operator's localhost", to("127.0.0.1", name="localhost", inside="kubernetes")),
    two("127.0.0.1", to("127.0.0.1", name="127.0.0.1"), "master-loopback", Status.FAIL),
    two("localhost at home alone", {"n1": to("127.0.0.1", name="localhost"), "n2": FINE}),
    two("0.0.0.0, where rank 0 is", to("0.0.0.0", name="0.0.0.0")),
    two("0.0.0.0", to("0.0.0.0", name="0.0.0.0"), "master-loopback", Status.FAIL, top=OTHER),
    two("another node's hosts file", to("127.0.1.1"), "master-loopback", Status.FAIL, top=OTHER),
    two(
        "IPv6 by halves",
        to("2001:db8::8", NEIGHBOUR, sources={"2001:db8::8": "fe80::7"}),
        "ipv6-first",
        Status.WARN,
        top=OTHER,
    ),
    two("Debian's name", LOOPING, "hostname-loopback", Status.FAIL, subject="n1"),
    two("Debian's name with GPUs", but(LOOPING, gpus=True), "hostname-loopback", Status.WARN),
    two("Debian's name on 10.*", {"n1": LOOPING, "n2": TEN}, "hostname-loopback", Status.WARN),
    two(
        "Debian's name on 192.*",
        {"n1": LOOPING, "n2": ONE_NINETY},
        "hostname-loopback",
        Status.FAIL,
    ),
    two("both", {"n1": LOOPING, "n2": LOOPING}, "hostname-loopback", Status.FAIL),
    two("rdzv.torchrun looks at full names", but(full=resolved("gpu-1", "localhost", "127.0.0.1"))),
    two(
        "unknown own name",
        but(own=resolved("vm", error="EAI_NONAME")),
        "hostname-unusable",
        Status.FAIL,
    ),
    two("the own name is another's", but(own=resolved("vm", "10.9.9.9")), "hostname-unusable"),
    two(
        "a cloned machine",
        clones("192.168.0"),
        "hostname-of-another",
        Status.FAIL,
        subject="n2",
    ),
    two("the same on 10.*", clones("10.0.0"), "hostname-of-another", Status.WARN),
    two(
        "one name, and each has its own address for it",
        {"n1": FINE, "n2": but(own=resolved("gpu-1", NEIGHBOUR), local=(NEIGHBOUR,), master=None)},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(net_name, case)


def test_one_fault_is_one_finding() -> None:
    for saw, top in ((lost(NO_ANSWER, 5.3), None), (to(NEIGHBOUR), None), (LOOPING, NODES)):
        assert len(judged(net_name, Case("", saw, topology=top))) == 1


def test_only_a_node_that_differs_from_others_is_blamed() -> None:
    alone = judged(net_name, Case("", lost("EAI_NONAME")))[0]
    assert alone.blame is Blame.JOB
    seen = {"n1": FINE, "n2": lost("EAI_NONAME", own=TEN.own, local=TEN.local)}
    odd = judged(net_name, Case("", seen, topology=NODES))[0]
    assert (odd.blame, odd.subjects[0].node) == (Blame.NODE, "n2")
    assert f"another node resolves it to {IP}" in odd.saw


def test_the_same_on_many_nodes_is_one_finding() -> None:
    nodes = {f"n{n}": (n,) for n in range(1, 65)}
    top = topology(65, nodes=tuple(Node(name, ranks) for name, ranks in nodes.items()))
    for saw, code in (
        (but(own=DEBIAN), "hostname-loopback"),
        (but(master=resolved("head", error="EAI_NONAME")), "master-unresolved"),
    ):
        seen = {
            n: dataclasses.replace(saw, own=dataclasses.replace(saw.own, name=n)) for n in nodes
        }
        (found,) = judged(net_name, Case("", seen, topology=top))
        assert (found.code, len(found.subjects)) == (code, 64)
        assert len(found.saw) < 400


def test_a_name_server_that_refuses_at_once_is_one_finding() -> None:
    seen = {
        name: but(master=resolved("head", error="EAI_AGAIN", seconds=seconds))
        for name, seconds in (("n1", 0.0004), ("n2", 0.0006))
    }
    top = topology(2, nodes=(Node("n1", (0,)), Node("n2", (1,))))
    (found,) = judged(net_name, Case("", seen, topology=top))
    assert found.code == "resolver-silent"
    assert found.saw == (
        "resolve MASTER_ADDR 'head': failed at once: "
        "temporary failure in name resolution (EAI_AGAIN)"
    )
    assert [s.node for s in found.subjects] == ["n1", "n2"]


def test_names_are_shown_as_they_are() -> None:
    seen = to(NEIGHBOUR, name="gpu-1\r\n" + "x" * 500)
    finding = judged(net_name, Case("", seen))[0]
    assert "'gpu-1\\r\\nxxx" in finding.saw
    assert len(finding.saw) < 300


def test_addresses_that_somebody_edited_do_no_harm() -> None:
    odd = to("nonsense", "999.1.1.1", addresses=("eth0 x/y", ""), own=resolved("v", "z"))
    judged(net_name, Case("", odd, topology=NODES))


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that is never asked for the name of an address."""

    def unknown(*_: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getnameinfo", unknown)


def test_observe_sees_this_machine() -> None:
    marks: list[str] = []
    seen = net_name.observe(Host(environ={}), context(mark=marks.append))
    assert seen.master is not None
    assert seen.master.found == ("127.0.0.1",)
    assert "127.0.0.1" in seen.local
    assert "resolve MASTER_ADDR '127.0.0.1'" in marks
    assert "reverse 127.0.0.1 '::ffff:127.0.0.1'" in marks
    round_trips(seen)
    fast = dataclasses.replace(seen, reverse=())  # a dead resolver here is no fault of ours
    assert judged(net_name, Case("", fast)) == []


def test_observe_without_master() -> None:
    seen = net_name.observe(Host(environ={}), context(master_addr=""))
    assert (seen.master, seen.reverse) == (None, ())


@pytest.mark.usefixtures("nameless")
def test_observe_sees_an_address_that_is_not_ours() -> None:
    seen = net_name.observe(Host(environ={}), context(master_addr="203.0.113.77", seconds=2.0))
    assert "203.0.113.77" not in seen.local
    codes = [f.code for f in judged(net_name, Case("", seen))]
    assert "master-elsewhere" in codes


def two_nodes(**changes: object) -> Any:
    made = topology(nodes=(Node("n1", (1,)),), size=2, master_addr="rank0")
    return context(topology=made, patience=9.0, seconds=12.0, **changes)


def test_a_name_that_comes_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resolve(self: Host, name: str) -> Any:
        asked.append(name)
        if name == "rank0" and asked.count("rank0") < 3:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [SimpleNamespace(ip="127.0.0.1")]

    monkeypatch.setattr(Host, "resolve", resolve)
    seen = net_name.observe(Host(environ={}), two_nodes())
    assert seen.master is not None
    assert seen.master.found == ("127.0.0.1",)
    assert seen.late[1] == "EAI_NONAME"
    assert 0.9 < seen.late[0] < 4


def test_rank_0_asks_again_for_a_shorter_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(self: Host, name: str) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(Host, "resolve", resolve)
    monkeypatch.setattr(net_name, "OWN_NAME_LATE", 0.0)
    marks: list[str] = []
    first = topology(nodes=(Node("n1", (0,)),), size=2, master_addr="rank0")
    ctx = two_nodes(mark=marks.append)
    net_name.observe(Host(environ={}), dataclasses.replace(ctx, topology=first))
    assert not [mark for mark in marks if "asking again" in mark]


def test_only_rank_0s_own_address_is_advised() -> None:
    """A copied /etc/hosts calls it 127.0.1.1 on another node, too."""
    seen = {"n1": FINE, "n2": to("127.0.1.1")}
    (found,) = judged(net_name, Case("", seen, topology=NODES))
    assert (found.code, found.subjects[0].node) == ("master-loopback", "n2")
    assert found.fields["here"] == IP
    alone = judged(net_name, Case("", to("127.0.1.1"), topology=OTHER))[0]
    assert alone.fields["here"] == ""


def test_a_name_that_never_comes_is_not_waited_for_on_one_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(self: Host, name: str) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(Host, "resolve", resolve)
    began = time.monotonic()
    seen = net_name.observe(Host(environ={}), context(master_addr="rank0"))
    assert time.monotonic() - began < 0.9
    assert seen.late == (0.0, "")
    assert seen.master is not None
    assert seen.master.error == "EAI_AGAIN"


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A resolver that knows addresses, but never answers for a name."""
    over = threading.Event()
    real = socket.getaddrinfo

    def silent(host: bytes, *rest: Any) -> Any:
        if host == b"gpu-1":
            over.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "over")
        return real(host, *rest)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    yield
    over.set()


@pytest.mark.usefixtures("dead")
def test_a_silent_resolver_costs_no_more_than_the_budget() -> None:
    began = time.monotonic()
    seen = net_name.observe(Host(environ={}), context(master_addr="gpu-1", seconds=1.2))
    assert time.monotonic() - began < 1.2
    assert seen.master is not None
    assert seen.master.error == NO_ANSWER
    assert seen.own.error != NO_ANSWER  # what did answer is kept
    assert "resolver-silent" in [f.code for f in judged(net_name, Case("", seen))]


def test_rules_and_agents_come_from_the_environment() -> None:
    environ = {
        "GLOO_SOCKET_IFNAME": "eth0" * (1 << 18),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    }
    seen = net_name.observe(Host(environ=environ), context())
    assert (seen.gloo_by_name, seen.agent, seen.inside) == (False, True, "kubernetes")
    round_trips(seen)


def test_cannot_tell_of_a_tree(tmp_path: Path) -> None:
    with pytest.raises(CannotObserve):
        net_name.observe(Host(str(tmp_path), {}), context())
