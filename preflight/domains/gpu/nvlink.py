"""Reads what joins the GPUs of a node: NVLink, the PCI bridges above them, the IOMMU, and how far
NCCL copies from one GPU to another directly.

Whatever asks NVML may hang forever in a sick driver: only in a worker.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from preflight.domains import pci
from preflight.domains.gpu.nvml import TEXT, NvmlFailure, bus_id, in_session
from preflight.domains.params import strtoll
from preflight.frozen import dataclass
from preflight.host import Host

GPUS_MAX = 32
"""GPUs that are asked; a DGX-2 has 16."""
LINKS_MAX = 36
"""nvml.h, NVML_NVLINK_MAX_LINKS"""

OK, BY_REGKEY, UNSUPPORTED = 0, 4, 5
REASONS = {
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    BY_REGKEY: "disabled by a driver setting",
    UNSUPPORTED: "not supported",
    6: "unknown",
}
"""nvml.h, nvmlGpuP2PStatus_t: what is not OK. nvidia-smi topo -p2p writes CNS, GNS, TNS, DR, NS."""

READ, WRITE, NVLINK = 0, 1, 2
"""nvml.h, nvmlGpuP2PCapsIndex_t. pynvml has a tuple in place of the first."""

SINGLE, MULTIPLE, BRIDGE, NODE, SYSTEM = 10, 20, 30, 40, 50
NEAR = {0: "same board", SINGLE: "PIX", MULTIPLE: "PXB", BRIDGE: "PHB", NODE: "NODE", SYSTEM: "SYS"}
"""nvml.h, nvmlGpuTopologyLevel_t, in the words of nvidia-smi topo -m."""

SWITCH = 2
"""nvml.h, nvmlIntNvLinkDeviceType_t: the link ends in an NVSwitch."""
VGPU = 2
"""nvml.h, nvmlGpuVirtualizationMode_t: a share of a GPU. 0: none; 1: passed through."""

NO_P2P, ONLY_NVLINK = -2, -1
P2P_LEVELS = {
    "LOC": NO_P2P,
    "NVL": ONLY_NVLINK,
    "NVB": ONLY_NVLINK,
    "C2C": ONLY_NVLINK,
    "PIX": SINGLE,
    "PXB": MULTIPLE,
    "P2C": MULTIPLE,
    "PXN": MULTIPLE,
    "PHB": NODE,
    "SYS": SYSTEM,
}
"""NCCL_P2P_LEVEL -> the furthest topology level that it allows (src/graph/topo.cc,
topoPathTypeStr). Two host bridges of one CPU are PHB to NCCL, and NODE to NVML."""
P2P_LEVEL_NUMBERS = (NO_P2P, SINGLE, MULTIPLE, NODE, SYSTEM)
"""The same for the numbers that NCCL_P2P_LEVEL once had (src/graph/paths.cc, levelsOldToNew)."""

STATE, P2P = "nvmlDeviceGetNvLinkState", "nvmlDeviceGetP2PStatus"
WHOLE = (1, 2, 3, 5)
"""nvml.h, nvmlValueType_t: the integers of at least 32 bits of which the low ones are uiVal."""
REFUSALS = frozenset((4, 13))
"""nvml.h, nvmlReturn_t: no permission, and no such function in this driver."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One link of a GPU. remote is the PCI address of what it leads to, empty when not told; kind
    says what that is (0 a GPU, 1 a CPU, 2 a switch); speed is in MB/s, of an active lane only."""

    number: int
    active: bool
    version: int | None = None
    remote: str = ""
    kind: int | None = None
    speed: int | None = None


@dataclass(frozen=True, slots=True)
class LinkedGpu:
    """A GPU and its links; only those that it has. None: it doesn't tell.

    above    the PCI bridges over it, the root port first; empty where /sys doesn't show them
    iommu    how the kernel lets it reach memory: DMA or DMA-FQ (translated), identity; empty where
             there is no IOMMU, `unknown` where nothing says which
    """

    index: int
    name: str = ""
    uuid: str = ""
    bus: str = ""
    mig: bool | None = None
    virtual: int | None = None
    lanes: tuple[Lane, ...] = ()
    above: tuple[str, ...] = ()
    iommu: str = ""

    @property
    def active(self) -> int:
        return sum(lane.active for lane in self.lanes)

    @property
    def switched(self) -> bool:
        return any(lane.active and lane.kind == SWITCH for lane in self.lanes)

    @property
    def whole(self) -> bool:
        """Not cut into instances, and no share of a GPU: those have no peer-to-peer copies."""
        return not self.mig and self.virtual != VGPU

    def lanes_to(self, other: LinkedGpu) -> int:
        """Links that lead to another GPU directly."""
        return sum(lane.active and lane.remote == other.bus != "" for lane in self.lanes)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two GPUs by index: P2P status for reading, writing and over NVLink, and the topology level
    of what they share. None: not told."""

    one: int
    other: int
    read: int | None = None
    write: int | None = None
    nvlink: int | None = None
    level: int | None = None

    @property
    def reason(self) -> str | None:
        """Why there is no P2P, empty where there is, None where it isn't told. NCCL asks for
        reading and writing (src/graph/paths.cc, ncclTopoCheckP2p)."""
        if self.read is None or self.write is None:
            return None
        bad = self.read or self.write
        return REASONS.get(bad, f"status {bad}") if bad != OK else ""

    @property
    def ends(self) -> frozenset[int]:
        return frozenset((self.one, self.other))

    @property
    def name(self) -> str:
        return f"{self.one}/{self.other}"


