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
DST, SRC, OIF, GATEWAY, TABLE, IP_PROTO, DPORT = 1, 2, 4, 5, 15, 27, 29
LOOKUP_TABLE = 0x1000  # RTM_F_LOOKUP_TABLE: name the table in which it was found

LOCAL = 2
"""RTN_LOCAL: an address of this machine's own."""
MAIN = 254
"""RT_TABLE_MAIN; the two others that every machine has are 253 and 255."""


@dataclass(frozen=True, slots=True)
class KernelRoute:
    """How the kernel sends to an address.

    interface  by which it leaves
    table      the routing table that has it
    gateway    the address of the router that it goes to first; empty: none
    local      it is an address of this machine's own, and never leaves it
    """

    interface: str
    table: int
    gateway: str = ""
    local: bool = False

    @property
    def by_rule(self) -> bool:
        """Whether only an `ip rule` leads to that table."""
        return self.table not in (0, MAIN - 1, MAIN, MAIN + 1)

    @property
    def table_of_rule(self) -> int:
        """The table, where only an `ip rule` leads to it; else 0."""
        return self.table if self.by_rule else 0


def kernel_route(ip: str, port: int = 0, source: str = "") -> KernelRoute | None:
    """The route of a TCP connection of this process to `ip`; None where there is none, or the
    kernel does not say. Nothing is sent. `source`: the address that it sends from, which an
    `ip rule from` asks for; of `ip`'s family."""
    with contextlib.suppress(OSError, struct.error):
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        there = socket.inet_pton(family, ip.partition("%")[0])
        mine = socket.inet_pton(family, source.partition("%")[0]) if source else b""
        sizes = 8 * len(there), 8 * len(mine)
        head = MESSAGE.pack(family, *sizes, 0, 0, 0, 0, 0, LOOKUP_TABLE)
        body = head + attribute(DST, there) + attribute(IP_PROTO, bytes((socket.IPPROTO_TCP,)))
        if mine:
            body += attribute(SRC, mine)
        if port:
            body += attribute(DPORT, struct.pack("!H", port))
        answer = asked(ROUTE, GETROUTE, body)
        told = attributes(answer[MESSAGE.size :])
        if OIF in told:
            table = struct.unpack("=I", told[TABLE])[0] if TABLE in told else answer[4]
            by = told.get(GATEWAY, b"")
            return KernelRoute(
                socket.if_indextoname(struct.unpack("=I", told[OIF])[0]),
                table,
                socket.inet_ntop(family, by) if by else "",
                answer[7] == LOCAL,
            )
    return None
