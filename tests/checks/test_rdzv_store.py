"""rdzv.store: ranks that meet are silent, and leave the port as it was; else the cause is named."""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context
from support.ranks import free_port, run_ranks

from preflight.check import conforms
from preflight.checks import rdzv_store
from preflight.checks.rdzv_store import RendezvousTimes
from preflight.domains.torch.steps import Trouble
from preflight.expect import Expect
from preflight.host import Host
from preflight.model import (
    Cause,
    Finding,
    Mark,
    Missing,
    Node,
    NotApplicable,
    Seen,
    Status,
    Topology,
    World,
)

conforms(rdzv_store)

STEPS = ("TCPStore", "set and get", "init_process_group")
FINE = RendezvousTimes(store=0.002, round_trip=0.0001, init=0.01, waited=0.012)


def met(**changes: object) -> Seen[RendezvousTimes]:
    return Seen(dataclasses.replace(FINE, **changes), 0.1, marks(3))  # type: ignore[arg-type]


def marks(count: int) -> tuple[Mark, ...]:
    return tuple(Mark(name, 0.0) for name in STEPS[:count])


def failed(step: int, text: str) -> Seen[RendezvousTimes]:
    trouble = Trouble(STEPS[step - 1], "DistNetworkError", text)
    return Seen(RendezvousTimes(None, None, None, 7.0, trouble), 7.1, marks(step))


def silent(step: int) -> Missing:
    return Missing(Cause.TIMED_OUT, "no answer in 15.0 s, killed", 15.0, marks(step))


def world(*observations: object) -> dict[str, object]:
    return {f"n1/{rank}": o for rank, o in enumerate(observations)}


JOINED = "Timed out after 8 seconds waiting for clients. 3/4 clients joined."
KEYS = "wait timeout after 7500ms, keys: /default_pg/0//cpu//0/2"
REFUSED = "The client socket has timed out after 7500ms while trying to connect to (n1, 29500)."
IN_USE = (
    "The server socket has failed to listen on any local network address. port: 29500, useIpv6: "
    "false, code: -98, name: EADDRINUSE, message: address already in use"
)
PING = "Ping failed, invalid value returned from server. Expected: 27481, Got: 1347703880"
NO_INTERFACE = "ifa != nullptr. Unable to find address for: ^lo"
MESH = (
    "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, "
    "remote=[127.0.1.1]:37302$0"
)

THREE = Topology(
    size=6,
    nodes=tuple(Node(f"n{n}", (2 * n - 2, 2 * n - 1), addr=f"10.0.0.{n}") for n in (1, 2, 3)),
    master_addr="10.0.0.1",
    master_port=29500,
)


def on_nodes(*observations: object) -> dict[str, object]:
    """The same of ranks of which each two share a node."""
    return {f"n{rank // 2 + 1}/{rank}": o for rank, o in enumerate(observations)}


