"""net.interface: wrong rules are named with the interfaces that there are; what merely looks odd on
a laptop, or on one node, is silent."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology

from preflight.check import conforms
from preflight.checks import net_interface
from preflight.checks.net_interface import Choices
from preflight.host import Address, Host, Interface
from preflight.judge.verdict import joined
from preflight.model import CannotObserve, Fact, Node, Status

conforms(net_interface)


def interface(name: str, *ips: str, up: bool = True, running: bool = True) -> Interface:
    """`192.0.2.2/24`; the prefix is 24 or 64 where none is written."""
    addresses = []
    for text in ips:
        ip, _, prefix = text.partition("/")
        family = 6 if ":" in ip else 4
        addresses.append(Address(ip, int(prefix or (64 if family == 6 else 24)), family))
    return Interface(name, up, up and running, name == "lo", 1500, tuple(addresses))


LO = interface("lo", "127.0.0.1/8", "::1/128")
ETH0 = interface("eth0", "10.0.0.7", "fe80::7")
ETH1 = interface("eth1", "10.1.0.7")
DOCKER0 = interface("docker0", "172.17.0.1/16")
DOWN = interface("eth2", "10.9.0.7", up=False)
BARE = interface("eth3")
CLUSTER = Choices((LO, ETH0, ETH1, DOCKER0, DOWN, BARE), own=("10.0.0.7",), source="10.0.0.7")
LAPTOP = Choices(
    (
        LO,
        interface("wlp3s0", "192.168.1.20", "fe80::20"),
        interface("enp1s0", up=True, running=False),
        DOCKER0,
        interface("br-0123456789ab", "172.18.0.1/16"),
        interface("virbr0", "192.168.122.1", running=False),
        interface("tailscale0", "100.101.102.103/32"),
        interface("veth1a2b3c4", "fe80::1"),
    ),
    own=("127.0.1.1",),
    gpus=True,
)
NODES = topology(8, nodes=(Node("n1", (0, 1, 2, 3)), Node("n2", (4, 5, 6, 7))), master_addr="n1")


def ruled(base: Choices = CLUSTER, source: str = "env", **rules: str) -> Choices:
    names = {
        "nccl": net_interface.NCCL,
        "gloo": net_interface.GLOO,
        "family": net_interface.FAMILY,
    }
    facts = {names[short]: Fact(value, source) for short, value in rules.items()}
    return dataclasses.replace(base, rules=facts, gpus=base.gpus or base is CLUSTER)


def but(base: Choices = CLUSTER, **changes: object) -> Choices:
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def several(name: str, saw: object, *rest: object, **more: object) -> Case:
    return Case(name, saw, *rest, topology=NODES, **more)  # type: ignore[arg-type]


def node(number: int, *, swapped: bool = False, **rules: str) -> Choices:
    """A node with two NICs in two networks."""
    ips = (f"10.77.0.{number}/16", f"10.78.0.{number}/16")
    first, second = reversed(ips) if swapped else ips
    nics = (LO, interface("eth0", first), interface("eth1", second))
    return ruled(but(interfaces=nics, own=(ips[0][:-3],), source=ips[0][:-3]), **rules)


def node6(number: int, *, swapped: bool = False) -> Choices:
    """The same without IPv4."""
    first, second = (78, 77) if swapped else (77, 78)
    nics = (
        LO,
        interface("eth0", f"fd00:{first}::{number}", "fe80::7"),
        interface("eth1", f"fd00:{second}::{number}", "fe80::8"),
    )
    return ruled(but(interfaces=nics, own=(f"fd00:77::{number}",), source=""), gloo="eth0")


def mixed(number: int) -> Choices:
    """One with IPv4 as on all nodes, and the third one's IPv6 swapped."""
    first, second = (78, 77) if number == 3 else (77, 78)
    nics = (
        LO,
        interface("eth0", f"10.77.0.{number}/16", f"fd00:{first}::{number}"),
        interface("eth1", f"10.78.0.{number}/16", f"fd00:{second}::{number}"),
    )
    return ruled(but(interfaces=nics), nccl="=eth0", gloo="eth0")


