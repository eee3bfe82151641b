"""Lines of JSON over a TCP connection that must never make anybody wait: bounded, parsed, and where
there is a token, proven. Used by both ends of the meeting.

What comes in is hostile: a line that is too long, is not a JSON object or doesn't prove the token
ends the connection. What doesn't leave is kept, up to a limit: a peer that stops reading is given
up."""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from preflight.process.lines import LineBuffer
from preflight.roster import HALFWAY
from preflight.serde import parsed, weight

PROTOCOL = 1

GREETING_LIMIT = 8192
"""Bytes of a line from somebody who has not said who he is."""
LINE_LIMIT = 16 << 20
"""Weight of a line from an agent of this job: a value of observe() may have calls.ANSWER_LIMIT."""
HEARD_MOST = 48
"""Bytes kept of what a peer sent first, to say what it may be."""
UNSENT_LIMIT = 64 << 20
"""Bytes kept for a peer that doesn't read."""
CHUNK = 1 << 18
REST_CHUNKS = 24
"""That are read of a connection that is over: as much as Linux keeps of one by itself (6 MiB)."""

SEGMENT = 1200
"""Bytes of a segment: with its headers it passes where IPv6 does (1280), through any tunnel. Where
larger packets are lost, net.payload has to find it, and can't if the meeting is lost with them."""

READ, WRITE = 1, 2  # selectors.EVENT_READ, EVENT_WRITE


class Gone(Exception):
    """The connection is over; the text says why."""


class Loop(Protocol):
    """What wakes us when a socket can be read or written (isolate.Workers)."""

    def watch(self, file: socket.socket, events: int, wake: Callable[[int], None]) -> None: ...
    def unwatch(self, file: socket.socket) -> None: ...


class Wire:
    """One connection. `send` queues and sends what it can, `receive` returns whole messages."""

    __slots__ = (
        *("_counts", "_events", "_lines", "_loop", "_proof", "_side", "_unsent", "_wake"),
        *("closed", "heard", "limit", "received", "sent", "sock"),
    )

    def __init__(
        self, sock: socket.socket, loop: Loop, wake: Callable[[int], None], proof: bytes = b""
    ) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.limit = GREETING_LIMIT
        self.received = 0
        self.sent = 0
        self.heard = b""
        """The first bytes of all, as they came: what tells a stranger."""
        self._loop = loop
        self._wake = wake
        self._proof = proof
        self._counts = {"in": 0, "out": 0}
        self._side = ("host", "guest")
        self._lines = LineBuffer()
        self._unsent = bytearray()
        self._events = READ
        self.closed = False
        loop.watch(sock, READ, wake)

    def wake_with(self, wake: Callable[[int], None]) -> None:
        """From now on somebody else looks after this connection."""
        self._wake = wake
        self._loop.watch(self.sock, self._events, wake)

    def prove(self, key: bytes, side: str) -> None:
        """From now on every line carries a proof of this key, in both directions."""
        self._proof = key
        self._side = (side, "guest" if side == "host" else "host")

    def send(self, message: Any) -> None:
        """Queue a message and send what the socket takes; Gone when the peer doesn't read."""
        self.send_line(line_of(message))

    def send_line(self, line: bytes) -> None:
        """The same with a message that was made into a line before, for many peers."""
        if self.closed:
            return
        if self._proof:
            line = self._mac("out", self._side[0], line) + b" " + line
        self._unsent += line
        if len(self._unsent) > UNSENT_LIMIT:
            raise Gone("it stopped reading")
        self.flush()

    def flush(self) -> None:
        while self._unsent and not self.closed:
            try:
                sent = self.sock.send(memoryview(self._unsent)[:CHUNK])
            except BlockingIOError:
                break
            except OSError as error:
                raise Gone(error.strerror or str(error)) from None
            self.sent += sent
            del self._unsent[:sent]
        events = READ | WRITE if self._unsent else READ
        if events != self._events and not self.closed:
            self._events = events
            self._loop.watch(self.sock, events, self._wake)

    @property
    def unsent(self) -> int:
        return len(self._unsent)

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have come; Gone when the peer is, or is none of ours."""
        try:
            data = self.sock.recv(CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            raise Gone((error.strerror or str(error)) + self._halfway) from None
        if not data:
            raise Gone("it closed the connection" + self._halfway)
        self.received += len(data)
        if len(self.heard) < HEARD_MOST:
            self.heard = (self.heard + data)[:HEARD_MOST]
        lines = self._lines.add(data)
        longest = max(len(self._lines), *map(len, lines)) if lines else len(self._lines)
        if longest > self.limit or any(weight(line) > LINE_LIMIT for line in lines):
            raise Gone("its line is too long")
        return [self._message(line) for line in lines]

    @property
    def _halfway(self) -> str:
        return f", {HALFWAY}: {self.unread} bytes of it came" if self.unread else ""

    @property
    def unread(self) -> int:
        """Bytes of a line that has not come whole yet."""
        return len(self._lines)

    def rest(self) -> Iterator[dict[str, Any]]:
        """What had come before the connection was over, where that was noticed by writing."""
        with contextlib.suppress(Gone):
            for _ in range(REST_CHUNKS):
                yield from self.receive()

    def _message(self, line: bytes) -> dict[str, Any]:
        if self._proof:
            proof, _, line = line.partition(b" ")
            expected = self._mac("in", self._side[1], line + b"\n")
            if not hmac.compare_digest(proof, expected):
                raise Gone("it can't prove the token")
        try:
            message = parsed(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise Gone("it speaks another language")
        return message

    def _mac(self, direction: str, side: str, line: bytes) -> bytes:
        """Proves the sender, the place in the stream, and the line."""
        self._counts[direction] += 1
        head = f"{side} {self._counts[direction]} ".encode()
        return hmac.digest(self._proof, head + line, "sha256")[:16].hex().encode()

    def close(self, *, reset: bool = False) -> None:
        """Close. `reset`: at once, leaving no TIME_WAIT on a port that others need."""
        if self.closed:
            return
        self.closed = True
        self._loop.unwatch(self.sock)
        self._wake = _asleep  # what it was would keep whoever looked after this connection
        if reset:
            try:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass
        self.sock.close()


def _asleep(events: int) -> None:
    """Nothing comes any more."""


def keep_segments_small(sock: socket.socket) -> None:
    """Before it connects or listens: the other end then sends no larger segments either."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)


def line_of(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def proof_key(token: str, host_nonce: str, guest_nonce: str) -> bytes:
    """The key of one connection; empty without a token."""
    if not token:
        return b""
    return hmac.digest(token.encode(), f"{host_nonce} {guest_nonce}".encode(), "sha256")
