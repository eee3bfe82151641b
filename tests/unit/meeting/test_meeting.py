"""The meeting: real sockets, agents that behave, and everybody else who may come to a port."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hostile import SURROGATES, WORDS

from preflight.domains.net.tcp import unacknowledged_bytes
from preflight.meeting import connection, coordinator, handshake, protocol, tasks
from preflight.meeting.connection import Gone, Wire
from preflight.meeting.coordinator import Guest, Meeting
from preflight.meeting.member import Attendance
from preflight.meeting.protocol import Hello, Said
from preflight.model import Cause, Mark, Missing, Seen
from preflight.process.pool import Returned, Workers
from preflight.process.servers import LIGHT, open_light
from preflight.roster import Arrival
from preflight.serde import encode, parsed, weight

HERE = "127.0.0.1"


@pytest.fixture
def loop() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


def hello(*ranks: int, size: int = 4, **changes: Any) -> Hello:
    values: dict[str, Any] = {
        "version": "1",
        "job": "",
        "host": f"n{ranks[0]}",
        "identity": f"id{ranks[0]}",
        "pid": 100 + ranks[0],
        "ranks": ranks,
        "size": size,
        "claims": "n0:29500",
        "mine": False,
        "nonce": f"nonce{ranks[0]}",
    }
    return Hello(**(values | changes))


class Party:
    """A meeting with its guests, all in this process."""

    def __init__(
        self, loop: Workers, me: Hello | None = None, token: str = "", port: int = 0
    ) -> None:
        self.loop = loop
        listeners = handshake.listen(port)
        self.port = int(listeners[0].getsockname()[1])
        self.host = Meeting(loop, listeners, me or hello(0), token)
        self.guests: list[Attendance] = []
        self.strangers: list[socket.socket] = []

    def guest(
        self, *ranks: int, token: str = "", ips: tuple[str, ...] = (HERE,), **of: Any
    ) -> Attendance:
        made = Attendance(self.loop, hello(*ranks, **of), token, ips, self.port)
        self.guests.append(made)
        return made

    def until(self, done: Callable[[], bool], seconds: float = 10.0) -> None:
        """Let things happen until `done`; a test that waits in vain fails."""
        limit = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < limit, "it never came to that"
            self.turn()

    def turn(self) -> None:
        self.host.tend()
        for guest in self.guests:
            guest.tend()
        for _ in self.loop.run(time.monotonic() + 0.02):
            pass

    def pass_time(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            self.turn()

    def all_here(self) -> bool:
        return all(g.reached is not None for g in self.guests)

    def stranger(self, data: bytes = b"") -> socket.socket:
        sock = socket.create_connection((HERE, self.port), timeout=5)
        self.strangers.append(sock)
        if data:
            sock.sendall(data)
        return sock

    def kinds(self) -> dict[str, int]:
        return {s.kind: s.count for s in self.host.strangers}

    def guest_of(self, rank: int) -> Guest:
        return next(g for g in self.host.guests if rank in g.hello.ranks)

    def close(self) -> None:
        for guest in self.guests:
            guest.close()
        self.host.close()
        for sock in self.strangers:
            sock.close()


@pytest.fixture
def party(loop: Workers) -> Iterator[Party]:
    made = Party(loop)
    yield made
    made.close()


def me() -> Arrival:
    return Arrival("n0", "n0", "id0", 1, (0,), 4)


# --- coming and sitting down ---


def test_all_ranks_come_and_get_a_seat(party: Party) -> None:
    party.guest(2, 3)
    party.guest(1)
    assert not party.host.complete()
    party.until(party.host.complete)
    assert party.host.whole
    nodes = party.host.seats()
    assert [(n.name, n.ranks) for n in nodes] == [("n0", (0,)), ("n1", (1,)), ("n2", (2, 3))]
    party.until(lambda: all(g.seat is not None for g in party.guests))
    seat = party.guests[0].seat
    assert seat is not None
    assert (seat.node, seat.number, seat.nodes, seat.voice, seat.met) == ("n2", 2, 3, True, 4)


def test_what_both_ends_say_passes_where_long_packets_are_lost(party: Party) -> None:
    guest = party.guest(1)
    party.until(party.all_here)
    for wire in (guest._wire, party.guest_of(1).wire):
        assert wire is not None
        most = wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        assert most <= connection.SEGMENT


def test_two_machines_of_one_name_are_two_nodes(party: Party) -> None:
    party.guest(1, host="gpu")
    party.guest(2, 3, host="gpu")
    party.until(party.host.complete)
    assert [n.name for n in party.host.seats()] == ["n0", "gpu", "gpu#2"]


def test_agents_of_one_machine_are_one_node_with_one_voice(party: Party) -> None:
    for rank in (3, 1, 2):
        party.guest(rank, host="gpu", identity="same", pid=rank)
    party.until(party.host.complete)
    assert [(n.name, n.ranks) for n in party.host.seats()] == [("n0", (0,)), ("gpu", (1, 2, 3))]
    assert {g.hello.ranks: g.voice for g in party.host.guests} == {
        (1,): True,
        (2,): False,
        (3,): False,
    }


def test_duplicates_are_let_in_and_end_the_waiting(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr(coordinator, "QUIET_SECONDS", 0.2)
    party.guest(1, 2)
    party.guest(1, 2, identity="other", pid=7)
    party.until(party.host.complete)
    assert not party.host.whole
    assert [a.pid for a in party.host.arrivals(me()) if 1 in a.ranks] == [101, 7]


def test_who_believes_in_a_smaller_world_ends_the_waiting(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr(coordinator, "QUIET_SECONDS", 0.2)
    party.guest(1, size=2)
    party.until(party.host.complete)
    assert [a.size for a in party.host.arrivals(me())] == [4, 2]


def unnumbered(name: str, here: int, nodes: int = 3, **changes: Any) -> Hello:
    """Of a torchrun that numbers its nodes itself; each thinks for now that it is the first."""
    values = {"host": name, "identity": f"id {name}", "nonce": name, "nodes": nodes}
    return hello(*range(here), size=here * nodes, **(values | changes))


def come(party: Party, said: Hello) -> Attendance:
    guest = Attendance(party.loop, said, "", (HERE,), party.port)
    party.guests.append(guest)
    party.until(lambda: guest.reached is not None)
    return guest


@pytest.fixture
def torchruns(loop: Workers) -> Iterator[Party]:
    made = Party(loop, unnumbered("gpu3", 2))
    yield made
    made.close()


def test_nodes_of_torchrun_are_given_their_ranks(torchruns: Party) -> None:
    party = torchruns
    guest = come(party, unnumbered("gpu2", 3))
    assert not party.host.complete()
    assert party.host.progress == "2/3 nodes"
    other = come(party, unnumbered("gpu1", 1))
    assert party.host.complete()
    # said before anybody has a seat, and after: by the ranks that it came with
    for rank, check in ((1, "a.b"), (2, "a.c")):
        guest.send_seen(check, f"gpu2/{rank}", Seen(rank))
        party.until(lambda check=check: any(one.check == check for one in party.host.taken))
        if check == "a.b":
            nodes = party.host.seats()
            party.until(lambda: all(g.seat is not None for g in party.guests))
    assert [(n.name, n.ranks) for n in nodes] == [
        ("gpu3", (0, 1)),
        ("gpu1", (2,)),
        ("gpu2", (3, 4, 5)),
    ]
    assert [taken.key for taken in party.host.take()] == ["gpu2/4", "gpu2/5"]
    assert party.host.whole
    assert party.host.me.size == 6
    assert guest.seat is not None
    assert other.seat is not None
    assert (guest.seat.ranks_of(guest.hello), guest.seat.size) == ((3, 4, 5), 6)
    assert (other.seat.ranks_of(other.hello), other.seat.size) == ((2,), 6)


def test_two_torchruns_of_one_machine_may_leave_a_third_one_out(
    torchruns: Party, monkeypatch: Any
) -> None:
    monkeypatch.setattr(coordinator, "QUIET_SECONDS", 0.3)
    party = torchruns
    come(party, unnumbered("gpu1", 2))
    come(party, unnumbered("gpu1", 2, nonce="again", pid=7))
    assert not party.host.complete()
    come(party, unnumbered("gpu2", 2))
    party.until(party.host.complete)
    assert [(n.name, n.ranks) for n in party.host.seats()] == [
        ("gpu3", (0, 1)),
        ("gpu1", (2, 3, 4, 5)),
        ("gpu2", (6, 7)),
    ]
    assert (party.host.nodes, len(party.host.arrivals(me()))) == (3, 4)


def test_one_that_is_of_no_torchrun_is_counted_by_its_ranks(
    torchruns: Party, monkeypatch: Any
) -> None:
    monkeypatch.setattr(coordinator, "QUIET_SECONDS", 0.2)
    come(torchruns, hello(2, 3, 4, 5, size=6))
    torchruns.until(torchruns.host.complete)
    assert torchruns.host.nodes == 0
    assert [n.ranks for n in torchruns.host.seats()] == [(0, 1), (2, 3, 4, 5)]


@pytest.mark.parametrize(
    "of",
    [{"node": 3}, {"node": -2}, {"nodes": -1}, {"nodes": 1 << 30}, {"ranks": [0, 2]}, {"node": ""}],
)
def test_words_of_a_torchrun_that_make_no_sense(torchruns: Party, of: dict[str, Any]) -> None:
    said = {**encode(unnumbered("gpu1", 2)), **of}
    torchruns.stranger(f"{json.dumps({'hello': said, 't': 0.0})}\n".encode())
    torchruns.until(lambda: any(torchruns.kinds().get(kind) for kind in ("garbage", "half-open")))
    assert torchruns.host.guests == []


@pytest.mark.parametrize(
    "changes",
    [
        {"first": 3},  # not among its ranks
        {"first": 2, "size": 3},  # beyond the size
        {"first": 2, "size": 1 << 30},
        {"first": 2, "nodes": 1},  # its number is beyond that
        {"first": 2, "ranks": [2]},
    ],
)
def test_a_host_can_not_give_out_just_any_ranks(changes: dict[str, Any]) -> None:
    seat = {"node": "n1", "number": 1, "nodes": 2, "ranks": [2, 3], "voice": True, "met": 4}
    said = unnumbered("n1", 2)
    good = {**seat, "size": 5, "first": 2}
    assert protocol.seat_of(good, said).ranks_of(said) == (2, 3)
    with pytest.raises(ValueError, match=r"."):
        protocol.seat_of({**good, **changes}, said)
    with pytest.raises(ValueError, match=r"."):
        protocol.seat_of(good, hello(2, 3))


def test_the_clocks_are_compared(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr(protocol, "BEAT_SECONDS", 0.05)
    guest = party.guest(1)
    party.until(lambda: guest.clock.offset is not None and guest._pings > 3)
    assert guest.clock.uncertainty is not None
    assert abs(guest.clock.offset or 0.0) <= guest.clock.uncertainty < 0.5


# --- strangers ---


STRANGERS = {
    "http": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\n",
    "c10d": b"\x00\xce\xf7\x85\x3c\x0d\x01\x02\x03\x04\n",
    "garbage": b"\x00\xff\xfe{{{[[[\n",
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_is_counted_and_told_nothing(party: Party, kind: str) -> None:
    sock = party.stranger(STRANGERS[kind])
    party.until(lambda: kind in party.kinds())
    said = b""
    try:
        while chunk := sock.recv(4096):
            said += chunk
    except ConnectionResetError:
        pass
    assert said.count(b"\n") == 1, "the banner and nothing else"
    party.guest(1, 2, 3)
    party.until(party.host.complete)
    assert party.kinds() == {kind: 1}


@pytest.mark.parametrize(
    "line",
    [
        b"[]\n",
        b"null\n",
        b"{}\n",
        b'{"hello": 7}\n',
        b'{"hello": {"version": "1"}}\n',
        b"[" * 4000 + b"\n",
        b'{"hello": {"ranks": [-1]}}\n',
        b"x" * 20000,
    ],
)
def test_hostile_first_lines(party: Party, line: bytes) -> None:
    party.stranger(line)
    party.until(lambda: party.kinds().get("garbage") == 1)
    assert party.host.guests == []


@pytest.mark.parametrize("more", ['{"seen":["a.b","n1/9",{}]}', '{"value":["x",1]}', "[]"])
def test_nonsense_that_comes_along_with_a_hello_loses_that_guest_only(
    party: Party, more: str
) -> None:
    first = json.dumps({"hello": encode(hello(1)), "t": 0.0})
    party.stranger(f"{first}\n{more}\n".encode())
    party.guest(2)
    party.until(lambda: party.all_here() and (party.kinds() or party.host.guests[0].lost != ""))
    assert not [g for g in party.host.guests if g.hello.ranks == (1,) and not g.lost]


def test_the_way_back_to_itself_is_no_stranger(party: Party) -> None:
    """Rank 0 by its own word, which nobody else knows."""
    party.stranger(b'{"own": "\\udc80"}\n')
    party.stranger(b'{"own": ["x"]}\n')
    party.until(lambda: party.kinds().get("garbage") == 2)
    assert not party.host.met_itself
    open_light(party.loop)
    asked = {"ips": [HERE], "port": party.port, "word": party.host.word, "seconds": 5.0}
    call = party.loop.call(LIGHT, tasks.call_oneself, asked, seconds=7.0, label="itself")
    party.until(lambda: call.result is not None)
    assert party.host.met_itself
    assert isinstance(call.result, Returned)
    assert call.result.value == {"error": ""}
    assert party.kinds() == {"garbage": 2}


def test_somebody_else_is_not_itself(party: Party) -> None:
    taken = {"ips": [HERE], "port": party.port, "word": "another's", "seconds": 0.5}
    nobody = {"ips": [HERE], "port": 9, "word": party.host.word, "seconds": 0.5}
    open_light(party.loop)
    calls = [
        party.loop.call(LIGHT, tasks.call_oneself, asked, seconds=7.0, label="itself")
        for asked in (taken, nobody)
    ]
    party.until(lambda: all(call.result is not None for call in calls))
    errors = [call.result.value["error"] for call in calls if isinstance(call.result, Returned)]
    assert errors[1] == "ECONNREFUSED"
    assert errors[0] == tasks.ANOTHER
    assert not party.host.met_itself


def test_the_silent_and_the_half_open(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr(handshake, "GREETING_SECONDS", 0.3)
    party.stranger().close()
    party.stranger()
    party.until(lambda: party.kinds() == {"half-open": 1, "silent": 1})


def test_a_crowd_of_strangers_does_not_keep_an_agent_out(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr(handshake, "GREETING_SECONDS", 0.5)
    for _ in range(300):
        party.stranger()
    party.guest(1, 2, 3)
    party.until(party.host.complete, 20)
    room = handshake.WAITING_LIMIT + party.host.me.agents
    assert party.kinds()["crowd"] >= 300 - room, "the oldest of them had to go"


def test_a_crowd_that_stays_keeps_nobody_out(party: Party, monkeypatch: Any) -> None:
    """However long it may stay silent."""
    monkeypatch.setattr(handshake, "GREETING_SECONDS", 600.0)
    for _ in range(handshake.WAITING_LIMIT + 50):
        party.stranger()
    party.until(lambda: "crowd" in party.kinds())
    party.guest(1, 2, 3)
    party.until(party.host.complete, 20)
    assert "silent" not in party.kinds(), "nobody's time was over"


class Short:
    """A listener on a machine that has no file left for another connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.asked = 0
        self.full = True

    def fileno(self) -> int:
        return self.sock.fileno()

    def setblocking(self, flag: bool) -> None:
        self.sock.setblocking(flag)

    def accept(self) -> Any:
        self.asked += 1
        if self.full:
            raise OSError(errno.EMFILE, "Too many open files")
        return self.sock.accept()

    def close(self) -> None:
        self.sock.close()


