"""Reads Xid errors, which the NVIDIA driver writes into the kernel's log.

SXids of NVSwitches and errors of PCIe links stand in the same log, and are read with them.
"""

from __future__ import annotations

import re
import time

from preflight.domains import kernel_log
from preflight.domains.gpu.nvml import bus_id
from preflight.domains.kernel_log import KEPT, DeviceError
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.model import CannotObserve

LOST_BUS = 79
RECOVERY = 154

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
    RECOVERY: "the driver asks for a reset or a reboot",
    155: "NVLink error of the software",
    158: "fatal timeout of the GPU",
}
NVLINK = frozenset((74, *range(144, 151)))
"""Errors of NVLink: the number alone doesn't say whether the link has recovered."""
MEMORY = frozenset((48, 95))
"""Those that an uncorrectable memory error comes with: NVML has counted it until a reset. Not so
64, which may be about a row with corrected errors, and 140, which interrupted the driver."""

ABOUT = b"NVRM: Xid"
# NVRM: Xid (PCI:0000:3b:00): 79, pid=1896, GPU has fallen off the bus.
LINE = re.compile(
    r"NVRM: Xid \(PCI:([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?\): ([0-9]{1,4})\b",
    re.IGNORECASE | re.ASCII,
)
# NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot
# Required); back to 0x0 when it was done
ACTION = re.compile(r"recovery action changed from 0x[0-9a-f]+ \([^)]*\) to 0x([0-9a-f]{1,4})\b")
# nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 sourcetrack timeout error (First)
SXID = re.compile(
    r"SXid \(PCI:([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\): "
    r"([0-9]{4,6}), (Fatal|Non-fatal), (.{1,80})",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Xid:
    """One critical Xid of a GPU, or one of its NVLinks: its PCI address as in /sys, how often it
    came since boot, and how many seconds ago it came last."""

    bus: str
    code: int
    count: int
    age: float


@dataclass(frozen=True, slots=True)
class XidLog:
    """The critical Xids and those of NVLink in the kernel's log, the SXids of NVSwitches and the
    errors of PCIe links, of any device. `refused`: why it could not be read, else empty."""

    xids: tuple[Xid, ...] = ()
    refused: str = ""
    switches: tuple[DeviceError, ...] = ()
    links: tuple[DeviceError, ...] = ()


RECENT = 3600.0
"""Seconds. A GPU that was reset or came back says nothing of it in the log: older Xids tell no
present state."""


def recent_critical(host: Host, seconds: float) -> tuple[Xid, ...]:
    """The critical Xids of the last hour, the newest last; none where the log can't be read."""
    log = read_xids(host, seconds, ABOUT)
    return tuple(x for x in log.xids if x.age < RECENT and x.code in CRITICAL)


def read_xids(host: Host, seconds: float, about: bytes = b"") -> XidLog:
    """What it says of GPUs since boot, as far back as the kernel still keeps it. A log that can't
    be read to its end in that time counts as not read: its end is what matters. `about`: what
    a line has to have to be looked at."""
    up = kernel_log.uptime(host)
    if up is None:
        return XidLog(refused="/proc/uptime says nothing")
    found: dict[tuple[str, int], tuple[int, float]] = {}
    switches, links = kernel_log.ErrorTally(), kernel_log.ErrorTally()
    try:
        for age, text in kernel_log.kernel_log(host, up, time.monotonic() + seconds, about):
            if error := switch_errors(text[: kernel_log.LINE]):
                switches.add(error, age, "")
            elif error := kernel_log.pcie_errors(text[: kernel_log.LINE]):
                links.add(error, age, error.words)
            told = LINE.search(text[: kernel_log.LINE])
            if not told or int(told[2]) not in {*CRITICAL, *NVLINK}:
                continue
            key = bus_id(told[1]) + ".0", int(told[2])
            count, _ = found.pop(key, (0, 0.0))
            if key[1] == RECOVERY and not _wants_recovery(text[: kernel_log.LINE]):
                continue
            found[key] = count + 1, age
    except CannotObserve as error:
        return XidLog(refused=str(error))
    newest = list(found.items())[-KEPT:]
    xids = tuple(Xid(*key, count, round(age, 1)) for key, (count, age) in newest)
    return XidLog(xids, switches=switches.errors(), links=links.errors())


def _wants_recovery(text: str) -> bool:
    """Whether the driver wants something done, from a line of Xid 154."""
    told = ACTION.search(text)
    return bool(told and int(told[1], 16))


def switch_errors(text: str) -> DeviceError | None:
    """A line about an NVSwitch."""
    told = SXID.search(text)
    if not told:
        return None
    fatal = told[3] == "Fatal"
    words = f"SXid {told[2]} ({told[3].lower()}): {told[4].strip()}"
    return DeviceError(told[1], words, fatal, 1, 0.0)
