"""net.payload: from which size on data vanishes, and whose fault that is."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, world
from support.relay import Numbers, Relay, case, every, into, nodes, out_of, together

from preflight.check import conforms
from preflight.checks import net_payload
from preflight.checks.net_payload import SIZES, Paths, Payload, Sweep
from preflight.domains.net.interfaces import GLOO, ListenAddress
from preflight.domains.net.mesh_probe import FRAME
from preflight.domains.net.pairing import NodeNumber
from preflight.domains.net.tcp import ConversationLoop, Steps
from preflight.host import Host
from preflight.model import Cause, Confidence, Finding, Missing, Status

conforms(net_payload)

FINE = (0.0002, 0.0002, 0.0003, 0.001, 0.01)


def stopped(at: int, result: str = "stalled", retransmits: int = 4) -> Sweep:
    """Sizes before number `at` came through."""
    return Sweep(0, "Gloo", FINE[:at], result, retransmits, 1500)


def late(seconds: float = 3.1, retransmits: int = 4) -> Sweep:
    return Sweep(0, "Gloo", (*FINE[:2], seconds, *FINE[3:]), "ok", retransmits, 1500)


def payload(
    count: int, bad: Mapping[Numbers, Sweep] | None = None, absent: Collection[Numbers] = ()
) -> dict[str, Any]:
    seen = {}
    for i in range(count):
        sweeps = []
        for j in range(count):
            if j != i and (i, j) not in absent:
                one = (bad or {}).get((i, j), Sweep(0, "Gloo", FINE, "ok", 0, 1500))
                sweeps.append(dataclasses.replace(one, to=j))
        ways = (ListenAddress(GLOO, "eth0", f"10.0.0.{i + 1}", 1500),)
        seen[f"n{i}"] = Payload(NodeNumber(i, count), ways, tuple(sweeps))
    return seen


def ranged(saw: dict[str, Any], odd: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
    """With the ephemeral ranges of the nodes."""
    return {
        f"n{i}": dataclasses.replace(saw[f"n{i}"], ports=odd.get(i, (32768, 60999)))
        for i in range(len(saw))
    }


def test_what_may_as_well_be_a_busy_node_is_not_told_for_sure() -> None:
    closed = payload(4, into(2, 4, stopped(0, "timed out")))
    (same,) = findings(4, ranged(closed, {}))
    assert same.confidence is Confidence.POSSIBLE
    assert len(same.alternatives) == 3
    wide = ranged(closed, {2: (1192, 65535)})
    (other,) = findings(4, wide)
    assert other.confidence is Confidence.LIKELY
    assert "ip_local_port_range is 1192-65535, the others have 32768-60999" in other.saw
    (full,) = findings(4, wide | {"n2": dataclasses.replace(wide["n2"], overflowed=3)})
    assert full.confidence is Confidence.POSSIBLE
    assert "its listen queue was full 3 times" in full.saw


def along(count: int, bad: Mapping[Numbers, Paths], saw: dict[str, Any]) -> dict[str, Any]:
    """The same with these paths of some edges."""
    return {
        f"n{i}": dataclasses.replace(
            saw[f"n{i}"],
            paths=tuple(dataclasses.replace(p, to=b) for (a, b), p in bad.items() if a == i),
        )
        for i in range(count)
    }


HALF_STALL = Paths(0, 8, stalled=4)
TWO_LOSE = Paths(0, 12, clean=8, lost=3, lossy=3, single=2)
ALL_LOSE = Paths(0, 12, clean=1, lost=9, lossy=7)
MANY_LOSE = Paths(0, 12, clean=3, lost=6, lossy=4)
SHAPED = Paths(0, 12, clean=8, lost=3, lossy=3)
SHAPED_FIRST = Sweep(0, "Gloo", FINE, "ok", 300, 1500, 0)
ONE_LOSES = Paths(0, 12, clean=11, lost=1, lossy=1, single=1)
BY_CHANCE = Paths(0, 12, clean=6, lost=3, lossy=1)

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED

NOBODY = tuple(Sweep(n, "Gloo", (), "stalled") for n in (-1, 0, 2, 99))
UP = stopped(4, "unfinished")
LOSSY = Sweep(0, "Gloo", (*FINE[:3], 0.9), "unfinished", 257, 1500)
A_BIT_LOSSY = Sweep(0, "Gloo", FINE, "ok", 40, 1500)
BULKY = Sweep(0, "Gloo", (*FINE[:3], 0.9, 3.5), "ok", 20, 1500)

CASES = (
    case("four nodes", 4, payload(4)),
    case("two nodes", 2, payload(2)),
    case("blocked", 2, {"n0": Missing(Cause.BLOCKED, by="net.mesh")}),
    case("not here", 2, {"n0": Missing(Cause.NOT_APPLICABLE), "n1": Missing(Cause.CRASHED)}),
    case("into one", 4, payload(4, into(2, 4, stopped(1))), "blackhole-node", FAIL, "n2"),
    case(
        "jumbo frames out of one",
        4,
        payload(4, out_of(1, 4, stopped(2))),
        "blackhole-node",
        FAIL,
        "n1",
    ),
    case("one link", 4, payload(4, {(0, 3): stopped(1)}), "blackhole-link", FAIL, "n0->n3"),
    case(
        "two VPN sites",
        4,
        payload(4, {(a, b): stopped(1) for a in range(4) for b in range(4) if a // 2 != b // 2}),
        "blackhole-link",
        FAIL,
        "job",
    ),
    case(
        "one of two paths into one has a smaller MTU",
        4,
        along(4, into(2, 4, HALF_STALL), payload(4, {(0, 2): stopped(1)})),
        "paths-blackhole",
        FAIL,
        "n2",
    ),
    case(
        "the same of two nodes",
        2,
        along(2, {(0, 1): HALF_STALL}, payload(2)),
        "paths-blackhole",
        FAIL,
        "n0->n1",
    ),
    case("one connection that stalled", 4, along(4, {(0, 1): Paths(0, 8, 1)}, payload(4))),
    case(
        "one of four paths into one loses packets",
        4,
        along(4, into(2, 4, TWO_LOSE), payload(4)),
        "paths-lossy",
        WARN,
        "n2",
    ),
    case(
        "so it does, and one connection between two others was unlucky",
        4,
        along(4, into(2, 4, TWO_LOSE) | {(3, 0): ONE_LOSES}, payload(4)),
        "paths-lossy",
        WARN,
        "n2",
    ),
    case(
        "between two of four",
        4,
        along(4, {(0, 1): Paths(0, 12, clean=9, lost=3, lossy=3, single=3)}, payload(4)),
        "paths-lossy",
        WARN,
        "n0->n1",
    ),
    case(
        "a shaper whose short queue drops what comes in bursts, and no single packet",
        4,
        along(4, out_of(2, 4, SHAPED), payload(4, out_of(2, 4, SHAPED_FIRST))),
    ),
    case("all connections lose packets", 4, along(4, into(2, 4, ALL_LOSE), payload(4))),
    case("as many lose some as lose nothing", 4, along(4, into(2, 4, MANY_LOSE), payload(4))),
    case("some lost one by chance", 4, along(4, every(4, BY_CHANCE), payload(4))),
    case("of nobody", 2, along(2, {(0, 99): HALF_STALL, (1, 1): HALF_STALL}, payload(2))),
    case("everywhere", 3, payload(3, every(3, stopped(1))), "blackhole-everywhere", FAIL, "job"),
    case("two", 2, payload(2, {(0, 1): stopped(1)}), "blackhole-somewhere", FAIL, "n0->n1"),
    case(
        "bytes changed",
        4,
        payload(4, into(2, 4, stopped(4, "damaged", 0))),
        "payload-damaged",
        FAIL,
        "n2",
    ),
    case("found a smaller size", 4, payload(4, into(2, 4, late())), "payload-slow", WARN, "n2"),
    case("time was up", 4, payload(4, into(2, 4, UP)), "payload-slow", WARN, "n2"),
    case("a slow network is no matter of sizes", 4, payload(4, into(2, 4, stopped(4, "slow")))),
    case(
        "what goes to one is lost in part",
        4,
        along(4, into(2, 4, ALL_LOSE), payload(4, into(2, 4, LOSSY))),
        "packets-lost",
        FAIL,
        "n2",
    ),
    case(
        "the same, and all of some connections' tries were lost the other way",
        4,
        along(
            4,
            {**into(2, 4, ALL_LOSE), (2, 0): Paths(0, 12, stalled=2, clean=9)},
            payload(4, {**into(2, 4, LOSSY), (1, 2): stopped(3)}),
        ),
        "packets-lost",
        FAIL,
        "n2",
    ),
    case(
        "of some connections nothing passed, and others lost packets now and then",
        4,
        along(
            4,
            {
                (0, 2): Paths(0, 12, clean=4, lost=4),
                (1, 2): Paths(0, 12, stalled=1, clean=5, lost=1),
                (2, 3): Paths(0, 12, stalled=1, clean=2, lost=2),
            },
            payload(4, {(1, 2): stopped(3)}),
        ),
        "packets-lost",
        FAIL,
        "n2",
    ),
    case(
        "of two nodes",
        2,
        along(2, {(0, 1): ALL_LOSE}, payload(2, {(0, 1): LOSSY})),
        "packets-lost",
        FAIL,
        "n0->n1",
    ),
    case(
        "everybody's packets",
        3,
        along(3, every(3, ALL_LOSE), payload(3, every(3, LOSSY))),
        "packets-lost",
        FAIL,
        "job",
    ),
    case(
        "one of twenty is lost: net.speed says it",
        4,
        along(4, into(2, 4, ALL_LOSE), payload(4, into(2, 4, A_BIT_LOSSY))),
    ),
    case(
        "64 KiB passed between two, in packets of full size, before nothing came for seconds",
        4,
        along(4, {(1, 0): Paths(0, 1)}, payload(4, {(1, 0): stopped(4, "stopped", 9)})),
        "packets-lost",
        FAIL,
        "n1->n0",
    ),
    case(
        "one connection of many stops, and the others of the edge lose nothing",
        4,
        along(4, {(1, 0): Paths(0, 12, clean=11, lost=1)}, payload(4)),
    ),
    case(
        "some connections stop, others of the same edges lose packets, none is cut by its size",
        4,
        along(
            4,
            into(2, 4, Paths(0, 12, clean=2, lost=10)),
            payload(4, into(2, 4, stopped(4, "stopped", 6))),
        ),
        "packets-lost",
        FAIL,
        "n2",
    ),
    case(
        "what is sent between two is lost in one direction, and acknowledgements with it",
        4,
        along(
            4,
            {(1, 0): ALL_LOSE, (0, 1): Paths(0, 12, clean=2, lost=2)},
            payload(4, {(1, 0): LOSSY}),
        ),
        "packets-lost",
        FAIL,
        "n1->n0",
    ),
    case("its queues overflow", 4, payload(4, into(2, 4, BULKY))),
    case("a busy machine is no lossy network", 4, payload(4, {(0, 1): late(1.9, 0)})),
    case("one packet again is no fault", 4, payload(4, {(0, 1): late(0.3, 1)})),
    case(
        "taken, not answered",
        4,
        payload(4, {(0, 1): stopped(1, "unanswered", 0)}),
        "edges-unanswered",
        UNDECIDED,
        "n0->n1",
    ),
    case("not sent", 3, payload(3, absent=[(0, 2)]), "edges-unanswered", UNDECIDED, "n0->n2"),
    case(
        "a port of one is closed to all",
        4,
        payload(4, into(2, 4, stopped(0, "timed out"))),
        "ports-closed",
        FAIL,
        "n2",
    ),
    case(
        "a port of one is closed to all, and its range is another",
        4,
        ranged(payload(4, into(2, 4, stopped(0, "timed out"))), {2: (1192, 65535)}),
        "ports-closed",
        FAIL,
        "n2",
    ),
    case("another range, and all pass", 4, ranged(payload(4), {2: (1192, 65535)})),
    case(
        "one of several can't connect",
        4,
        payload(4, {(2, 0): stopped(0, "timed out")}),
        "edges-unanswered",
        UNDECIDED,
        "n2->n0",
    ),
    case(
        "one of several can't connect, in the direction that Gloo does not use",
        4,
        payload(4, {(0, 2): stopped(0, "timed out")}),
    ),
    case(
        "a port is closed of the one that Gloo has connect to all others",
        4,
        payload(4, into(3, 4, stopped(0, "timed out"))),
        "ports-closed",
        WARN,
        "n3",
    ),
    case(
        "closed since net.mesh",
        3,
        payload(3, {(2, 0): stopped(0, "ECONNREFUSED")}),
        "edges-unanswered",
        UNDECIDED,
        "n2->n0",
    ),
    case(
        "numbers of nobody",
        2,
        {
            "n0": Payload(NodeNumber(0, 2), (), (*NOBODY, Sweep(1, "Gloo", FINE * 9, "ok"))),
            "n1": payload(2)["n1"],
        },
    ),
    case(
        "connections that wait for each other, where 64 KiB take 1.8 s",
        2,
        along(
            2,
            {(1, 0): Paths(0, 12, stalled=2, clean=9)},
            payload(2, {(1, 0): Sweep(0, "Gloo", (0.002, 0.04, 0.25, 1.8), "slow", 3, 1500)}),
        ),
    ),
    case(
        "one of four paths, where the first connection lost a packet",
        2,
        along(
            2,
            {(1, 0): Paths(0, 12, stalled=3, clean=9)},
            payload(2, {(1, 0): Sweep(0, "Gloo", (*FINE[:3], 0.2), "slow", 3, 1500)}),
        ),
        "paths-blackhole",
        FAIL,
    ),
)


@pytest.mark.parametrize("row", CASES, ids=lambda c: c.name)
def test_judge(row: Case) -> None:
    assert_case(net_payload, row)


def findings(count: int, saw: Any) -> list[Finding]:
    return judged(net_payload, Case("", saw, topology=nodes(count)))


@pytest.mark.parametrize("row", [c for c in CASES if c.code], ids=lambda c: c.name)
def test_nothing_else_is_said(row: Case) -> None:
    assert [f.code for f in judged(net_payload, row)] == [row.code]


def test_the_size_is_named() -> None:
    (finding,) = findings(4, payload(4, into(2, 4, stopped(2))))
    assert "1400 B pass, 9000 B never arrive" in finding.saw
    assert "path MTU is 1500" in finding.saw
    (finding,) = findings(4, payload(4, into(2, 4, stopped(0))))
    assert ": 64 B never arrive" in finding.saw


def test_what_stops_after_packets_of_full_size_says_so_and_which_way() -> None:
    bad = dataclasses.replace(stopped(4, "stopped", 9), sent=60)
    saw = along(4, {(1, 0): Paths(0, 1)}, payload(4, {(1, 0): bad}))
    (finding,) = findings(4, saw)
    assert finding.saw.startswith(
        "15% of what is sent from n1 to n0 is sent again, and 1 connection stopped for seconds"
    )
    assert finding.confidence is Confidence.LIKELY


def test_what_is_cut_after_so_much_data_may_be_a_middlebox() -> None:
    bad = dataclasses.replace(stopped(4, "stopped", 5), sent=180)
    (finding,) = findings(4, payload(4, {(1, 0): bad}))
    assert finding.code == "packets-lost"
    assert "stopped for seconds after 64 KiB or more had passed" in finding.saw
    assert "cuts a connection" in finding.alternatives[0]


def test_with_two_parties_both_ends_are_named() -> None:
    (finding,) = findings(2, payload(2, every(2, stopped(1))))
    assert finding.confidence is Confidence.POSSIBLE
    assert {"n0", "n1"} <= set(" ".join(finding.alternatives).split())


def test_measured() -> None:
    text = net_payload.measured(world("net.payload", payload(4), nodes(4))).text
    assert text == "1 MiB on 12/12 edges · path MTU 1500 · 10 ms at most"
    assert net_payload.measured(world("net.payload", {}, nodes(4))).text == ""
    edges = {(0, 1): Sweep(0, "Gloo", FINE[:3], "slow", 0, 1500)}
    text = net_payload.measured(world("net.payload", payload(4, edges), nodes(4))).text
    assert text.startswith("1 MiB on 11/12 edges · 1 too slow for it · "), "and not: 1 has failed"


def test_observe_a_healthy_world() -> None:
    relay = Relay(4)
    host = Host(environ={"GLOO_SOCKET_IFNAME": "lo", "HOME": "/nonexistent"})
    began = time.monotonic()
    seen = together(
        4,
        lambda number: net_payload.observe(
            host,
            context(
                node=f"n{number}",
                rank=number,
                world_size=4,
                seconds=12.0,
                peers=relay.peers(number),
            ),
        ),
    )
    assert time.monotonic() - began < 3.0
    for one in seen:
        round_trips(one)
        # on a machine that is busy with other things the last size may seem to be long
        sent = {"ok": len(SIZES), "slow": len(SIZES) - 1}
        assert all(len(s.seconds) == sent[s.result] for s in one.sweeps)
    assert findings(4, {f"n{i}": one for i, one in enumerate(seen)}) == []


@contextmanager
def other_end(serve: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """A connection whose other end is served by a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    thread = threading.Thread(target=serve, args=(far,), daemon=True)
    thread.start()
    with near, far:
        near.setblocking(False)
        yield near


