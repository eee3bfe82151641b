"""What the kernel says of the rehearsed command's processes. Only in a worker: reading some of
these files waits for the process that they are about.

Bounded everywhere: a name out of /proc is the user's.
"""

from __future__ import annotations

import fcntl
import os
import stat as stat_of
import struct
from collections.abc import Iterator

from preflight.domains.job.record import ChildProcess
from preflight.frozen import dataclass
from preflight.host import number
from preflight.identity.launchers import ENV, OUTER
from preflight.redact import command_line as redacted
from preflight.sanitize import one_line

CHILDREN = 64
"""Children of one process that are looked at."""
TREE = 4096
"""Processes of a command that are looked through for its ranks."""
GENERATIONS = 64
PID_MOST = 1 << 22
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
UNENDED = 1 << 16


@dataclass(frozen=True, slots=True)
class Stat:
    """A line of /proc/PID/stat: cpu in seconds, of the process and the children that it has reaped;
    began in clock ticks since boot, which tells two processes of one number apart; rss in bytes;
    code its exit status as waitpid() gives it, readable of a zombie only."""

    pid: int
    name: str
    state: str
    parent: int
    cpu: float
    began: int
    rss: int
    code: int

    @property
    def ended(self) -> bool:
        return self.state in ("Z", "X")


def stat(pid: int) -> Stat | None:
    """None when there is no such process."""
    text = read(f"/proc/{pid}/stat", 4096)
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    counted = [number(field) for field in fields[1:50]]
    told = [count for count in counted if count is not None]
    if len(told) < 49:
        return None
    return Stat(
        pid=pid,
        name=head.partition("(")[2][:60],
        state=fields[0][:1],
        parent=told[0],
        cpu=sum(told[10:14]) / TICKS,
        began=told[18],
        rss=told[20] * PAGE,
        code=told[48],
    )


def exit_status(code: int) -> int:
    """The status of waitpid() as an exit status, negative for a signal."""
    return os.waitstatus_to_exitcode(code & (UNENDED - 1))


# linux/pidfd.h: struct pidfd_info of its first version, in which exit_code is the last field
PIDFD_GET_INFO, PIDFD_INFO_EXIT = 0xC040FF0B, 1 << 3
PIDFD_INFO = struct.Struct("=QQ11Ii")


def reaped_status(pidfd: int) -> int | None:
    """The exit status of a process that somebody else has waited for; from Linux 6.15 on."""
    asked = bytearray(PIDFD_INFO.size)
    struct.pack_into("=Q", asked, 0, PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, asked)
    except OSError:
        return None
    mask, *_, code = PIDFD_INFO.unpack(asked)
    return exit_status(code) if mask & PIDFD_INFO_EXIT else None


def read(path: str, limit: int) -> str:
    """Empty where it can't be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode(errors="replace")
    except OSError:
        return ""


def read_regular(path: str, limit: int) -> bytes:
    """What a regular file begins with; nothing where there is no such one: a rank may put there
    what it likes, and reading a FIFO would never end."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(file, limit, 0) if stat_of.S_ISREG(os.fstat(file).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(file)


def wchan(pid: int) -> str:
    """Where in the kernel it waits; empty when it doesn't, or when that is not told."""
    where = read(f"/proc/{pid}/wchan", 64).strip()
    return "" if where == "0" else where


def wakes(pid: int) -> int:
    """How often its main thread has gone to sleep by itself so far: where it waits without a
    timeout, as often as what it waits for has come."""
    for line in read(f"/proc/{pid}/task/{pid}/status", 8192).splitlines():
        name, _, value = line.partition(":")
        if name == "voluntary_ctxt_switches":
            return number(value.strip()) or 0
    return 0


def on_cpu(pid: int) -> tuple[float, float]:
    """Seconds that its main thread has been on a CPU, and for which it was ready and had none; 0
    and 0 where the kernel does not count them."""
    words = read(f"/proc/{pid}/schedstat", 100).split()
    ran, waited = (number(word) or 0 for word in words[:2]) if len(words) > 1 else (0, 0)
    return ran / 1e9, waited / 1e9


