"""How fast two nodes move bytes to each other over one TCP connection, and how soon they answer.

The two take turns on the connection, so that each direction has it for itself: pings, then a burst
there, a burst back, and both once more where that took no time. A burst ends after a time, not
after a number of bytes: a slow network costs little more of it than a fast one. The receiver
measures it; the sender can't, what it has sent lies in buffers.

Every wait ends at `until` (time.monotonic). Who connects is a stranger until the hello is right.
"""

from __future__ import annotations

import errno
import math
import socket
import statistics
import time

from preflight.domains.net.tcp import discard_unsent, tcp_info
from preflight.frozen import dataclass
from preflight.host import Host

PINGS = 20
PING_SECONDS = 0.2
"""No more pings after that: on a long way there are fewer."""
PING = 64
LAST = b"." * PING
"""The last of the pings."""
BURSTS = 2
BURST_SECONDS, BURST_MOST = 0.05, 0.25
"""How long a burst takes, at least and at most."""
BURST_TRIPS = 10
"""Round trips in a burst: TCP begins with 10 segments, and sends up to twice as many in each one;
after fewer round trips a fast network over a long way looks slow."""
SEGMENTS, SEGMENT = 10, 1448
ENOUGH = 0.5
"""Seconds after which no second pair of bursts is begun: there is time for one only."""
SMALL, BLOCK = 1 << 14, 1 << 16
"""What is written at once: small blocks until so much has gone that the network can't be slow."""
WARM = 1 << 18
SOME_UNSENT, UNSENT = 1 << 15, 1 << 17
"""Bytes that may lie unsent in the sender's buffer, by the same rule: what a slow network is still
given after the end of a burst."""

TRAILER = 64
"""Bytes in which the line at the end of a burst has room; the burst itself is zeros."""

STRANGER_PATIENCE = 0.5
"""Seconds that somebody who connects has to say who he is, while the partner may be waiting."""

STARVED_MOST = 0.95


