"""Light clients: what thousands of agents say to the host of a meeting, over real sockets, by a few
processes that run no checks. Each greets, proves nothing (there is no token), reports what
simulated.py has it see, answers every question, beats, and leaves when it is told how it
ended.

    python bench/light.py       what to simulate comes in as one line of JSON
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import simulated
from member import ADDRESS, CHECKS, PORT, tie_to

from preflight import __version__
from preflight.meeting import connection as wire
from preflight.meeting.connection import Gone, Wire
from preflight.meeting.protocol import Hello, digest_of, pause, text_of
from preflight.serde import encode

AT_ONCE = 16
"""Connections that one process begins before it looks at the others again."""
TRIES = 20
REFUSED_SECONDS = 0.05
LOOK_SECONDS = 2.0
"""Between two looks at which of the clients have to beat."""


class Sockets:
    """The loop of many wires (connection.Loop)."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._known: set[int] = set()

    def watch(self, file: socket.socket, events: int, wake: Any) -> None:
        if file.fileno() in self._known:
            self._selector.modify(file, events, wake)
        else:
            self._known.add(file.fileno())
            self._selector.register(file, events, wake)

    def unwatch(self, file: socket.socket) -> None:
        if file.fileno() in self._known:
            self._known.discard(file.fileno())
            self._selector.unregister(file)

    def turn(self, seconds: float, between: Callable[[], None]) -> None:
        """Let each do what came for it. `between`: of six thousand clients the last has its turn
        minutes after the first, and all have to beat meanwhile."""
        for key, events in self._selector.select(seconds):
            key.data(events)
            between()


