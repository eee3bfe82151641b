"""The door of the meeting: who comes in over the listening port is anybody until he has said who he
is and, where there is a token, proven to know it. All others are counted, and told nothing.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import resource
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from preflight.frozen import dataclass
from preflight.meeting import connection as wire
from preflight.meeting.connection import Gone, Loop, Wire
from preflight.meeting.numbering import adds_up
from preflight.meeting.protocol import RANKS_MOST, Hello, proof_of_guest
from preflight.roster import Stranger
from preflight.sanitize import escaped
from preflight.serde import decode

GREETING_SECONDS = 5.0
"""For a connection to say that it is an agent of ours."""
WAITING_LIMIT = 256
"""Connections that have not said who they are, beside one for each agent that is due; beyond that
one of those who have sent most of them is closed for each new one."""
WAITING_MOST = 1 << 14
"""Agents for which there is room beyond that: their number is only claimed."""
SEATS_BESIDE = 64
SEATS_A_RANK = 4
"""How many agents are let in: some more than can be of this job, as they may come again."""
FULL_PAUSE = 0.25
"""Seconds without accepting, where no more files may be open."""
FILES_KEPT = 32
FILES_A_RANK = 4
"""Open files that checks need later on."""
OWN = "own"
"""What a connection of this very agent is told: the way to MASTER_ADDR was all that it tried."""
NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
KINDS_LIMIT = 32


@dataclass(slots=True, eq=False)
class _Greeting:
    """A connection that may be anybody's."""

    wire: Wire
    addr: str
    since: float
    nonce: str
    refused: str = ""
    """It was told why it can't come in, and is to close first: a reset might overtake the word."""


@dataclass(frozen=True, slots=True)
class Visit:
    """How an agent came: from where, the nonce that it was greeted with, our clock when its hello
    came, its own clock when it sent that, and what it had said after it already."""

    addr: str
    nonce: str
    came: float
    sent: object
    more: list[dict[str, Any]]


