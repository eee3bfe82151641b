"""One thread, many conversations over TCP, and what the kernel knows of a connection.

A conversation is a generator that yields what it waits for; the ConversationLoop lets it go on.
mesh_probe.py holds them with other nodes, so every wait has its own end and nothing that comes in
is trusted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import selectors
import socket
import struct
import sys
import termios
import time
from collections.abc import Generator
from typing import Any, TypeVar

from preflight.frozen import dataclass
from preflight.host import Host

# struct tcp_info of include/uapi/linux/tcp.h: 8 bytes, then these of its 32-bit numbers
SND_MSS, PMTU, RTT, TOTAL_RETRANS = 2, 13, 15, 23
TCP_INFO = struct.Struct("8x24I")
# tcpi_data_segs_out (since Linux 4.6), and tcpi_rwnd_limited, a 64-bit number (since 4.10)
DATA_SEGS_OUT, RWND_LIMITED = 156, 176
# tcpi_options, a byte, and tcpi_bytes_acked, a 64-bit number (since Linux 4.1)
OPTIONS, BYTES_ACKED = 5, 120
WINDOW_SCALING = 4  # TCPI_OPT_WSCALE

NETSTAT = "/proc/net/netstat"


def listen_overflows(host: Host) -> int:
    """Connections so far that found the queue of their listener full, in this network; 0 where the
    kernel does not say."""
    return _counter(host, "ListenOverflows")


def reverse_path_drops(host: Host) -> int:
    """Packets so far that were dropped since they came in on another interface than the one that
    leads to their source; 0 where the kernel does not say."""
    return _counter(host, "IPReversePathFilter")


def first_asks_for_ecn(host: Host) -> bool:
    """Whether the first SYN of each connection that this machine opens asks for ECN: some firewalls
    drop it (RFC 3168, section 6.1.1.1), and the next one, a second later, does without. By default
    none does."""
    return host.read_int("/proc/sys/net/ipv4/tcp_ecn") in (1, 3, 4)


def asks_for_ecn(host: Host) -> bool:
    """Whether each SYN of this machine does, those that are sent again as well."""
    again_without = host.read_int("/proc/sys/net/ipv4/tcp_ecn_fallback")
    return first_asks_for_ecn(host) and again_without == 0


def _counter(host: Host, name: str) -> int:
    lines = (host.read_or_none(NETSTAT) or "").splitlines()
    for names, values in itertools.pairwise(lines):
        if names.startswith("TcpExt: S") and values.startswith("TcpExt: "):
            found = dict(zip(names.split(), values.split(), strict=False))
            number = found.get(name, "")
            return int(number) if number.isdecimal() else 0
    return 0


READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
T = TypeVar("T")
Steps = Generator[tuple[socket.socket, int, float], None, T]
"""A conversation: yields (socket, event, seconds) and goes on when the socket is ready; after so
many seconds without that, TimeoutError is raised where it waits."""


@dataclass(frozen=True, slots=True)
class TcpInfo:
    """What the kernel knows of a connection; a zero is not known. `held`: whether the other end's
    window ever held it up. `sent`: segments with data."""

    rtt: float
    retransmits: int
    mtu: int
    mss: int
    held: bool | None = None
    sent: int = 0


def tcp_info(sock: socket.socket) -> TcpInfo | None:
    """None where the kernel has no such thing (gVisor)."""
    try:
        data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RWND_LIMITED + 8)
        numbers = TCP_INFO.unpack_from(data)
    except (OSError, struct.error):
        return None
    return TcpInfo(
        rtt=numbers[RTT] / 1e6,
        retransmits=numbers[TOTAL_RETRANS],
        mtu=numbers[PMTU],
        mss=numbers[SND_MSS],
        held=any(data[RWND_LIMITED:]) if len(data) == RWND_LIMITED + 8 else None,
        sent=int.from_bytes(data[DATA_SEGS_OUT : DATA_SEGS_OUT + 4], sys.byteorder),
    )


def acknowledged(sock: socket.socket) -> tuple[int, bool] | None:
    """How many bytes of ours the other end's kernel has acknowledged so far, and whether both ends
    agreed on window scaling; None where the kernel has no such thing."""
    with contextlib.suppress(OSError):
        data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_ACKED + 8)
        if len(data) == BYTES_ACKED + 8:
            return (
                int.from_bytes(data[BYTES_ACKED:], sys.byteorder),
                bool(data[OPTIONS] & WINDOW_SCALING),
            )
    return None


def discard_unsent(sock: socket.socket) -> None:
    """Let the kernel drop what it has not sent yet when the socket is closed: on a slow network it
    would be in the way of others for seconds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class ConversationLoop:
    """Runs conversations, each waiting for its one socket."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._waiting: dict[Steps[None], tuple[socket.socket, float]] = {}

    def add(self, steps: Steps[None]) -> None:
        self._step(steps)

    def turn(self, seconds: float) -> bool:
        """Let all go on that can, after at most `seconds`; whether there was one."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            self._step(key.data)
        # after those that are ready: a process that was not scheduled is no silent peer
        now = time.monotonic()
        for steps in [s for s, (_, until) in self._waiting.items() if until <= now]:
            self._step(steps, TimeoutError())
        return bool(ready)

    def _step(self, steps: Steps[None], error: TimeoutError | None = None) -> None:
        if steps in self._waiting:
            self._selector.unregister(self._waiting.pop(steps)[0])
        try:
            sock, event, seconds = steps.throw(error) if error else next(steps)
        except StopIteration:
            return
        self._selector.register(sock, event, steps)
        self._waiting[steps] = sock, time.monotonic() + seconds

    def close(self) -> None:
        for steps in [*self._waiting]:
            steps.close()
        self._selector.close()