def world_of(*seen: Choices) -> dict[str, Choices]:
    return {f"n{number}": one for number, one in enumerate(seen, 1)}


def many(name: str, *seen: Choices, found: str = "", subject: str = "") -> Case:
    nodes = tuple(Node(f"n{n}", (n - 1,)) for n in range(1, len(seen) + 1))
    top = topology(len(seen), nodes=nodes, master_addr="n1")
    status = {"status": Status.WARN, "subject": subject} if found else {}
    return Case(name, world_of(*seen), found or None, topology=top, **status)  # type: ignore[arg-type]


def masked(*addresses: str) -> tuple[Choices, ...]:
    """Nodes with one address each."""
    return tuple(
        ruled(but(interfaces=(LO, interface("eth0", a)), own=None, source=a.partition("/")[0]))
        for a in addresses
    )


MASKS = (
    many("one size of the network", *masked("10.77.0.1/16", "10.77.0.2/16", "10.77.0.3/16")),
    many(
        "one has another",
        *masked("10.77.0.1/30", "10.77.0.2/16", "10.77.0.3/16"),
        found="netmask-differs",
        subject="n1 · eth0",
    ),
    many(
        "one of two",
        *masked("10.77.0.1/30", "10.77.0.2/16"),
        found="netmask-differs",
        subject="n1 · eth0",
    ),
    many("each alone, in a cloud", *masked("10.0.0.1/32", "10.0.0.2/32", "10.0.0.9/24")),
    many("two networks", *masked("10.77.0.1/16", "10.78.0.2/24")),
    many("racks, and a node for all", *masked("10.1.0.1/16", "10.1.1.2/24", "10.1.2.2/24")),
)
NAMED = {"nccl": "eth0", "gloo": "eth0"}
NETWORKS = (
    many("two NICs each", *(node(n, **NAMED) for n in (1, 2, 3))),
    many(
        "the NICs of one are swapped",
        *(node(n, swapped=n == 3, gloo="eth0") for n in (1, 2, 3)),
        found="networks-differ",
        subject="n3 · eth0",
    ),
    many(
        "NCCL is told which, and one has them swapped",
        *(node(n, swapped=n == 2, nccl="=eth1") for n in (1, 2, 3, 4)),
        found="networks-differ",
        subject="n2 · eth1",
    ),
    many(
        "the NICs of one of two are swapped",
        *(node(n, swapped=n == 2, gloo="eth0") for n in (1, 2)),
        found="networks-differ",
        subject="n1 · eth0",
    ),
    many(
        "the NICs of one are swapped, and there is IPv6 alone",
        *(node6(n, swapped=n == 3) for n in (1, 2, 3)),
        found="networks-differ",
        subject="n3 · eth0",
    ),
    many(
        "NCCL takes IPv6, and that of one is swapped",
        *(
            ruled(
                but(
                    interfaces=(
                        LO,
                        interface("eth0", f"10.77.0.{n}/16", f"fd00:{77 + (n == 3)}::{n}"),
                        interface("eth1", f"10.78.0.{n}/16", f"fd00:{78 - (n == 3)}::{n}"),
                    )
                ),
                nccl="=eth0",
                family="AF_INET6",
            )
            for n in (1, 2, 3)
        ),
        found="networks-differ",
        subject="n3 · eth0",
    ),
    many("NCCL takes IPv4, and the IPv6 of one is swapped", *(mixed(n) for n in (1, 2, 3))),
    many("two NICs each, and IPv6 alone", *(node6(n) for n in (1, 2, 3))),
    many(
        "several prefixes of IPv6, in another order on one node",
        *(
            ruled(
                but(
                    interfaces=(
                        LO,
                        interface(
                            "eth0", *(f"fd00:{p}::{n}" for p in ((2, 1) if n == 3 else (1, 2)))
                        ),
                        interface("eth1", f"fd00:3::{n}"),
                    )
                ),
                gloo="eth0",
            )
            for n in (1, 2, 3)
        ),
    ),
    many(
        "each node has a prefix of IPv6 of its own",
        *(
            ruled(but(interfaces=(LO, interface("eth0", f"fd00:{n}::7"), ETH1)), gloo="eth0")
            for n in (1, 2, 3)
        ),
    ),
    many(
        "addresses of DHCPv6, with a prefix of 128",
        *(
            ruled(but(interfaces=(LO, interface("eth0", f"fd00:1::{n}/128"), ETH1)), gloo="eth0")
            for n in (1, 2, 3)
        ),
    ),
    many("nobody named one", *(node(n, swapped=n == 3) for n in (1, 2, 3))),
    many(
        "swapped, and named by its own name there",
        *(node(n, swapped=n == 3, gloo="eth1" if n == 3 else "eth0") for n in (1, 2, 3)),
    ),
    many(
        "each node has a subnet of its own, and they are routed",
        *(
            ruled(but(interfaces=(LO, interface("eth0", f"10.77.{n}.2/24"), ETH1)), gloo="eth0")
            for n in (1, 2, 3)
        ),
    ),
)