@dataclass(slots=True, eq=False)
class Client:
    """One agent of a node. `ended` is the host's last word, or why it was lost."""

    script: simulated.Script
    place: int
    loop: Sockets
    counts: Counter[str]
    ended: str = ""
    entered: bool = False
    seat: int = 0
    tries: int = 0
    again: bool = False
    _wire: Wire | None = None
    _values: dict[str, str] = field(default_factory=dict)
    _beat: float = 0.0

    def connect(self) -> None:
        self.again = False
        self.tries += 1
        sock = socket.create_connection((ADDRESS, PORT), 30.0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wire = Wire(sock, self.loop, self._readable)
        self._wire.limit = wire.LINE_LIMIT

    def _readable(self, events: int) -> None:
        line = self._wire
        if line is None:
            return
        messages: Iterator[dict[str, Any]] = iter(())
        try:
            if events & wire.WRITE:
                line.flush()
            messages = iter(line.receive() if events & wire.READ else [])
            for message in messages:
                self._told(line, message)
        except Gone as why:
            self._broken(line, str(why), messages)

    def _broken(self, line: Wire, why: str, unheard: Iterable[dict[str, Any]] = ()) -> None:
        """As an agent does: one that was let in reads how it ended, another one tries again."""
        if self.entered:
            last_words = itertools.chain(unheard, line.rest())
            ends = (m["over"] for m in last_words if "over" in m)
            self._leave(self.ended or next((f"over: {end['verdict']}" for end in ends), why))
        elif self.tries < TRIES:
            self._leave("")
            self.ended, self.again = "", True
        else:
            self._leave(why)

    def _told(self, line: Wire, message: dict[str, Any]) -> None:
        of = self.script.of
        match message:
            case {"preflight": _}:
                hello = Hello(
                    version=__version__,
                    job="",
                    host=of.name(self.place),
                    identity=f"{self.place:016x}",
                    pid=1000 + self.place,
                    ranks=of.ranks_of(self.place),
                    size=of.size,
                    claims=f"{ADDRESS}:{PORT}",
                    mine=False,
                    nonce=f"{self.place:032x}",
                )
                line.send({"hello": encode(hello), "t": time.time(), "proof": ""})
            case {"welcome": _}:
                self.entered = True
                for check in self.script.checks:
                    if check not in MEETING and check not in NUMBERED:
                        self._say(line, check)
                line.send({"done": "machine"})
            case {"refused": why}:
                self._leave(f"refused: {why}")
            case {"seat": {"number": int(number)}}:
                self.seat = number
                for check in NUMBERED:
                    self._say(line, check)
            case {"start": str(check)}:
                self._say(line, check)
            case {"want": [str(digest)]} if digest in self._values:
                line.send({"value": [digest, json.loads(self._values[digest])]})
                self.counts["values"] += 1
            case {"over": dict(ends)}:
                self.ended = f"over: {ends.get('verdict')}"
                line.send({"bye": ""})
                self._leave(self.ended)

    def _say(self, line: Wire, check: str) -> None:
        """Its observations of a check, as member.py sends them."""
        of, name = self.script.of, self.script.of.name(self.place)
        if check not in self.script.checks:
            line.send({"seen": [check, name, {"missing": SKIPPED}]})
            return
        by_rank = self.script.by_rank(check)
        for rank in of.ranks_of(self.place) if by_rank else (None,):
            data = self.script.said(check, self.place, self.seat, rank)
            key = name if rank is None else f"{name}/{rank}"
            if "missing" in data:
                missing = encode(simulated.observation(data))
                line.send({"seen": [check, key, {"missing": missing}]})
                self.counts["seen"] += 1
                continue
            sent = {"seconds": data["seconds"], "marks": data["marks"]}
            text = text_of(data["ok"])
            if len(text) <= 512:
                sent["value"] = data["ok"]
            else:
                sent["digest"] = digest_of(text)
                self._values[sent["digest"]] = TEXTS.setdefault(sent["digest"], text)
            line.send({"seen": [check, key, sent]})
            self.counts["seen"] += 1

    def tend(self, now: float) -> None:
        if self._wire is None or not self.entered or now - self._beat < pause(self.script.of.nodes):
            return
        self._beat = now
        try:
            self._wire.send({"beat": "", "t": time.time(), "clock": [0.0, 0.0001]})
        except Gone as why:
            self._broken(self._wire, str(why))

    def _leave(self, why: str) -> None:
        self.ended = why or "gone"
        if self._wire is not None:
            self.counts["sent"] += self._wire.sent
            self.counts["received"] += self._wire.received
            self._wire.close()
            self._wire = None
        self._values.clear()


MEETING = frozenset(CHECKS) - {"env.identity", "env.vars", "net.port"}
"""What the host starts; all else is told at once, also what a run would start later."""
NUMBERED = ("agree.names", "net.mesh", "net.payload", "net.speed")
"""What speaks of others by the numbers that the host gives out."""
SKIPPED = {"cause": "skipped", "detail": "not simulated"}
TEXTS: dict[str, str] = {}
"""By digest: what many say is one text."""


def main() -> None:
    told = json.loads(sys.stdin.readline())
    tie_to(told["parent"])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    told["of"]["odd"] = tuple(told["of"]["odd"])
    script = simulated.Script(simulated.Simulated(**told["of"]))
    loop, counts = Sockets(), Counter[str]()
    clients = [Client(script, place, loop, counts) for place in told["places"]]
    waiting = clients[::-1]
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + told["limit"]
    looked, last = 0.0, 0.0

    def beat() -> None:
        nonlocal looked
        now = time.monotonic()
        if now - looked > LOOK_SECONDS:
            looked = now
            for client in clients:
                client.tend(now)

    while time.monotonic() < until and not all(c.ended for c in clients):
        for client in [waiting.pop() for _ in range(min(AT_ONCE, len(waiting)))]:
            try:
                client.connect()
                last = time.monotonic()
            except ConnectionRefusedError:
                if any(c.ended.startswith("over") for c in clients):
                    client.ended = "too late: the meeting was over"
                    continue
                # the host's check has let go of the port that it will take
                waiting.insert(0, client)
                time.sleep(REFUSED_SECONDS)
        loop.turn(0.0 if waiting else 0.05, beat)
        beat()
        known = set(map(id, waiting))
        waiting += [c for c in clients if c.again and id(c) not in known]
    ends = Counter(c.ended or "never told" for c in clients)
    print(json.dumps({"last": last, "ends": ends, "counts": counts}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
