"""Reads the kernel's log, and what is in it of any PCI device (errors of its link; firmware, power
and sending of an mlx5 HCA), of NFS servers that do not respond, memory that failed, stuck CPUs.

/dev/kmsg advertises what the kernel still keeps since boot. Who may not read it
(kernel.dmesg_restrict, most containers) gets that as the answer; nothing is concluded from it.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from preflight.frozen import dataclass
from preflight.host import Host
from preflight.model import CannotObserve
from preflight.sanitize import one_line

KMSG = "/dev/kmsg"
RECORD = 8192
"""No record is longer (CONSOLE_EXT_LOG_MAX of the kernel); a shorter buffer is an EINVAL."""
BYTES = 64 << 20
"""More than any kernel keeps; a stranger's file that never ends is cut here."""
KEPT = 256
"""Errors that are kept, the newest: a device in trouble may write thousands."""
LINE = 400
"""Characters of a line that are looked at."""

ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# drivers/pci/pcie/aer.c, before and since Linux 6.8; the port that reports it comes first
AER = re.compile(
    rf"AER: (?:Multiple )?(Un)?[Cc]orrect(?:ed|able)(?: \((Fatal|Non-Fatal)\))? error "
    rf"(?:message )?received(?: from)?:? ({ADDRESS})",
    re.ASCII,
)
# aer.c too, where the firmware has handled the error first (APEI), in which case no port reports it
BY_FIRMWARE = re.compile(rf"({ADDRESS}): (?:AER: )?aer_uncor_severity: 0x", re.ASCII)
# drivers/pci/pcie/err.c, and until Linux 5.8 aer's: after an uncorrected error anywhere above it
# the link of this device was reset, and its driver can't go on (NVIDIA's has no handlers)
UNRECOVERED = re.compile(
    rf"nvidia ({ADDRESS}): (?:AER: can't recover|device has no AER-aware driver)", re.ASCII
)
# drivers/net/ethernet/mellanox/mlx5/core/health.c and cmd.c: what the HCA does not recover from by
# itself, and the end of a recovery
MLX5 = re.compile(rf"mlx5_core ({ADDRESS}): (.*)", re.ASCII)
MLX5_DEAD = re.compile(
    r"health compromised|Fatal error \d|unrecoverable|health recovery (?:failed|flow aborted)|"
    r"Will cause a leak of a command resource|firmware internal error",
    re.ASCII,
)
MLX5_WELL = re.compile(r"health recovery succeeded|Recovery succeeded", re.ASCII)
# drivers/net/ethernet/mellanox/mlx5/core/events.c: what the firmware says of the slot's power, when
# the driver starts and again whenever that changes
MLX5_POWER = re.compile(
    r"Detected insufficient power on the PCIe slot \(([0-9]{1,5})W\)|"
    r"PCIe slot advertised sufficient power|PCIe slot power capability was not advertised",
    re.ASCII,
)
# drivers/net/ethernet/mellanox/mlx5/core/en_main.c, en/health.c, main.c, net/sched/sch_generic.c:
# a queue of the interface has sent nothing for 15 s; afterwards the driver has found a lost
# interrupt, has made its queues again, or was loaded again
MLX5_NETDEV = re.compile(rf"mlx5_core ({ADDRESS}) (\S{{1,15}})(?: \(\w{{1,32}}\))?: (.*)", re.ASCII)
MLX5_SENDS_NOT = re.compile(
    r"TX timeout (?:detected|on queue)|failed recovering from a tx_timeout|"
    r"NETDEV WATCHDOG: CPU: [0-9]{1,5}: transmit queue [0-9]{1,5} timed out",
    re.ASCII,
)
MLX5_SENDS = re.compile(r"Link up|Recovered [1-9][0-9]{0,9} eqes on EQ", re.ASCII)
MLX5_LOADED = re.compile(r"firmware version: [0-9]", re.ASCII)
# the same until Linux 6.8
WATCHDOG = re.compile(
    r"NETDEV WATCHDOG: (\S{1,15}) \(mlx5_core\): transmit queue [0-9]{1,5} timed out", re.ASCII
)
TX_TIMEOUT = "TX timeout"
# kernel/watchdog.c
LOCKUP = re.compile(
    r"(?:\w+ )?(?:watchdog: )?BUG: soft lockup - CPU#([0-9]{1,5}) stuck for ([0-9]{1,6})s!"
    r"(?: \[(.{1,64}):-?[0-9]{1,10}\])?",
    re.ASCII,
)
# net/sunrpc/clnt.c: each request says once that it waits, and once that it has been answered; one
# of a soft mount gives up, and nothing ever says that the server is back
NFS = re.compile(
    r"(?:RPC: )?nfs: server (\S{1,255}) (OK|not responding, (?:still trying|timed out))", re.ASCII
)
GAVE_UP = "timed out"
# kernel/hung_task.c
BLOCKED = re.compile(r"INFO: task .{1,64}:[0-9]{1,10} blocked for more than [0-9]{1,8} seconds")
# drivers/edac/edac_mc.c: of a memory controller; mm/memory-failure.c: of a process (older kernels:
# `MCE 0x…: Killing`)
UNCORRECTED = re.compile(r"EDAC MC([0-9]{1,5}): [0-9]{1,10} UE .*", re.ASCII)
POISONED = re.compile(
    r"(?:Memory failure: |MCE )0x[0-9a-f]{1,16}: .{1,80}"
    r"due to hardware memory corruption",
    re.ASCII,
)
BURST, BURST_SECONDS = 10, 5.0
"""How often in how many seconds the kernel says that servers are back (DEFAULT_RATELIMIT_BURST,
DEFAULT_RATELIMIT_INTERVAL); it suppresses the rest, which may be of any server."""