CASES = (
    Case("all meet", world(met(), met(), met(), met())),
    Case("alone", world(met())),
    Case("not here", world(Missing(Cause.NOT_APPLICABLE, "nothing says where"))),
    Case("blocked", world(*[Missing(Cause.BLOCKED, by="net.port")] * 2)),
    Case(
        "a second of difference is a busy machine", world(met(waited=1.5), met(), met(waited=1.5))
    ),
    Case("taken", world(failed(1, IN_USE), failed(1, PING)), "port-taken", subject="n1 · rank 0"),
    Case("taken by a store", world(failed(1, IN_USE), failed(3, KEYS)), "port-taken", Status.FAIL),
    Case("a web server", world(failed(1, PING), failed(1, PING)), "not-a-store", Status.FAIL),
    Case(
        "NCCL's syntax",
        world(failed(3, KEYS), silent(3), failed(3, NO_INTERFACE), failed(3, KEYS)),
        "interface-unknown",
        subject="n1 · rank 2",
    ),
    Case("unreachable", world(*[failed(1, REFUSED)] * 3), "store-unreachable", Status.FAIL),
    Case("no route", world(*[failed(1, "errno: 113 - No route")] * 2), "store-unreachable"),
    Case("loopback name", world(failed(3, MESH), silent(3)), "gloo-unreachable", Status.FAIL),
    Case(
        "a rank that does not come is no unreachable store",
        world(silent(0), *[failed(1, REFUSED)] * 3),
        "rank-silent",
        subject="n1 · rank 0",
    ),
    Case(
        "one of four is missing",
        world(failed(1, JOINED), failed(3, KEYS), silent(0), failed(3, KEYS)),
        "rank-silent",
        subject="n1 · rank 2",
    ),
    Case("died", world(Missing(Cause.CRASHED, "killed by SIGKILL"), silent(1)), "rank-died"),
    Case("own error", world(failed(3, KEYS), failed(2, "no such key")), "rank-failed"),
    Case("nobody knows", world(*[silent(3)] * 4), "stuck", Status.FAIL, subject="job"),
    Case(
        "late",
        world(met(waited=8.2), met(waited=8.2), met(waited=0.1), met(waited=8.2)),
        "rank-late",
        Status.WARN,
        subject="n1 · rank 2",
    ),
    Case(
        "one was early, which is no fault",
        world(met(waited=8.2), met(), met(), met()),
    ),
    Case("three nodes", on_nodes(*[met()] * 6), topology=THREE),
    Case(
        "a node that does not reach the store",
        on_nodes(failed(1, JOINED), *[failed(3, KEYS)] * 3, *[failed(1, REFUSED)] * 2),
        "store-unreachable",
        Status.FAIL,
        topology=THREE,
        subject="n3 · rank 4",
    ),
    Case(
        "a node whose name is its loopback",
        on_nodes(failed(3, MESH), silent(3), silent(3), silent(3), silent(3), failed(3, MESH)),
        "gloo-unreachable",
        topology=THREE,
        subject="n2",
    ),
    Case(
        "a late node",
        on_nodes(*[met(waited=8.2)] * 4, met(waited=0.2), met(waited=0.1)),
        "rank-late",
        Status.WARN,
        topology=THREE,
        subject="n3 · rank 4",
    ),
    Case(
        "reverse look-ups time out",
        world(met(store=10.1, waited=10.1), met(store=10.0, waited=10.1), met(waited=10.1)),
        "store-slow",
        Status.WARN,
        subject="n1 · rank 1",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(rdzv_store, case)


def test_ranks_are_shown_with_their_nodes() -> None:
    late = on_nodes(*[met(waited=8.2)] * 4, met(waited=0.2), met(waited=0.1))
    seen: World[RendezvousTimes] = World("rdzv.store", late, THREE)  # type: ignore[arg-type]
    (finding,) = judged(seen)
    assert finding.saw == "all 2 ranks of n3 came up to 8.1 s after the first"
    assert rdzv_store.measured(seen).text.endswith(" · rank 5 on n3 arrived last")


def test_nothing_to_look_at() -> None:
    with pytest.raises(NotApplicable):
        rdzv_store.observe(Host(), context(master_addr=""))


def judged(seen: object) -> list[Finding]:
    return list(rdzv_store.judge(seen, Expect()))  # type: ignore[arg-type]


def sockets_on(port: int) -> list[str]:
    """The lines of /proc/net/tcp and tcp6 whose local port it is, in whatever state."""
    lines = [
        line
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return [line for line in lines if int(line.split()[1].rpartition(":")[2], 16) == port]


@pytest.mark.torch
@pytest.mark.parametrize("n", [1, 4])
def test_ranks_meet_and_leave_the_port_as_it_was(n: int) -> None:
    port = free_port()
    seen = run_ranks("rdzv.store", n, master_port=port)
    assert len(seen.seen) == n
    assert judged(seen) == []
    assert all(v.trouble is None and v.init is not None for v in seen.seen.values())
    assert rdzv_store.measured(seen).text.startswith(f"{n}/{n} ranks")
    assert sockets_on(port) == []
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with socket.socket(family) as probe:  # without SO_REUSEADDR: TIME_WAIT would refuse it
            probe.bind((address, port))
            probe.listen()


@pytest.mark.torch
def test_a_rank_that_never_comes_is_named() -> None:
    seen = run_ranks("rdzv.store", 3, seconds=4.0, absent={1})
    (finding,) = judged(seen)
    assert (finding.code, str(finding.subjects[0])) == ("rank-silent", "n1 · rank 1")


@pytest.mark.torch
def test_an_interface_that_is_not_here_is_named() -> None:
    seen = run_ranks(
        "rdzv.store", 3, seconds=4.0, env_of={2: {"GLOO_SOCKET_IFNAME": "no such interface"}}
    )
    (finding,) = judged(seen)
    assert (finding.code, str(finding.subjects[0])) == ("interface-unknown", "n1 · rank 2")
    assert "no such interface" in finding.saw


@contextmanager
def answering(reply: bytes) -> Iterator[int]:
    """A service that says something else than a store."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.recv(64)
                    client.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        thread.join(2)


@pytest.mark.torch
def test_a_port_that_another_service_has() -> None:
    with answering(b"HTTP/1.0 400 Bad Request\r\n\r\n") as port:
        seen = run_ranks("rdzv.store", 2, seconds=4.0, master_port=port)
    (finding,) = judged(seen)
    assert (finding.code, str(finding.subjects[0])) == ("port-taken", "n1 · rank 0")
    assert (finding.explains, rdzv_store.CHECK.explains) == (None, ("world.*",)), "as declared"