def unacknowledged_bytes(sock: socket.socket) -> int | None:
    """How many bytes that were written the other end's kernel has not acknowledged."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0])
    except OSError:
        return None


def send(sock: socket.socket, data: bytes, seconds: float) -> Steps[None]:
    """Send all of it, waiting at most `seconds` for each progress."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            yield sock, WRITE, seconds


def receive(sock: socket.socket, size: int, seconds: float) -> Steps[bytes]:
    """Exactly so many bytes; EOFError when the other end closes before."""
    data = b""
    while len(data) < size:
        data += yield from receive_some(sock, size - len(data), seconds)
    return data


def receive_some(sock: socket.socket, most: int, seconds: float) -> Steps[bytes]:
    """The next bytes, at most so many; EOFError when the other end has closed."""
    while True:
        try:
            chunk = sock.recv(min(most, 1 << 16))
        except BlockingIOError:
            yield sock, READ, seconds
            continue
        if not chunk:
            raise EOFError
        return chunk


UNROUTED = "unreachable route"
"""The one refusal of the own routes that has the name of another machine's."""


def errno_name(error: OSError) -> str:
    """`ECONNREFUSED`, or `errno 999` for one without a name."""
    return errno.errorcode.get(error.errno or 0, f"errno {error.errno}")


def connect_error(error: OSError, ip: str) -> str:
    """Why a connection to this address failed: the error's name, or UNROUTED."""
    if error.errno == errno.EHOSTUNREACH:
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            try:
                sock.connect((ip, 9))  # asks the routes alone, nothing is sent
            except OSError as own:
                return UNROUTED if own.errno == errno.EHOSTUNREACH else errno_name(own)
    return errno_name(error)


def open_socket(ip: str) -> socket.socket:
    """A new non-blocking TCP socket of an address's family."""
    sock = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock


def sockaddr(ip: str, port: int, interface: str) -> tuple[Any, ...]:
    """A link-local address is one of the interface's that leads there."""
    if ":" not in ip:
        return ip, port
    scope = socket.if_nametoindex(interface) if ip.startswith("fe80:") else 0
    return ip, port, 0, scope