LEAST = 0.5
"""Seconds: calls about links take milliseconds each, once NVML has started."""
SPEED_WAIT = 1.0
"""Seconds at most for the speeds of all lanes; without them the rest still counts."""


@dataclass(frozen=True, slots=True)
class GpuTopology:
    """What NVML and /sys say. `code` is NVML's error when it could not start.

    pairs      fewer than there are when there was no time for all
    refused    which of STATE and P2P NVML would not or could not answer
    redirects  ACS control word of each bridge over a GPU that could be read
    hidden     bridges whose could not be read: only root may
    """

    code: int = 0
    text: str = ""
    driver: str = ""
    count: int = 0
    gpus: tuple[LinkedGpu, ...] = ()
    pairs: tuple[Pair, ...] = ()
    refused: tuple[str, ...] = ()
    redirects: Mapping[str, int] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()

    def ends(self, pair: Pair) -> tuple[LinkedGpu, LinkedGpu]:
        return self.gpus[pair.one], self.gpus[pair.other]


def read_topology(host: Host, mark: Callable[[str], None], seconds: float) -> GpuTopology:
    """What joins the GPUs. Nothing further is asked of NVML once `seconds` are over, or LEAST more
    where the driver took all of them to start."""
    until = time.monotonic() + seconds
    answer = in_session(host, mark, lambda nvml: _read_all(host, nvml, mark, until))
    if isinstance(answer, NvmlFailure):
        return GpuTopology(answer.code, answer.text)
    above = sorted({bridge for gpu in answer.gpus for bridge in gpu.above})
    mark("/sys/bus/pci")
    control = {bridge: pci.acs_control(host, bridge) for bridge in above}
    return replace(
        answer,
        redirects={bridge: word for bridge, word in control.items() if word is not None},
        hidden=tuple(bridge for bridge, word in control.items() if word is None),
    )


