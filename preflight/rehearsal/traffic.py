"""Bytes that processes move: over their TCP connections, as the kernel counts them (sock_diag), and
through files (/proc/PID/io). Only in a worker.

A rank that asks a server, uploads a checkpoint or waits for a child that does burns no CPU and
changes no frame of its stack; its connections and files are all that shows that it goes on.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator

from preflight.frozen import dataclass
from preflight.rehearsal import procfs
from preflight.rehearsal.history import Moved

SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
NLM_F_REQUEST_DUMP = 0x301
DONE = (2, 3)  # NLMSG_ERROR, NLMSG_DONE
TCP_INFO = 2  # INET_DIAG_INFO
STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8  # established, FIN_WAIT1 and 2, CLOSE_WAIT
HEADER = struct.Struct("=IHHII")
# linux/inet_diag.h: struct inet_diag_req_v2 with an empty inet_diag_sockid, and inet_diag_msg
REQUEST = struct.Struct("=BBBBI48x")
MESSAGE = struct.Struct("=BBBB2s2s16s16sI8sIIIII")
ATTRIBUTE = struct.Struct("=HH")
# linux/tcp.h: tcpi_bytes_acked and tcpi_bytes_received (since Linux 4.2)
BYTES = struct.Struct("=120xQQ")
SECONDS = 0.5
SOCKETS = 20_000
"""Connections of this machine that are looked at."""
FILES = 4096
"""Descriptors of one process that are looked at."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One TCP connection of this network namespace: its ends, and the bytes that it has moved."""

    inode: int
    here: int
    peer: str
    port: int
    moved: int


def connections() -> dict[int, Connection]:
    """Those that are open, by the inode of their socket; empty where the kernel tells none."""
    found: dict[int, Connection] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as sock:
                sock.settimeout(SECONDS)
                wanted = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << TCP_INFO - 1, 0, STATES)
                head = (HEADER.size + len(wanted), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0)
                sock.send(HEADER.pack(*head) + wanted)
                for one in _received(sock, family):
                    found[one.inode] = one
                    if len(found) >= SOCKETS:
                        break
        except OSError:
            continue
    return found


def _received(sock: socket.socket, family: int) -> Iterator[Connection]:
    while True:
        data = sock.recv(1 << 18)
        while len(data) >= HEADER.size:
            length, kind, *_ = HEADER.unpack_from(data)
            if kind in DONE or length < HEADER.size:
                return
            if (one := _connection(data[HEADER.size : length], family)) is not None:
                yield one
            data = data[length + 3 & ~3 :]


def _connection(data: bytes, family: int) -> Connection | None:
    if len(data) < MESSAGE.size:
        return None
    fields = MESSAGE.unpack_from(data)
    here, port = (int.from_bytes(fields[i], "big") for i in (4, 5))
    address = fields[7][:4] if family == socket.AF_INET else fields[7]
    moved, rest = 0, data[MESSAGE.size :]
    while len(rest) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(rest)
        if length < ATTRIBUTE.size:
            break
        if kind == TCP_INFO and length >= ATTRIBUTE.size + BYTES.size:
            moved = sum(BYTES.unpack_from(rest, ATTRIBUTE.size))
        rest = rest[length + 3 & ~3 :]
    return Connection(fields[-1], here, socket.inet_ntop(family, address), port, moved)


def sockets_of(pid: int) -> frozenset[int]:
    """The inodes of a process's sockets; empty where they may not be seen."""
    found = set()
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for _, entry in zip(range(FILES), entries, strict=False):
                try:
                    target = os.readlink(entry.path)
                except OSError:
                    continue
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    except OSError:
        pass
    return frozenset(found)


def file_bytes(pid: int) -> int:
    """What a process has read and written so far, at the disk or anywhere else; 0: not known."""
    total = 0
    for line in procfs.read(f"/proc/{pid}/io", 1024).splitlines():
        name, _, value = line.partition(":")
        if name in ("rchar", "wchar") and value.strip().isdecimal():
            total += int(value)
    return total


class Traffic:
    """The bytes of some processes from one look to the next."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        """Of each connection the bytes until the last look."""
        self._files: dict[int, int] = {}
        self._moved: dict[int, Moved] = {}

    def look(self, trees: Iterable[tuple[int, Collection[int]]], stores: Collection[int]) -> None:
        """Count what (process, those below it) have moved. Connections to the `stores`, ports of
        the job's own, are left out: they are asked while everybody waits."""
        open_now = connections()
        grown: dict[int, int] = {}
        for inode, one in open_now.items():
            if not {one.here, one.port} & set(stores):
                # one that is new has moved all of its bytes since
                grown[inode] = one.moved - self._seen.get(inode, 0 if self._seen else one.moved)
        for pid, below in trees:
            before = self._moved.get(pid, Moved())
            mine, theirs = sockets_of(pid), [sockets_of(child) for child in below]
            own = sum(max(0, grown.get(inode, 0)) for inode in mine)
            further = {inode for of in theirs for inode in of} - mine
            under = sum(max(0, grown.get(inode, 0)) for inode in further)
            busiest = max(mine | further, key=lambda i: grown.get(i, 0), default=0)
            most = open_now.get(busiest) if grown.get(busiest, 0) else None
            peer = f"{most.peer}:{most.port}" if most is not None else ""
            files, further_files = self._grown_files(pid), sum(map(self._grown_files, below))
            self._moved[pid] = Moved(
                before.net + own + under,
                before.files + files + further_files,
                before.below + under,
                peer,
                before.files_below + further_files,
            )
        self._seen = {inode: one.moved for inode, one in open_now.items()}

    def _grown_files(self, pid: int) -> int:
        now = file_bytes(pid)
        before = self._files.get(pid, now)
        self._files[pid] = now
        return max(0, now - before)

    def of(self, pid: int) -> Moved:
        """What it has moved so far."""
        return self._moved.get(pid, Moved())