@dataclass(frozen=True, slots=True)
class DeviceError:
    """Errors of one kind that the kernel has logged of a device: its PCI address as in /sys, what
    it says last, whether that is fatal, how often it came since boot, and how many seconds ago
    it came last."""

    bus: str
    words: str
    fatal: bool
    count: int
    age: float


def pcie_errors(text: str) -> DeviceError | None:
    """A line about the PCIe link of a device (Advanced Error Reporting)."""
    told = AER.search(text)
    if not told and (lost := UNRECOVERED.search(text)):
        words = "not recovered from an uncorrected PCIe error"
        return DeviceError(lost[1], words, True, 1, 0.0)
    if not told and (firmware := BY_FIRMWARE.search(text)):
        words = "uncorrected PCIe error, reported by the firmware"
        return DeviceError(firmware[1], words, False, 1, 0.0)
    if not told:
        return None
    words = f"uncorrected ({told[2].lower()})" if told[1] and told[2] else "corrected"
    return DeviceError(told[3], f"{words} PCIe error", told[2] == "Fatal", 1, 0.0)


def mlx5_errors(text: str) -> DeviceError | None:
    """A line about an HCA of NVIDIA's that does not work any more, or has recovered: then without
    words."""
    told = MLX5.search(text)
    if told and MLX5_DEAD.search(told[2]):
        words = re.sub(r"^\w+:\d+:\(pid \d+\): ", "", told[2])
        return DeviceError(told[1], words[:120], True, 1, 0.0)
    if told and MLX5_WELL.search(told[2]):
        return DeviceError(told[1], "", False, 1, 0.0)
    return None


def mlx5_power(text: str) -> DeviceError | None:
    """A line about the power that the PCIe slot of an HCA of NVIDIA's offers; without words where
    it is enough, or where the slot does not say."""
    told = MLX5.search(text)
    power = MLX5_POWER.search(told[2]) if told else None
    if not told or not power:
        return None
    words = f"insufficient power on the PCIe slot ({power[1]} W)" if power[1] else ""
    return DeviceError(told[1], words, False, 1, 0.0)