def _read_all(host: Host, nvml: Any, mark: Callable[[str], None], until: float) -> GpuTopology:
    mark("nvmlDeviceGetCount")
    count = nvml.nvmlDeviceGetCount()
    until = max(until, time.monotonic() + LEAST)
    driver = _call_or_none(nvml, nvml.nvmlSystemGetDriverVersion)
    refused: set[str] = set()
    handles: list[Any] = []
    gpus: list[LinkedGpu] = []
    for index in range(min(count, GPUS_MAX)):
        if time.monotonic() > until:
            break
        mark(f"NVLink of GPU {index}")
        handle = _call_or_none(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        handles.append(handle)
        gpus.append(
            LinkedGpu(index) if handle is None else _describe(host, nvml, index, handle, refused)
        )
    pairs: list[Pair] = []
    for one, other in itertools.combinations(range(len(gpus)), 2):
        if time.monotonic() > until:
            break
        if other == one + 1:
            mark(f"P2P of GPU {one}")
        if handles[one] is not None and handles[other] is not None:
            both = handles[one], handles[other]
            read, write, nvlink = (
                _call_or_none(nvml, getattr(nvml, P2P), *both, i, refused=refused)
                for i in (READ, WRITE, NVLINK)
            )
            level = _call_or_none(nvml, nvml.nvmlDeviceGetTopologyCommonAncestor, *both)
            pairs.append(Pair(one, other, read, write, nvlink, level))
    mark("speed of the NVLink lanes")
    return GpuTopology(
        driver=str(driver or "")[:TEXT],
        count=count,
        gpus=_with_speeds(host, gpus, handles, until),
        pairs=tuple(pairs),
        refused=tuple(sorted(refused)),
    )


def _call_or_none(
    nvml: Any, question: Callable[..., Any], *about: Any, refused: set[str] | None = None
) -> Any:
    """An answer of NVML, None where there is none: gpu.visible tells whether a GPU is sick. What
    was refused for good is noted in `refused`."""
    try:
        return question(*about)
    except nvml.NVMLError as error:
        if refused is not None and error.value in REFUSALS:
            refused.add(question.__name__)
        return None


def _describe(host: Host, nvml: Any, index: int, handle: Any, refused: set[str]) -> LinkedGpu:
    place = _call_or_none(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    bus = bus_id(place.busId) if place else ""
    mig = _call_or_none(nvml, nvml.nvmlDeviceGetMigMode, handle)
    return LinkedGpu(
        index=index,
        name=str(_call_or_none(nvml, nvml.nvmlDeviceGetName, handle) or "")[:TEXT],
        uuid=str(_call_or_none(nvml, nvml.nvmlDeviceGetUUID, handle) or "")[:TEXT],
        bus=bus,
        mig=bool(mig[0]) if mig else None,
        virtual=_call_or_none(nvml, nvml.nvmlDeviceGetVirtualizationMode, handle),
        lanes=tuple(_lanes(nvml, handle, refused)),
        above=pci.bridges(host, bus),
        iommu=pci.iommu(host, bus),
    )


def _lanes(nvml: Any, handle: Any, refused: set[str]) -> list[Lane]:
    found = []
    for number in range(LINKS_MAX):
        state = _call_or_none(nvml, getattr(nvml, STATE), handle, number, refused=refused)
        if state is None:
            continue  # it has no such link
        if not state:
            found.append(Lane(number, active=False))
            continue
        remote = _call_or_none(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
        found.append(
            Lane(
                number,
                active=True,
                version=_call_or_none(nvml, nvml.nvmlDeviceGetNvLinkVersion, handle, number),
                remote=bus_id(remote.busId) if remote else "",
                kind=_call_or_none(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number),
            )
        )
    return found


def _with_speeds(
    host: Host, gpus: list[LinkedGpu], handles: list[Any], until: float
) -> tuple[LinkedGpu, ...]:
    """The GPUs with the speeds of their active lanes. A thread asks for them: a call that hangs
    costs the speeds of this GPU and the next ones, and nothing else. It has a session of NVML of
    its own, so that the other one can end before it; a thread that hangs ends with its worker.
    """
    found: dict[int, dict[int, int]] = {}
    over = threading.Event()

    def ask() -> None:
        try:
            with host.nvml() as nvml:
                for gpu, handle in zip(gpus, handles, strict=True):
                    if handle is not None and gpu.active:
                        found[gpu.index] = _speeds(nvml, handle, gpu)
        except Exception:  # noqa: BLE001  whatever it is, the speeds are only not told
            pass
        finally:
            over.set()

    if any(gpu.active for gpu in gpus):
        threading.Thread(target=ask, daemon=True).start()
        over.wait(min(SPEED_WAIT, max(LEAST, until - time.monotonic())))
    told = dict(found)
    return tuple(
        replace(
            gpu,
            lanes=tuple(
                replace(lane, speed=told[gpu.index].get(lane.number)) for lane in gpu.lanes
            ),
        )
        if told.get(gpu.index)
        else gpu
        for gpu in gpus
    )


def _speeds(nvml: Any, handle: Any, gpu: LinkedGpu) -> dict[int, int]:
    """Lane -> its speed in MB/s, of those that tell it. nvml.h: NVML_FI_DEV_NVLINK_GET_SPEED takes
    the lane as scope; drivers without it have a field for each of the first twelve lanes."""
    lanes = [lane.number for lane in gpu.lanes if lane.active]
    asked = {(nvml.NVML_FI_DEV_NVLINK_GET_SPEED, lane): lane for lane in lanes}
    speeds = _field_values(nvml, handle, asked)
    if not speeds:
        old = ((getattr(nvml, f"NVML_FI_DEV_NVLINK_SPEED_MBPS_L{n}", None), n) for n in lanes)
        speeds = _field_values(nvml, handle, {(field, 0): n for field, n in old if field})
    return speeds


def _field_values(nvml: Any, handle: Any, asked: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """What NVML tells of `asked`, (field, scope) -> lane, in one call: whole numbers above 0."""
    values = _call_or_none(nvml, nvml.nvmlDeviceGetFieldValues, handle, [*asked]) if asked else ()
    return {
        lane: int(value.value.uiVal)
        for lane, value in zip(asked.values(), values or (), strict=False)
        if value.nvmlReturn == 0 and value.valueType in WHOLE and value.value.uiVal
    }


def bridges_between(one: LinkedGpu, other: LinkedGpu) -> tuple[str, ...]:
    """The bridges on the way between two GPUs, below the one that they share; none where they
    share none: the root complex is on their way anyhow."""
    shared = pci.shared(one.above, other.above)
    return (*one.above[shared:], *other.above[shared:]) if shared else ()


def amd_cpu(host: Host) -> bool:
    return any(
        line.startswith("vendor_id") and "AuthenticAMD" in line
        for line in host.lines("/proc/cpuinfo", 64)
    )


PARAMETERS = "/proc/driver/nvidia/params"


def switched_off(host: Host) -> str | None:
    """The setting with which the NVIDIA driver was loaded and that switches NVLink off, such as
    `NvLinkDisable: 1`; empty where there is none, None where the driver doesn't tell its settings.
    """
    told = None
    for line in host.lines(PARAMETERS, 256):
        name, _, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if name == "NvLinkDisable":
            told = told or (f"{name}: 1" if value == "1" else "")
        elif name == "RegistryDwords" and (entry := _registry_off(value)):
            told = told or f"{name}: {entry}"
    return told


def _registry_off(value: str) -> str:
    """The entry of RegistryDwords, `"name=number;name=number"`, that switches NVLink off; empty
    where none does. RMNvLinkEnable is a mask of lanes, bit 0 of RMNvLinkControl forces all off
    (nvrm_registry.h of the open kernel modules); names in any case."""
    for entry in value.strip('"')[:4096].split(";"):
        name, sign, number = entry.strip().partition("=")
        found, rest = strtoll(number.strip())
        known, whole = name.strip().lower(), bool(sign and number.strip() and not rest)
        none = known == "rmnvlinkenable" and found == 0
        if whole and (none or (known == "rmnvlinkcontrol" and found & 1)):
            return entry.strip()[:TEXT]
    return ""


def p2p_level_setting(disable: str, level: str) -> int | None:
    """How far NCCL_P2P_DISABLE and NCCL_P2P_LEVEL let P2P go; None when they say nothing, as with
    a word that NCCL doesn't know (src/graph/paths.cc, ncclGetLevel)."""
    if strtoll(disable)[0] == 1:
        return NO_P2P
    if level in P2P_LEVELS:
        return P2P_LEVELS[level]
    if re.match("[0-9]", level):
        return P2P_LEVEL_NUMBERS[min(max(strtoll(level)[0], 0), len(P2P_LEVEL_NUMBERS) - 1)]
    return None


def p2p_reach(asked: int | None, amd_cpu: bool, gpus: int) -> int:
    """The furthest topology level at which NCCL copies between GPUs directly: below one CPU's
    switches, and anywhere on an AMD machine with two GPUs (src/graph/paths.cc, ncclTopoCheckP2p).
    """
    if asked is not None:
        return asked
    return SYSTEM if amd_cpu and gpus <= 2 else MULTIPLE
