"""A long cable: what comes in at one interface goes out at the other so much later, both ways.

    python delay.py port2 port2-d 50

The kernels of small machines lack netem. Frames are passed on with what the kernel says of their
segments and checksums (PACKET_VNET_HDR): between virtual cables neither is done yet.
"""

from __future__ import annotations

import collections
import select
import socket
import sys
import time

ETH_P_ALL = 3
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
LONGEST = 1 << 17
BURST = 64


def end(interface: str) -> socket.socket:
    """A socket for all frames that come out of this interface."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
    made.bind((interface, ETH_P_ALL))
    made.setblocking(False)
    return made


def main(first: str, second: str, milliseconds: str) -> None:
    ends = end(first), end(second)
    other = dict(zip(ends, reversed(ends), strict=True))
    late = float(milliseconds) / 1000
    # one delay for all: they leave in the order in which they came
    flying: collections.deque[tuple[float, socket.socket, bytes]] = collections.deque()
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        while flying and flying[0][0] <= now:
            _, out, frame = flying.popleft()
            try:
                out.send(frame)
            except OSError:
                pass  # a queue is full or an interface down: the frame is lost, as on a cable
        wait = max(0.0, flying[0][0] - now) if flying else None
        for source in select.select(ends, [], [], wait)[0]:
            for _ in range(BURST):
                try:
                    frame = source.recv(LONGEST)
                except OSError:
                    break
                flying.append((time.monotonic() + late, other[source], frame))


if __name__ == "__main__":
    main(*sys.argv[1:])
