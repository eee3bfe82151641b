"""Reads Xid errors, which the NVIDIA driver writes into the kernel's log.

Read from /dev/kmsg, which hands out what the kernel still keeps since boot. Who may not read it
(kernel.dmesg_restrict, most containers) gets that as the answer; nothing is concluded from it.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator

from preflight.domains.gpu.nvml import bus_id
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.model import CannotObserve

KMSG = "/dev/kmsg"
RECORD = 8192
"""No record is longer (CONSOLE_EXT_LOG_MAX of the kernel); a shorter buffer is an EINVAL."""
BYTES = 64 << 20
"""More than any kernel keeps; a stranger's file that never ends is cut here."""
KEPT = 256
"""Xids that are kept, the newest: a GPU in trouble may write thousands."""

LOST_BUS = 79

# NVIDIA's catalogue of Xids (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html): those
# whose immediate action is a reset of the GPU or a restart of the machine, 48 with its own
# workflow that ends in a reset. What only ends the program that caused it (13, 31, 43, 45, 94)
# says nothing of the next one; 63 and 156 follow from an error that has a number of its own; of
# 74 and 144-150 (links) the number alone doesn't say whether it matters.
CRITICAL = {
    46: "GPU stopped processing",
    48: "uncorrectable memory error",
    62: "power management unit halted",
    64: "row remapping or page retirement failed",
    LOST_BUS: "GPU has fallen off the bus",
    95: "uncontained memory error",
    109: "context switch timed out",
    110: "security fault",
    119: "GSP firmware does not answer",
    120: "GSP firmware failed",
    136: "NVLink training failed",
    140: "unrecovered memory error",
    143: "GPU failed to initialise",
    151: "key rotation failed",
    155: "NVLink error of the software",
    158: "fatal timeout of the GPU",
}
MEMORY = frozenset((48, 64, 95, 140))
"""Those that an uncorrectable memory error comes with: NVML has counted it until a reset."""

# NVRM: Xid (PCI:0000:3b:00): 79, pid=1896, GPU has fallen off the bus.
LINE = re.compile(
    r"NVRM: Xid \(PCI:([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?\): ([0-9]{1,4})\b",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Xid:
    """One critical Xid of a GPU: its PCI address as in /sys, how often it came since boot, and how
    many seconds ago it came last."""

    bus: str
    code: int
    count: int
    age: float


@dataclass(frozen=True, slots=True)
class XidLog:
    """The critical Xids in the kernel's log. `refused`: why it could not be read, else empty."""

    xids: tuple[Xid, ...] = ()
    refused: str = ""


def read_xids(host: Host, seconds: float) -> XidLog:
    """The critical Xids since boot, as far back as the kernel still keeps them. A log that can't be
    read to its end in so many seconds counts as not read: its end is what matters."""
    up = uptime(host)
    if up is None:
        return XidLog(refused="/proc/uptime says nothing")
    found: dict[tuple[str, int], tuple[int, float]] = {}
    try:
        for age, text in kernel_log(host, up, time.monotonic() + seconds):
            told = LINE.search(text[:400])
            if not told or int(told[2]) not in CRITICAL:
                continue
            key = bus_id(told[1]) + ".0", int(told[2])
            count, _ = found.pop(key, (0, 0.0))
            found[key] = count + 1, age
    except CannotObserve as error:
        return XidLog(refused=str(error))
    newest = list(found.items())[-KEPT:]
    return XidLog(tuple(Xid(*key, count, round(age, 1)) for key, (count, age) in newest))


def uptime(host: Host) -> float | None:
    """Seconds since boot."""
    told = re.match(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s", host.read_or_none("/proc/uptime") or "")
    return float(told[1]) if told else None


def kernel_log(host: Host, up: float, until: float) -> Iterator[tuple[float, str]]:
    """What the kernel itself has logged, oldest first: how many seconds ago, and its text. `up`:
    the machine's uptime. CannotObserve where the log can't be read to its end in time."""
    for line in _records(host, until):
        head, _, text = line.partition(";")
        at = re.match(r"([0-9]{1,6}),[0-9]{1,20},([0-9]{1,20}),", head)
        # facility 0 is the kernel's own; programs of root may write there, too
        if at and not int(at[1]) >> 3:
            yield max(0.0, up - int(at[2]) / 1e6), text


def _records(host: Host, until: float) -> Iterator[str]:
    """The lines of the kernel's log, oldest first; continuation lines begin with a blank."""
    try:
        file = os.open(host.path(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CannotObserve(f"{KMSG}: {error.strerror}") from None
    try:
        rest, read = "", 0
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
            *lines, rest = (rest + part.decode(errors="replace")).split("\n")
            yield from lines
            rest = rest[-RECORD:]
    finally:
        os.close(file)
