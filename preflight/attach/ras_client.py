"""NCCL's own view of a job that already runs: its RAS service (from NCCL 2.24 on), which a process
of the job offers at localhost:28028 or where NCCL_RAS_ADDR says. It knows of all processes of the
job, those of other nodes too, which of them answer, and how many collectives each has launched.

Asked is only a port at which a process of this job listens itself, that has loaded NCCL; and after
the greeting only what has greeted as RAS does. Everything is bounded text or JSON. Only in a
worker. Written from NCCL's documentation and source: no real NCCL was asked.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from preflight.attach import sockets
from preflight.domains.job import nccl_ras
from preflight.domains.job.nccl_ras import Communicator, Member, Ras
from preflight.rehearsal import client, procfs
from preflight.sanitize import one_line

ADDRESS = "NCCL_RAS_ADDR"
DEFAULT = "localhost:28028"
GREETING = re.compile(rb"SERVER PROTOCOL \d{1,9}\r?\n")
SECONDS = 6.0
"""For all that is said; RAS itself is asked to wait for its peers at most PEERS of them."""
PEERS = 3
LIMIT, MAPS = 8 << 20, 8 << 20
LIBRARIES = ("libnccl", "libtorch_cuda", "librccl")
"""Some builds of torch have NCCL in a library of their own."""
LINE = 4096
COMMUNICATORS, MEMBERS = 64, 4096


def query_job(pids: Collection[int]) -> Ras | None:
    """What RAS tells of the job of these processes; None where none of them offers it, where it
    gives no answer, and where it may be that of another job on this machine."""
    for pid in pids:
        found = _port(pid)
        if found is None:
            continue
        answer = _query_status(found, time.monotonic() + SECONDS)
        if answer is None:
            return None
        as_json, data = answer
        inner = {_pid_in_container(pid) for pid in pids}
        if as_json:
            return parse_json_status(client.parse_json(data), inner)
        return (
            parse_text_status(data.decode(errors="replace"))
            if _port_not_shared(found, pids)
            else None
        )
    return None


def _port(pid: int) -> client.Address | None:
    """Where this process offers it."""
    port = (procfs.variable(pid, ADDRESS) or DEFAULT).rpartition(":")[2]
    if not port.isdecimal() or len(port) > 5 or port == procfs.variable(pid, "MASTER_PORT"):
        return None
    maps = procfs.read(f"/proc/{pid}/maps", MAPS)
    if not any(library in maps for library in LIBRARIES):
        return None
    for one in sockets.listeners(pid):
        if one.port == int(port) and not one.path:
            return one.address
    return None


def _pid_in_container(pid: int) -> int:
    """The number of a process in its own container, which is the one that RAS knows."""
    for line in procfs.read(f"/proc/{pid}/status", 16384).splitlines():
        if line.startswith("NSpid:") and line.split()[-1].isdecimal():
            return int(line.split()[-1])
    return pid


def _port_not_shared(address: client.Address, pids: Collection[int]) -> bool:
    """Whether nobody else listens there: NCCL shares its port with other jobs of the same user."""
    import psutil

    try:
        found = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return False
    there = [c for c in found if c.status == psutil.CONN_LISTEN and c.laddr[1] == address[1]]
    return all(c.pid in pids for c in there)


def ranks_by_process(numbered: Mapping[int, int | None]) -> dict[tuple[int, str], int]:
    """numbered: pid -> rank. The same by the number and the addresses that RAS knows a process of
    this machine by."""
    import psutil

    hosts = {
        entry.address.partition("%")[0]
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    }
    return {
        (_pid_in_container(pid), host): rank
        for pid, rank in numbered.items()
        if rank is not None
        for host in hosts
    }


# --- the conversation ---


def _query_status(address: client.Address, until: float) -> tuple[bool, bytes] | None:
    """Whether the answer is JSON, and the answer."""
    assert not isinstance(address, str)
    try:
        with socket.create_connection(address, timeout=1.0) as line:
            if not GREETING.fullmatch(_request_line(line, "CLIENT PROTOCOL 2", until)):
                return None
            _request_line(line, f"TIMEOUT {PEERS}", until)
            as_json = _request_line(line, "SET FORMAT json", until).strip() == b"OK"
            line.sendall(b"VERBOSE STATUS\n")
            data = bytearray()
            while len(data) <= LIMIT:
                part = _receive(line, 1 << 16, until)
                if not part:
                    return as_json, bytes(data)
                data += part
    except OSError:
        pass
    return None


def _request_line(line: socket.socket, what: str, until: float) -> bytes:
    """The line that it answers."""
    line.sendall(f"{what}\n".encode())
    data = b""
    while not data.endswith(b"\n") and len(data) < LINE:
        part = _receive(line, LINE, until)
        if not part:
            break
        data += part
    return data


def _receive(line: socket.socket, most: int, until: float) -> bytes:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    line.settimeout(left)
    return line.recv(most)


# --- what it says ---


def parse_json_status(told: object, pids: Collection[int]) -> Ras | None:
    """None of what is no such answer, or that of a job without any of these processes."""
    match told:
        case {"nccl_version": str(version), "communicators": list(communicators)}:
            pass
        case _:
            return None
    found, seen = [], set[int]()
    for one in communicators[:COMMUNICATORS]:
        if not isinstance(one, dict):
            continue
        here = [_member(m) for m in _mappings(one.get("ranks"))]
        missing = [_member(m) for m in _mappings(one.get("missing_ranks"))]
        seen |= {m.pid for m in (*here, *missing)}
        size = one.get("size")
        name = one_line(one.get("hash", ""), 24)
        odd = nccl_ras.diverging(name, size if type(size) is int else len(here), here, missing)
        if odd is not None:
            found.append(odd)
    return Ras(one_line(version, 24), tuple(found)) if seen & set(pids) else None


def _mappings(told: object) -> list[Mapping[str, Any]]:
    entries = told[:MEMBERS] if isinstance(told, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _member(told: Mapping[str, Any]) -> Member:
    counts, status = told.get("collective_counts"), told.get("status")
    counts = counts if isinstance(counts, dict) else {}
    status = status if isinstance(status, dict) else {}
    state = "dead" if status.get("considered_dead") is True else ""
    state = state or ("silent" if status.get("unresponsive") is True else "")
    rank, pid = told.get("rank"), told.get("pid")
    return Member(
        rank=rank if type(rank) is int and 0 <= rank < 1 << 24 else -1,
        pid=pid if type(pid) is int and 0 < pid < 1 << 31 else 0,
        host=one_line(told.get("host", ""), 46),
        counts=tuple(
            (one_line(op, 24), n)
            for op, n in list(counts.items())[:16]
            if type(n) is int and 0 <= n < 1 << 63
        ),
        state=state,
    )


NUMBER = r"(\d{1,15})"
VERSION = re.compile(r"^NCCL version (\S{1,24})", re.MULTILINE)
ROW = re.compile(rf"^ *{NUMBER} +\d+ +\d+ +[\d-]+ +{NUMBER} +\d+ +[A-Z]+ +[A-Z,]+ *$")
HEAD = re.compile(r"^#(\d{1,9})-\d{1,9} \(([0-9a-f]{1,16})\) ([A-Z]{1,20})$")
COUNTS = re.compile(r"^  Communicator ranks have different (\w{1,24}) operation counts$")
SEVERAL = re.compile(rf"^  {NUMBER} ranks have (?:launched up to operation {NUMBER}|not launched)")
ONE = re.compile(rf"^  Rank {NUMBER} has (?:launched up to operation {NUMBER}|not launched)")
RANK = re.compile(rf"^  Rank {NUMBER} ")
WHERE = re.compile(rf"(?:managed by process|^  Process) {NUMBER} on node (\S{{1,46}})")
LINES = 100_000


@dataclass(slots=True)
class RasSection:
    """Of the text form: one communicator while its lines come."""

    name: str
    size: int
    what: str
    op: str = ""
    group: int | None = None


def parse_text_status(text: str) -> Ras | None:
    """The form that all versions have: it names the ranks of the smaller groups only."""
    version = VERSION.search(text)
    if version is None:
        return None
    sizes: dict[int, int] = {}
    members: dict[str, tuple[int, list[Member]]] = {}
    usual: dict[tuple[str, str], tuple[int, int]] = {}
    dead: list[Member] = []
    now: RasSection | None = None
    section = ""
    for line in text.splitlines()[:LINES]:
        if found := ROW.match(line):
            sizes[int(found[1])] = int(found[2])
        elif line in ("DEAD", "INCOMPLETE"):
            section, now = line, None
        elif found := HEAD.match(line):
            section, now = "", RasSection(found[2], sizes.get(int(found[1]), 0), found[3])
            members.setdefault(now.name, (now.size, []))
        elif line.startswith("  Process ") and section:
            dead += _located_member(line, -1, (), "dead" if section == "DEAD" else "silent")
        elif now is not None:
            _read_line(now, line, members[now.name][1], usual)
    communicators = [
        Communicator(
            name,
            size,
            tuple((op, n) for (of, op), (_, n) in usual.items() if of == name),
            tuple(_merge_by_rank(found)),
        )
        for name, (size, found) in members.items()
        if found
    ]
    return Ras(version[1], tuple(communicators[:COMMUNICATORS]), tuple(dead[:MEMBERS]))


def _read_line(
    now: RasSection,
    line: str,
    members: list[Member],
    usual: dict[tuple[str, str], tuple[int, int]],
) -> None:
    """One line of a communicator: the largest group comes first, and is what is usual."""
    if found := COUNTS.match(line):
        now.op, now.group = found[1], None
    elif now.op and (found := SEVERAL.match(line)):
        now.group = int(found[2] or 0)
        if (now.name, now.op) not in usual:
            usual[now.name, now.op] = (int(found[1]), now.group)
    elif now.op and (found := ONE.match(line)):
        members += _located_member(line, int(found[1]), ((now.op, int(found[2] or 0)),), "")
    elif found := RANK.match(line):
        if now.what == "INCOMPLETE":
            members += _located_member(line, int(found[1]), (), "silent")
        elif now.op and now.group is not None and usual[now.name, now.op][1] != now.group:
            members += _located_member(line, int(found[1]), ((now.op, now.group),), "")


def _located_member(
    line: str, rank: int, counts: tuple[tuple[str, int], ...], state: str
) -> Iterator[Member]:
    where = WHERE.search(line)
    host = one_line(where[2], 46) if where else ""
    yield Member(rank, int(where[1]) if where else 0, host, counts, state)


def _merge_by_rank(found: list[Member]) -> Iterator[Member]:
    """One member per rank: it may be listed for several operations."""
    by_rank: dict[int, Member] = {}
    for one in found[:MEMBERS]:
        before = by_rank.get(one.rank)
        counts = (*before.counts, *one.counts) if before is not None else one.counts
        by_rank[one.rank] = Member(one.rank, one.pid, one.host, counts, one.state)
    yield from by_rank.values()