def mlx5_transmit(text: str, bus_of: Mapping[str, str]) -> DeviceError | None:
    """A line about an interface of a NIC of NVIDIA's that sends nothing, or sends again: then
    without words. `bus_of`: the PCI address of an interface, for lines that name nothing else."""
    if told := MLX5_NETDEV.search(text):
        if MLX5_SENDS.match(told[3]):
            return DeviceError(told[1], "", False, 1, 0.0)
        if MLX5_SENDS_NOT.search(told[3]):
            return DeviceError(told[1], f"{TX_TIMEOUT} of {told[2]}", False, 1, 0.0)
    elif (old := WATCHDOG.search(text)) and (bus := bus_of.get(old[1])):
        return DeviceError(bus, f"{TX_TIMEOUT} of {old[1]}", False, 1, 0.0)
    elif (loaded := MLX5.search(text)) and MLX5_LOADED.match(loaded[2]):
        return DeviceError(loaded[1], "", False, 1, 0.0)
    return None


@dataclass(frozen=True, slots=True)
class SoftLockup:
    """A CPU that ran one thing in the kernel for over 20 s: for how many seconds by the last line
    of it, in which program (empty: not known); how many seconds ago that was, and the one before it
    on this CPU (None: there was none)."""

    cpu: int
    stuck: int
    program: str
    age: float
    before: float | None = None


def soft_lockups(host: Host, seconds: float) -> tuple[SoftLockup, ...]:
    """The CPUs of which the kernel's log says so since boot; nothing where it can't be read to its
    end in time."""
    up = uptime(host)
    last: dict[int, SoftLockup] = {}
    try:
        until = time.monotonic() + seconds
        for age, text in kernel_log(host, up, until, b"BUG: soft lockup") if up else ():
            if found := LOCKUP.match(text[:LINE]):
                cpu, program = int(found[1]), one_line(found[3] or "")
                before = last.pop(cpu, None)
                ago = before.age if before else None
                last[cpu] = SoftLockup(cpu, int(found[2]), program, round(age, 1), ago)
            while len(last) > KEPT:
                del last[next(iter(last))]
    except CannotObserve:
        return ()
    return tuple(last.values())


@dataclass(frozen=True, slots=True)
class NfsSilence:
    """An NFS server, as its mounts name it, that has not responded and since then was not said to
    be OK: how many requests said so, how many seconds ago the last one did that goes on trying, and
    the last one that gave up (None: none did), and what the kernel said afterwards of a process
    that hangs, of any cause."""

    server: str
    count: int = 0
    trying: float | None = None
    gave_up: float | None = None
    blocked: str = ""


def silent_nfs_servers(host: Host, seconds: float) -> tuple[NfsSilence, ...]:
    """The NFS servers that do not respond, as far as the kernel's log says; nothing where it can't
    be read to its end in time."""
    up = uptime(host)
    silent: dict[str, NfsSilence] = {}
    answered: deque[float] = deque(maxlen=BURST)
    about = (b"nfs: server ", b" blocked for more than ")
    try:
        log = kernel_log(host, up, time.monotonic() + seconds, about) if up else ()
        for age, text in log:
            if told := NFS.match(text[:LINE]):
                server, says = told[1], told[2]
                before = silent.pop(server, NfsSilence(server))
                if says == "OK":
                    answered.append(age)
                    if len(answered) == BURST and answered[0] - age < BURST_SECONDS:
                        silent.clear()
                    continue
                now = replace(before, count=before.count + 1)
                ago = round(age, 1)
                gone = says.endswith(GAVE_UP)
                silent[server] = replace(now, gave_up=ago) if gone else replace(now, trying=ago)
            elif hung := BLOCKED.match(text[:LINE]):
                silent = {name: replace(one, blocked=hung[0]) for name, one in silent.items()}
            while len(silent) > KEPT:
                del silent[next(iter(silent))]
    except CannotObserve:
        return ()
    return tuple(silent.values())


@dataclass(frozen=True, slots=True)
class MemoryFailure:
    """The last line about memory that could not be corrected, of a controller (`mc0`), or (empty)
    of a process that used it; how many seconds ago."""

    controller: str
    words: str
    age: float