def test_without_an_open_file_left_it_waits_and_says_so(loop: Workers, monkeypatch: Any) -> None:
    made: list[Short] = []
    real = handshake.listen

    def short(port: int) -> list[Any]:
        made.extend(map(Short, real(0)))
        made[0].getsockname = made[0].sock.getsockname  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(handshake, "listen", short)
    party = Party(loop)
    party.guest(1, 2, 3)
    party.pass_time(1.2)
    assert 1 <= made[0].asked <= 8, "asked again at once it would take all of the CPU"
    assert party.host.full[0] == "EMFILE"
    made[0].full = False
    party.until(party.host.complete)
    party.close()


def test_a_meeting_may_have_as_many_files_as_it_needs_and_nobody_after_it(
    loop: Workers, monkeypatch: Any
) -> None:
    limits = [(1024, 1 << 20)]
    monkeypatch.setattr(handshake.resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(handshake.resource, "setrlimit", lambda _, more: limits.append(more))
    party = Party(loop, hello(0, size=2000))
    assert 2256 < limits[-1][0] < 8000, "for all agents, and for those who say nothing"
    party.close()
    assert limits[-1] == (1024, 1 << 20), "what is started from here on may use select()"


def test_where_the_hard_limit_is_low_it_is_the_limit(loop: Workers, monkeypatch: Any) -> None:
    limits = [(1024, 1030)]
    monkeypatch.setattr(handshake.resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(handshake.resource, "setrlimit", lambda _, more: limits.append(more))
    party = Party(loop, hello(0, size=2000))
    assert limits[-1] == (1030, 1030)
    party.close()


def test_another_job_and_another_version(loop: Workers) -> None:
    party = Party(loop, hello(0, job="17"))
    other, newer = party.guest(1, job="18"), party.guest(2, job="17", version="2")
    nameless = party.guest(3)
    party.until(lambda: bool(other.refused and newer.refused and nameless.reached is not None))
    assert (other.refused, newer.refused) == ("other job", "version")
    assert other.ladder[0].answer == "other job"
    assert set(party.kinds()) == {"other job", "version"}
    party.close()


def test_a_meeting_that_ends_after_a_hello_takes_nothing_back(
    loop: Workers, monkeypatch: Any
) -> None:
    party = Party(loop, hello(0, job="17"))
    other = party.guest(1, job="18")
    party.until(lambda: bool(other.refused))
    tries = other.ladder[0].tries
    sent = Wire.send

    def cut(wire: Wire, message: Any) -> None:
        if "hello" in message:
            raise Gone("over")
        sent(wire, message)

    monkeypatch.setattr(Wire, "send", cut)
    party.until(lambda: other.ladder[0].tries > tries)
    assert other.ladder[0].answer == "other job"
    party.close()


@pytest.mark.parametrize("proof", ['"\\u00e9"', '"\\ud800"', "1e999", "[]", "{}", "null", '"00"'])
def test_a_stranger_who_does_not_know_the_token_ends_nobody(loop: Workers, proof: str) -> None:
    party = Party(loop, token="sesame")
    said = json.dumps({"hello": encode(hello(3)), "t": 0.0})
    party.stranger(f'{said[:-1]}, "proof": {proof}}}\n'.encode())
    party.guest(1, 2, 3, token="sesame")
    party.until(lambda: bool(party.kinds()) and party.host.complete())
    assert party.kinds() in ({"token": 1}, {"garbage": 1})
    party.close()


def test_what_comes_with_a_proof_is_not_proven_by_it(loop: Workers) -> None:
    """Whoever sits on the way may add lines to a hello that he can't write himself."""
    party = Party(loop, token="sesame")
    guest = party.guest(1, token="sesame")
    sent = Wire.send

    def with_more(wire: Wire, message: Any) -> None:
        if "hello" in message:
            line = connection.line_of(message) + b'{"done":"machine"}\n'
            wire.send_line(line)
        else:
            sent(wire, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wire, "send", with_more)
        party.until(lambda: bool(party.host.guests))
    assert guest.refused == ""
    assert party.guest_of(1).done == set()
    party.close()


HELLOS: dict[str, dict[str, Any]] = {
    "of no ranks": {"ranks": []},
    "of a world of nobody": {"size": 0},
    "of a world beyond all": {"size": 10**12},
    "of a number with 400 digits": {"pid": 10**400},
    "of a mapping": {"ranks": {"0": 1}},
    "of text": {"size": "4"},
}


@pytest.mark.parametrize("which", HELLOS)
def test_a_hello_that_makes_no_sense(party: Party, which: str) -> None:
    said = {"hello": {**encode(hello(3)), **HELLOS[which]}, "t": 0.0}
    party.stranger(json.dumps(said).encode() + b"\n")
    party.until(lambda: party.kinds() == {"garbage": 1})
    assert party.host.guests == []


# --- a token ---


def test_a_token_lets_in_who_knows_it(loop: Workers) -> None:
    party = Party(loop, token="sesame")
    party.guest(1, 2, token="sesame")
    wrong, without = party.guest(3, token="guess"), party.guest(3, pid=5)
    party.until(lambda: bool(wrong.refused and without.refused))
    assert (wrong.refused, without.refused) == ("token", "token")
    party.until(lambda: party.guests[0].reached is not None)
    assert [g.hello.ranks for g in party.host.guests] == [(1, 2)]
    # and what is said afterwards is proven too, in both directions
    party.guests[0].send_seen("a.b", "n1/1", Seen({"x": 1}))
    party.until(lambda: bool(party.host.taken))
    party.host.start("net.mesh")
    party.until(lambda: party.guests[0].started == ["net.mesh"])
    party.close()


def test_a_host_that_does_not_know_the_token_is_not_believed(loop: Workers) -> None:
    party = Party(loop)
    guest = party.guest(1, token="sesame")
    party.until(lambda: guest.refused == "token")
    assert party.host.guests == []
    party.close()


def test_a_line_that_was_tampered_with_ends_the_connection(loop: Workers) -> None:
    party = Party(loop, token="sesame")
    guest = party.guest(1, token="sesame")
    party.until(party.all_here)
    assert guest._wire is not None
    guest._wire.sock.sendall(b"0" * 32 + b' {"done":"machine"}\n')
    party.until(lambda: bool(party.guest_of(1).lost))
    assert party.guest_of(1).lost == "it can't prove the token"
    party.close()


# --- observations ---


def test_equal_values_travel_once(party: Party) -> None:
    for rank in (1, 2, 3):
        party.guest(rank)
    party.until(party.all_here)
    value = {"settings": ["x" * 100] * 500}
    before = sum(g.wire.received for g in party.host.guests)
    for rank, guest in enumerate(party.guests, 1):
        guest.send_seen("a.b", f"n{rank}", Seen(value, 0.5, (Mark("m", 0.1),)))
    party.until(lambda: len(party.host.taken) == 3)
    party.host.seats()
    assert [t.key for t in party.host.taken] == ["n1", "n2", "n3"]
    assert all(t.observation == Seen(value, 0.5, (Mark("m", 0.1),)) for t in party.host.taken)
    size = len(json.dumps(value))
    received = sum(g.wire.received for g in party.host.guests) - before
    assert size < received < size * 1.2
    first, _, third = (t.observation for t in party.host.taken)
    assert isinstance(first, Seen)
    assert isinstance(third, Seen)
    assert first.value is third.value, "and it is kept once"
    assert not any(guest.owed for guest in party.host.guests), "nobody owes what has come"


def test_what_was_kept_to_know_equal_values_goes_and_the_values_stay(party: Party) -> None:
    guest = party.guest(1)
    value = {"long": "x" * 1000, "n": [1000, 0.25]}
    guest.send_seen("a.b", "n1/1", Seen(value))
    guest.send_seen("a.c", "n1/1", Seen(value))
    party.until(lambda: len(party.host.taken) == 2)
    party.host.seats()
    one, two = party.host.taken
    assert one.observation == two.observation == Seen(value)
    assert one.key is two.key, "one text for all checks"
    party.host.forget()
    assert party.host._packing.held == 0
    guest.send_seen("a.d", "n1/1", Seen(value))
    party.until(lambda: len(party.host.taken) == 3)
    assert {t.key for t in party.host.taken} == {"n1/1"}
    assert list(party.host.taken)[2].observation == one.observation


def test_the_only_one_who_has_a_value_leaves_before_it_was_sent(party: Party) -> None:
    """Then another one is asked that has offered the same."""
    one, other = party.guest(1), party.guest(2)
    party.until(party.all_here)
    value = ["y" * 1000]
    digest = protocol.digest_of(protocol.text_of(value))
    data = {"seconds": 0.0, "marks": [], "digest": digest}
    one._send({"seen": ["a.b", "n1", data]})  # and never answers
    party.until(lambda: bool(party.guest_of(1).owed))
    other.send_seen("a.b", "n2", Seen(value))
    party.until(lambda: bool(party.guest_of(2).owed))
    one.close()
    party.until(lambda: len(party.host.taken) == 2)


def test_a_missing_observation_comes_as_it_is(party: Party) -> None:
    guest = party.guest(1, 2, 3)
    early = Missing(Cause.TIMED_OUT, "no answer in 2 s", 2.0, (Mark("nvmlInit", 0.0),))
    guest.send_seen("gpu.visible", "n1", early)  # before it got in
    party.until(lambda: bool(party.host.taken))
    assert next(iter(party.host.taken)).observation == early


def test_what_many_miss_alike_is_kept_once(party: Party) -> None:
    """One rank does not come, and five checks are blocked on a hundred thousand others."""
    guests = [party.guest(rank) for rank in (1, 2, 3)]
    for rank, guest in enumerate(guests, start=1):
        by = "rdzv.reach" if rank < 3 else "net.mesh"
        guest.send_seen("rdzv.store", f"n{rank}/{rank}", Missing(Cause.BLOCKED, by=by))
    party.until(lambda: len(party.host.taken) == 3)
    one, other, third = (
        taken.observation for taken in sorted(party.host.taken, key=lambda taken: taken.key)
    )
    assert one is other
    assert one == Missing(Cause.BLOCKED, by="rdzv.reach")
    assert third == Missing(Cause.BLOCKED, by="net.mesh")


LIES: dict[str, Any] = {
    "of another rank": {"seen": ["a.b", "n2/2", {"value": 1}]},
    "a value that is not its digest's": {"value": ["0" * 64, "x"]},
    "marks that are none": {"seen": ["a.b", "n1", {"value": 1, "marks": [1, 2]}]},
    "seconds that are none": {"seen": ["a.b", "n1", {"value": 1, "seconds": "soon"}]},
    "nothing": {"seen": ["a.b", "n1", {}]},
    "a missing without a cause": {"seen": ["a.b", "n1", {"missing": {"cause": "whim"}}]},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_guest_that_lies_is_given_up(party: Party, lie: str) -> None:
    guest = party.guest(1)
    party.until(party.all_here)
    guest._send(LIES[lie])
    party.until(lambda: bool(party.guest_of(1).lost))
    assert party.guest_of(1).lost.startswith("it sent what makes no sense")
    assert not party.host.taken
    assert not party.host.whole


@pytest.mark.parametrize("word", WORDS)
def test_hostile_words_cost_the_guest_that_says_them(party: Party, word: str) -> None:
    one = party.guest(1)
    other = party.guest(2)
    party.until(party.all_here)
    assert one._wire is not None
    one._wire.send_line(WORDS[word].encode() + b"\n")
    party.until(lambda: bool(party.guest_of(1).lost))
    other.send_done("machine")
    party.until(lambda: "machine" in party.guest_of(2).done)
    assert party.guest_of(2).lost == ""
    assert not party.host.taken
    assert not party.host.said


@pytest.mark.parametrize("word", SURROGATES)
def test_half_a_letter_is_written_out(party: Party, word: str) -> None:
    """A host with a name that is no UTF-8 is no reason to lose it."""
    guest = party.guest(1)
    party.until(party.all_here)
    assert guest._wire is not None
    guest._wire.send_line(SURROGATES[word].encode() + b"\n")
    guest.send_done("x")
    party.until(lambda: party.guest_of(1).over or "x" in party.guest_of(1).done)
    json.dumps(encode(party.host.arrivals(me())), ensure_ascii=False).encode()
    for taken in party.host.taken:
        json.dumps(encode(taken), default=repr, ensure_ascii=False).encode()


def test_nobody_takes_the_key_of_another_by_the_name_of_its_host(party: Party) -> None:
    """`n0/0` is rank 0 of n0; and one that calls itself gpu#2 is not the second gpu."""
    for rank, host in ((1, "n0/0"), (2, "gpu#2"), (3, "gpu")):
        party.guest(rank, host=host)
    party.guest(4, host="gpu", pid=7)
    party.until(lambda: len(party.host.guests) == 4)
    names = [n.name for n in party.host.seats()]
    assert len(set(names)) == 5
    assert not [name for name in names if "/" in name]


@pytest.mark.parametrize("word", [{"beat": 1}, {"said": []}, {"new in version 9": {}}, {}])
def test_unknown_words_are_passed_over(party: Party, word: Any) -> None:
    guest = party.guest(1)
    party.until(party.all_here)
    guest._send(word)
    guest.send_done("machine")
    party.until(lambda: "machine" in party.guest_of(1).done)
    assert party.guest_of(1).lost == ""


# --- what is kept ---


@pytest.mark.parametrize("what", ["values", "words", "a line without end"])
def test_a_guest_that_says_too_much_is_given_up(party: Party, monkeypatch: Any, what: str) -> None:
    monkeypatch.setattr(coordinator, "KEPT_OF_GUEST", 1 << 20)
    loud, other = party.guest(1), party.guest(2)
    party.until(party.all_here)
    wire = loud._wire
    assert wire is not None
    if what == "a line without end":  # nor may a sign of life end it
        party.guests.remove(loud)
        wire.wake_with(lambda events: None)
    for number in range(200):
        if what == "values":
            loud.send_seen(f"a.b{number}", "n1", Seen([f"{number:050}"] * 200))
        elif what == "words":
            loud.send_said(Said(f"group{number}", 1, "t", ["x" * 50] * 200, None))
        else:
            with contextlib.suppress(Gone):
                wire.send_line(b"[" * 12_000)
        if number % 20 == 0:
            party.turn()
    party.until(lambda: bool(party.guest_of(1).lost))
    loud.close()
    assert party.guest_of(1).lost == "it sent more than is kept of a guest"
    assert party.host._kept < 2 << 20
    other.send_done("machine")
    party.until(lambda: "machine" in party.guest_of(2).done)
    assert party.guest_of(2).lost == ""


MANY = 20_000
SHAPES = {
    "lists": f"[{','.join(['[]'] * MANY)}]",
    "mappings": f"[{','.join(['{}'] * MANY)}]",
    "pairs": "[" + ",".join(['{"":0}'] * MANY) + "]",
    "keys": "{" + ",".join(f'"{number}":0' for number in range(MANY)) + "}",
    "numbers": f"[{','.join(['1.5'] * MANY)}]",
    "letters": "[" + ",".join(['"é"'] * MANY) + "]",
    "wide letters": "[" + ",".join(['"😀"'] * MANY) + "]",
    "one text": '"' + "a" * MANY + '"',
    "one text with a wide letter": '"😀' + "a" * MANY + '"',
    "one text with a wide letter that is written out": '"\\ud83d\\ude00' + "a" * MANY + '"',
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_line_says_takes_no_more_than_its_weight(shape: str) -> None:
    """One letter beyond Latin-1 makes Python take four bytes for each of its text."""
    line = SHAPES[shape].encode()
    assert size_of(parsed(line), set()) <= 1.05 * weight(line)


def size_of(value: object, counted: set[int]) -> int:
    if id(value) in counted:
        return 0
    counted.add(id(value))
    inside: list[object] = []
    if isinstance(value, dict):
        inside = [*value, *value.values()]
    elif isinstance(value, list):
        inside = value
    return sys.getsizeof(value) + sum(size_of(one, counted) for one in inside)


def test_when_all_have_said_too_much_who_said_little_stays(party: Party) -> None:
    party.host._room = 1 << 20
    party.guest(1)
    party.guest(2)
    party.until(party.all_here)
    party.guests[1].send_seen("a.b", "n2", Seen("y"))
    for number in range(20):
        party.guests[0].send_seen(f"a.b{number}", "n1", Seen("x" * (100_000 + number)))
    party.until(lambda: bool(party.guest_of(1).lost))
    party.guests[1].send_seen("a.c", "n2", Seen("z"))
    party.until(
        lambda: [t.check for t in party.host.taken if t.guest.hello.ranks == (2,)] == ["a.b", "a.c"]
    )
    assert party.guest_of(2).lost == ""


def test_a_value_that_nobody_asked_for_is_not_kept(party: Party) -> None:
    guest = party.guest(1)
    party.until(party.all_here)
    value = "x" * 1000
    guest._send({"value": [protocol.digest_of(protocol.text_of(value)), value]})
    guest.send_done("x")
    party.until(lambda: "x" in party.guest_of(1).done)
    assert party.host._values == {}


def test_more_agents_than_can_be_of_the_job_get_no_seat(party: Party) -> None:
    party.host._door._seats = 2
    for rank in (1, 2, 3):
        party.guest(rank)
    party.until(lambda: any(g.refused for g in party.guests))
    assert party.kinds() == {"too many": 1}
    assert len(party.host.guests) == 2


# --- what observers say ---


def test_what_one_says_reaches_those_who_are_meant(party: Party) -> None:
    for rank in (1, 2, 3):
        party.guest(rank)
    party.until(lambda: party.host.complete() and party.all_here())
    party.host.seats()
    party.guests[0].send_said(Said("net.mesh", 1, "listen", [1, 2], (3,)))
    party.until(lambda: bool(party.host.said))
    for said in party.host.said:
        party.host.relay(said, by_node=True)
    party.until(lambda: bool(party.guests[2].said))
    assert party.guests[2].said == [Said("net.mesh", 1, "listen", [1, 2], (3,))]
    party.host.relay(Said("world.gloo", 0, "port", 4711, None), by_node=False)
    party.until(lambda: all(g.said for g in party.guests))
    assert len(party.guests[2].said) == 2
    assert len(party.guests[1].said) == 1


def test_nobody_speaks_for_another_rank(party: Party) -> None:
    guest = party.guest(1)
    party.until(party.all_here)
    party.host.seats()
    guest.send_said(Said("world.gloo", 3, "port", 1, None))
    guest.send_done("x")
    party.until(lambda: "x" in party.guest_of(1).done)
    assert party.host.said == []


# --- losing each other ---


def test_a_guest_that_falls_silent_is_lost(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr(protocol, "SILENT_SECONDS", 0.4)
    guest = party.guest(1)
    party.until(party.all_here)
    guest.mark = "net.mesh: dial 3"
    party.until(lambda: party.guest_of(1).mark != "", 5)
    party.guests.clear()  # nobody tends it any more
    party.until(lambda: bool(party.guest_of(1).lost))
    assert party.guest_of(1).lost.startswith("no sign of life")
    guest.close()


def test_a_guest_that_stops_reading_is_lost(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr(connection, "UNSENT_LIMIT", 1 << 20)
    guest = party.guest(1)
    party.until(party.all_here)
    party.loop.unwatch(guest._wire.sock)  # type: ignore[union-attr]
    party.guests.clear()
    for _ in range(80):
        party.host.relay(Said("g", 0, "t", "z" * 100_000, None), by_node=False)
    assert party.guest_of(1).lost == "it stopped reading"
    guest.close()


def test_a_line_without_end_is_cut_off(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr(connection, "LINE_LIMIT", 1 << 16)
    guest = party.guest(1)
    party.until(party.all_here)
    assert guest._wire is not None
    guest._wire._unsent += b"[" * (1 << 18)
    guest._wire.flush()
    party.until(lambda: party.guest_of(1).lost == "its line is too long")


def test_a_host_that_is_gone_is_noticed(party: Party) -> None:
    guest = party.guest(1)
    party.until(party.all_here)
    party.host.close()
    party.until(lambda: bool(guest.lost))
    assert guest.over is None


def test_a_host_that_falls_silent_is_noticed(party: Party, monkeypatch: Any) -> None:
    monkeypatch.setattr("preflight.meeting.protocol.SILENT_SECONDS", 0.4)
    guest = party.guest(1)
    party.until(party.all_here)
    party.loop.unwatch(party.guest_of(1).wire.sock)
    party.until(lambda: guest.lost.startswith("no sign of life"), 5)


def test_a_host_that_judges_what_thousands_have_seen_is_not_silent(
    party: Party, monkeypatch: Any
) -> None:
    monkeypatch.setattr("preflight.meeting.protocol.SILENT_SECONDS", 0.4)
    monkeypatch.setattr("preflight.meeting.protocol.JUDGED_PER_AGENT", 0.4)
    guest = party.guest(1)
    party.until(party.all_here)
    party.host.say_judging()
    party.loop.unwatch(party.guest_of(1).wire.sock)
    party.host.excuse(10.0)  # as it does itself of the time for which it did not listen
    party.pass_time(1.0)
    assert guest.lost == "", "4 ranks, which may be as many agents: 1.6 s more"
    party.until(lambda: guest.lost.startswith("no sign of life"), 5)


def test_who_dials_again_is_the_same_guest(party: Party) -> None:
    first = party.guest(1)
    party.until(party.all_here)
    first.close()
    party.guests.clear()
    party.guest(1)
    party.until(lambda: party.all_here() and len(party.host.guests) == 1)
    assert party.guest_of(1).lost == ""
    assert not party.host.parted


def test_containers_of_one_machine_may_each_have_a_process_1(party: Party) -> None:
    for rank in (1, 2, 3):
        party.guest(rank, host="gpu", identity="same", pid=1)
    party.until(party.host.complete)
    party.until(party.all_here)
    assert party.host.whole
    assert [g.lost for g in party.host.guests] == [""] * 3
    assert [guest.lost for guest in party.guests] == [""] * 3


def test_one_container_twice_is_a_duplicate_and_ends_nobody(party: Party) -> None:
    for nonce in ("first", "second"):
        party.guest(1, identity="same", pid=1, nonce=nonce)
    party.until(party.all_here)
    party.pass_time(0.2)
    assert [(g.hello.ranks, g.lost) for g in party.host.guests] == [((1,), "")] * 2
    assert [guest.lost for guest in party.guests] == [""] * 2


def test_a_container_that_is_started_again_is_the_same_guest(party: Party) -> None:
    first = party.guest(1, identity="same", pid=1, nonce="first")
    party.until(party.all_here)
    first.close()
    party.until(lambda: bool(party.guest_of(1).lost))
    party.guests.clear()
    party.guest(1, identity="same", pid=1, nonce="second")
    party.until(lambda: party.all_here() and len(party.host.guests) == 1)
    assert party.guest_of(1).lost == ""


# --- the end ---


def sockets_of(port: int) -> list[str]:
    """States of all sockets whose local port is this one."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[1].endswith(f":{port:04X}"):
                found.append(parts[3])
    return found


def test_everybody_hears_the_end_and_the_port_is_left_as_it_was(party: Party) -> None:
    party.guest(1)
    party.guest(2, 3)
    party.until(party.host.complete)
    party.host.close_door()
    again = handshake.listen(party.port)  # the connections stay, and the port is free
    for sock in again:
        sock.close()
    party.host.seats()
    party.host.over({"verdict": "not_ready", "exit": 3}, {"n1": {"own": 3, "line": "it is n1"}})
    party.until(lambda: all(g.over is not None for g in party.guests) and party.host.gone)
    first = {"verdict": "not_ready", "exit": 3, "own": 3, "line": "it is n1"}
    assert party.guests[0].over == first
    assert party.guests[1].over == {"verdict": "not_ready", "exit": 3, "own": 0}
    party.close()
    assert sockets_of(party.port) == []


def wait_until_sent(sock: socket.socket) -> None:
    """Until the kernel at the other end has all that was written: a reset drops what waits here."""
    limit = time.monotonic() + 5.0
    while unacknowledged_bytes(sock):
        assert time.monotonic() < limit
        time.sleep(0.005)


@pytest.mark.parametrize("noticed", ["by reading", "by a beat", "by an answer"])
def test_who_was_slow_hears_the_end_although_it_was_reset(party: Party, noticed: str) -> None:
    """A host closes when it has waited for a while. The end lies there to be read, whatever an
    agent that stood still does first when it goes on; it has not lost the host."""
    guest = party.guest(1)
    party.until(lambda: guest._pings > 5)
    if noticed == "by an answer":
        guest._values["digest"] = "[1]"
        party.host._tell(party.guest_of(1), connection.line_of({"want": ["digest"]}))
    party.host.over({"verdict": "ready", "exit": 0}, {})
    wait_until_sent(party.guest_of(1).wire.sock)
    party.host.close()
    if noticed == "by a beat":
        guest._beat = 0.0
        guest.tend()
    party.until(lambda: bool(guest.over or guest.lost))
    assert guest.over == {"verdict": "ready", "exit": 0, "own": 0}
    assert guest.lost == ""


def test_who_was_far_behind_hears_the_end_although_it_was_reset(
    party: Party, monkeypatch: Any
) -> None:
    guest = party.guest(1)
    party.until(lambda: guest._pings > 5)
    monkeypatch.setattr(connection, "CHUNK", 2048)
    for _ in range(20):
        party.host.relay(Said("net.mesh", 0, "topic", "x" * 1000, None), by_node=False)
    party.host.over({"verdict": "ready", "exit": 0}, {})
    wait_until_sent(party.guest_of(1).wire.sock)
    party.host.close()
    guest._beat = 0.0
    guest.tend()
    assert guest.over is not None
    assert guest.lost == ""


SENSELESS: dict[str, Any] = {
    "no ranks": {"seat": {"ranks": []}},
    "the ranks of another": {"seat": {"ranks": [2]}},
    "a rank that there is not": {"seat": {"ranks": [1, -1]}},
    "a rank beyond all": {"seat": {"ranks": [1, 1 << 40]}},
    "a place before the first": {"seat": {"number": -1}},
    "a place after the last": {"seat": {"number": 2}},
    "a node without a name": {"seat": {"node": ""}},
    "a node called as its rank": {"seat": {"node": "n0/0"}},
    "a node with a long name": {"seat": {"node": "x" * 1000}},
    "no verdict": {"over": {"verdict": None}},
    "another verdict": {"over": {"verdict": "splendid"}},
    "no exit code": {"over": {"exit": None}},
    "an exit code that there is not": {"over": {"exit": 255}},
    "truth for an exit code": {"over": {"exit": True}},
    "not ready, and all is well": {"over": {"verdict": "not_ready"}},
}
USUAL: dict[str, Any] = {
    "seat": {
        **{"node": "n1", "number": 1, "nodes": 2, "ranks": [1], "voice": True},
        **{"met": 2, "size": 4},
    },
    "over": {"verdict": "ready", "exit": 0, "own": 0},
}


@pytest.mark.parametrize("what", SENSELESS)
def test_a_host_that_makes_no_sense_is_lost(party: Party, what: str) -> None:
    """Then this agent says what it has seen, as when its host is gone."""
    guest = party.guest(1)
    party.until(party.all_here)
    ((word, said),) = SENSELESS[what].items()
    party.guest_of(1).wire.send({word: {**USUAL[word], **said}})
    party.until(lambda: bool(guest.lost))
    assert guest.lost.startswith("it sent what makes no sense")
    assert guest.seat is guest.over is None


@pytest.mark.parametrize("word", USUAL)
def test_and_one_that_does_is_believed(party: Party, word: str) -> None:
    guest = party.guest(1)
    party.until(party.all_here)
    party.guest_of(1).wire.send({word: USUAL[word]})
    party.until(lambda: bool(guest.seat or guest.over))
    assert guest.lost == ""


@pytest.mark.parametrize("what", ["no verdict", "an exit code that there is not"])
def test_last_words_that_make_no_sense_are_no_end(party: Party, what: str) -> None:
    guest = party.guest(1)
    party.until(lambda: guest._pings > 5)
    said = SENSELESS[what]["over"]
    party.guest_of(1).wire.send({"over": {**USUAL["over"], **said}})
    wait_until_sent(party.guest_of(1).wire.sock)
    party.host.close()
    guest._beat = 0.0
    guest.tend()
    assert guest.lost
    assert guest.over is None


def test_who_leaves_early_says_why(party: Party) -> None:
    guest = party.guest(1)
    party.until(party.all_here)
    guest.leave("interrupted by SIGTERM")
    party.until(lambda: party.guest_of(1).over)
    assert party.guest_of(1).lost == "interrupted by SIGTERM"


# --- the ladder ---


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind((HERE, 0))
        return int(sock.getsockname()[1])


def ladder(loop: Workers, port: int, seconds: float, *ips: str) -> Attendance:
    guest = Attendance(loop, hello(1), "", ips or (HERE,), port)
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        guest.tend()
        for _ in loop.run(time.monotonic() + 0.02):
            pass
    guest.close()
    return guest


def test_nobody_listens(loop: Workers) -> None:
    (rung,) = ladder(loop, closed_port(), 0.5).ladder
    assert (rung.ip, rung.error, rung.answer) == (HERE, "ECONNREFUSED", "")
    assert rung.tries > 1


def test_each_address_has_its_rung(party: Party) -> None:
    guest = party.guest(1, ips=("127.0.0.99", "0.0.0.256", HERE))
    party.host.close_door()
    party.until(lambda: len(guest.ladder) == 3)
    assert [r.error != "" for r in guest.ladder] == [True, True, True]


def test_a_host_that_opens_late_is_found(loop: Workers) -> None:
    port = closed_port()
    guest = Attendance(loop, hello(1), "", (HERE,), port)
    limit = time.monotonic() + 0.4
    while time.monotonic() < limit:
        guest.tend()
        for _ in loop.run(time.monotonic() + 0.02):
            pass
    party = Party(loop, port=port)
    party.guests.append(guest)
    party.until(party.all_here)
    assert guest.ladder[0].answer == "ours"
    party.close()


def test_who_was_silent_and_is_gone_stays_silent(loop: Workers, monkeypatch: Any) -> None:
    """How the connection failed while somebody held it tells more than that he has left since."""
    monkeypatch.setattr("preflight.meeting.member.BANNER_SECONDS", 0.2)
    server = socket.create_server((HERE, 0))
    guest = Attendance(loop, hello(1), "", (HERE,), server.getsockname()[1])
    limit = time.monotonic() + 9
    while not guest.ladder and time.monotonic() < limit:
        guest.tend()
        for _ in loop.run(time.monotonic() + 0.02):
            pass
    took, tries = guest.ladder[0].seconds, guest.ladder[0].tries
    server.close()
    while guest.ladder[0].tries < tries + 2 and time.monotonic() < limit:
        guest.tend()
        for _ in loop.run(time.monotonic() + 0.02):
            pass
    (rung,) = guest.ladder
    guest.close()
    assert (rung.answer, rung.error, rung.seconds) == ("silent", "", took)
    assert rung.tries == tries + 2


@pytest.mark.parametrize(
    ("says", "answer"), [(b"", "silent"), (b"220 smtp ready\r\n", "stranger"), (None, "closed")]
)
def test_somebody_else_answers(
    loop: Workers, monkeypatch: Any, says: bytes | None, answer: str
) -> None:
    """And gets not one byte from us."""
    monkeypatch.setattr("preflight.meeting.member.BANNER_SECONDS", 0.2)
    server = socket.create_server((HERE, 0))
    server.setblocking(False)
    guest = Attendance(loop, hello(1), "", (HERE,), server.getsockname()[1])
    accepted: list[socket.socket] = []
    limit = time.monotonic() + 5
    while not guest.ladder and time.monotonic() < limit:
        guest.tend()
        for _ in loop.run(time.monotonic() + 0.02):
            pass
        try:
            sock = server.accept()[0]
        except BlockingIOError:
            continue
        if says is None:
            sock.close()
        else:
            sock.sendall(says)
            accepted.append(sock)
    assert guest.ladder[0].answer == answer
    assert guest.ladder[0].heard == ("220 smtp ready\\r\\n" if says else "")
    guest.close()
    for sock in accepted:
        sock.settimeout(2)
        try:
            assert sock.recv(100) == b"", "an agent that knows no banner says nothing"
        except ConnectionResetError:
            pass
        sock.close()
    server.close()