TWINS = (LO, ETH0, interface("eth1", "10.0.0.8"))
OTHER_FIRST = but(interfaces=(LO, ETH1, ETH0), gpus=True)

CASES = (
    *NETWORKS,
    *MASKS,
    Case("a cluster node alone", CLUSTER),
    Case("a laptop with everything on it", LAPTOP),
    Case("nothing but lo", Choices((LO,), own=())),
    Case("a rule that fits", ruled(nccl="=eth0", gloo="eth0")),
    Case("the usual exclusion", ruled(nccl="^docker,lo")),
    Case("lo on one node", ruled(nccl="lo", gloo="lo")),
    Case("docker0 on one node", ruled(nccl="docker0", gloo="docker0")),
    Case("empty values", ruled(nccl="", gloo="")),
    Case("a label of an address", ruled(gloo="eth0:1")),
    Case("a family that is there", ruled(family="AF_INET6")),
    Case("a family that is no word", ruled(family="ipv6")),
    Case("hostile values", ruled(nccl="=eth0," + "x," * 400, gloo="eth0" + "," * 1000)),
    Case(
        "no such interface",
        ruled(nccl="ens5"),
        "ifname-unmatched",
        Status.FAIL,
        subject="n1 · NCCL_SOCKET_IFNAME",
    ),
    Case(
        "no such interface, but no GPU either",
        ruled(but(gpus=False), nccl="ens5"),
        "ifname-unmatched",
        Status.WARN,
    ),
    Case("none left", ruled(nccl="^e,d,l"), "ifname-unmatched", Status.FAIL),
    Case("Gloo's too", ruled(gloo="ens5"), "ifname-unmatched", subject="n1 · GLOO_SOCKET_IFNAME"),
    Case("one of Gloo's two", ruled(gloo="eth0,ens5"), "ifname-unmatched", Status.FAIL),
    Case("a prefix is nothing to Gloo", ruled(gloo="eth"), "ifname-unmatched", Status.FAIL),
    Case("an address is no name", ruled(gloo="10.0.0.7"), "ifname-unmatched", Status.FAIL),
    Case("one character", ruled(nccl="e"), "ifname-ignored", Status.WARN),
    Case("one character for Gloo", ruled(gloo="^"), "ifname-ignored", Status.WARN),
    Case("NCCL's syntax", ruled(gloo="^lo"), "gloo-syntax", Status.FAIL),
    Case("exact", ruled(gloo="=eth0"), "gloo-syntax", Status.FAIL),
    Case("a space", ruled(gloo="eth0, eth1"), "gloo-syntax", Status.FAIL),
    Case("down", ruled(nccl="eth2"), "interface-down", Status.FAIL, subject="n1 · eth2"),
    Case("no address", ruled(nccl="=eth3"), "interface-down", Status.FAIL),
    Case("no IPv6", ruled(nccl="eth1", family="AF_INET6"), "interface-down", Status.FAIL),
    Case(
        "no IPv6 anywhere",
        ruled(but(interfaces=(LO, ETH1)), family="AF_INET6"),
        "interface-down",
        subject="n1 · NCCL_SOCKET_FAMILY",
    ),
    Case("down for Gloo", ruled(gloo="eth2"), "interface-down", Status.FAIL, subject="n1 · eth2"),
    Case("without a link, on one node", ruled(but(interfaces=(LO, ETH0)), gloo="eth0")),
    Case(
        "lo is down",
        Choices((interface("lo", up=False),), loopback="127.0.0.1: Cannot assign"),
        "loopback-down",
        Status.FAIL,
        subject="n1 · lo",
    ),
    Case(
        "lo is down where one rank is, which is not the store's",
        dataclasses.replace(CLUSTER, loopback="lo is down"),
        "loopback-down",
        Status.WARN,
        topology=topology(2, nodes=(Node("n1", (1,)), Node("n0", (0,)))),
    ),
    several("a cluster", CLUSTER),
    several("a cluster with GPUs and rules", ruled(but(gpus=True), nccl="=eth0", gloo="eth0")),
    several("IPoIB is NCCL's first wish", but(interfaces=(LO, ETH0, interface("ib0", "10.5.0.7")))),
    several("another network by name", ruled(but(gpus=True), nccl="eth1", gloo="eth1")),
    several("a way that is not known", but(OTHER_FIRST, source="")),
    several("no GPU, no NCCL", but(OTHER_FIRST, gpus=False)),
    several("MASTER_ADDR is the loopback: net.name's", but(OTHER_FIRST, source="127.0.0.1")),
    several("Debian's own name: net.name's", but(own=("127.0.1.1",))),
    several("the way is a bridge", ruled(but(source="172.17.0.1"), nccl="docker0")),
    several("lo for NCCL", ruled(nccl="lo"), "interface-isolated", Status.FAIL, subject="n1 · lo"),
    several("lo for Gloo", ruled(gloo="lo"), "interface-isolated", Status.FAIL),
    several(
        "lo beside the right one for Gloo",
        ruled(gloo="eth0,lo"),
        "interface-isolated",
        Status.FAIL,
        subject="n1 · lo",
    ),
    several("docker0 for Gloo", ruled(gloo="docker0"), "interface-isolated", Status.FAIL),
    several("the own name on docker0", but(own=("172.17.0.1",)), "interface-isolated"),
    several(
        "a network of docker comes first",
        but(interfaces=(LO, interface("br-0123456789ab", "172.18.0.1"), ETH0), gpus=True),
        "interface-isolated",
        Status.FAIL,
    ),
    several("nobody named it", OTHER_FIRST, "interface-doubtful", Status.WARN),
    several(
        "MASTER_ADDR by the other NIC of one subnet",
        but(
            interfaces=(LO, interface("eth0", "10.0.0.7"), interface("eth1", "10.0.0.8")),
            source="10.0.0.8",
            gpus=True,
        ),
        "subnet-shared",
        Status.WARN,
    ),
    several("a prefix hit another", ruled(OTHER_FIRST, nccl="eth"), "interface-doubtful"),
    several(
        "a tunnel",
        ruled(but(interfaces=(LO, ETH0, interface("wg0", "10.66.0.1"))), nccl="wg0"),
        "interface-doubtful",
        Status.WARN,
        subject="n1 · wg0",
    ),
    several(
        "link-local",
        but(interfaces=(LO, interface("eth0", "169.254.3.4/16")), own=("169.254.3.4",), source=""),
        "interface-doubtful",
        Status.WARN,
    ),
    several("two ways", ruled(nccl="eth0", gloo="eth1"), "interfaces-differ", Status.WARN),
    several("twins", but(interfaces=TWINS, gpus=True), "subnet-shared", Status.WARN),
    several("twins with RDMA", but(interfaces=TWINS, gpus=True, rdma=True)),
    several("twins with policy routing", but(interfaces=TWINS, gpus=True, tables=True)),
    Case("twins on one node", but(interfaces=TWINS, gpus=True)),
    several("no route", but(source="", no_route="10.2.0.1: unreachable"), "master-unroutable"),
    several(
        "no route since its interface is down",
        but(source="", no_route="10.9.0.1: unreachable", idle="eth2"),
        "master-unroutable",
        Status.FAIL,
    ),
)


