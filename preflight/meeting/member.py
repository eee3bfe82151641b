"""The guest's side of the meeting: the ladder of addresses that lead to it, and a seat in it.

Every address that MASTER_ADDR has here is tried in c10d's order, again and again until `patience`
is over. What each of them came to is kept: when no way leads in, that is the diagnosis. Nothing is
sent to a listener that has not shown our banner.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import itertools
import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from preflight.domains.net.icmp import EXPIRED, REJECTS, Unreachable, keep_icmp, unreachable
from preflight.domains.net.tcp import acknowledged, unacknowledged_bytes
from preflight.meeting import connection
from preflight.meeting.connection import Gone, Loop, Wire
from preflight.meeting.handshake import ours
from preflight.meeting.protocol import (
    MARK_LIMIT,
    Hello,
    Said,
    Seat,
    end_of,
    judging,
    observation_for,
    pause,
    proof_of_guest,
    proof_of_host,
    seat_of,
    silence,
    slack,
)
from preflight.model import Observation
from preflight.roster import GAVE_UP, SILENT, Attempt, Crawl
from preflight.sanitize import escaped
from preflight.serde import encode, weight

CONNECT_SECONDS = 4.0
"""For one address to answer: a host that is gone is known after 3 s of ARP."""
BANNER_SECONDS = 3.0
"""For a listener to show our banner, and for the answer to our hello; in a crowd it has more to
do."""
ANSWERS_OF_OURS = ("token", "other job", "version")
"""Of a meeting that did not let us in."""
PAUSES = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Seconds between two tries of the whole ladder, rising: the host may not be listening yet."""
STARTS = 1000
WANTED = 16
"""Checks that a host may start, and values that it may ask for in one line; ours asks for one."""
HEARD = 64 << 20
"""Bytes that are kept of what peers say to each other."""
NO_ICMP = Unreachable()
PINGS = 5
"""Round trips at the start, the best of which tells the difference of the clocks."""


LONGEST = 1e9
"""Seconds of a round trip, beyond which it is none."""


@dataclass(slots=True)
class Clock:
    """The difference of two wall clocks by the best round trip so far."""

    offset: float | None = None
    uncertainty: float | None = None

    def learn(self, trip: object, now: float) -> None:
        """`trip`: [when we sent, when the host got it, when it answered]; `now`: our clock."""
        match trip:
            case [int() | float() as t1, int() | float() as t2, int() | float() as t3]:
                half = ((now - t1) - (t3 - t2)) / 2
                if 0 <= half < LONGEST and (self.uncertainty is None or half < self.uncertainty):
                    self.uncertainty = round(half, 6)
                    self.offset = round(((t1 - t2) + (now - t3)) / 2, 6)


@dataclass(slots=True)
class Rung:
    """One address on the way."""

    ip: str
    port: int
    last: Attempt | None = None
    tries: int = 0