class OpenFiles:
    """As many open files as a meeting needs, where this process may have them. Some are kept for
    the checks that begin once everybody has come."""

    def __init__(self, connections: int, checks: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._before: int | None = None
        self.limit = soft
        try:
            wanted = len(os.listdir("/proc/self/fd")) + connections + checks
        except OSError:  # there is none left even for that
            wanted = connections + checks
        if soft != resource.RLIM_INFINITY and soft < wanted:
            more = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            except (OSError, ValueError):
                pass  # a sandbox that allows it to nobody
            else:
                self.limit, self._before = more, soft
        self._kept: list[int] = []
        try:
            for _ in range(checks):
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass

    def spend(self) -> None:
        """What was kept may be used: nobody else comes."""
        for file in self._kept:
            os.close(file)
        self._kept.clear()

    def restore(self) -> None:
        """Processes that are started from here on have the limit that this one had: a program that
        waits with select() must not get files beyond 1,023."""
        self.spend()
        if self._before is not None:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            limited = hard != resource.RLIM_INFINITY  # since then, maybe: prlimit(1)
            before = min(self._before, hard) if limited else self._before
            resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
            self._before = None


class Door:
    """Listeners, and the connections that have not said who they are. `admit` gets each agent of
    this job, with what it said first and when that came."""

    def __init__(
        self,
        loop: Loop,
        listeners: list[socket.socket],
        me: Hello,
        token: str,
        admit: Callable[[Wire, Hello, Visit], None],
    ) -> None:
        self._loop = loop
        self._listeners = listeners
        self._me = me
        self._token = token
        self._admit = admit
        self._greetings: dict[int, _Greeting] = {}
        self._waiting: Counter[str] = Counter()
        """Address -> how many of the greetings are its."""
        self._room = WAITING_LIMIT + min(me.agents, WAITING_MOST)
        self._seats = SEATS_BESIDE + SEATS_A_RANK * me.size
        self.files = OpenFiles(self._room + me.size, FILES_KEPT + FILES_A_RANK * len(me.ranks))
        self.full = ""
        """Why nobody could be accepted for a while (errno's name)."""
        self._resume: float | None = None
        self.word = os.urandom(16).hex()
        self.met_itself = False
        """A connection came with this word, which nobody else knows."""
        self._strangers: Counter[tuple[str, str]] = Counter()
        self._heard: dict[tuple[str, str], str] = {}
        for listener in listeners:
            listener.setblocking(False)
            self._attend(listener)

    def _attend(self, listener: socket.socket) -> None:
        self._loop.watch(listener, wire.READ, lambda _: self._accept(listener))

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(64):  # then others have their turn
            try:
                sock, address = listener.accept()
            except OSError as error:
                if error.errno in NO_FILES:
                    self._pause(errno.errorcode[error.errno])
                return
            if not ours(sock):
                sock.close()
                continue
            addr = address[0].removeprefix("::ffff:") if address else ""
            if len(self._greetings) >= self._room:
                self._make_room()
            nonce = hashlib.sha256(f"{self._me.nonce}{time.monotonic_ns()}{address}".encode())
            fileno = sock.fileno()
            line = Wire(sock, self._loop, self._waker(fileno))
            self._greetings[fileno] = _Greeting(
                line, addr, time.monotonic(), nonce.hexdigest()[:32]
            )
            self._waiting[addr] += 1
            banner = {
                "preflight": wire.PROTOCOL,
                "version": self._me.version,
                "job": self._me.job,
                "nonce": self._greetings[fileno].nonce,
                "token": bool(self._token),
            }
            try:
                line.send(banner)
            except Gone:
                self._turn_away(fileno, "half-open")

    def _pause(self, why: str) -> None:
        """No file is left for another connection: the others wait in the kernel's queue until a
        silent one has gone, where there is one, and for a moment in any case. To ask again at once
        would take all of the CPU, since the listener goes on saying that somebody is there."""
        self.full = why
        self._resume = time.monotonic() + FULL_PAUSE
        for listener in self._listeners:
            self._loop.unwatch(listener)
        if self._greetings:
            self._make_room()

    def _make_room(self) -> None:
        """Close the oldest connection of the address that has the most of those that wait."""
        crowd = max(self._waiting, key=self._waiting.__getitem__)
        oldest = next(f for f, greeting in self._greetings.items() if greeting.addr == crowd)
        self._turn_away(oldest, _kind(self._greetings[oldest].wire.heard) or "crowd")

    def _forget(self, fileno: int) -> _Greeting:
        greeting = self._greetings.pop(fileno)
        self._waiting[greeting.addr] -= 1
        if not self._waiting[greeting.addr]:
            del self._waiting[greeting.addr]
        return greeting

    def _waker(self, fileno: int) -> Callable[[int], None]:
        return lambda events: self._greeted(fileno, events)

    def _greeted(self, fileno: int, events: int) -> None:
        greeting = self._greetings.get(fileno)
        if greeting is None:
            return
        now = time.time()
        try:
            if events & wire.WRITE:
                greeting.wire.flush()
            messages = greeting.wire.receive() if events & wire.READ else []
        except Gone:
            self._turn_away(fileno, _kind(greeting.wire.heard) or "half-open")
            return
        if not messages or greeting.refused:
            return
        try:
            if hmac.compare_digest(str(messages[0].get("own", "")).encode(), self.word.encode()):
                self.met_itself = True
                greeting.refused = OWN
                greeting.wire.send({"refused": OWN})
                return
            hello = decode(Hello, messages[0].get("hello"))
            why = self._refusal(hello, greeting, messages[0])
        except Exception:  # noqa: BLE001  whatever a stranger's words raise costs him alone
            self._turn_away(fileno, _kind(greeting.wire.heard) or "garbage")
            return
        if why:
            try:
                greeting.wire.send(
                    {"refused": why, "version": self._me.version, "job": self._me.job}
                )
            except Gone:
                self._turn_away(fileno, why)
            else:
                greeting.refused = why
                self._count(greeting.addr, why, escaped(greeting.wire.heard))
            return
        self._forget(fileno)
        self._seats -= 1
        visit = Visit(greeting.addr, greeting.nonce, now, messages[0].get("t"), messages[1:])
        self._admit(greeting.wire, hello, visit)

    def _refusal(self, hello: Hello, greeting: _Greeting, message: Mapping[str, Any]) -> str:
        if hello.job and self._me.job and hello.job != self._me.job:
            return "other job"
        if self._token:
            proof = proof_of_guest(self._token, greeting.nonce, hello)
            if not hmac.compare_digest(proof.encode(), str(message.get("proof", "")).encode()):
                return "token"
        if hello.version != self._me.version:
            return "version"
        if not hello.ranks or any(not 0 <= r < RANKS_MOST for r in hello.ranks):
            return "garbage"
        if not 0 < hello.size <= RANKS_MOST:
            return "garbage"
        if hello.nodes and not adds_up(hello):
            return "garbage"
        return "" if self._seats > 0 else "too many"

    def _turn_away(self, fileno: int, kind: str) -> None:
        greeting = self._forget(fileno)
        if not greeting.refused:
            self._count(greeting.addr, kind, escaped(greeting.wire.heard))
        greeting.wire.close(reset=True)

    def _count(self, addr: str, kind: str, heard: str = "") -> None:
        if (addr, kind) in self._strangers or len(self._strangers) < KINDS_LIMIT:
            self._strangers[addr, kind] += 1
            self._heard.setdefault((addr, kind), heard)

    @property
    def strangers(self) -> tuple[Stranger, ...]:
        return tuple(
            Stranger(addr, kind, count, self._heard.get((addr, kind), ""))
            for (addr, kind), count in sorted(self._strangers.items())
        )

    def tend(self) -> None:
        """Turn away who has not said a word in time, and accept again after a pause."""
        now = time.monotonic()
        if self._resume is not None and now >= self._resume:
            self._resume = None
            for listener in self._listeners:
                self._attend(listener)
        for fileno, greeting in list(self._greetings.items()):
            if now - greeting.since > GREETING_SECONDS:
                self._turn_away(fileno, _kind(greeting.wire.heard) or "silent")

    def close(self) -> None:
        """Nobody else is let in, and the port is free again."""
        self.files.spend()
        for listener in self._listeners:
            self._loop.unwatch(listener)
            listener.close()
        self._listeners = []
        for fileno in list(self._greetings):
            self._turn_away(fileno, _kind(self._greetings[fileno].wire.heard) or "silent")


C10D_MAGIC = (0x3C85F7CE).to_bytes(4, "little")
"""What a TCPStore client sends first (torch/csrc/distributed/c10d/TCPStoreBackend.hpp)."""


def _kind(heard: bytes) -> str:
    """What kind of stranger this is, by his first bytes; empty when he said nothing."""
    if not heard:
        return ""
    if heard.split(b" ")[0] in (b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"PRI", b"CONNECT"):
        return "http"
    if heard.startswith(b"\x16\x03"):
        return "tls"
    if C10D_MAGIC in heard[:8]:
        return "c10d"
    return "garbage"


def ours(sock: socket.socket) -> bool:
    """Whether a process of this user is at the other end, where the kernel says who is."""
    if sock.family != socket.AF_UNIX:
        return True
    told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", told)[1] == os.geteuid())


def listen(port: int) -> list[socket.socket]:
    """Listeners on every address of this machine, as c10d's store has them; OSError when the port
    can't be had. One for both families where the kernel can, else for IPv4 alone."""
    try:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        return [_bound(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "0.0.0.0", port)]
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        return [_bound(sock, "::", port)]
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):  # so it is for IPv4
            raise
        return [_bound(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "0.0.0.0", port)]


def _bound(sock: socket.socket, address: str, port: int) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wire.keep_segments_small(sock)
        sock.bind((address, port))
        sock.listen(4096)
    except OSError:
        sock.close()
        raise
    return sock
