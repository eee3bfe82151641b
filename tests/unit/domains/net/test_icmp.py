"""Who says by ICMP that a connection is not wanted."""

from __future__ import annotations

import socket
import struct

import pytest

from preflight.domains.net import icmp

OWN = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton("10.0.0.9"))
OWN_V6 = struct.pack(
    "=HHI16sI", socket.AF_INET6, 0, 0, socket.inet_pton(socket.AF_INET6, "fd00::9"), 0
)


class Queue:
    """A socket whose error queue holds one message."""

    def __init__(self, level: int, kind: int, said: bytes) -> None:
        self.told = [(level, kind, said)]

    def recvmsg(self, *_: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        return b"", self.told, 0, None


def message(origin: int, type_: int, code: int, sender: bytes) -> bytes:
    return icmp.EXTENDED_ERROR.pack(111, origin, type_, code, 0, 0, 0) + sender


@pytest.mark.parametrize(
    ("code", "what"),
    [(0, "network"), (1, "host"), (3, "port"), (9, "prohibited"), (13, "prohibited"), (4, "")],
)
def test_what_a_sender_says_of_ipv4(code: int, what: str) -> None:
    queue = Queue(socket.IPPROTO_IP, icmp.IP_RECVERR, message(2, 3, code, OWN))
    found = icmp.unreachable(queue)  # type: ignore[arg-type]
    assert found == icmp.Unreachable(what, "10.0.0.9" if what else "")


@pytest.mark.parametrize(("code", "what"), [(1, "prohibited"), (3, "host"), (4, "port"), (2, "")])
def test_what_a_sender_says_of_ipv6(code: int, what: str) -> None:
    queue = Queue(socket.IPPROTO_IPV6, icmp.IPV6_RECVERR, message(3, 1, code, OWN_V6))
    found = icmp.unreachable(queue)  # type: ignore[arg-type]
    assert found == icmp.Unreachable(what, "fd00::9" if what else "")


@pytest.mark.parametrize(
    "said",
    [b"", b"\0" * 15, message(2, 3, 3, b"\0\0\0\0"), message(2, 11, 1, OWN), message(1, 3, 3, OWN)],
)
def test_what_says_nothing_of_the_kind(said: bytes) -> None:
    queue = Queue(socket.IPPROTO_IP, icmp.IP_RECVERR, said)
    assert icmp.unreachable(queue) == icmp.Unreachable()  # type: ignore[arg-type]


def test_a_way_over_too_many_routers() -> None:
    queue = Queue(socket.IPPROTO_IP, icmp.IP_RECVERR, message(2, 11, 0, OWN))
    assert icmp.unreachable(queue) == icmp.Unreachable("expired", "10.0.0.9")  # type: ignore[arg-type]
    queue = Queue(socket.IPPROTO_IPV6, icmp.IPV6_RECVERR, message(3, 3, 0, OWN_V6))
    assert icmp.unreachable(queue) == icmp.Unreachable("expired", "fd00::9")  # type: ignore[arg-type]


def test_a_port_where_nothing_listens_says_nothing_by_icmp() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with socket.socket() as sock:
            icmp.keep_icmp(sock)
            with pytest.raises(ConnectionRefusedError):
                sock.connect(free.getsockname())
            assert icmp.unreachable(sock) == icmp.Unreachable()


def test_it_can_be_taken_back() -> None:
    with socket.socket() as sock:
        icmp.keep_icmp(sock)
        assert sock.getsockopt(socket.IPPROTO_IP, icmp.IP_RECVERR) == 1
        icmp.keep_icmp(sock, wanted=False)
        assert sock.getsockopt(socket.IPPROTO_IP, icmp.IP_RECVERR) == 0
