"""TCP connect probes: what a host does with a SYN tells whether it is up.

All at once and never blocking. Nothing is sent: whoever accepts sees a connection that closes.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Iterable

from preflight.domains.net.dns import parse_ip
from preflight.frozen import dataclass

MOST = 64
"""Connections tried at a time."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One try. `error`: errno's name, ETIMEDOUT when nothing came back in time, empty: accepted."""

    ip: str
    port: int
    error: str = ""
    seconds: float = 0.0

    @property
    def answered(self) -> bool:
        """Whether the host itself said yes or no, which one that is down can't do. A firewall may
        say no in its name, but then there is somebody who looks after that address."""
        return self.error in ("", "ECONNREFUSED", "ECONNRESET")


def probe_ports(targets: Iterable[tuple[str, int]], seconds: float) -> tuple[Probe, ...]:
    """Try them all within `seconds`; in the order of the targets."""
    return _probed(dict.fromkeys(targets), seconds)


def probe_repeatedly(ip: str, port: int, count: int, seconds: float) -> tuple[Probe, ...]:
    """So many connections to one port, all at once."""
    return _probed([(ip, port)] * count, seconds)


def _probed(targets: Iterable[tuple[str, int]], seconds: float) -> tuple[Probe, ...]:
    wanted = [t for t in targets if parse_ip(t[0]) and 0 < t[1] < 65536][:MOST]
    found: dict[int, Probe] = {}
    began = time.monotonic()
    with selectors.DefaultSelector() as waiting:
        for number, target in enumerate(wanted):
            sock, code = _begun(*target)
            if sock is not None and code == errno.EINPROGRESS:
                waiting.register(sock, selectors.EVENT_WRITE, number)
            else:
                if sock is not None:
                    sock.close()
                found[number] = _probe(target, code, began)
        while waiting.get_map() and (left := began + seconds - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                assert isinstance(key.fileobj, socket.socket)
                code = key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                found[key.data] = _probe(wanted[key.data], code, began)
                waiting.unregister(key.fileobj)
                key.fileobj.close()
        for key in list(waiting.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
            found[key.data] = _probe(wanted[key.data], errno.ETIMEDOUT, began)
    return tuple(found[number] for number in range(len(wanted)))


def _begun(ip: str, port: int) -> tuple[socket.socket | None, int]:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        return None, error.errno or errno.EAFNOSUPPORT
    try:
        return sock, sock.connect_ex((ip, port))
    except OSError as error:  # a scope that matches no interface
        return sock, error.errno or errno.EINVAL


def _probe(target: tuple[str, int], code: int, began: float) -> Probe:
    name = errno.errorcode.get(code, f"errno {code}") if code else ""
    return Probe(*target, name, round(time.monotonic() - began, 4))
