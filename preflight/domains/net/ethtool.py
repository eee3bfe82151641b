"""What a driver itself counts at a card, as `ethtool -S` shows it: by ioctl, which needs no right.

linux/ethtool.h: the names come as strings of 32 bytes, the counts as 64-bit numbers in the same
order; linux/sockios.h has the number of the ioctl. Only in a worker: a driver may hang.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from collections.abc import Callable, Collection

SIOCETHTOOL = 0x8946
SET_INFO, STRINGS, COUNTS = 0x37, 0x1B, 0x1D
STATISTICS = 1
"""ETH_SS_STATS"""
NAME = 32
MOST = 16384
"""Counters of one card: a large one has some thousand, a few for each queue."""
SPARE = 1024
"""The kernel writes as many as there are by then, not as many as were asked for."""

Ioctl = Callable[[int, int, bytes], object]


def driver_counts(
    interface: str, wanted: Collection[str], ioctl: Ioctl = fcntl.ioctl
) -> dict[str, int]:
    """Those of the wanted counters that its driver has; none where it tells nothing."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:

            def ask(request: bytes, room: int) -> bytes:
                memory = ctypes.create_string_buffer(request, len(request) + room)
                where = struct.pack("16sP", interface.encode()[:15], ctypes.addressof(memory))
                ioctl(line.fileno(), SIOCETHTOOL, where.ljust(40, b"\0"))
                return memory.raw

            there, count = struct.unpack(
                "IIQI", ask(struct.pack("IIQI", SET_INFO, 0, 1 << STATISTICS, 0), 0)
            )[2:]
            if not there or not 0 < count <= MOST:
                return {}
            asked = struct.pack("III", STRINGS, STATISTICS, count)
            names = ask(asked, NAME * (count + SPARE))[len(asked) :]
            asked = struct.pack("II", COUNTS, count)
            counts = ask(asked, 8 * (count + SPARE))[len(asked) :]
    except OSError:
        return {}
    found = {}
    for number in range(count):
        name = names[NAME * number : NAME * (number + 1)].partition(b"\0")[0].decode("latin-1")
        name = name.strip()  # mlx5 had one with a blank at its end
        if name in wanted:
            found[name] = struct.unpack_from("Q", counts, 8 * number)[0]
    return found
