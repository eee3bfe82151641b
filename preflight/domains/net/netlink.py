"""One question to the kernel by netlink, and its answer (Linux: include/uapi/linux/netlink.h).

For what no file shows: the route that a connection really takes, and what becomes of its address.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

ROUTE, NETFILTER = 0, 12
"""NETLINK_ROUTE, NETLINK_NETFILTER."""

SECONDS = 0.2
MOST = 16384
"""Bytes of an answer that are read: one message of a few hundred."""

HEADER = struct.Struct("=IHHII")
REQUEST, ERROR = 1, 2
TYPE = 0x3FFF  # NLA_TYPE_MASK: the two bits above it are flags


def asked(family: int, kind: int, body: bytes) -> bytes:
    """What follows the header of the kernel's answer to one request; empty where it gives none: no
    such module, not permitted, or nothing found."""
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family) as s,
    ):
        s.settimeout(SECONDS)
        s.bind((0, 0))
        s.send(HEADER.pack(HEADER.size + len(body), kind, REQUEST, 1, 0) + body)
        answer = s.recv(MOST)
        if len(answer) >= HEADER.size:
            length, told, *_ = HEADER.unpack_from(answer)
            return b"" if told == ERROR else answer[HEADER.size : length]
    return b""


def listener(family: int, groups: int) -> socket.socket:
    """A socket to which the kernel tells what happens, by a mask of groups; OSError where it may
    not have that."""
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, family)
    try:
        made.bind((0, groups))
    except OSError:
        made.close()
        raise
    return made


def told(by: socket.socket, most: int) -> Iterator[bytes]:
    """What follows the header of each message that is there already, of at most `most` packets."""
    for _ in range(most):
        try:
            data = by.recv(MOST)
        except OSError:  # nothing more, or more than it could keep
            return
        while len(data) >= HEADER.size:
            length = HEADER.unpack_from(data)[0]
            if not HEADER.size <= length <= len(data):
                break
            yield data[HEADER.size : length]
            data = data[(length + 3) & ~3 :]


def attribute(kind: int, value: bytes) -> bytes:
    """An attribute as a request carries it, padded to four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def attributes(body: bytes) -> dict[int, bytes]:
    """Type -> value of all that follow each other; what is cut off is left out."""
    found = {}
    while len(body) >= 4:
        length, kind = struct.unpack_from("=HH", body)
        if not 4 <= length <= len(body):
            break
        found[kind & TYPE] = body[4:length]
        body = body[(length + 3) & ~3 :]
    return found