OWN_NAME_ON_VIRBR0 = but(
    interfaces=(LO, interface("eth0", "10.0.0.8"), interface("virbr0", "192.168.122.1")),
    own=("192.168.122.1",),
    source="10.0.0.8",
)


@pytest.mark.parametrize(
    ("other", "status"),
    [
        (CLUSTER, Status.WARN),
        (but(interfaces=(LO, interface("eth0", "192.168.200.9")), own=("192.168.200.9",)), None),
        (but(own=("10.0.0.7",), gpus=True), None),
        (None, None),
    ],
    ids=["no address is greater", "another one is", "NCCL dials both ways", "was not seen"],
)
def test_an_address_that_nobody_connects_to_today(
    other: Choices | None, status: Status | None
) -> None:
    seen = {"n2": OWN_NAME_ON_VIRBR0} | ({"n1": other} if other else {})
    found = judged(net_interface, Case("", seen, topology=NODES))
    isolated = [f for f in found if f.code == "interface-isolated"]
    assert [s.node for f in isolated for s in f.subjects] == ["n2"]
    assert isolated[0].status == (status or Status.FAIL)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(net_interface, case)


def test_the_finding_shows_the_value_its_file_and_the_interfaces() -> None:
    case = Case("", ruled(source="/etc/nccl.conf", nccl="ens5\r"))
    finding = judged(net_interface, case)[0]
    assert "NCCL_SOCKET_IFNAME='ens5\\r' in /etc/nccl.conf" in finding.saw
    assert "eth0 10.0.0.7" in finding.saw


