"""Reads how many errors of the host's memory could not be corrected since boot, as the kernel's
EDAC drivers count them (Documentation/admin-guide/RAS/main.rst, drivers/edac/edac_mc_sysfs.c)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from preflight.frozen import dataclass
from preflight.host import Host
from preflight.sanitize import clip, one_line

TOP = "/sys/devices/system/edac/mc"
CONTROLLERS, DIMMS = 64, 64
"""What is looked at at most: memory controllers, and DIMMs of each."""
LABEL = 64
"""Characters kept of a name."""
GPU_MEMORY = ("MI200",)
"""amd64_edac counts for these GPUs, too; their memory is gpu.health's."""


@dataclass(frozen=True, slots=True)
class UncorrectedErrors:
    """What a memory controller (`mc0`) has counted since boot, or since somebody reset its
    counters. dimms: label of a DIMM -> how many of them were there; may add up to fewer than
    `count`, since not all errors are known to be of one DIMM."""

    controller: str
    count: int
    dimms: Mapping[str, int] = field(default_factory=dict)


def uncorrected_errors(host: Host) -> tuple[UncorrectedErrors, ...]:
    """The memory controllers of the host that have counted any; nothing where no EDAC driver is
    loaded, as in most virtual machines."""
    return tuple(_of_controllers(host))


def _of_controllers(host: Host) -> Iterator[UncorrectedErrors]:
    names = [n for n in host.listdir(TOP) if n.startswith("mc") and n[2:].isdecimal()]
    for name in sorted(names, key=lambda n: int(n[2:8]))[:CONTROLLERS]:
        count = host.read_int(f"{TOP}/{name}/ue_count")
        if not count or count < 0:
            continue
        made = (host.read_or_none(f"{TOP}/{name}/mc_name") or "").strip()
        if made not in GPU_MEMORY:
            yield UncorrectedErrors(clip(name, LABEL), count, _dimms(host, f"{TOP}/{name}"))


def _dimms(host: Host, folder: str) -> dict[str, int]:
    """`rank0` instead of `dimm0` where the driver knows chip selects only."""
    names = [n for n in host.listdir(folder) if n.startswith(("dimm", "rank"))][:DIMMS]
    found: dict[str, int] = {}
    for name in names:
        if (count := host.read_int(f"{folder}/{name}/dimm_ue_count") or 0) > 0:
            said = (
                one_line(host.read_or_none(f"{folder}/{name}/{file}") or "", LABEL)
                for file in ("dimm_label", "dimm_location")
            )
            label = next((text for text in said if text), clip(name, LABEL))
            found[label] = found.get(label, 0) + count
    return found
