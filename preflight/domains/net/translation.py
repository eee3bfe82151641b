"""Where this machine's own NAT rules (nftables, iptables, kube-proxy) send a connection: the answer
of its connection tracking about one that is being tried (ctnetlink, IPCTNL_MSG_CT_GET).

The two directions of a connection are kept with their addresses: an answer that is awaited from
somebody else than who was dialled is a translated destination. Only root may ask.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct

from preflight.domains.net.netlink import (
    NETFILTER,
    asked,
    attribute,
    attributes,
    listener,
    told,
)

GET = (1 << 8) | 1  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET
NEW = 1  # the mask of NFNLGRP_CONNTRACK_NEW
EVENTS = 1000
"""Connections of this machine that may begin meanwhile."""
NESTED = 0x8000
ORIGINAL, REPLY = 1, 2  # CTA_TUPLE_ORIG, CTA_TUPLE_REPLY
ADDRESS, PROTOCOL = 1, 2  # CTA_TUPLE_IP, CTA_TUPLE_PROTO
NUMBER, SOURCE_PORT, PORT = 1, 2, 3  # CTA_PROTO_NUM, CTA_PROTO_SRC_PORT, CTA_PROTO_DST_PORT
SOURCE = {socket.AF_INET: 1, socket.AF_INET6: 3}  # CTA_IP_V4_SRC, CTA_IP_V6_SRC: the next is DST


def translated(ip: str, port: int) -> tuple[str, int] | None:
    """The address and port to which a connection to ip:port goes in truth, where rules of this
    machine rewrite them; None where they don't, or it can't be told. Begins a connection and
    closes it at once."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with (
        contextlib.suppress(OSError, struct.error),
        socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as tried,
    ):
        begun = _begun()
        with begun or contextlib.nullcontext():
            if tried.connect_ex((ip, port)) not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
                return None
            mine, my_port = tried.getsockname()[:2]
            original = _tuple(family, (mine, my_port), (ip.partition("%")[0], port))
            body = struct.pack("!BBH", family, 0, 0) + original
            there = answers_from(asked(NETFILTER, GET, body)[4:], family)
            if there is None and begun is not None:
                there = _noted(begun, family, my_port, port)
        return None if there in (None, (ip, port)) else there
    return None


def _begun() -> socket.socket | None:
    """What is told of each connection that begins: the entry of one that is refused is gone before
    it can be asked for."""
    try:
        return listener(NETFILTER, NEW)
    except OSError:
        return None


def _noted(begun: socket.socket, family: int, my_port: int, port: int) -> tuple[str, int] | None:
    """The same as answers_from, of the connection between these ports that has begun."""
    for message in told(begun, EVENTS):
        entry = message[4:]
        ports = attributes(attributes(attributes(entry).get(ORIGINAL, b"")).get(PROTOCOL, b""))
        ends = (ports.get(SOURCE_PORT), ports.get(PORT))
        if message[:1] == bytes((family,)) and ends == (
            struct.pack("!H", my_port),
            struct.pack("!H", port),
        ):
            return answers_from(entry, family)
    return None


def answers_from(entry: bytes, family: int) -> tuple[str, int] | None:
    """The address and port from which an entry awaits the answers."""
    reply = attributes(attributes(entry).get(REPLY, b""))
    there = attributes(reply.get(ADDRESS, b"")).get(SOURCE[socket.AddressFamily(family)], b"")
    port = attributes(reply.get(PROTOCOL, b"")).get(SOURCE_PORT, b"")
    if len(there) != (16 if family == socket.AF_INET6 else 4) or len(port) != 2:
        return None
    return socket.inet_ntop(family, there), int.from_bytes(port, "big")


def _tuple(family: int, source: tuple[str, int], there: tuple[str, int]) -> bytes:
    ends = b"".join(
        attribute(SOURCE[socket.AddressFamily(family)] + n, socket.inet_pton(family, ip))
        for n, (ip, _) in enumerate((source, there))
    )
    ports = attribute(NUMBER, bytes((socket.IPPROTO_TCP,)))
    ports += attribute(SOURCE_PORT, struct.pack("!H", source[1]))
    ports += attribute(PORT, struct.pack("!H", there[1]))
    both = attribute(ADDRESS | NESTED, ends) + attribute(PROTOCOL | NESTED, ports)
    return attribute(ORIGINAL | NESTED, both)