@dataclass(frozen=True, slots=True)
class Burst:
    """One direction of a connection, as its receiver saw it; the fastest of its bursts.

    rate      bytes per second
    starved   share of that time in which the sender or the receiver was ready to go on and had to
              wait for a CPU: then it is the machine that was slow, not the network
    sent, resent   segments of all the bursts, and how many of them were sent again
    """

    rate: float
    starved: float = 0.0
    sent: int = 0
    resent: int = 0

    @property
    def able(self) -> float:
        """The rate that there would have been without waiting for a CPU."""
        return self.rate / (1 - min(max(self.starved, 0.0), STARVED_MOST))


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one end learnt: what came in, and if it was the one that dialled, the round trips; and
    of its own segments how many it sent, and sent again, by the end. Where the time was over in
    the middle of a burst: how many bytes of bursts had come in by then, and for how many seconds
    nothing more had."""

    inward: Burst | None = None
    latency: float | None = None
    typical: float | None = None
    error: str = ""
    sent: int = 0
    resent: int = 0
    came: int = 0
    still: float = 0.0


def burst_seconds(trip: float) -> float:
    """How long a burst takes where a round trip takes that long."""
    return min(BURST_MOST, max(BURST_SECONDS, BURST_TRIPS * trip))


def rate_of_start(trip: float) -> float:
    """Bytes per second of a first burst over such a way where nothing but the start of TCP holds it
    up (RFC 6928: 10 segments; RFC 5681: twice as many in each round trip), with frames of 1500."""
    seconds = burst_seconds(trip)
    doubled = min(seconds / trip, BURST_TRIPS) if trip > 0 else BURST_TRIPS
    return SEGMENTS * SEGMENT * (2.0**doubled - 1) / seconds


def dial(host: Host, ip: str, port: int, hello: str, until: float) -> Transfer:
    """The end that connects: it speaks first, and it has the pings."""
    try:
        with socket.create_connection((ip, port), timeout=_left(until)) as line:
            return _Turns(host, line, until).lead(_hello(hello))
    except OSError as error:
        return Transfer(error=_name(error))


def answer(host: Host, at: socket.socket, hello: str, until: float) -> Transfer:
    """The end that is connected to. Whoever says another hello is sent away."""
    try:
        while True:
            at.settimeout(_left(until))
            line, _ = at.accept()
            with line:
                try:
                    patience = min(until, time.monotonic() + STRANGER_PATIENCE)
                    said = _Turns(host, line, patience).read(PING)
                except OSError:
                    continue
                if said == _hello(hello):
                    return _Turns(host, line, until).follow(said)
    except OSError as error:
        return Transfer(error=_name(error))


def _hello(text: str) -> bytes:
    return text.encode()[:PING].ljust(PING, b".")


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError(errno.ETIMEDOUT, "no time left")
    return left


def _name(error: OSError) -> str:
    """errno's name; a timeout of Python's own has none."""
    if isinstance(error, TimeoutError):
        return "ETIMEDOUT"
    return errno.errorcode.get(error.errno or 0, str(error)[:80] or type(error).__name__)


class _Turns:
    """One end of a connection. What has been measured when the other end stays silent counts."""

    def __init__(self, host: Host, line: socket.socket, until: float) -> None:
        self.host, self.line, self.until = host, line, until
        self.best: Burst | None = None
        self.round_trips: list[float] = []
        """From each ping to its answer."""
        self.answered: list[float] = []
        """From each answer to the next ping, at the other end."""
        self.segments = (0, 0)
        self.came, self.still = 0, 0.0
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def lead(self, hello: bytes) -> Transfer:
        try:
            self._echoed(hello)  # not counted: the other end may not have accepted yet
            first = time.monotonic()
            ping = b""
            while ping != LAST:
                late = time.monotonic() - first > PING_SECONDS
                ping = LAST if late or len(self.round_trips) == PINGS - 1 else hello
                began = time.perf_counter()
                self._echoed(ping)
                self.round_trips.append(time.perf_counter() - began)
            for _ in range(BURSTS):
                self._pour()
                self._drain()
                if time.monotonic() - first > ENOUGH:
                    break
        except OSError as error:
            return self._moved(_name(error))
        return self._moved()

    def follow(self, hello: bytes) -> Transfer:
        try:
            ping = hello
            while ping != LAST:
                began = time.perf_counter()
                self._write(ping)
                ping = self.read(PING)
                self.answered.append(time.perf_counter() - began)
            self._write(LAST)
            for _ in range(BURSTS):
                if not self._drain():
                    break
                self._pour()
            # it closes when all has come, so what had to be sent again is counted
            self.line.settimeout(_left(self.until))
            self.line.recv(1)
        except OSError as error:
            return self._moved(_name(error))
        return self._moved()

    def _moved(self, error: str = "") -> Transfer:
        if error:
            discard_unsent(self.line)
        trips = self.round_trips
        return Transfer(
            self.best,
            round(min(trips), 7) if trips else None,
            round(statistics.median(trips), 7) if trips else None,
            error,
            *self._sent(),
            *((self.came, round(self.still, 3)) if self.still else ()),
        )

    def _echoed(self, hello: bytes) -> None:
        self._write(hello)
        if self.read(PING) != hello:
            raise OSError("the answer is not what was sent")

    def _write(self, data: bytes) -> None:
        self.line.settimeout(_left(self.until))
        self.line.sendall(data)

    def read(self, count: int) -> bytes:
        """Exactly so many bytes."""
        found = b""
        while len(found) < count:
            self.line.settimeout(_left(self.until))
            part = self.line.recv(count - len(found))
            if not part:
                raise ConnectionResetError(errno.ECONNRESET, "closed by the other end")
            found += part
        return found

    def _pour(self) -> None:
        """Send for a while, and then a line that says how it went at this end."""
        takes = burst_seconds(min(self.round_trips or self.answered))
        began, waited, count = time.monotonic(), self._waited(), 0
        self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, SOME_UNSENT)
        while time.monotonic() - began < takes:
            self._write(bytes(SMALL if count < WARM else BLOCK))
            count += SMALL
            if count == WARM:
                self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        starved = (self._waited() - waited) / (time.monotonic() - began)
        sent, resent = self._sent()
        self._write(f"{starved:.3f} {sent} {resent}\n".encode())

    def _drain(self) -> bool:
        """Take in a burst until its last line; whether there was one, after the first."""
        into = memoryview(bytearray(4 * BLOCK))
        tail = b""
        count, began, waited, last = 0, 0.0, 0.0, 0.0
        try:
            while not tail.endswith(b"\n"):
                self.line.settimeout(_left(self.until))
                got = self.line.recv_into(into)
                if not got and self.best is not None and not began:
                    return False
                if not got:
                    raise ConnectionResetError(errno.ECONNRESET, "closed by the other end")
                if not began:
                    began, waited = time.monotonic(), self._waited()
                else:
                    count += got
                self.came, last = self.came + got, time.monotonic()
                tail = (tail + bytes(into[max(0, got - TRAILER) : got]))[-TRAILER:]
        except TimeoutError:
            self.still = time.monotonic() - last if began else 0.0
            raise
        finally:
            # what came until it stopped is a measurement, too: an edge may be too slow for the end
            self._note(tail, count, time.monotonic() - began, self._waited() - waited)
        return True

    def _note(self, tail: bytes, count: int, seconds: float, waited: float) -> None:
        if not count or seconds <= 0:
            return
        starved, sent, resent = _trailer(tail)
        self.segments = max(self.segments[0], sent), max(self.segments[1], resent)
        starved = min(STARVED_MOST, starved + waited / seconds)
        burst = Burst(round(count / seconds, 1), round(starved, 3), *self.segments)
        if self.best is not None and self.best.able > burst.able:
            burst = Burst(self.best.rate, self.best.starved, *self.segments)
        self.best = burst

    def _waited(self) -> float:
        """Seconds for which this thread has waited for a CPU so far (Documentation/scheduler/
        sched-stats.rst: on the CPU, waiting, slices); 0 where the kernel does not count it."""
        words = (self.host.read_or_none("/proc/thread-self/schedstat") or "").split()
        return int(words[1]) / 1e9 if len(words) == 3 and words[1].isdecimal() else 0.0

    def _sent(self) -> tuple[int, int]:
        """Segments with data that this end has sent, and how many of them were sent again."""
        info = tcp_info(self.line)
        return (info.sent, info.retransmits) if info and info.sent else (0, 0)


def _trailer(tail: bytes) -> tuple[float, int, int]:
    """The line at the end of a burst; zeros when there is none or it is another's."""
    words = tail.rpartition(b"\0")[2].decode("ascii", "replace").split()
    try:
        starved, sent, resent = float(words[0]), int(words[1][:10]), int(words[2][:10])
    except (ValueError, IndexError):
        return 0.0, 0, 0
    if not (math.isfinite(starved) and starved >= 0 and 0 <= resent <= sent):
        return 0.0, 0, 0
    return starved, sent, resent
