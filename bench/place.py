"""A corner of this machine for many agents: a network that nobody else sees, host names of their
own, and no process of theirs that could get lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWNET = 0x04000000, 0x10000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR = 0x8913, 0x8914, 0x8916
IFF_UP = 1

LIBC = ctypes.CDLL(None, use_errno=True)


def seclude(address: str) -> None:
    """This process and all that it will start into a network of its own, with this address; without
    root in a user namespace, too. OSError where the kernel forbids it."""
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWNET | (CLONE_NEWUSER if user else 0))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        up = struct.pack("16sh14x", b"lo", flags | IFF_UP)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, up)
        alias = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(any_socket, SIOCSIFADDR, alias)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def unshare(flags: int) -> None:
    if LIBC.unshare(flags):
        raise OSError(ctypes.get_errno(), f"no namespaces: {os.strerror(ctypes.get_errno())}")


def children() -> list[int]:
    return [int(p) for p in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def reap() -> Iterator[tuple[int, int]]:
    """Who of our children has ended, with its exit code."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def connected() -> int:
    """How many agents have a connection: their ends are IPv4's, those of the leader IPv6's."""
    with contextlib.suppress(OSError, IndexError):
        found = Path("/proc/self/net/sockstat").read_text().partition("TCP: inuse ")[2]
        return int(found.split()[0])
    return 0


def listening(port: int) -> bool:
    """Whether somebody listens, without knocking: strangers are counted there."""
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                entry = line.split()
                if entry[3] == "0A" and entry[1].endswith(f":{port:04X}"):
                    return True
    return False
