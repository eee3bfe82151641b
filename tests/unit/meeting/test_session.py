"""What is waited for among thousands of agents takes longer than among two, and never for ever."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from preflight.check import Stage
from preflight.meeting import discovery, handshake, member, session, tasks
from preflight.meeting.coordinator import Meeting
from preflight.meeting.discovery import Agent, Whereabouts
from preflight.meeting.member import Attendance
from preflight.meeting.session import Company
from preflight.model import Node, Topology
from preflight.process.pool import Target, Workers
from preflight.process.servers import LIGHT
from preflight.process.worker import Channel
from preflight.roster import StoreStage


@pytest.fixture
def loop() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


def company(loop: Workers, agents: int) -> Company:
    """Of the agent of rank 0, which has one of `agents` ranks."""
    top = Topology("none", "none", agents, (Node("n0", (0,)),), "n0", 29500, {})
    agent = Agent(top, "1", "", 30.0, store=False, local_rank=None, loopback=False)
    made = Company(agent, loop)
    here = Whereabouts("n0", "id0", ("127.0.0.1",), mine=True, pending=False)
    made._hello = here.hello(agent)
    return made


def guest(loop: Workers, agents: int) -> Company:
    made = company(loop, agents)
    assert made._hello is not None
    made.attending = Attendance(loop, made._hello, "", (), 1)
    return made


def test_a_guest_waits_for_a_host_that_has_thousands_to_judge(loop: Workers) -> None:
    assert guest(loop, 2).seconds_more < 2.0
    assert guest(loop, 12_500).seconds_more > 60.0
    assert guest(loop, 1 << 30).seconds_more < 120.0, "that is only claimed"


def test_who_is_alone_waits_for_nobody(loop: Workers) -> None:
    left = guest(loop, 12_500)
    left.gone = "no way led to the meeting"
    assert left.seconds_more == company(loop, 12_500).seconds_more == 0.0


def test_before_a_host_judges_it_says_so(loop: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    host = company(loop, 2)
    assert host._hello is not None
    host.hosting = Meeting(loop, handshake.listen(0), host._hello, "")
    said: list[str] = []
    monkeypatch.setattr(host.hosting, "say_judging", lambda: said.append("judging"))
    monkeypatch.setattr(host.hosting, "forget", lambda: said.append("forgotten"))
    host.forget()
    assert said == ["judging", "forgotten"]
    host.close()
    guest(loop, 2).forget()


@pytest.mark.parametrize(("agents", "seconds"), [(2, 31.0), (12_500, 281.0), (1 << 30, 359.0)])
def test_what_thousands_have_seen_is_waited_for(
    loop: Workers, monkeypatch: pytest.MonkeyPatch, agents: int, seconds: float
) -> None:
    """A guest that never comes to its end is given up, later where there are more of them."""
    host = company(loop, agents)
    assert host._hello is not None
    host.hosting = Meeting(loop, handshake.listen(0), host._hello, "")
    monkeypatch.setattr(host.hosting, "complete", lambda: True)
    monkeypatch.setattr(host.hosting, "all_done", lambda stage: False)
    now = 1000.0
    monkeypatch.setattr(session.time, "monotonic", lambda: now)
    host.tend("")
    assert host._door_closed == now
    now += seconds - 2.0
    host.tend("")
    assert not host.assembled
    now += 4.0
    host.tend("")
    assert host.assembled
    host.close()


def torchrun(loop: Workers, port: int, node: int) -> Company:
    """Of a node of a torchrun with c10d, whose endpoint is on this machine."""
    top = Topology("torchrun", "7", 2, (Node(f"n{node}", (node,)),), "n0", port, {})
    agent = Agent(top, "1", "", 30.0, False, None, False, nodes=2, node=node)
    made = Company(agent, loop)
    made.here = Whereabouts(f"n{node}", f"id{node}", ("127.0.0.1",), mine=node == 0, pending=False)
    made._hello = made.here.hello(agent)
    return made


def rounds(loop: Workers, seconds: float) -> Iterator[None]:
    """Again and again for so long, with what workers and peers have said in between."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        for _ in loop.run(time.monotonic() + 0.02):
            pass


