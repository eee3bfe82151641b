"""Each fault of the lab does what it says, is undone, and touches nobody else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from lab import faults
from lab.faults import Break
from lab.host import Command, Lab
from lab.probe import (
    N1,
    N2,
    N3,
    N4,
    OPEN,
    OTHER,
    PROBES,
    TIMED_OUT,
    ask,
    connections,
    four,
    possible,
    probe,
    python,
    said,
)

RECEIVE = """
import socket, sys
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind(("", 7)); line.settimeout(10); print("ready", flush=True); count = 0
while line.recv(10) != b"end": count += 1
print(count)
"""
SEND = """
import socket, time
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(400): line.sendto(b"x", ("10.77.0.2", 7)); time.sleep(0.0002)
for _ in range(50): line.sendto(b"end", ("10.77.0.2", 7))
"""


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    possible("nft", "tc", "ps")


@pytest.fixture(scope="module")
def lab(_possible: None) -> Iterator[Lab]:
    with four() as made:
        yield made


REFUSED, UNREACHABLE = "ECONNREFUSED", "EHOSTUNREACH"

# what is broken on n2, and what connecting says then: (from, to, port) -> …; all others succeed
FIREWALLS: list[tuple[tuple[Break, ...], dict[tuple[str, str, int], str]]] = [
    (
        (faults.drop_port(OPEN), faults.reset_port(OTHER)),
        {
            ("n1", N2, OPEN): TIMED_OUT,
            ("n3", N2, OPEN): TIMED_OUT,
            ("n1", N2, OTHER): REFUSED,
            ("n3", N2, OTHER): REFUSED,
        },
    ),
    (
        (faults.prohibit_port(OPEN), faults.drop_port(OTHER, N3)),
        {
            ("n1", N2, OPEN): UNREACHABLE,
            ("n3", N2, OPEN): UNREACHABLE,
            ("n3", N2, OTHER): TIMED_OUT,
        },
    ),
    ((faults.refuse_from(N1),), {("n1", N2, OPEN): TIMED_OUT, ("n1", N2, OTHER): TIMED_OUT}),
    ((faults.close_other_ports(OPEN, source=N1),), {("n1", N2, OTHER): TIMED_OUT}),
    (
        (faults.close_other_ports(OPEN, verdict=faults.PROHIBIT),),
        {("n1", N2, OTHER): UNREACHABLE, ("n3", N2, OTHER): UNREACHABLE},
    ),
    ((faults.drop_out(port=OPEN),), {("n2", N1, OPEN): TIMED_OUT}),
    (
        (faults.drop_out(to=N1),),
        {
            ("n1", N2, OPEN): TIMED_OUT,
            ("n1", N2, OTHER): TIMED_OUT,
            ("n2", N1, OPEN): TIMED_OUT,
            ("n2", N1, OTHER): TIMED_OUT,
        },
    ),
    ((faults.drop_in(N3),), {("n3", N2, OPEN): TIMED_OUT, ("n3", N2, OTHER): TIMED_OUT}),
    (
        (
            faults.route("blackhole", N1),
            faults.route("unreachable", N3),
            faults.route("prohibit", N4),
        ),
        {
            ("n2", N1, OPEN): "EINVAL",
            ("n2", N1, OTHER): "EINVAL",
            ("n2", N3, OPEN): UNREACHABLE,
            ("n2", N4, OPEN): "EACCES",
            ("n1", N2, OPEN): TIMED_OUT,
            ("n1", N2, OTHER): TIMED_OUT,
            ("n3", N2, OPEN): TIMED_OUT,
            ("n3", N2, OTHER): TIMED_OUT,
        },
    ),
    (
        (faults.link_down(),),
        {(a, N2, port): TIMED_OUT for a in ("n1", "n3") for port in (OPEN, OTHER)}
        | {("n2", N1, port): "ENETUNREACH" for port in (OPEN, OTHER)},
    ),
    (
        (faults.unplugged(),),
        {
            (a, b, port): TIMED_OUT
            for a, b in (("n1", N2), ("n3", N2), ("n2", N1))
            for port in (OPEN, OTHER)
        },
    ),
]
EDGES = [(a, b, port) for a, b in (("n1", N2), ("n3", N2), ("n2", N1)) for port in (OPEN, OTHER)]


@pytest.mark.parametrize(
    ("broken", "expected"),
    FIREWALLS,
    ids=[" + ".join(item.what for item in broken) for broken, _ in FIREWALLS],
)
def test_who_can_connect(
    lab: Lab, broken: tuple[Break, ...], expected: dict[tuple[str, str, int], str]
) -> None:
    usual = dict.fromkeys([*EDGES, ("n2", "127.0.0.1", OPEN)], "ok")
    with lab["n2"].broken(*broken):
        assert connections(lab, list(usual | expected)) == usual | expected
    until = time.monotonic() + 5  # who looked for its MAC address in vain asks again after 1 s
    while connections(lab, list(usual)) != usual:
        assert time.monotonic() < until


def test_limits_of_connections(lab: Lab) -> None:
    with lab["n2"].broken(faults.limit_connections(2, OPEN)):
        assert ask(lab["n1"], "keep", N2, OPEN, 3) == ["ok", "ok", TIMED_OUT]
    with lab["n2"].broken(faults.limit_syns(3)):
        got = ask(lab["n1"], "keep", N2, OPEN, 5)
        assert got[0] == "ok"
        assert TIMED_OUT in got
    with lab["n1"].broken(faults.few_ports(50000, 50001)):
        assert ask(lab["n1"], "keep", N2, OPEN, 3)[2] == "EADDRNOTAVAIL"


def test_loss(lab: Lab) -> None:
    with lab["n2"].broken(faults.lose(50)):
        running = lab["n2"].begin(python(RECEIVE))
        said(running, "ready")
        assert lab["n1"].run(python(SEND), timeout=10).code == 0
        assert 100 < int(running.wait(10).out.split()[1]) < 300


@pytest.mark.parametrize(
    "item", [faults.small_switch_port(1400), faults.drop_longer(1400)], ids=str
)
def test_a_black_hole_for_large_packets(lab: Lab, item: Break) -> None:
    small, large = ("echo", N2, OPEN, 1000), ("echo", N2, OPEN, 60000, 0.7)
    with lab["n2"].broken(item):
        asked = {
            "n1": (small, large),
            "n2": (("echo", N1, OPEN, 60000, 0.7),),
            "n3": (("echo", N1, OPEN, 60000, 5.0),),
        }
        commands = {n: Command(python(PROBES, json.dumps(each))) for n, each in asked.items()}
        ended = lab.run_all(commands, timeout=20)
        got = {name: json.loads(each.out) for name, each in ended.items()}
        assert isinstance(got["n1"][0], float)
        assert got["n1"][1:] == got["n2"] == [TIMED_OUT]
        assert isinstance(got["n3"][0], float)
    assert isinstance(ask(lab["n1"], "echo", N2, OPEN, 60000, 5.0), float)


def test_slow_links(lab: Lab) -> None:
    with lab["n2"].broken(faults.rate(10)):
        assert 0.3 < ask(lab["n1"], "echo", N2, OPEN, 500_000, 10) < 10
    with lab["n2"].broken(faults.delay(40)):
        assert 0.08 < ask(lab["n1"], "echo", N2, OPEN, 1, 5) < 2
        assert isinstance(ask(lab["n1"], "echo", N2, OPEN, 1_000_000, 10), float)
    assert min(probe(lab["n1"], *[("echo", N2, OPEN, 1, 5)] * 5)) < 0.08


def test_mtu(lab: Lab) -> None:
    with lab["n2"].broken(faults.mtu(1450)):
        assert lab["n2"].sh("cat /sys/class/net/eth0/mtu").strip() == "1450"
    assert lab["n2"].sh("cat /sys/class/net/eth0/mtu").strip() == "1500"


NAMES: list[tuple[Break, str, object]] = [
    (faults.own_name_is("127.0.1.1"), "n2", ["127.0.1.1"]),
    (faults.own_name_unknown(), "n2", "EAI_AGAIN"),
    (faults.name_is("n1", "10.77.0.99"), "n1", ["10.77.0.99"]),
    (faults.name_unknown("n1"), "n1", "EAI_AGAIN"),
]


@pytest.mark.parametrize(("item", "name", "expected"), NAMES, ids=str)
def test_names(lab: Lab, item: Break, name: str, expected: object) -> None:
    with lab["n2"].broken(item):
        assert ask(lab["n2"], "look_up", name)[0] == expected
        assert ask(lab["n2"], "look_up", "n3")[0] == [N3]
        assert ask(lab["n1"], "look_up", name)[0] == ["10.77.0." + name[1:]]
    assert ask(lab["n2"], "look_up", name)[0] == ["10.77.0." + name[1:]]


@pytest.mark.parametrize(
    ("how", "expected", "least", "most"),
    [
        ("0", ["10.1.2.3"], 0, 0.9),
        ("0.5", ["10.1.2.3"], 0.5, 1),
        ("silent", "EAI_AGAIN", 1, 5),
        ("refusing", "EAI_AGAIN", 0, 0.9),
        ("failing", "EAI_AGAIN", 0, 0.9),
        ("absent", "EAI_AGAIN", 0, 0.9),
    ],
)
def test_resolvers(lab: Lab, how: str, expected: object, least: float, most: float) -> None:
    with lab["n2"].broken(faults.resolver(how, "gpu-017=10.1.2.3")):
        said, seconds = ask(lab["n2"], "look_up", "gpu-017")
        assert said == expected
        assert least <= seconds < most
        if how == "0":
            assert ask(lab["n2"], "look_up", "gpu-018")[0] == "EAI_NONAME"


def test_an_address_on_two_machines(lab: Lab) -> None:
    assert ask(lab["n1"], "owners", N2) == 1
    with lab["n3"].broken(faults.take_address(N2)):
        assert ask(lab["n1"], "owners", N2) == 2
    assert ask(lab["n1"], "owners", N2) == 1


@pytest.mark.parametrize(
    ("stranger", "expected"),
    [
        (faults.silent_server(7000), TIMED_OUT),
        (faults.http_server(7000), "HTTP/1.1 400 Bad Request\r\nServer: nginx"),
        (faults.echo_server(7000), "hello"),
        (faults.hanging_up(7000), ""),
    ],
    ids=str,
)
def test_strangers(lab: Lab, stranger: Break, expected: str) -> None:
    with lab["n2"].broken(stranger):
        assert ask(lab["n1"], "ask", N2, 7000, "hello").startswith(expected)
        assert ask(lab["n2"], "bind", 7000) == "EADDRINUSE"
    assert ask(lab["n1"], "connect", N2, 7000) == REFUSED


def test_a_port_that_is_taken(lab: Lab) -> None:
    with lab["n2"].broken(faults.taken(7000)):
        assert ask(lab["n2"], "bind", 7000) == "EADDRINUSE"
        assert ask(lab["n1"], "connect", N2, 7000) == REFUSED


@pytest.mark.torch
def test_the_store_of_another_job(lab: Lab) -> None:
    with lab["n2"].broken(faults.torch_store(7000)):
        assert ask(lab["n1"], "connect", N2, 7000) == "ok"
