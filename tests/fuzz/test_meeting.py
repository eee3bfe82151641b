"""Both ends of the meeting, told anything: no exception leaves them, who behaves stays, and what
they keep can be written into a report."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from support.fuzzing import EXAMPLES
from support.hostile import SURROGATES, WORDS, changed, damaged, text_of

from preflight.meeting import connection
from preflight.meeting.connection import READ, Wire
from preflight.meeting.coordinator import Meeting
from preflight.meeting.member import Attendance, Rung
from preflight.meeting.protocol import Hello, Said
from preflight.model import Seen
from preflight.roster import Arrival
from preflight.serde import encode

Wake = Callable[[int], None]


class Watched:
    """A loop that wakes only when it is told to."""

    def __init__(self) -> None:
        self.wakes: dict[Any, Wake] = {}

    def watch(self, file: Any, events: int, wake: Wake) -> None:
        self.wakes[file] = wake

    def unwatch(self, file: Any) -> None:
        self.wakes.pop(file, None)


class Listener:
    """One that has the connections that a test gives it."""

    def __init__(self) -> None:
        self.queue: list[socket.socket] = []

    def setblocking(self, flag: bool) -> None:
        pass

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if not self.queue:
            raise BlockingIOError
        return self.queue.pop(), ("10.0.0.9", 1)

    def close(self) -> None:
        pass


def hello(rank: int) -> Hello:
    return Hello("1", "", f"n{rank}", f"id{rank}", 7, (rank,), 3, "n0:29500", False, "nonce", None)


class Host:
    """The host of a meeting, and whoever comes to it."""

    def __init__(self, token: str = "") -> None:
        self.loop, self.listener = Watched(), Listener()
        listeners: list[Any] = [self.listener]
        self.meeting = Meeting(self.loop, listeners, hello(0), token)
        self.ends: list[socket.socket] = []

    def come(self, first: bytes) -> tuple[socket.socket, socket.socket]:
        mine, theirs = socket.socketpair()
        self.ends.append(theirs)
        self.listener.queue.append(mine)
        self.loop.wakes[self.listener](READ)
        self.tell(mine, theirs, first)
        return mine, theirs

    def tell(self, mine: socket.socket, theirs: socket.socket, data: bytes) -> None:
        if mine in self.loop.wakes:
            theirs.sendall(data)
            self.loop.wakes[mine](READ)

    def check(self) -> None:
        """All that the rest of the program does with what it was told."""
        meeting = self.meeting
        meeting.tend()
        meeting.seats()
        me = Arrival("n0", "n0", "id0", 1, (0,), 3)
        written({"arrivals": encode(meeting.arrivals(me)), "strangers": encode(meeting.strangers)})
        for taken in meeting.taken:
            written(encode((taken.check, taken.key, taken.observation)))
        for said in meeting.said:
            meeting.relay(said, by_node=False)
        meeting.start("net.mesh")
        meeting.over({"verdict": "ready", "exit": 0}, {})

    def close(self) -> None:
        self.meeting.close()
        for end in self.ends:
            end.close()


@contextmanager
def hosting(token: str = "") -> Iterator[Host]:
    host = Host(token)
    try:
        yield host
    finally:
        host.close()


def written(data: Any) -> None:
    json.dumps(data, allow_nan=False, ensure_ascii=False).encode()


HELLO = {"hello": encode(hello(1)), "t": 1.0, "proof": "0" * 64}
MESSAGES: list[Any] = [
    {"beat": "net.mesh: dial", "t": 1.5, "clock": [0.1, 0.01]},
    {"seen": ["host.limits", "n1/1", {"seconds": 0.1, "marks": [["a", 0.1]], "value": {"a": [1]}}]},
    {"seen": ["host.limits", "n1", {"missing": {"cause": "timed_out", "detail": "x"}}]},
    {"seen": ["host.limits", "n1", {"seconds": 0.1, "digest": "0" * 64}]},
    {"value": ["0" * 64, {"a": 1}]},
    {"done": "machine"},
    {"said": ["net.mesh", 1, "listen", ["10.0.0.1", 4711], [0, 2]]},
    {"bye": "interrupted by SIGTERM"},
]
WORD = st.sampled_from(MESSAGES).flatmap(changed).map(text_of)
LINE = WORD | st.sampled_from(MESSAGES).map(text_of).flatmap(damaged) | st.binary(max_size=40)


@given(st.sampled_from([HELLO]).flatmap(changed).map(text_of).flatmap(damaged), st.booleans())
@example(json.dumps({**HELLO, "proof": "é"}).encode(), True)
@example(json.dumps({**HELLO, "proof": "\ud800"}).encode(), True)
@example(json.dumps({**HELLO, "t": float("nan")}).encode(), False)
@EXAMPLES
def test_a_stranger(line: bytes, token: bool) -> None:
    with hosting("sesame" if token else "") as host:
        host.come(line + b"\n")
        if not token:
            host.come(text_of({"hello": encode(hello(2)), "t": 1.0}) + b"\n")
            assert [g.lost for g in host.meeting.guests if g.hello.host == "n2"] == [""]
        host.check()


def by_each(words: dict[str, str]) -> Callable[[Any], Any]:
    """Each of them as an example."""

    def wrap(test: Any) -> Any:
        for word in words.values():
            test = example([word.encode()])(test)
        return test

    return wrap


@given(st.lists(LINE, max_size=6))
@by_each(WORDS)
@by_each(SURROGATES)
@EXAMPLES
def test_a_guest(lines: list[bytes]) -> None:
    with hosting() as host:
        good = host.come(text_of({"hello": encode(hello(2)), "t": 1.0}) + b"\n")
        evil = host.come(text_of(HELLO) + b"\n")
        for line in lines:
            host.tell(*evil, line + b"\n")
        host.tell(*good, b'{"done":"machine"}\n')
        (guest,) = [g for g in host.meeting.guests if g.hello.host == "n2"]
        assert guest.done == {"machine"}
        host.check()
        assert guest.lost == ""


BANNER = {"preflight": connection.PROTOCOL, "version": "1", "job": "", "nonce": "n", "token": False}
WELCOME = {"welcome": [1.0, 1.1, 1.2]}
SEAT = {"node": "n1", "number": 1, "nodes": 2, "ranks": [1], "voice": True, "met": 2, "size": 3}
TOLD: list[Any] = [
    BANNER,
    WELCOME,
    {"refused": "version", "version": "2", "job": ""},
    {"pong": [1.0, 1.1, 1.2]},
    {"seat": SEAT},
    {"start": "net.mesh"},
    {"want": ["0" * 64]},
    {"said": ["net.mesh", 0, "listen", [1], None]},
    {"over": {"verdict": "ready", "exit": 0, "own": 0}},
]
FROM_HOST = (
    st.sampled_from(TOLD).map(text_of)
    | st.sampled_from(TOLD).flatmap(changed).map(text_of)
    | st.sampled_from(TOLD).map(text_of).flatmap(damaged)
)


@given(st.integers(0, 2), st.lists(FROM_HOST, max_size=6), st.sampled_from(["", "sesame"]))
@example(2, [b'{"pong":[1,NaN,1e999]}'], "")
@example(2, [b'{"seat":' + b"[" * 600 + b"]" * 600 + b"}"], "")
@example(1, ['{"welcome":[1,1,1],"proof":"é"}'.encode()], "sesame")
@EXAMPLES
def test_a_host(greeted: int, lines: list[bytes], token: str) -> None:
    loop = Watched()
    mine, theirs = socket.socketpair()
    guest = Attendance(loop, hello(1), token, ("10.0.0.1",), 29500)
    guest._rungs, guest._at = [Rung("10.0.0.1", 29500)], 0
    guest._wire = Wire(mine, loop, guest._readable)
    first = [text_of({**BANNER, "token": bool(token)}), text_of(WELCOME)][:greeted]
    try:
        for line in first + lines:
            if mine in loop.wakes:
                theirs.sendall(line + b"\n")
                loop.wakes[mine](READ)
        guest.send_seen("a.b", "n1", Seen(["x"] * 300))
        guest.send_said(Said("a.b", 1, "t", 1, None))
        guest.send_done("machine")
        if guest.reached is not None:
            guest.tend()
        written(encode((guest.ladder, guest.lost, guest.clock.offset, guest.clock.uncertainty)))
        written(encode((guest.seat, guest.started, guest.said)))
        written([guest.refused, str(guest.over)])
    finally:
        guest.close()
        theirs.close()
