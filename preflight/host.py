"""Host: the only door to /proc, /sys, the environment, interfaces, names and NVML.

`Host(root=DIR)` reads the same machine below DIR: tests give it small trees, a post-mortem gives
it a copied one. What only a live machine can answer raises CannotObserve there. Used in workers
only: any of these calls may hang, and a worker has a deadline.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from preflight.frozen import dataclass
from preflight.model import CannotObserve

T = TypeVar("T")

READ_LIMIT = 1 << 20
"""Bytes read of any one file; a file of /proc or a config file that is longer is cut."""

CPUS_MAX = 8192
"""The greatest NR_CPUS that a kernel of x86 can be built with (arch/x86/Kconfig)."""

UNLIMITED = -1

COUNTED = 1 << 64
"""What the kernel's numbers stay below."""

# include/uapi/linux/if.h
IFF_UP = 0x1
IFF_LOOPBACK = 0x8
RTF_UP = 0x1


@dataclass(frozen=True, slots=True)
class Address:
    """An address of an interface. family is 4 or 6; a scope (`%eth0`) is cut off."""

    ip: str
    prefix: int
    family: int


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface, in the kernel's order (the order in which NCCL and Gloo see them).

    running is what IFF_RUNNING would say: up, and the link is up or doesn't know better.
    """

    name: str
    up: bool
    running: bool
    loopback: bool
    mtu: int
    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """A line of the IPv4 or IPv6 routing table. `network` is `0.0.0.0` or `::` for the default."""

    interface: str
    network: str
    prefix: int
    gateway: str
    metric: int


@dataclass(frozen=True, slots=True)
class Limit:
    """A resource limit; UNLIMITED (-1) when there is none. Bytes for memlock and stack."""

    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Space:
    """A file system's size and what a normal user may still take, in bytes and inodes."""

    size: int
    free: int
    inodes_free: int
    inodes: int


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of /proc/self/mountinfo: where, what kind, its source and options."""

    point: str
    fstype: str
    source: str
    options: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """One address of a name, in the order in which getaddrinfo gave it. family is 4 or 6."""

    ip: str
    family: int


class Host:
    """One machine. `environ` is the job's environment as the ranks have it."""

    def __init__(self, root: str = "/", environ: Mapping[str, str] | None = None) -> None:
        self.root = Path(root)
        self.live = self.root == Path("/")
        if environ is None:
            environ = os.environ if self.live else self._recorded_environ()
        self.environ: Mapping[str, str] = environ

    def _recorded_environ(self) -> Mapping[str, str]:
        """A copied tree brings its environment along as proc/self/environ."""
        pairs = (
            p.partition("=") for p in (self.read_or_none("/proc/self/environ") or "").split("\0")
        )
        return {name: value for name, sign, value in pairs if sign}

    # --- files ---

    def path(self, path: str) -> Path:
        """Where `path` (absolute, of the machine) really lies."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        """The text of a file, cut at READ_LIMIT; CannotObserve when it can't be read."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read(READ_LIMIT).decode(errors="replace")
        except OSError as error:
            raise CannotObserve(f"{path}: {error.strerror}") from None

    def lines(self, path: str, most: int) -> Iterator[str]:
        """The first `most` lines of a file that may be longer than READ_LIMIT, such as
        /proc/net/tcp; none when it is not there or not readable."""
        try:
            with open(self.path(path), errors="replace") as file:
                yield from itertools.islice(iter(lambda: file.readline(READ_LIMIT), ""), most)
        except OSError:
            return

    def read_or_none(self, path: str) -> str | None:
        """The text of a file; None when it is not there or not readable."""
        try:
            return self.read(path)
        except CannotObserve:
            return None

    def read_int(self, path: str) -> int | None:
        """The number that a file of /proc or /sys holds; None when there is none."""
        return number(self.read_or_none(path) or "", 0)

    def exists(self, path: str) -> bool:
        return self.path(path).exists()

    def listdir(self, path: str) -> tuple[str, ...]:
        """The sorted names in a folder; empty when it is not there or not readable."""
        try:
            return tuple(sorted(os.listdir(self.path(path))))
        except OSError:
            return ()

    def readlink(self, path: str) -> str:
        """Where a symbolic link points; empty when it is not one."""
        try:
            return os.readlink(self.path(path))
        except OSError:
            return ""

    def space(self, path: str) -> Space:
        """Size and free space of the file system that holds `path`. A copied tree can't tell its
        own: there a file `PATH.statvfs` with the four numbers of Space stands for it."""
        if not self.live:
            file = path.rstrip("/") + ".statvfs"
            for space in _understood(
                lambda text: Space(*map(int, text.split())), [self.read(file)]
            ):
                return space
            raise CannotObserve(f"{file} can't be parsed")
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise CannotObserve(f"{path}: {error.strerror}") from None
        unit = found.f_frsize
        return Space(found.f_blocks * unit, found.f_bavail * unit, found.f_favail, found.f_files)

    @contextmanager
    def scratch(self, folder: str) -> Iterator[int]:
        """A new file in a folder as an open descriptor; OSError as it comes. Nothing stays behind
        however this process ends: the file never has a name where the file system allows that
        (O_TMPFILE), elsewhere it loses it at once. A link is never followed."""
        path = self.path(folder)
        try:
            file = os.open(path, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            import tempfile

            file, name = tempfile.mkstemp(prefix=".preflight-", dir=path)
            os.unlink(name)
        try:
            yield file
        finally:
            os.close(file)

    def unwritable(self, folder: str) -> str:
        """Why no file can be made in a folder; empty when one can. Leaves nothing behind."""
        try:
            with self.scratch(folder):
                return ""
        except OSError as error:
            return f"{folder}: {error.strerror}"

    def mounts(self) -> tuple[Mount, ...]:
        """The mounts of this process, in order (a later one may hide an earlier one)."""
        found = []
        for line in self.read("/proc/self/mountinfo").splitlines():
            left, dash, right = line.partition(" - ")
            head, tail = left.split(), right.split()
            if dash and len(head) > 5 and len(tail) > 1:
                # the kernel writes blanks and the like as octal numbers, all else as it is
                octal = head[4].encode().decode("unicode_escape", "replace")
                point = octal.encode("latin-1", "replace").decode(errors="replace")
                found.append(Mount(point, tail[0], tail[1], head[5]))
        return tuple(found)

    def mount_of(self, path: str) -> Mount | None:
        """The mount that holds an absolute path."""
        inside = [
            m
            for m in self.mounts()
            if path == m.point or path.startswith(m.point.rstrip("/") + "/")
        ]
        return max(reversed(inside), key=lambda m: len(m.point), default=None)

    # --- limits ---

    def is_root(self) -> bool:
        return self.live and os.geteuid() == 0

    def limits(self) -> Mapping[str, Limit]:
        """The resource limits of this process by the names of /proc/self/limits in lower case
        (`max locked memory`, `max open files`, `max processes`)."""

        def limit(line: str) -> tuple[str, Limit]:
            soft, hard = (UNLIMITED if n == "unlimited" else int(n) for n in line[25:].split()[:2])
            return line[:25].strip().lower(), Limit(soft, hard)

        return dict(_understood(limit, self.read("/proc/self/limits").splitlines()[1:]))

    def affinity(self) -> frozenset[int]:
        """The CPUs that this process may run on: its mask, which the kernel keeps within the
        cpuset. CPUs that are offline may be among them."""
        for line in (self.read_or_none("/proc/self/status") or "").splitlines():
            if line.startswith("Cpus_allowed_list:"):
                return cpulist(line.partition(":")[2])
        if self.live:  # gVisor's /proc/self/status has no such line
            return frozenset(os.sched_getaffinity(0))
        raise CannotObserve("/proc/self/status does not say which CPUs are allowed")

    def cgroup_files(self, controller: str, name: str) -> Iterator[tuple[str, str]]:
        """(path, text) of a file such as `memory.max` in this process's cgroup and each of its
        ancestors that has it, innermost first: the smallest of them binds. `controller` is the v1
        hierarchy's name (`memory`, `pids`, `cpu`); under v2 all live in one tree."""
        for line in (self.read_or_none("/proc/self/cgroup") or "").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, inside = rest.partition(":")
            if number == "0" and not controllers:
                top = "/sys/fs/cgroup"
            elif controller in controllers.split(","):
                top = f"/sys/fs/cgroup/{controller}"
            else:
                continue
            # in a container the path may be the host's: then only the top exists
            while True:
                path = f"{top}{inside.rstrip('/')}/{name}"
                text = self.read_or_none(path)
                if text is not None:
                    yield path, text.strip()
                if inside in ("", "/"):
                    break
                inside = inside.rpartition("/")[0]

    def process_limits(self) -> Iterator[tuple[str, int, int | None]]:
        """What limits how many processes and threads there may be: its name, the limit, and how
        many there are below it, where that is known. RLIMIT_NPROC counts all threads of the user
        and doesn't bind root; a whole walk of /proc would be too dear for what it tells."""
        for path, text in self.cgroup_files("pids", "pids.max"):
            used = self.read_int(path.removesuffix("max") + "current")
            if (most := number(text)) is not None and used is not None:
                yield path, most, used
        limit = self.limits().get("max processes")
        if limit is not None and limit.soft != UNLIMITED and not self.is_root():
            yield "ulimit -u", limit.soft, None

    def cpu_quotas(self) -> Iterator[tuple[float, str]]:
        """The quota of every cgroup of this process that has one, as a number of CPUs, with its
        folder."""
        for path, text in self.cgroup_files("cpu", "cpu.max"):
            quota, period = (number(word) for word in text.partition(" ")[::2])
            if quota is not None and period:
                yield quota / period, path.rpartition("/")[0]
        for path, text in self.cgroup_files("cpu", "cpu.cfs_quota_us"):
            folder = path.rpartition("/")[0]
            quota, period = number(text), self.read_int(f"{folder}/cpu.cfs_period_us")
            if quota is not None and quota >= 0 and period:  # -1 is no quota
                yield quota / period, folder

    # --- network ---

    @cached_property
    def interfaces(self) -> tuple[Interface, ...]:
        """All interfaces in the kernel's order."""
        addresses = self._live_addresses() if self.live else self._recorded_addresses()
        indexed = [
            (self.read_int(f"/sys/class/net/{n}/ifindex"), n)
            for n in self.listdir("/sys/class/net")
        ]
        names = [n for index, n in sorted((i or 1 << 30, n) for i, n in indexed)]
        if not names:
            names = list(addresses)
        if not names:
            raise CannotObserve("neither /sys/class/net nor an address list is readable")
        return tuple(self._interface(n, addresses.get(n, ())) for n in names)

    def _interface(self, name: str, addresses: tuple[Address, ...]) -> Interface:
        flags = self.read_int(f"/sys/class/net/{name}/flags")
        state = (self.read_or_none(f"/sys/class/net/{name}/operstate") or "unknown").strip()
        up = bool(flags & IFF_UP) if flags is not None else bool(addresses)
        # of an interface that has just got its carrier the kernel tells so up to a second later
        # (net/core/link_watch.c); which state it is about to have is known
        about = state == "down" and self.read_int(f"/sys/class/net/{name}/carrier") == 1
        return Interface(
            name=name,
            up=up,
            running=up and (about or state in ("up", "unknown")),
            loopback=bool(flags & IFF_LOOPBACK) if flags is not None else name == "lo",
            mtu=self.read_int(f"/sys/class/net/{name}/mtu") or 0,
            addresses=addresses,
        )

    def _live_addresses(self) -> dict[str, tuple[Address, ...]]:
        import psutil

        found = {}
        for name, entries in psutil.net_if_addrs().items():
            mine = []
            for entry in entries:
                family = {socket.AF_INET: 4, socket.AF_INET6: 6}.get(entry.family)
                if family:
                    ip = entry.address.partition("%")[0]
                    mine.append(Address(ip, _prefix(entry.netmask), family))
            found[name] = tuple(mine)
        return found

    def _recorded_addresses(self) -> dict[str, tuple[Address, ...]]:
        """From /proc/net alone: local /32 entries of fib_trie lie on the interface whose connected
        route holds them; if_inet6 names its interface itself."""
        found: dict[str, list[Address]] = {}
        connected = [r for r in self.routes() if r.gateway == "0.0.0.0" and r.prefix]
        lines = (self.read_or_none("/proc/net/fib_trie") or "").splitlines()
        local = {
            before.split()[-1]
            for before, line in itertools.pairwise(lines)
            if "/32 host LOCAL" in line and _is_dotted(before.split()[-1:])
        }
        for ip in sorted(local):
            if ip.startswith("127."):
                found.setdefault("lo", []).append(Address(ip, 8, 4))
                continue
            for route in connected:
                if _inside(ip, route.network, route.prefix):
                    found.setdefault(route.interface, []).append(Address(ip, route.prefix, 4))
                    break

        def address6(line: str) -> tuple[str, Address]:
            number, _, prefix, _, _, interface = line.split()
            return interface, Address(_colons(number), int(prefix, 16), 6)

        lines = (self.read_or_none("/proc/net/if_inet6") or "").splitlines()
        for interface, address in _understood(address6, lines):
            found.setdefault(interface, []).append(address)
        return {name: tuple(addresses) for name, addresses in found.items()}

    def routes(self) -> tuple[Route, ...]:
        """The main IPv4 and IPv6 routing tables (policy rules are not seen here)."""

        def route4(line: str) -> Route | None:
            p = line.split()
            network, gateway = _dotted(p[1]), _dotted(p[2])
            found = Route(p[0], network, int(p[7], 16).bit_count(), gateway, int(p[6]))
            return found if int(p[3], 16) & RTF_UP else None

        def route6(line: str) -> Route | None:
            p = line.split()
            network, gateway = _colons(p[0]), _colons(p[4])
            found = Route(p[9], network, int(p[1], 16), gateway, int(p[5], 16))
            return found if int(p[8], 16) & RTF_UP else None

        lines4 = (self.read_or_none("/proc/net/route") or "").splitlines()[1:]
        lines6 = (self.read_or_none("/proc/net/ipv6_route") or "").splitlines()
        found = [*_understood(route4, lines4), *_understood(route6, lines6)]
        return tuple(route for route in found if route is not None)

    def source_of(self, ip: str) -> str:
        """The local address from which this machine would talk to `ip`; nothing is sent.
        OSError says why there is no way (no route, prohibited …)."""
        if not self.live:
            raise CannotObserve("routes are followed on the live machine only")
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((ip, 9))
            return str(probe.getsockname()[0])

    # --- names ---

    def hostname(self) -> str:
        """This node's hostname."""
        if self.live:
            return socket.gethostname()
        return (self.read_or_none("/proc/sys/kernel/hostname") or "").strip()

    def fqdn(self) -> str:
        """What torchrun advertises as this node's name: socket.getfqdn()."""
        self._only_live()
        return socket.getfqdn()

    def resolve(self, name: str) -> tuple[Resolved, ...]:
        """Every address of a name as getaddrinfo orders them; socket.gaierror as it comes."""
        self._only_live()
        # as bytes, as torch asks it: a str would be turned into IDNA first
        found = socket.getaddrinfo(os.fsencode(name), None, 0, socket.SOCK_STREAM)
        families = {socket.AF_INET: 4, socket.AF_INET6: 6}
        return tuple(
            Resolved(str(address[0]), families[family])
            for family, _, _, _, address in found
            if family in families
        )

    def full_name(self, name: str) -> str:
        """A name as the resolver has completed it (by a search domain), or as its alias leads on;
        socket.gaierror as it comes."""
        self._only_live()
        found = socket.getaddrinfo(
            os.fsencode(name), None, 0, socket.SOCK_STREAM, 0, socket.AI_CANONNAME
        )
        return next((canonical for _, _, _, canonical, _ in found if canonical), "")

    def name_of(self, ip: str) -> str:
        """The reverse lookup that c10d does for every connection (getnameinfo)."""
        self._only_live()
        return socket.getnameinfo((ip, 0), 0)[0]

    def reaches_itself(self, ip: str, seconds: float) -> OSError | None:
        """None when a connection from this machine to a listener of ours at `ip` arrives, else the
        error that says why not. The kernel alone answers: nobody has to accept it."""
        self._only_live()
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        try:
            # create_connection() takes an address for a name, and loads the tables of IDNA for it
            there = socket.create_server((ip, 0), family=family)
            with there, socket.socket(family) as here:
                here.settimeout(seconds)
                here.connect(there.getsockname())
        except OSError as error:
            return error
        return None

    def can_bind(self, ip: str, port: int = 0) -> OSError | None:
        """None when a listener could stand at ip:port now (SO_REUSEADDR, so that TIME_WAIT does not
        count), else the error that says why not."""
        self._only_live()
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((ip, port))
                if port:
                    probe.listen(1)
            except OSError as error:
                return error
        return None

    def _only_live(self) -> None:
        if not self.live:
            raise CannotObserve("names and ports are looked at on the live machine only")

    # --- processes and devices ---

    def gpu_files(self) -> tuple[str, ...]:
        """Device files of GPUs (NVIDIA's, AMD's, WSL's); without one nobody here uses a GPU."""
        return tuple(
            f"/dev/{name}"
            for name in self.listdir("/dev")
            if name in ("kfd", "dxg")
            or (name.startswith("nvidia") and name.removeprefix("nvidia").isdecimal())
        )

    def processes(self) -> ModuleType:
        """psutil, pointed at this machine's /proc."""
        import psutil

        psutil.PROCFS_PATH = str(self.path("/proc"))
        module: ModuleType = psutil
        return module

    def no_nvml(self) -> str:
        """Why the driver's library can't be loaded, in the loader's words; empty where it can. Then
        pynvml, whose import takes longer than most checks, only says that it was not found."""
        self._only_live()
        try:
            ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            return str(error) or "libnvidia-ml.so.1 can't be loaded"
        return ""

    @contextmanager
    def nvml(self) -> Iterator[Any]:
        """pynvml, initialised; its NVMLError comes out as it is (also of the initialisation)."""
        self._only_live()
        import pynvml

        pynvml.nvmlInit()
        try:
            yield pynvml
        finally:
            pynvml.nvmlShutdown()

    def refuses(self, path: str) -> int:
        """The errno with which a socket file refuses connections, 0 where somebody listens there.
        Nothing gets to the listener: the kernel sees first that ours is of another type."""
        self._only_live()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(str(self.path(path)))
            except OSError as error:
                return 0 if error.errno == errno.EPROTOTYPE else error.errno or errno.EIO
        return 0

    def refused(self, path: str) -> int:
        """The errno with which a device node can't be opened, 0 when it can. The device control
        group of a job or container refuses the open, not the permission bits."""
        try:
            os.close(os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def permitted_device(self, path: str) -> int | None:
        """The number of a device node that this process may read and write, None where it may not.
        It is not opened, which would wake a GPU: the kernel asks the device control group for
        access(2) as well (fs/namei.c, inode_permission)."""
        try:
            at = self.path(path)
            return os.stat(at).st_rdev if os.access(at, os.R_OK | os.W_OK) else None
        except OSError:
            return None


def number(text: str, base: int = 10) -> int | None:
    """The whole number that a text is; None where it is none, or one that no kernel counts to."""
    try:
        found = int(text, base)
    except ValueError:
        return None
    return found if abs(found) <= COUNTED else None


def cpulist(text: str) -> frozenset[int]:
    """The CPUs of a list such as `0-3,8`; anything else adds nothing."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(part) < 20:
            found.update(range(int(first), min(int(last or first), CPUS_MAX) + 1))
    return frozenset(found)


def _prefix(netmask: str | None) -> int:
    """The number of network bits of a dotted or colon mask."""
    if not netmask:
        return 0
    family = socket.AF_INET6 if ":" in netmask else socket.AF_INET
    return int.from_bytes(socket.inet_pton(family, netmask), "big").bit_count()


def _understood(parse: Callable[[str], T], lines: Iterable[str]) -> Iterator[T]:
    """What `parse` makes of each line. Those that are none are left out: a kernel writes no such
    line, but gVisor, lxcfs or a copied tree may."""
    for line in lines:
        try:
            yield parse(line)
        except (ValueError, IndexError, TypeError, OSError):
            continue


def _is_dotted(words: list[str]) -> bool:
    try:
        return bool(words) and bool(socket.inet_aton(words[0]))
    except OSError:
        return False


def _colons(number: str) -> str:
    return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(number))


def _dotted(little_endian_hex: str) -> str:
    return socket.inet_ntoa(bytes.fromhex(little_endian_hex)[::-1])


def _inside(ip: str, network: str, prefix: int) -> bool:
    left, right = (int.from_bytes(socket.inet_aton(a), "big") for a in (ip, network))
    return left >> (32 - prefix) == right >> (32 - prefix)