def memory_failures(host: Host, seconds: float) -> tuple[MemoryFailure, ...]:
    """What the kernel's log says of memory of which errors could not be corrected; nothing where it
    can't be read to its end in time."""
    up = uptime(host)
    last: dict[str, MemoryFailure] = {}
    about = (b" UE ", b" hardware memory corruption")
    try:
        log = kernel_log(host, up, time.monotonic() + seconds, about) if up else ()
        for age, text in log:
            line = text[:LINE]
            found = UNCORRECTED.match(line)
            if not found and not POISONED.match(line):
                continue
            name = f"mc{found[1]}" if found else ""
            last.pop(name, None)
            last[name] = MemoryFailure(name, one_line(line, 160), round(age, 1))
            while len(last) > KEPT:
                del last[next(iter(last))]
    except CannotObserve:
        return ()
    return tuple(last.values())


class ErrorTally:
    """Counts the errors of each device and kind; what has recovered is forgotten."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, bool], DeviceError] = {}

    def add(self, error: DeviceError, age: float, kind: str) -> None:
        if not error.words:
            self._last = {k: v for k, v in self._last.items() if k[:2] != (error.bus, kind)}
            return
        key = error.bus, kind, error.fatal
        before = self._last.pop(key, None)
        count = (before.count if before else 0) + 1
        self._last[key] = DeviceError(error.bus, error.words, error.fatal, count, round(age, 1))

    def errors(self) -> tuple[DeviceError, ...]:
        return tuple(list(self._last.values())[-KEPT:])


def read_device_errors(
    host: Host, seconds: float, *find: Callable[[str], DeviceError | None], about: bytes = b""
) -> tuple[DeviceError, ...]:
    """What each of `find` sees in the log of each device, in lines with `about` in them; nothing
    where it can't be read to its end in time. A recovery of which one of them tells undoes what the
    same one has seen before."""
    return tuple(chain.from_iterable(errors_by_kind(host, seconds, *find, about=about)))


def errors_by_kind(
    host: Host, seconds: float, *find: Callable[[str], DeviceError | None], about: bytes = b""
) -> tuple[tuple[DeviceError, ...], ...]:
    """The same, apart for each of `find`."""
    up = uptime(host)
    tallies = [ErrorTally() for _ in find]
    try:
        log = kernel_log(host, up, time.monotonic() + seconds, about) if up else ()
        for age, text in log:
            for look, tally in zip(find, tallies, strict=True):
                if found := look(text[:LINE]):
                    tally.add(found, age, "")
    except CannotObserve:
        return tuple(() for _ in find)
    return tuple(tally.errors() for tally in tallies)


def uptime(host: Host) -> float | None:
    """Seconds since boot."""
    told = re.match(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s", host.read_or_none("/proc/uptime") or "")
    return float(told[1]) if told else None


HEAD = re.compile(r"([0-9]{1,6}),[0-9]{1,20},([0-9]{1,20}),")


def kernel_log(
    host: Host, up: float, until: float, about: bytes | tuple[bytes, ...] = b""
) -> Iterator[tuple[float, str]]:
    """What the kernel itself has logged, oldest first: how many seconds ago, and its text. `up`:
    the machine's uptime; `about`: what has to be in a line for it to be looked at, of thousands, or
    several such words of which one has to be. CannotObserve where the log can't be read to its end
    in time."""
    for line in _records(host, until, (about,) if isinstance(about, bytes) else about):
        head, _, text = line.partition(";")
        at = HEAD.match(head)
        # facility 0 is the kernel's own; programs of root may write there, too
        if at and not int(at[1]) >> 3:
            yield max(0.0, up - int(at[2]) / 1e6), text


def _records(host: Host, until: float, about: tuple[bytes, ...]) -> Iterator[str]:
    """The lines of the kernel's log with one of `about` in them, oldest first; continuation lines
    begin with a blank."""
    try:
        file = os.open(host.path(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CannotObserve(f"{KMSG}: {error.strerror}") from None
    try:
        rest, read = b"", 0
        while True:
            if time.monotonic() > until or read > BYTES:
                raise CannotObserve(f"{KMSG}: too long to be read")
            try:
                part = os.read(file, RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten while we read: go on with the next
                    continue
                raise CannotObserve(f"{KMSG}: {error.strerror}") from None
            if not part:
                break
            read += len(part)
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                if any(word in line for word in about):
                    yield line.decode(errors="replace")
            rest = rest[-RECORD:]
    finally:
        os.close(file)