def swept(
    sock: socket.socket, seconds: float, patience: float = 3.5
) -> tuple[tuple[float, ...], str, int, int, int]:
    """The result of the check's conversation on a socket."""
    loop, found = ConversationLoop(), []

    def steps() -> Steps[None]:
        found.append((yield from net_payload._sweep(sock, time.monotonic() + seconds, patience)))

    loop.add(steps())
    until = time.monotonic() + seconds + 5
    while not found and time.monotonic() < until:
        loop.turn(0.05)
    loop.close()
    return found[0]


def acknowledge(conn: socket.socket, frames: int, spoil: int = 0) -> None:
    for _ in range(frames):
        header = conn.recv(FRAME.size, socket.MSG_WAITALL)
        length, checksum = FRAME.unpack(header)
        conn.recv(length, socket.MSG_WAITALL)
        conn.sendall(FRAME.pack(length, checksum ^ spoil))


def test_what_is_taken_and_not_acknowledged_is_no_black_hole() -> None:
    with other_end(lambda conn: acknowledge(conn, 2)) as sock:
        took, result, *_ = swept(sock, 8.0, patience=0.4)
    assert (len(took), result) == (2, "unanswered")


def test_a_size_that_would_take_long_is_not_sent() -> None:
    def serve(conn: socket.socket) -> None:
        acknowledge(conn, len(SIZES) - 2)
        time.sleep(0.4)
        acknowledge(conn, 1)

    with other_end(serve) as sock:
        took, result, *_ = swept(sock, 8.0)
    assert (len(took), result) == (len(SIZES) - 1, "slow")


def test_bytes_that_change() -> None:
    with other_end(lambda conn: acknowledge(conn, 1, spoil=1)) as sock:
        took, result, *_ = swept(sock, 8.0)
    assert (took, result) == ((), "damaged")


def test_the_time_is_up() -> None:
    with other_end(lambda conn: acknowledge(conn, 1)) as sock:
        began = time.monotonic()
        took, result, *_ = swept(sock, 0.5)
    assert (len(took), result) == (1, "unfinished")
    assert time.monotonic() - began < 2.0