def test_one_setting_on_several_nodes_is_one_finding() -> None:
    first = ruled(gloo="docker0")
    eth0 = interface("eth0", "10.0.0.8")
    second = but(first, interfaces=tuple(eth0 if i.name == "eth0" else i for i in first.interfaces))
    second = but(second, source="10.0.0.8", own=("10.0.0.8",))
    both = judged(net_interface, Case("", {"n1": first, "n2": second}, topology=NODES))
    (finding,) = joined(both)
    assert [s.node for s in finding.subjects] == ["n1", "n2"]
    assert finding.saw.startswith("GLOO_SOCKET_IFNAME='docker0': Gloo uses docker0 172.17.0.1 · ")
    assert finding.saw.endswith("MASTER_ADDR is reached by eth0")


def test_the_advice_names_the_way_to_the_master() -> None:
    case = Case("", ruled(OTHER_FIRST, nccl="docker0"), topology=NODES)
    assert judged(net_interface, case)[0].fields["wanted"] == "eth0"


def test_a_gloo_interface_without_a_link_serves_one_node() -> None:
    unplugged = but(interfaces=(LO, interface("eth0", "10.0.0.7", running=False)))
    assert judged(net_interface, Case("", ruled(unplugged, gloo="eth0"))) == []


def test_observe_sees_this_machine() -> None:
    seen = net_interface.observe(Host(), context())
    assert any(i.name == "lo" for i in seen.interfaces)
    assert seen.loopback == ""
    assert seen.source == ""  # on one node nobody asks for the way
    round_trips(seen)
    assert judged(net_interface, Case("", dataclasses.replace(seen, rules={}))) == []


def test_observe_follows_the_way_to_the_master_between_nodes() -> None:
    seen = net_interface.observe(Host(), context(topology=NODES, master_addr="127.0.0.1"))
    assert (seen.source, seen.no_route) == ("127.0.0.1", "")


ADDRESSES = """\
Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.7
        /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
"""
ROUTES = """\
Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0
"""


def tree(root: Path, lo_flags: str = "0x9", addresses: str = ADDRESSES) -> Path:
    for index, (name, flags, state) in enumerate(
        (("lo", lo_flags, "unknown"), ("eth0", "0x1003", "up"))
    ):
        folder = root / "sys/class/net" / name
        folder.mkdir(parents=True)
        (folder / "flags").write_text(flags)
        (folder / "operstate").write_text(state)
        (folder / "ifindex").write_text(str(index + 1))
        (folder / "mtu").write_text("1500")
    net = root / "proc/net"
    net.mkdir(parents=True)
    (net / "fib_trie").write_text(addresses)
    (net / "route").write_text(ROUTES)
    (root / "etc").mkdir()
    return root


