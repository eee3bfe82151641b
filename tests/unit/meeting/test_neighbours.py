"""One agent speaks for those of its node: they find each other, whoever dies costs nobody else, and
the host hears of each rank what it would have heard from itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from preflight.check import Stage
from preflight.meeting import handshake, neighbours
from preflight.meeting.connection import Wire
from preflight.meeting.coordinator import BESIDE_MOST, Guest, Meeting
from preflight.meeting.discovery import Agent, Whereabouts
from preflight.meeting.neighbours import name_of
from preflight.meeting.protocol import Hello, Said, seat_of
from preflight.meeting.session import Company
from preflight.model import Mark, Node, Observation, Seen, Topology
from preflight.process.pool import Workers
from preflight.roster import SILENT, Arrival

HERE = "127.0.0.1"
SIZE = 4
"""Rank 0, which hosts the meeting, and three on another node."""


@pytest.fixture
def loop() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "FROM_RANKS", SIZE)
    monkeypatch.setattr(neighbours, "FIND_SECONDS", 0.5)


def hello(*ranks: int, **changes: Any) -> Hello:
    return replace(
        Hello("1", "job", "n0", "id0", 100 + ranks[0], ranks, SIZE, "n0:29500", False, "nonce"),
        **changes,
    )


class Party:
    """A host, and the agents of one other node, all in this process."""

    def __init__(self, loop: Workers) -> None:
        self.loop = loop
        listeners = handshake.listen(0)
        self.port = int(listeners[0].getsockname()[1])
        self.host = Meeting(loop, listeners, hello(0), "")
        self.agents: list[Company] = []
        self.identity = os.urandom(8).hex()

    def agent(
        self, rank: int, *, local: int | None = None, token: str = "", port: int = 0, **changes: Any
    ) -> Company:
        node = Node("gpu", (rank,), size=3)
        top = Topology("slurm", "job", SIZE, (node,), HERE, port or self.port)
        number = rank - 1 if local is None else local
        agent = Agent(top, "1", token, 8.0, store=False, local_rank=number, loopback=False)
        made = Company(agent, self.loop, voice=number == 0)
        made.here = Whereabouts("gpu", self.identity, (HERE,), pending=False)
        pid = {"pid": 1000 + rank}
        made._hello = replace(made.here.hello(agent), **(pid | changes))
        made._set_out()
        self.agents.append(made)
        return made

    def node(self) -> list[Company]:
        return [self.agent(rank) for rank in (1, 2, 3)]

    def until(self, done: Callable[[], bool], seconds: float = 10.0) -> None:
        limit = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < limit, "it never came to that"
            self.host.tend()
            for one in self.agents:
                one.tend("")
            for _ in self.loop.run(time.monotonic() + 0.02):
                pass

    def seated(self) -> list[Company]:
        """All three, with one connection to the host and their seats."""
        made = self.node()
        self.until(self.host.complete)
        self.host.close_door()
        self.host.seats()
        self.until(lambda: all(one.assembled for one in made))
        return made

    def lines(self) -> list[tuple[int, tuple[int, ...], bool]]:
        """Process, ranks, and whether it is lost, of all but the host."""
        return [(a.pid, a.ranks, bool(a.lost)) for a in self.arrivals()]

    def arrivals(self) -> list[Arrival]:
        return list(self.host.arrivals(Arrival("n0", "n0", "id0", 1, (0,), SIZE))[1:])

    def die(self, agent: Company) -> None:
        """As the kernel closes what a process had."""
        self.agents.remove(agent)
        if agent._neighbours is not None:
            agent._neighbours.meeting.close()
        assert agent.attending is not None
        agent.attending.close()

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.host.close()


@pytest.fixture
def party(loop: Workers) -> Iterator[Party]:
    made = Party(loop)
    yield made
    made.close()


def connections(party: Party) -> int:
    return sum(not guest.wire.closed for guest in party.host.guests)


def test_one_connection_for_the_ranks_of_a_node(party: Party) -> None:
    first, second, third = party.seated()
    assert connections(party) == 1
    assert party.host.whole
    assert party.lines() == [(1001, (1, 2, 3), False)]
    assert [one.voice for one in (first, second, third)] == [True, False, False]
    assert {one.nodes for one in (second, third)} == {(Node("gpu", (1, 2, 3)),)}
    assert [one.attending.seat.number for one in party.agents if one.attending] == [1, 1, 1]


def test_what_each_rank_has_seen_comes_under_its_own_key(party: Party) -> None:
    second = party.agent(2)
    second.observed("env.identity", "gpu/2", Seen({"early": 1}))
    first, third = party.agent(1), party.agent(3)
    party.until(party.host.complete)
    third.observed("env.identity", "gpu/3", Seen({"large": "x" * 5000}, 0.5, (Mark("m", 0.1),)))
    third.observed("host.limits", "gpu", Seen({"whose": "a node's, which is not its to say"}))
    first.observed("host.limits", "gpu", Seen({"whose": "its own"}))
    taken: dict[str, Observation] = {}

    def all_there() -> bool:
        taken.update({f"{t.check} {t.rank}": t.observation for t in party.host.taken})
        return len(party.host.taken) >= 3

    party.until(all_there)
    assert taken == {
        "env.identity 2": Seen({"early": 1}),
        "env.identity 3": Seen({"large": "x" * 5000}, 0.5, (Mark("m", 0.1),)),
        "host.limits None": Seen({"whose": "its own"}),
    }


def test_a_stage_is_done_when_all_of_them_are(party: Party) -> None:
    first, second, third = party.seated()
    first.finished(Stage.MACHINE)
    second.finished(Stage.MACHINE)
    limit = time.monotonic() + 0.5
    party.until(lambda: time.monotonic() > limit)
    assert not party.host.all_done(Stage.MACHINE)
    third.finished(Stage.MACHINE)
    party.until(lambda: party.host.all_done(Stage.MACHINE))


def test_they_start_what_the_host_starts_and_hear_each_other(
    party: Party, monkeypatch: Any
) -> None:
    first, second, third = party.seated()
    heard: dict[int, list[Said]] = {id(one): [] for one in (first, second, third)}
    monkeypatch.setattr(Company, "_tell", lambda self, said: heard[id(self)].append(said))
    party.host.start("world.gloo")
    party.until(lambda: all(one.called == ("world.gloo",) for one in party.agents))
    assert second.attending is not None
    said = Said("world.gloo", 2, "addr", ["10.0.0.2"], None)
    second.attending.send_said(said)

    def relayed() -> bool:
        for one in party.host.said:
            party.host.relay(one, by_node=False)
        party.host.said.clear()
        return bool(heard[id(first)] and heard[id(third)])

    party.until(relayed)
    assert [*heard.values()] == [[said], [], [said]]


def test_what_nodes_say_to_nodes_is_not_for_ranks_of_the_same_number(
    party: Party, monkeypatch: Any
) -> None:
    first, second, _ = party.seated()
    first.pairs = frozenset({"net.mesh"})
    heard: list[Said] = []
    monkeypatch.setattr(Company, "_tell", lambda self, said: heard.append(said))
    party.host.relay(Said("net.mesh", 0, "port", 1, (1, 2)), by_node=True)
    party.until(lambda: bool(heard))
    party.host.start("x")
    party.until(lambda: bool(second.called))
    assert len(heard) == 1


def test_all_are_told_the_end_and_one_of_them_says_the_line(party: Party, monkeypatch: Any) -> None:
    first, second, third = party.seated()
    ends = {"verdict": "not_ready", "exit": 3}
    party.host.over(ends, {"gpu": {"own": 3, "line": "n1: sick"}})
    party.until(lambda: first.over is not None)
    monkeypatch.setattr(Company, "_wait_for_goodbye", lambda self, gone: party.until(gone))
    first.tell_neighbours()
    assert first.over == {**ends, "own": 3, "line": "n1: sick"}
    assert second.over == third.over == {**ends, "own": 3, "line": ""}
    party.until(lambda: party.host.gone)


def test_who_comes_later_than_its_neighbours_is_told_by_itself(
    party: Party, monkeypatch: Any
) -> None:
    monkeypatch.setattr("preflight.meeting.coordinator.APART", 0.4)
    party.agent(1)
    party.agent(2)
    party.until(lambda: party.lines() == [(1001, (1, 2), False)])
    later = time.monotonic() + 0.5
    party.until(lambda: time.monotonic() > later)
    party.agent(3)
    party.until(party.host.complete)
    assert connections(party) == 1
    assert party.lines() == [(1001, (1, 2), False), (1003, (3,), False)]
    first, second = party.arrivals()
    assert second.at - first.at > 0.4


# --- who dies ---


def test_one_that_dies_is_named_alone(party: Party) -> None:
    _, second, third = party.seated()
    party.die(second)
    party.until(lambda: any(lost for *_, lost in party.lines()))
    assert party.lines() == [(1001, (1, 3), False), (1002, (2,), True)]
    assert not party.host.whole
    third.finished(Stage.MACHINE)
    party.agents[0].finished(Stage.MACHINE)
    party.until(lambda: party.host.all_done(Stage.MACHINE))
    assert not third.gone, "it goes on"


def test_when_the_one_that_speaks_dies_early_the_others_go_by_themselves(party: Party) -> None:
    first, second, third = party.node()
    second.observed("env.identity", "gpu/2", Seen({"own": 2}))
    party.until(lambda: party.lines() == [(1001, (1, 2, 3), False)])
    party.until(lambda: bool(party.host.taken))
    party.host.take()
    party.die(first)
    party.until(lambda: connections(party) == 2)
    assert sorted(party.lines()) == [(1001, (1,), True), (1002, (2,), False), (1003, (3,), False)]
    assert party.host.complete()
    party.until(lambda: any(t.rank == 2 for t in party.host.taken))
    party.host.seats()
    party.until(lambda: second.assembled and third.assembled)
    assert not second.gone


def test_when_it_dies_later_the_others_are_out_of_reach_and_say_so(party: Party) -> None:
    first, second, third = party.seated()
    party.die(first)
    party.until(lambda: bool(second.gone and third.gone))
    lost = [(1000 + rank, (rank,), True) for rank in (1, 2, 3)]
    party.until(lambda: party.lines() == lost)
    assert [arrival.through for arrival in party.arrivals()] == [0, 1001, 1001]
    assert "no way" not in second.gone, "it was there"
    assert [(one.roll.speaker, bool(one.roll.lost)) for one in (second, third)] == [(1, True)] * 2


def test_when_all_of_a_node_fall_silent_nobody_is_picked_out(party: Party) -> None:
    party.seated()
    (guest,) = party.host.guests
    party.host._lose(guest, f"{SILENT} for 6 s")
    assert party.lines() == [(1001, (1, 2, 3), True)]
    assert party.arrivals()[0].through == 0


def test_when_it_loses_the_host_its_neighbours_know(party: Party) -> None:
    first, second, third = party.seated()
    party.host.close()
    party.until(lambda: bool(first.gone and second.gone and third.gone))
    assert [one.roll.speaker for one in (first, second, third)] == [-1] * 3
    assert first.gone == second.gone == third.gone


def test_when_it_leaves_its_neighbours_know_why(party: Party) -> None:
    first, second, third = party.seated()
    party.agents.remove(first)
    first.close("interrupted by SIGTERM")
    party.until(lambda: bool(second.gone and third.gone))
    assert second.gone == "interrupted by SIGTERM"
    assert [(one.roll.lost, one.roll.speaker) for one in (second, third)] == [(second.gone, 1)] * 2
    party.until(lambda: all(arrival.lost == second.gone for arrival in party.arrivals()))


def test_of_whom_nothing_is_awaited_any_more(party: Party) -> None:
    first, second, third = party.seated()
    hosting = Company(first.agent, party.loop)
    hosting.hosting = party.host
    assert hosting.lost == {}
    party.die(second)
    party.until(lambda: bool(hosting.lost))
    assert list(hosting.lost) == ["gpu/2"]
    party.die(first)
    party.until(lambda: bool(third.gone))
    party.until(lambda: len(hosting.lost) > 1)
    assert sorted(hosting.lost) == ["gpu", "gpu/1", "gpu/2", "gpu/3"]
    hosting.hosting = None


def test_nobody_sits_with_a_speaker_of_another_node(party: Party) -> None:
    seat = {"node": "gpu", "number": 1, "nodes": 2, "ranks": [1, 2], "voice": False, "met": 4}
    told = {**seat, "size": SIZE, "speaker": 1}
    assert seat_of(told, hello(2)).speaker == 1
    with pytest.raises(ValueError, match="speaker"):
        seat_of({**told, "speaker": 3}, hello(2))


def test_one_that_hangs_keeps_nobody(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr("preflight.meeting.protocol.SILENT_SECONDS", 1.0)
    first = party.node()[0]
    party.until(lambda: party.lines() == [(1001, (1, 2, 3), False)])
    party.agents.remove(first)
    assert first._neighbours is not None
    for guest in first._neighbours.meeting.guests:
        guest.wire.wake_with(lambda events: None)
    party.until(lambda: connections(party) == 3, 15)
    assert (1002, (2,), False) in party.lines()
    assert (1003, (3,), False) in party.lines()
    party.agents.append(first)


# --- containers, each of which has a process 1 ---


def test_all_are_process_1(party: Party) -> None:
    for rank in (1, 2, 3):
        party.agent(rank, pid=1)
    party.until(party.host.complete)
    assert connections(party) == 1
    assert party.host.whole
    assert party.lines() == [(1, (1, 2, 3), False)]
    party.host.close_door()
    party.host.seats()
    party.until(lambda: all(one.assembled for one in party.agents))
    party.die(party.agents[1])
    party.until(lambda: any(lost for *_, lost in party.lines()))
    assert party.lines() == [(1, (1, 3), False), (1, (2,), True)]


def test_when_the_one_that_speaks_dies_early_all_of_process_1_go_by_themselves(
    party: Party,
) -> None:
    first, *_ = (party.agent(rank, pid=1) for rank in (1, 2, 3))
    party.until(lambda: party.lines() == [(1, (1, 2, 3), False)])
    party.die(first)
    party.until(lambda: connections(party) == 2)
    assert sorted(party.lines()) == [(1, (1,), True), (1, (2,), False), (1, (3,), False)]


def test_one_that_is_started_again_is_no_second_one(party: Party) -> None:
    _, second, _ = (party.agent(rank, pid=1) for rank in (1, 2, 3))
    party.until(lambda: party.lines() == [(1, (1, 2, 3), False)])
    party.die(second)
    party.until(lambda: (1, (2,), True) in party.lines())
    party.agent(2, pid=1)
    party.until(lambda: party.host.complete() and connections(party) == 2)
    assert sorted(party.lines()) == [(1, (1, 3), False), (1, (2,), False)]


# --- who does not fit ---


def test_without_anybody_who_speaks_each_goes_by_itself_soon(party: Party) -> None:
    party.agent(2)
    party.agent(3)
    began = time.monotonic()
    party.until(lambda: connections(party) == 2)
    assert 0.5 <= time.monotonic() - began < 3.0
    assert sorted(party.lines()) == [(1002, (2,), False), (1003, (3,), False)]


def test_a_rank_that_is_there_twice_is_seen_twice(party: Party) -> None:
    party.node()
    party.until(lambda: party.lines() == [(1001, (1, 2, 3), False)])
    party.agent(3, local=2, pid=2003)
    party.until(lambda: connections(party) == 2)
    assert party.lines() == [(1001, (1, 2, 3), False), (2003, (3,), False)]


@pytest.mark.parametrize(
    "changes",
    [
        {"job": "another"},
        {"size": 5},
        {"claims": "n9:29500"},
        {"identity": "another machine"},
        {"version": "2"},
    ],
)
def test_who_differs_is_not_taken_along(changes: dict[str, Any]) -> None:
    assert name_of(hello(1), "", {}) == name_of(hello(2, nonce="other"), "", {})
    assert name_of(hello(1), "", {}) != name_of(hello(2, **changes), "", {})


def test_another_token_or_step_is_another_name() -> None:
    names = [name_of(hello(1), token, {}) for token in ("", "a", "b")]
    names += [name_of(hello(1), "", {"SLURM_STEP_ID": step}) for step in "12"]
    assert len(set(names)) == 5
    assert not any("token" in name or "job" in name for name in names)


def test_who_believes_in_another_size_comes_by_itself(party: Party) -> None:
    party.agent(1)
    party.agent(2)
    party.agent(3, size=8)
    party.until(lambda: connections(party) == 2)
    assert [(g.hello.ranks, g.hello.size) for g in party.host.guests] == [((1, 2), 4), ((3,), 8)]


def test_a_socket_of_another_user_is_not_believed(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid()
    first = party.agent(1)
    assert first._neighbours is not None
    second = party.agent(2)
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    party.until(lambda: connections(party) == 2)
    assert second.attending is not None
    assert first._neighbours is not None
    assert first._neighbours.meeting.guests == [], "nor is anybody else's let in"


def test_a_name_that_somebody_has_already(party: Party) -> None:
    first = party.agent(1)
    again = party.agent(1, pid=2001)
    assert first._neighbours is not None
    assert again._neighbours is None
    party.until(lambda: connections(party) == 2)


def test_who_comes_when_the_seats_are_given_out_is_as_late_as_ever(party: Party) -> None:
    party.agent(1)
    party.agent(2)
    party.until(lambda: party.lines() == [(1001, (1, 2), False)])
    party.host.close_door()
    party.host.seats()
    party.until(lambda: all(one.assembled for one in party.agents))
    late = party.agent(3)
    party.until(
        lambda: late.attending is not None and bool(late.attending.ladder) and not late._asked
    )
    party.until(lambda: bool(late.gone), 15)
    assert late.gone == "no way led to the meeting"


def test_where_there_is_no_way_to_the_host_each_tries_its_own(
    party: Party, monkeypatch: Any
) -> None:
    """For half of the patience: what they find on their ways is theirs to say."""
    sock = handshake.listen(0)[0]
    port = int(sock.getsockname()[1])
    sock.close()
    first, second, third = (party.agent(rank, port=port) for rank in (1, 2, 3))
    party.until(lambda: not (second._asked or third._asked), 12)
    assert first._neighbours is None
    party.until(lambda: bool(first.gone and second.gone and third.gone), 15)
    assert second.attending is not None
    assert [a.error for a in second.attending.ladder] == ["ECONNREFUSED"]


def test_few_ranks_go_each_by_itself(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr(neighbours, "FROM_RANKS", SIZE + 1)
    party.node()
    party.until(lambda: connections(party) == 3)


def test_beside_the_host_each_goes_by_itself(party: Party) -> None:
    one = party.agent(1, local=1)
    assert not one._has_neighbours()


# --- a guest that says nonsense ---


def line_to(party: Party, loop: Workers) -> tuple[Wire, Guest]:
    made = party.agent(1)
    party.until(lambda: made.attending is not None and made.attending.reached is not None)
    assert made.attending is not None
    assert made.attending._wire is not None
    return made.attending._wire, party.host.guests[-1]


@pytest.mark.parametrize(
    "others",
    [
        [["n", 5, []]],
        [["n", 5, [1]]],
        [["n", 5, [-1]]],
        [["n", 5, [1 << 30]]],
        [["n", 5, list(range(2, 5000))]],
        [[str(n), n, [n]] for n in range(2, BESIDE_MOST + 3)],
        [["n", 5, [2]], ["n", 6, [3]]],
        [["n", "x", [2]]],
        [["n", 5]],
        [[5, [2]]],
        [7],
    ],
)
def test_who_speaks_for_what_can_not_be_is_lost(
    party: Party, loop: Workers, others: list[Any]
) -> None:
    wire, guest = line_to(party, loop)
    wire.send({"with": others})
    party.until(lambda: bool(guest.lost))
    assert "makes no sense" in guest.lost


def test_nobody_is_spoken_for_who_is_here_or_when_all_are_seated(
    party: Party, loop: Workers
) -> None:
    second = party.agent(2)
    party.until(lambda: connections(party) == 1)  # nobody speaks for it: it is here by itself
    assert second._hello is not None
    nonce = second._hello.nonce
    wire, _ = line_to(party, loop)
    guest = next(g for g in party.host.guests if g.ranks == {1})
    wire.send({"with": [[nonce, 1002, [2]]]})
    wire.send({"gone": [nonce, "no"]})
    party.host.close_door()
    wire.send({"with": [["n", 1003, [3]]]})
    wire.send({"beat": "seen", "t": 0.0})
    party.until(lambda: guest.mark == "seen")
    assert guest.ranks == {1}
    assert sorted(party.lines()) == [(1001, (1,), False), (1002, (2,), False)]