def children(pid: int) -> list[int]:
    """Those of all its threads."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")[:CHILDREN]
    except OSError:
        return []
    for thread in threads:
        told = read(f"/proc/{pid}/task/{thread}/children", 8 * CHILDREN)
        found += [one for word in told.split() if 0 < (one := number(word) or 0) <= PID_MOST]
    return found[:CHILDREN]


def child_process(found: Stat) -> ChildProcess:
    """A child as the record shows it."""
    return ChildProcess(found.pid, found.name, found.state, wchan(found.pid))


def descendants(pid: int) -> Iterator[int]:
    """A process and all that came of it, as far as the chain of parents still shows it."""
    waiting, seen = [pid], {pid}
    while waiting and len(seen) < TREE:
        one = waiting.pop()
        yield one
        fresh = [child for child in children(one) if child not in seen]
        seen.update(fresh)
        waiting += fresh


def is_python(pid: int) -> bool:
    """Whether its program is called python."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:
        return False


def has_torch(pid: int) -> bool:
    """Whether it has loaded torch's library."""
    return "/libtorch" in read(f"/proc/{pid}/maps", 16 << 20)


def has_cuda(pid: int) -> bool:
    """Whether it has loaded the library of NVIDIA's driver."""
    return "/libcuda.so" in read(f"/proc/{pid}/maps", 16 << 20)


def switches(pid: int) -> int:
    """How often its main thread has waited for something so far."""
    for line in read(f"/proc/{pid}/task/{pid}/status", 8192).splitlines():
        name, _, value = line.partition(":")
        if name == "voluntary_ctxt_switches":
            return number(value) or 0
    return 0


def command_line(pid: int, most: int) -> str:
    """What it was started as, for a reader."""
    words = redacted(read(f"/proc/{pid}/cmdline", 4096).split("\0"))
    return one_line(" ".join(words).strip(), most)


def ancestors(pid: int) -> Iterator[int]:
    """Who started it, who started that one, and so on."""
    for _ in range(GENERATIONS):
        found = stat(pid)
        if found is None or found.parent <= 1:
            return
        pid = found.parent
        yield pid


RANKS = tuple((launcher.rank[0], launcher.size[0]) for launcher in (ENV, *OUTER))
"""Variables by which a process is told its rank and how many there are; those of torch first, since
a launcher of torch's may have been started by one of the others."""


def rank_of(pid: int, names: tuple[str, str] = RANKS[0]) -> tuple[int, int] | None:
    """Rank and world size in the environment that a process was started with."""
    started = environ(pid)
    rank, size = (started.get(name, "") for name in names)
    if not all(value.isdecimal() and len(value) < 8 for value in (rank, size)):
        return None
    return int(rank), int(size)


def variable(pid: int, name: str) -> str:
    """What a process was started with under this name; empty where it had none."""
    return environ(pid).get(name, "")


def environ(pid: int) -> dict[str, str]:
    """What a process was started with; empty where that may not be read."""
    entries = (e.partition("=") for e in read(f"/proc/{pid}/environ", 1 << 20).split("\0"))
    return {name: value for name, _, value in entries}


def _cgroup() -> str:
    """The folder of this process's cgroup; empty where it is of version 1."""
    for line in read("/proc/self/cgroup", 4096).splitlines():
        if line.startswith("0::"):
            return f"/sys/fs/cgroup{line[3:].rstrip('/')}"
    return ""


def oom_kills() -> int:
    """How often the kernel ended a process of this cgroup for lack of memory, since it was made."""
    folder = _cgroup()
    path = f"{folder}/memory.events" if folder else "/sys/fs/cgroup/memory/memory.oom_control"
    for line in read(path, 4096).splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return number(count) or 0
    return 0


def memory() -> tuple[int, int]:
    """Bytes that this cgroup or machine has in all, and that are left of it."""
    told = _amounts("/proc/meminfo")
    total, left = (told.get(name, 0) << 10 for name in ("MemTotal:", "MemAvailable:"))
    if folder := _cgroup():
        most, now = (number(read(f"{folder}/memory.{n}", 32)) for n in ("max", "current"))
        if most is not None and now is not None and most < total:
            cached = _amounts(f"{folder}/memory.stat").get("inactive_file", 0)
            return most, min(left, most - now + cached)
    return total, left


def _amounts(path: str) -> dict[str, int]:
    """The numbers of a file whose lines are a name and a number, in kB or in nothing."""
    words = (line.split() for line in read(path, 16384).splitlines())
    return {w[0]: amount for w in words if len(w) > 1 and (amount := number(w[1])) is not None}


def shared_memory() -> tuple[int, int]:
    """Bytes that are taken in /dev/shm, and that are free there."""
    try:
        told = os.statvfs("/dev/shm")
    except OSError:
        return 0, 0
    return (told.f_blocks - told.f_bfree) * told.f_frsize, told.f_bavail * told.f_frsize


def cpus(pid: int) -> frozenset[int]:
    """Those that a process may run on: its main thread's."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()
