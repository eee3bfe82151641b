"""The PCI bus as /sys shows it: the bridges above a device, their access control (ACS), what the
IOMMU does with it, and whether that is a virtual machine's, whose host decides about all of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from preflight.host import Host

TEXT = 40
"""Characters kept of what a file says."""
DEPTH_MAX = 16
"""PCI bridges above one GPU; a machine with two layers of switches has five."""

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

# PCI Express Base Specification, "ACS Extended Capability": its id, where its control word lies,
# and the bits with which a switch sends to the root complex what one device has for another
ACS, ACS_CONTROL, REDIRECT = 0x000D, 6, 0b1100
EXTENDED, CONFIG_SIZE = 0x100, 4096


def bridges(host: Host, bus: str) -> tuple[str, ...]:
    """The PCI bridges above a device, the root port first."""
    place = host.readlink(f"/sys/bus/pci/devices/{bus}") if ADDRESS.fullmatch(bus) else ""
    above = [part for part in place.split("/") if ADDRESS.fullmatch(part)][:-1]
    return tuple(above[:DEPTH_MAX])


def shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many of the bridges above two devices are above both, from the root port on."""
    both = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], both))


def iommu(host: Host, bus: str) -> str:
    """How the IOMMU treats a device (Documentation/ABI/testing/sysfs-kernel-iommu_groups)."""
    place = f"/sys/bus/pci/devices/{bus}/iommu_group"
    group = host.readlink(place).rpartition("/")[2] if ADDRESS.fullmatch(bus) else ""
    if not group:
        return ""
    kind = (host.read_or_none(f"/sys/kernel/iommu_groups/{group}/type") or "").strip()[:TEXT]
    if kind:
        return kind
    # an older kernel; what was compiled in as its default can't be seen
    words = (host.read_or_none("/proc/cmdline") or "").split()
    return "identity" if {"iommu=pt", "iommu.passthrough=1"} & set(words) else "unknown"


def acs_control(host: Host, bus: str) -> int | None:
    """The ACS control word of a bridge; 0 when it has none, None when it may not be read: the
    kernel shows the extended configuration space to root only."""
    try:
        with open(host.path(f"/sys/bus/pci/devices/{bus}/config"), "rb") as file:
            config = file.read(CONFIG_SIZE)
    except OSError:
        return None
    at = EXTENDED if len(config) == CONFIG_SIZE else 0
    if not at:
        return None
    for _ in range((CONFIG_SIZE - EXTENDED) // 8):  # as many capabilities as there is room for
        if not EXTENDED <= at <= CONFIG_SIZE - 8:
            break
        head = int.from_bytes(config[at : at + 4], "little")
        if head & 0xFFFF == ACS:
            return int.from_bytes(config[at + ACS_CONTROL : at + ACS_CONTROL + 2], "little")
        at = head >> 20 & ~3
    return 0


def virtual_machine(host: Host) -> bool | None:
    """Whether the kernel runs under a hypervisor; None when nothing tells."""
    for line in host.lines("/proc/cpuinfo", 64):
        name, _, flags = line.partition(":")
        if name.strip() == "flags":
            return "hypervisor" in flags.split()
    if host.exists("/sys/hypervisor/type"):
        return True
    return None