@dataclass(slots=True, eq=False)
class Attendance:
    """One agent's way into the meeting, and its place there. `tend()` is called again and again."""

    loop: Loop
    hello: Hello
    token: str
    ips: tuple[str, ...]
    port: int
    began: float = field(default_factory=time.monotonic)
    reached: float | None = None
    refused: str = ""
    seat: Seat | None = None
    over: Mapping[str, Any] | None = None
    lost: str = ""
    crawl: Crawl | None = None
    host_lost: bool = False
    """Whoever is in the meeting for this agent has lost it, and said so."""
    started: list[str] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    mark: str = ""
    listening: bool = False
    """Somebody of our kind was seen at the meeting point."""
    agents: int = 0
    """How many the one at the other end has to do with; 0: with all."""
    unsent: list[tuple[str, str, Observation]] = field(default_factory=list)
    """Made before we got in."""
    _rungs: list[Rung] = field(default_factory=list)
    _at: int = -1
    _dialling: socket.socket | None = None
    _wire: Wire | None = None
    _due: float = 0.0
    _since: float = 0.0
    _rounds: int = 0
    _nonce: str = ""
    _heard: float = 0.0
    _beat: float = 0.0
    _pings: int = 0
    _acked: list[tuple[float, int]] = field(default_factory=list)
    """When each beat was since the other end was last heard, and the bytes it had acknowledged."""
    _kept: int = 0
    _values: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.agents = self.agents or self.hello.agents
        self._rungs = [Rung(ip, self.port) for ip in self.ips]

    def go_to(self, ips: tuple[str, ...], port: int) -> None:
        """The meeting turned out to be elsewhere (it was announced in a launcher's store)."""
        self.close()
        self._rungs = [Rung(ip, port) for ip in ips]
        self._at, self._due, self._nonce = -1, 0.0, ""

    @property
    def ladder(self) -> tuple[Attempt, ...]:
        return tuple(r.last for r in self._rungs if r.last is not None)

    # --- the ladder ---

    def tend(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self.lost or self.over is not None:
            return
        if self.reached is not None:
            self._keep_alive(now)
        elif self._dialling is not None or self._wire is not None:
            if now >= self._due:
                self._timed_out(now)
        elif now >= self._due and self._rungs:
            self._dial(now)

    def _dial(self, now: float) -> None:
        self._at += 1
        rung = self._rungs[self._at]
        self._since = now
        rung.tries += 1
        local = rung.ip[:1] == "\0"  # the name of an abstract socket
        family = socket.AF_INET6 if ":" in rung.ip else socket.AF_INET
        try:
            kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
            sock = socket.socket(socket.AF_UNIX if local else family, kind)
        except OSError as error:
            self._step(error=_name(error.errno))
            return
        if not local:
            connection.keep_segments_small(sock)
            keep_icmp(sock)
        code = 0
        try:
            code = sock.connect_ex(rung.ip if local else (rung.ip, rung.port))
        except OSError as error:  # a name in the place of an address
            code = error.errno or errno.EINVAL
        if code not in (0, errno.EINPROGRESS):
            self._failed(sock, code)
            return
        self._dialling = sock
        self._due = now + CONNECT_SECONDS
        self.loop.watch(sock, connection.WRITE, lambda _: self._connected())

    def _connected(self) -> None:
        sock = self._dialling
        if sock is None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self.loop.unwatch(sock)
        self._dialling = None
        if code:
            self._failed(sock, code)
            return
        keep_icmp(sock, wanted=False)
        try:
            own, other = sock.getsockname()[:2], sock.getpeername()[:2]
        except OSError as error:  # reset meanwhile, or woken by a message that ended nothing
            self._failed(sock, error.errno or errno.ENOTCONN)
            return
        # one that connects to a free port of its own range can meet itself
        if own == other:
            sock.close()
            self._step(error="ECONNREFUSED")
            return
        if not ours(sock):
            sock.close()
            self._step(error="EACCES")
            return
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._due = time.monotonic() + BANNER_SECONDS + slack(self.agents)
        self._wire = Wire(sock, self.loop, self._readable)

    def _failed(self, sock: socket.socket, code: int) -> None:
        icmp = unreachable(sock)
        sock.close()
        self._step(error=_name(code), icmp=icmp)

    def _timed_out(self, now: float) -> None:
        if self._dialling is not None:
            self.loop.unwatch(self._dialling)
            self._dialling.close()
            self._dialling = None
            self._step(error="ETIMEDOUT")
        elif self._wire is not None:
            heard = self._wire.heard
            unacked = unacknowledged_bytes(self._wire.sock) or 0
            self._wire.close()
            self._wire = None
            kind = "ours" if self._nonce else "stranger" if heard else "silent"
            said = escaped(heard) if kind == "stranger" else ""
            self._step(answer=kind, heard=said, unacked=unacked)

    def _step(
        self,
        *,
        error: str = "",
        answer: str = "",
        heard: str = "",
        unacked: int = 0,
        icmp: Unreachable = NO_ICMP,
        entered: bool = False,
    ) -> None:
        """This rung is done; the next one, or after a pause the first one again."""
        now = time.monotonic()
        rung = self._rungs[self._at]
        seconds = round(now - self._since, 4)
        last = rung.last
        before = last.answer if last is not None else ""
        if last is not None and error == "ECONNREFUSED" and (before == "silent" or last.unacked):
            # it is over there meanwhile; how the connection failed while it was held tells more
            answer, error, seconds, unacked = before, "", last.seconds, last.unacked
        if last is not None and last.icmp in (*REJECTS, EXPIRED) and error == "ETIMEDOUT":
            # who rejects says so only now and then (net.ipv4.icmp_ratelimit), and drops the rest
            error, seconds, icmp = last.error, last.seconds, Unreachable(last.icmp, last.icmp_by)
        if before in ANSWERS_OF_OURS and answer not in ANSWERS_OF_OURS and not entered:
            # it is over there meanwhile, perhaps since our hello; what was said before tells more
            answer, heard, error = before, last.heard if last else "", ""
        rung.last = Attempt(
            rung.ip,
            rung.port,
            error,
            answer,
            heard,
            seconds,
            rung.tries,
            round(self._since - self.began, 3),
            unacked,
            icmp.what,
            icmp.by,
        )
        self._nonce = ""
        self._due = now
        if self._at + 1 >= len(self._rungs):
            self._at = -1
            self._due = now + PAUSES[min(self._rounds, len(PAUSES) - 1)]
            self._rounds += 1

    # --- the greeting ---

    def _readable(self, events: int) -> None:
        line = self._wire
        if line is None:
            return
        messages: Iterator[Mapping[str, Any]] = iter(())
        try:
            if events & connection.WRITE:
                line.flush()
            messages = iter(line.receive() if events & connection.READ else [])
            for message in messages:
                if self._wire is not line:
                    self._hear_last_words([message, *messages])
                    break
                self._understand(line, message)
        except Gone as why:
            self._broken(line, str(why), messages)
        except Exception as error:  # noqa: BLE001  whatever its words raise, this agent goes on
            self._broken(line, f"it sent what makes no sense: {error}"[:200])

    def _broken(self, line: Wire, why: str, unheard: Iterable[Mapping[str, Any]] = ()) -> None:
        """The connection is over. `unheard`: what had been received before that was noticed."""
        unacked = unacknowledged_bytes(line.sock) or 0
        if self.reached is not None:
            self.lost = self.lost or why
            self._hear_last_words(itertools.chain(unheard, line.rest()))
        line.close()
        self._wire = None
        if self.reached is not None:
            return
        if line.heard and not self._nonce:
            self._step(answer="stranger", heard=escaped(line.heard))
        else:
            self._step(answer="ours" if self._nonce else "closed", unacked=unacked)

    def _understand(self, line: Wire, message: Mapping[str, Any]) -> None:
        if self.reached is not None:
            self._told(line, message)
        elif "preflight" in message and not self._nonce:
            self._greet(line, message)
        elif "welcome" in message and self._nonce:
            self._enter(line, message)
        elif "refused" in message:
            self.refused = str(message["refused"])[:40]
            line.close()
            self._wire = None
            told = str(message.get("version" if self.refused == "version" else "job", ""))
            self._step(answer=self.refused, heard=told[:80])
        else:
            raise Gone("it speaks another language")

    def _greet(self, line: Wire, banner: Mapping[str, Any]) -> None:
        self._nonce = str(banner.get("nonce", ""))[:128]
        self.listening = True
        line.limit = connection.LINE_LIMIT
        if (
            bool(banner.get("token")) != bool(self.token)
            or banner["preflight"] != connection.PROTOCOL
        ):
            self.refused = "token" if banner["preflight"] == connection.PROTOCOL else "version"
            line.close()
            self._wire = None
            self._step(answer=self.refused, heard=str(banner.get("version", ""))[:40])
            return
        line.send(
            {
                "hello": encode(self.hello),
                "t": time.time(),
                "proof": proof_of_guest(self.token, self._nonce, self.hello),
            }
        )
        self._due = time.monotonic() + BANNER_SECONDS + slack(self.agents)

    def _enter(self, line: Wire, welcome: Mapping[str, Any]) -> None:
        if self.token:
            expected = proof_of_host(self.token, self._nonce, self.hello)
            if not hmac.compare_digest(str(welcome.get("proof", "")).encode(), expected.encode()):
                self.refused = "token"
                line.close()
                self._wire = None
                self._step(answer="token")
                return
            line.prove(connection.proof_key(self.token, self._nonce, self.hello.nonce), "guest")
        now = time.monotonic()
        self.clock.learn(welcome["welcome"], time.time())
        nonce = self._nonce
        self._step(answer="ours", entered=True)
        self._nonce = nonce
        self.reached = round(now - self.began, 3)
        self._heard, self._beat = now, 0.0
        waiting, self.unsent = self.unsent, []
        for check, key, observation in waiting:
            self.send_seen(check, key, observation)
        self._keep_alive(now)

    # --- in the meeting ---

    def _told(self, line: Wire, message: Mapping[str, Any]) -> None:
        self._heard = time.monotonic()
        match message:
            case {"pong": trip}:
                self.clock.learn(trip, time.time())
                self._pings += 1
                if self._pings <= PINGS:
                    self._beat = 0.0
                    self._keep_alive(self._heard)
            case {"seat": dict(seat)}:
                self.seat = seat_of(seat, self.hello)
            case {"start": str(check)} if len(self.started) < STARTS:
                self.started.append(check[:80])
            case {"want": list(digests)}:
                for digest in digests[:WANTED]:
                    if (text := self._values.get(str(digest))) is not None:
                        line.send({"value": [digest, json.loads(text)]})
            case {"said": [str(group), int(rank), str(topic), value, to]}:
                numbers = None if to is None else tuple(int(n) for n in to)
                self._kept += weight(connection.line_of(message))
                if self._kept > HEARD:
                    raise Gone("it said more than is kept of a host")
                self.said.append(Said(group, rank, topic, value, numbers))
            case {"bye": _, "host_lost": bool()}:
                self.close()
                self._hear_last_words([message])
            case {"judging": _}:
                self._heard += judging(self.agents)
            case {"over": dict(ends)}:
                self.over = end_of(ends)
                self.leave("")

    def _hear_last_words(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Why whoever is in the meeting for this agent left it, which tells more than how its
        connection broke; or how the meeting ended. A host that has waited long enough for an agent
        to hear that resets its connection."""
        for message in messages:
            match message:
                case {"bye": why, "host_lost": bool(host_lost)}:
                    self.lost = str(why)[:MARK_LIMIT] or "it left"
                    self.host_lost = host_lost
                case {"over": dict(ends)}:
                    with contextlib.suppress(ValueError):  # then it is lost
                        self.over = end_of(ends)
                        self.lost = ""

    def _keep_alive(self, now: float) -> None:
        if now - self._heard > silence(self.agents):
            self.lost = f"{SILENT} for {now - self._heard:.0f} s"
            self.crawl = self._crawled(now)
            self.leave(f"{GAVE_UP}: {self.lost}")
        elif now - self._beat >= pause(self.agents):
            self._beat = now
            self._note_acknowledged(now)
            clock = [self.clock.offset, self.clock.uncertainty]
            self._send({"beat": self.mark, "t": time.time(), "clock": clock})

    def _note_acknowledged(self, now: float) -> None:
        if self._acked and self._acked[0][0] <= self._heard:
            self._acked.clear()
        told = acknowledged(self._wire.sock) if self._wire is not None else None
        if told is not None:
            self._acked.append((now, told[0]))

    def _crawled(self, now: float) -> Crawl | None:
        """How slowly the other end takes what we send, if it does to the last while it is not
        heard: our own beats wait in that queue."""
        told = acknowledged(self._wire.sock) if self._wire is not None else None
        if self._wire is None or told is None or len(self._acked) < 2:
            return None
        (since, before), (_, lately) = self._acked[0], self._acked[-2]
        queued = self._wire.unsent + (unacknowledged_bytes(self._wire.sock) or 0)
        if since <= self._heard or told[0] <= lately or not queued:
            return None
        return Crawl(round(now - since, 3), told[0] - before, queued, told[1])

    def excuse(self, seconds: float) -> None:
        """We ourselves did not listen for so long."""
        self._heard += seconds

    def _send(self, message: Any) -> None:
        if self._wire is None or self.reached is None or self.over is not None:
            return
        try:
            self._wire.send(message)
        except Gone as why:
            self._broken(self._wire, str(why))

    def send_seen(self, check: str, key: str, observation: Observation) -> None:
        """Report an observation; one that was made before we got in is kept until then."""
        if self.reached is None:
            self.unsent.append((check, key, observation))
            return
        data, digest, text = observation_for(observation)
        if digest:
            self._values[digest] = text
        self._send({"seen": [check, key, data]})

    def send_with(self, others: Sequence[Hello]) -> None:
        """Agents of this node that this one speaks for."""
        self._send({"with": [[one.nonce, one.pid, list(one.ranks)] for one in others]})

    def send_gone(self, nonce: str, why: str) -> None:
        """One of them is lost."""
        self._send({"gone": [nonce, why]})

    def send_done(self, stage: str) -> None:
        self._send({"done": stage})

    def send_said(self, said: Said) -> None:
        to = said.to and list(said.to)
        self._send({"said": [said.group, said.rank, said.topic, said.value, to]})

    def leave(self, why: str) -> None:
        """Say goodbye, as the first to close: the meeting's port keeps no trace of us."""
        if self._wire is not None and self.reached is not None and not self._wire.closed:
            try:
                self._wire.send({"bye": why})
            except Gone:
                pass
        self.close()

    def close(self) -> None:
        if self._dialling is not None:
            self.loop.unwatch(self._dialling)
            self._dialling.close()
            self._dialling = None
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def _name(code: int | None) -> str:
    return errno.errorcode.get(code or 0, f"errno {code}")