@pytest.fixture
def held() -> Iterator[int]:
    """A port at which something accepts and says nothing, below one that is free."""
    for _ in range(50):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            port = other.getsockname()[1]
            try:
                for listener in handshake.listen(port + 1):
                    listener.close()
            except OSError:
                continue
            other.listen()
            yield port
            return
    pytest.fail("no two ports beside each other are free")


def test_nodes_of_a_torchrun_meet_beside_a_port_that_is_taken(
    loop: Workers, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "BANNER_SECONDS", 0.2)
    host = torchrun(loop, held, 0)
    host.open()
    assert host.hosting is None, "one of ours may have the port already"
    one = torchrun(loop, held, 1)
    one._go_as_guest()
    for _ in rounds(loop, 20.0):
        for company in (host, one):
            company.tend("")
            company.finished(Stage.MACHINE)
        if host.assembled and one.assembled:
            break
    assert host.hosting is not None
    assert one.gone == host.roll.failed == ""
    assert {c.placed(c.agent.topology).master_port for c in (host, one)} == {held + 1}
    assert [way.port for way in one.roll.ladder] == [held + 1]
    host.close()
    one.close()


def test_other_launchers_meet_at_their_port_only(loop: Workers, held: int) -> None:
    made = company(loop, 2)
    made.agent.topology = replace(made.agent.topology, master_port=held)
    made.here = Whereabouts("n0", "id0", ("127.0.0.1",), mine=True, pending=False)
    made.open()
    assert made.hosting is None
    assert made.roll.failed == "EADDRINUSE"
    made.close()


def imports(args: Any, channel: Channel, preloaded: object) -> None:
    """A worker that has no torch yet, however long that takes."""
    time.sleep(30.0)


def fails(args: Any, channel: Channel, preloaded: object) -> None:
    """A worker that has no torch, and never will."""
    raise ModuleNotFoundError("No module named 'torch'")


def connects(args: Any, channel: Channel, preloaded: object) -> None:
    """A client of a store that is too busy to answer."""
    channel.mark(tasks.CONNECTS)
    time.sleep(30.0)


def below_torchrun(
    loop: Workers, port: int, asks: Target, monkeypatch: pytest.MonkeyPatch
) -> Company:
    """A guest that is to learn from torchrun's store at this port where the meeting is."""
    monkeypatch.setattr(discovery, "TORCH", LIGHT)
    monkeypatch.setattr(tasks, "find_meeting", asks)
    loop.fork(LIGHT)
    made = torchrun(loop, port, 1)
    made.agent.store, made.agent.nodes = True, 0
    made._go_as_guest()
    return made


@pytest.mark.parametrize(
    ("asks", "stage"), [(imports, StoreStage.IMPORT), (connects, StoreStage.CONNECTION)]
)
def test_a_launchers_store_is_waited_for(
    loop: Workers, held: int, asks: Target, stage: StoreStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is silent at MASTER_PORT meanwhile is that store; once it took 2 s, all gave up."""
    monkeypatch.setattr(session, "STORE_SILENT", 0.1)
    monkeypatch.setattr(session, "ELSEWHERE", 0.2)
    monkeypatch.setattr(member, "BANNER_SECONDS", 0.1)
    one = below_torchrun(loop, held, asks, monkeypatch)
    dialled = False
    for _ in rounds(loop, 1.5):
        one.tend("")
        dialled = dialled or bool(one.attending and one.attending.ladder)
    assert one.gone == ""
    assert one.roll.store is stage
    assert one.roll.ladder == ()
    assert dialled is (stage is StoreStage.CONNECTION)
    one.close()


def test_how_long_it_was_waited_for_is_known(
    loop: Workers, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the worker that should ask it ends without an answer: no torch can be had."""
    one = below_torchrun(loop, held, fails, monkeypatch)
    for _ in rounds(loop, 10.0):
        one.tend("")
        if one.gone:
            break
    assert one.gone
    assert (one.roll.store, one.roll.ladder) == (StoreStage.IMPORT, ())
    assert 0.0 < one.roll.waited < 10.0
    one.close()