def test_observe_reads_a_tree_and_its_nccl_conf(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / "etc/nccl.conf").write_text(
        "# NCCL_SOCKET_IFNAME=no\nNCCL_SOCKET_IFNAME=eth0\nNCCL_SOCKET_IFNAME=late\nX=secret\n"
        "NCCL_SOCKET_FAMILY=AF_INET\n"
    )
    (root / "home").mkdir()
    (root / "home/.nccl.conf").write_text("NCCL_SOCKET_FAMILY=AF_INET6\n")
    environ = {"HOME": "/home", "GLOO_SOCKET_IFNAME": "lo" * (1 << 20), "SECRET": "s"}

    seen = net_interface.observe(Host(str(root), environ), context())

    assert [(i.name, [a.ip for a in i.addresses]) for i in seen.interfaces] == [
        ("lo", ["127.0.0.1"]),
        ("eth0", ["10.0.0.7"]),
    ]
    assert seen.rules["NCCL_SOCKET_IFNAME"] == Fact("eth0", "/etc/nccl.conf")
    assert seen.rules["NCCL_SOCKET_FAMILY"] == Fact("AF_INET6", "/home/.nccl.conf")
    assert len(seen.rules["GLOO_SOCKET_IFNAME"].value) == net_interface.VALUE_KEPT
    assert set(seen.rules) == {net_interface.NCCL, net_interface.FAMILY, net_interface.GLOO}
    round_trips(seen)


def test_the_environment_wins_over_nccl_conf(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / "etc/nccl.conf").write_text("NCCL_SOCKET_IFNAME=ens5\n")
    seen = net_interface.observe(Host(str(root), {"NCCL_SOCKET_IFNAME": "eth0"}), context())
    assert seen.rules[net_interface.NCCL] == Fact("eth0", "env")


def test_observe_sees_a_loopback_that_is_down(tmp_path: Path) -> None:
    seen = net_interface.observe(Host(str(tree(tmp_path, "0x8", "")), {}), context())
    assert [f.code for f in judged(net_interface, Case("", seen))] == ["loopback-down"]


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (TimeoutError("timed out"), ["loopback-down"]),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), ["loopback-down"]),
        (OSError(errno.EMFILE, "Too many open files"), []),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), []),
        (None, []),
    ],
)
def test_observe_tries_the_loopback(
    monkeypatch: pytest.MonkeyPatch, error: OSError | None, found: list[str]
) -> None:
    monkeypatch.setattr(Host, "reaches_itself", lambda *_: error)
    seen = net_interface.observe(Host("/", {}), context())
    assert [f.code for f in judged(net_interface, Case("", seen))] == found


@pytest.mark.parametrize(
    ("number", "found"), [(errno.EADDRINUSE, []), (errno.EADDRNOTAVAIL, ["loopback-down"])]
)
def test_that_no_port_is_left_is_not_the_loopbacks(
    monkeypatch: pytest.MonkeyPatch, number: int, found: list[str]
) -> None:
    monkeypatch.setattr(Host, "can_bind", lambda *_: OSError(number, "no"))
    monkeypatch.setattr(Host, "reaches_itself", lambda *_: OSError(number, "no"))
    seen = net_interface.observe(Host("/", {}), context())
    assert [f.code for f in judged(net_interface, Case("", seen))] == found


def test_cannot_tell_without_addresses(tmp_path: Path) -> None:
    with pytest.raises(CannotObserve):
        net_interface.observe(Host(str(tree(tmp_path, addresses="")), {}), context())


def test_cannot_tell_without_interfaces(tmp_path: Path) -> None:
    with pytest.raises(CannotObserve):
        net_interface.observe(Host(str(tmp_path), {}), context())


def test_no_route_names_the_interface_that_should_have_it() -> None:
    case = next(c for c in CASES if c.name == "no route since its interface is down")
    (found,) = judged(net_interface, case)
    assert found.saw.endswith("10.9.0.1: unreachable · eth2 is in its network, and has no link")
    assert (found.fields["nic"], found.fields["node"]) == ("eth2", "n1")
