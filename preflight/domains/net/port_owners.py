"""Whose port it is: the TCP sockets at a local port and the processes that hold them.

From /proc/net/tcp and tcp6 and the open files of all processes, below the Host's root; bounded, and
nothing is sent to the port: an old c10d store dies of a stray byte.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from preflight.frozen import dataclass
from preflight.host import Host

# of a table of sockets, of the processes, and of the open files of all of them: enough for a busy
# machine, and read within a second or two
SOCKETS_READ, PROCESSES_READ, FILES_READ = 200_000, 20_000, 200_000
KEPT = 8

LISTEN, ESTABLISHED, TIME_WAIT = "LISTEN", "ESTABLISHED", "TIME_WAIT"
# include/net/tcp_states.h
STATES: Mapping[str, str] = {
    "01": ESTABLISHED,
    "02": "SYN_SENT",
    "03": "SYN_RECV",
    "04": "FIN_WAIT1",
    "05": "FIN_WAIT2",
    "06": TIME_WAIT,
    "08": "CLOSE_WAIT",
    "09": "LAST_ACK",
    "0A": LISTEN,
    "0B": "CLOSING",
}


@dataclass(frozen=True, slots=True)
class Socket:
    """A line of /proc/net/tcp: its state, local address and owner's uid. inode "0": no process
    has it."""

    state: str
    local: str
    uid: int
    inode: str


@dataclass(frozen=True, slots=True)
class Holder:
    """A socket and its process.

    pid   0 when no process that we may look into has it: another user's, or another namespace's
    mine  its owner is the user that we are
    name  the program and its script, without arguments: those may hold secrets
    age   seconds since the process began; None when unknown
    """

    state: str
    local: str
    user: str
    mine: bool
    pid: int = 0
    name: str = ""
    age: float | None = None


def sockets_at(host: Host, port: int) -> tuple[Socket, ...] | None:
    """The sockets whose local port this is, listeners first; None when there is no table to read.
    TIME_WAIT is not among them: it hinders no listener that sets SO_REUSEADDR, as torch's do."""
    found: list[Socket] = []
    readable = False
    for table in ("tcp", "tcp6"):
        for number, line in enumerate(host.lines(f"/proc/net/{table}", SOCKETS_READ)):
            readable = True
            found += _socket(line, port) if number else ()
    found.sort(key=lambda s: s.state != LISTEN)
    return tuple(found) if readable else None


def _socket(line: str, port: int) -> Iterator[Socket]:
    wanted = f":{port:04X}"
    if wanted not in line:
        return
    parts = line.split()
    if len(parts) < 10 or not parts[1].endswith(wanted) or not parts[7].isdecimal():
        return
    state = STATES.get(parts[3], parts[3][:8])
    if state != TIME_WAIT:
        local = f"{_address(parts[1].partition(':')[0])}:{port}"
        yield Socket(state, local, int(parts[7][:10]), parts[9][:20])


@dataclass(frozen=True, slots=True)
class PeerConnection:
    """A TCP connection of this machine: its port here, and the other end."""

    state: str
    port: int
    ip: str
    source: int


def connections_from(
    host: Host, ips: Collection[str], most: int = 64
) -> tuple[PeerConnection, ...]:
    """The connections of this machine with these addresses, half-open and closing ones included, at
    most `most`."""
    found: list[PeerConnection] = []
    for table in ("tcp", "tcp6"):
        for line in host.lines(f"/proc/net/{table}", SOCKETS_READ):
            parts = line.split(None, 4)
            if len(parts) < 5 or len(found) >= most:
                continue
            (_, port), (far, source) = (part.rpartition(":")[::2] for part in parts[1:3])
            ip = _address(far).strip("[]").removeprefix("::ffff:")
            if ip in ips and source != "0000":
                state = STATES.get(parts[3], parts[3][:8])
                found.append(PeerConnection(state, int(port, 16), ip, int(source, 16)))
    return tuple(found)


def _address(text: str) -> str:
    """An address of /proc/net/tcp: words of 32 bits in hex, little end first."""
    import socket

    try:
        raw = b"".join(bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8))
        family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
        ip = socket.inet_ntop(family, raw)
    except ValueError:
        return "?"
    return f"[{ip}]" if ":" in ip else ip


def holders(host: Host, sockets: tuple[Socket, ...]) -> tuple[Holder, ...]:
    """The first KEPT of these sockets with their processes."""
    some = sockets[:KEPT]
    owners = _owners(host, {s.inode for s in some} - {"0"})
    mine = _own_uid(host)
    return tuple(
        Holder(
            state=s.state,
            local=s.local,
            user=_user(host, s.uid),
            mine=s.uid == mine,
            pid=owners.get(s.inode, 0),
            name=program(host, owners[s.inode]) if s.inode in owners else "",
            age=_age(host, owners[s.inode]) if s.inode in owners else None,
        )
        for s in some
    )


def _owners(host: Host, inodes: set[str]) -> dict[str, int]:
    """inode -> pid of a process that has this socket open, as far as we may look."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, int] = {}
    files = 0
    pids = sorted((int(n) for n in host.listdir("/proc") if n.isdecimal()), reverse=True)
    for pid in pids[:PROCESSES_READ]:
        if len(found) == len(inodes) or files > FILES_READ:
            break
        for fd in host.listdir(f"/proc/{pid}/fd"):
            files += 1
            inode = wanted.get(host.readlink(f"/proc/{pid}/fd/{fd}"))
            if inode is not None:
                found[inode] = pid
    return found


def _own_uid(host: Host) -> int:
    for line in (host.read_or_none("/proc/self/status") or "").splitlines():
        parts = line.split()
        if line.startswith("Uid:") and len(parts) > 2 and parts[2].isdecimal():
            return int(parts[2])  # the effective one, which a new socket gets
    return -1


def _user(host: Host, uid: int) -> str:
    """The user's name by /etc/passwd alone: a directory service may hang."""
    for line in (host.read_or_none("/etc/passwd") or "").splitlines():
        parts = line.split(":")
        if len(parts) > 2 and parts[2] == str(uid):
            return parts[0][:32]
    return f"uid {uid}"


def program(host: Host, pid: int) -> str:
    """The program of a process and, if it is Python, its script or module: `python train.py`."""
    args = (host.read_or_none(f"/proc/{pid}/cmdline") or "").split("\0")
    # some write a title with arguments over their first word
    name = os.path.basename(args[0].partition(" ")[0])
    if name.startswith("python"):
        name = f"{name} {_script(args[1:])}".strip()
    return name[:120] or (host.read_or_none(f"/proc/{pid}/comm") or "").strip()[:120]


def _script(args: list[str]) -> str:
    """The first word that is no option of Python itself, or the module after -m."""
    words = iter(args)
    for word in words:
        if word == "-c":
            return ""
        if word == "-m":
            return next(words, "")
        if word in ("-W", "-X"):
            next(words, "")
        elif not word.startswith("-"):
            return os.path.basename(word)
    return ""


def _age(host: Host, pid: int) -> float | None:
    """Seconds since a process began: field 22 of its stat, in ticks since boot."""
    fields = (host.read_or_none(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    uptime = (host.read_or_none("/proc/uptime") or "").split()
    try:
        return max(0.0, float(uptime[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (IndexError, ValueError):
        return None
