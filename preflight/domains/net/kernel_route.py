"""The route by which the kernel sends to an address, with `ip rule` and every routing table: what
`ip route get` says (rtnetlink(7), RTM_GETROUTE). /proc/net/route has the main table alone.
"""

from __future__ import annotations

import contextlib
import socket
import struct

from preflight.domains.net.netlink import ROUTE, asked, attribute, attributes
from preflight.frozen import dataclass

GETROUTE = 26
MESSAGE = struct.Struct("=BBBBBBBBI")  # struct rtmsg
DST, OIF, TABLE, IP_PROTO, DPORT = 1, 4, 15, 27, 29
LOOKUP_TABLE = 0x1000  # RTM_F_LOOKUP_TABLE: name the table in which it was found

MAIN = 254
"""RT_TABLE_MAIN; the two others that every machine has are 253 and 255."""


@dataclass(frozen=True, slots=True)
class KernelRoute:
    """interface: by which it leaves; table: the routing table that has it."""

    interface: str
    table: int

    @property
    def by_rule(self) -> bool:
        """Whether only an `ip rule` leads to that table."""
        return self.table not in (0, MAIN - 1, MAIN, MAIN + 1)


def kernel_route(ip: str, port: int = 0) -> KernelRoute | None:
    """The route of a TCP connection of this process to `ip`; None where there is none, or the
    kernel does not say. Nothing is sent."""
    with contextlib.suppress(OSError, struct.error):
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        there = socket.inet_pton(family, ip.partition("%")[0])
        head = MESSAGE.pack(family, 8 * len(there), 0, 0, 0, 0, 0, 0, LOOKUP_TABLE)
        body = head + attribute(DST, there) + attribute(IP_PROTO, bytes((socket.IPPROTO_TCP,)))
        if port:
            body += attribute(DPORT, struct.pack("!H", port))
        answer = asked(ROUTE, GETROUTE, body)
        told = attributes(answer[MESSAGE.size :])
        if OIF in told:
            table = struct.unpack("=I", told[TABLE])[0] if TABLE in told else answer[4]
            return KernelRoute(socket.if_indextoname(struct.unpack("=I", told[OIF])[0]), table)
    return None
