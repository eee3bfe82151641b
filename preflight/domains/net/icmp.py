"""Which ICMP message ended an attempt to connect, and who sent it.

A host on which nothing listens answers a SYN with a TCP reset. "Port unreachable" and
"administratively prohibited" come from a firewall that rejects; connect() has for the first of them
the same ECONNREFUSED. The kernel keeps the message, with the address of its sender, for who has
asked for it (ip(7), IP_RECVERR; of TCP since Linux 5.8, commit 45af29ca761c).
"""

from __future__ import annotations

import contextlib
import socket
import struct

from preflight.frozen import dataclass

IP_RECVERR, IPV6_RECVERR = 11, 25
# struct sock_extended_err of include/uapi/linux/errqueue.h; the sender's address comes after it
EXTENDED_ERROR = struct.Struct("=IBBBBII")
ORIGIN_ICMP, ORIGIN_ICMPV6 = 2, 3

PORT, PROHIBITED, HOST, NETWORK = "port", "prohibited", "host", "network"
EXPIRED = "expired"
"""It went over more routers than its time to live allows: in circles, or that was small."""
# codes of the type "destination unreachable": RFC 792 and 1812, RFC 4443
CODES = {0: NETWORK, 1: HOST, 3: PORT, 9: PROHIBITED, 10: PROHIBITED, 13: PROHIBITED}
CODES_V6 = {0: NETWORK, 1: PROHIBITED, 3: HOST, 4: PORT, 5: PROHIBITED, 6: PROHIBITED}
# by type; the second one is "time exceeded", in transit
TYPES = {3: CODES, 11: {0: EXPIRED}}
TYPES_V6 = {1: CODES_V6, 3: {0: EXPIRED}}

REJECTS = (PORT, PROHIBITED)
"""What only a firewall says of a TCP port."""
STANDS_IN = "a firewall in front of it that rejects in its name"
"""What else it may be where the address of the target sends the message."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """What it says (one of the words above), and the address of who says it."""

    what: str = ""
    by: str = ""


def keep_icmp(sock: socket.socket, wanted: bool = True) -> None:
    """Have the kernel keep ICMP messages for unreachable(). To be called again with False once it
    is connected: an open connection survives such a message, unless somebody asks for them."""
    v6 = sock.family == socket.AF_INET6
    option = (socket.IPPROTO_IPV6, IPV6_RECVERR) if v6 else (socket.IPPROTO_IP, IP_RECVERR)
    with contextlib.suppress(OSError):
        sock.setsockopt(*option, int(wanted))


def unreachable(sock: socket.socket) -> Unreachable:
    """The message that ended this attempt, after keep_icmp(); empty: none did, or the kernel does
    not say."""
    try:
        _, ancillary, _, _ = sock.recvmsg(0, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
    except OSError:
        return Unreachable()
    for level, kind, said in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, IP_RECVERR):
            return _decoded(said, ORIGIN_ICMP, TYPES, socket.AF_INET)
        if (level, kind) == (socket.IPPROTO_IPV6, IPV6_RECVERR):
            return _decoded(said, ORIGIN_ICMPV6, TYPES_V6, socket.AF_INET6)
    return Unreachable()


def _decoded(
    said: bytes, origin: int, types: dict[int, dict[int, str]], family: socket.AddressFamily
) -> Unreachable:
    # of a struct sockaddr_in and sockaddr_in6
    begin, size = (4, 4) if family == socket.AF_INET else (8, 16)
    address = said[EXTENDED_ERROR.size + begin :][:size]
    if len(address) < size:
        return Unreachable()
    _, came, kind, code, *_ = EXTENDED_ERROR.unpack_from(said)
    what = types.get(kind, {}).get(code, "") if came == origin else ""
    if not what:
        return Unreachable()
    return Unreachable(what, socket.inet_ntop(family, address))
