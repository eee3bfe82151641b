"""How well each NVIDIA GPU is, as NVML tells it, and which programs are on it.

Each call has a mark of its own before it, so that the one that never returns or crashes is known
by name. What a GPU, a driver or a user can't be told is None: never a fault.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from preflight.domains.gpu.nvml import DEVICES_MAX, LOST, NO_PERMISSION, RESET, TEXT, UNTOLD, bus_id
from preflight.host import Host
from preflight.model import CannotObserve

INFOROM = 14
"""nvml.h: NVML_ERROR_CORRUPTED_INFOROM."""
VGPU = 2
"""nvml.h, nvmlGpuVirtualizationMode_t: a share of a GPU inside a virtual machine."""

# nvml.h, nvmlClocksEventReasons: what brakes a GPU, with the words of nvidia-smi. Idle (0x1), the
# clocks that somebody has set (0x2) and the power limit under load (0x4) are no trouble.
BRAKES = {0x80: "power brake", 0x40: "HW thermal", 0x20: "SW thermal", 0x8: "HW slowdown"}
BRAKED = sum(BRAKES)
AGAIN = 0.3
"""Seconds to the second look at a GPU that is braked: one that lasts a moment is none."""

RECOVERY = 230
"""nvml.h: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; older drivers than 565 have no such field."""

PROCESSES_MAX = 64
MARKED_MAX = 32
"""GPUs up to which each call has its mark."""
ANCESTORS_MAX = 64


@dataclass(frozen=True, slots=True)
class Process:
    """A program on a GPU that is not of this job. name is empty where its pid is of another pid
    namespace; memory is in bytes."""

    pid: int
    name: str = ""
    uid: int | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Fabric:
    """A GPU's place in an NVSwitch fabric: state 1 not started, 2 in progress, 3 completed, then
    `status` is the nvmlReturn_t that it ended with. mask and summary: its health."""

    state: int
    status: int = 0
    mask: int = 0
    summary: int = 0


@dataclass(frozen=True, slots=True)
class Vitals:
    """One GPU. None: it doesn't tell.

    volatile, aggregate   uncorrectable memory errors since the driver was loaded, and ever
    rows, remap_pending, remap_failed     rows replaced because of such errors
    pages_pending         the same of GPUs before Ampere
    recovery              what the driver wants done: 0 nothing, 1 a reset … (nvml.h)
    brakes                bits of BRAKES, set at both of two looks
    coherent              its memory is the machine's, too (Grace): it is used by the kernel as well
    processes             compute programs of others; ours: how many of this job; graphics: others
    failed                call -> NVML's code, of those that mean trouble; refused: for want of a
                          permission. After `LOST` or `RESET` nothing more was asked
    """

    index: int
    name: str = ""
    uuid: str = ""
    bus: str = ""
    mig: bool = False
    virtual: int | None = None
    coherent: bool = False
    persistent: bool | None = None
    volatile: int | None = None
    aggregate: int | None = None
    rows: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    pages_pending: bool | None = None
    recovery: int | None = None
    brakes: int | None = None
    temperature: int | None = None
    slowdown_at: int | None = None
    width: int | None = None
    width_max: int | None = None
    memory: int | None = None
    used: int | None = None
    fabric: Fabric | None = None
    processes: tuple[Process, ...] = ()
    ours: int = 0
    graphics: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    @property
    def gone(self) -> int:
        """LOST or RESET when NVML has said so while it was asked, 0 otherwise."""
        return next((code for code in self.failed.values() if code in (LOST, RESET)), 0)


@dataclass(frozen=True, slots=True)
class Told:
    """All GPUs that were asked; fewer than `count` when there was no time for all. `untold`: why
    the vendor's library told nothing of them, empty where it did."""

    count: int
    gpus: tuple[Vitals, ...]
    untold: str = ""


class _Gone(Exception):
    """The GPU is lost, or gives no answer before a reset: no use in asking on."""


class _Asker:
    """Asks one GPU, call by call."""

    def __init__(self, nvml: Any, index: int, mark: Callable[[str], None]) -> None:
        self.nvml = nvml
        self.index = index
        self.mark = mark
        self.failed: dict[str, int] = {}
        self.refused: list[str] = []

    def __call__(self, call: str, *about: Any) -> Any:
        """NVML's answer; None where it can't tell."""
        self.mark(f"{call} of GPU {self.index}")
        question = getattr(self.nvml, call, None)
        if question is None:  # a pynvml older than this call
            return None
        try:
            return question(*about)
        except self.nvml.NVMLLibraryMismatchError:  # its word for an unknown version of a call
            return None
        except self.nvml.NVMLError as error:
            code = int(error.value)
        if code == NO_PERMISSION:
            self.refused.append(call)
        elif code not in UNTOLD:
            self.failed[call] = code
        if code in (LOST, RESET):
            raise _Gone
        return None


def ask(host: Host, mark: Callable[[str], None], seconds: float) -> Told:
    """What NVML says; CannotObserve where it can't start. No further GPU is asked once `seconds`
    are over."""
    try:
        import pynvml
    except ImportError:
        raise CannotObserve("the package nvidia-ml-py is not installed") from None
    mine = job(host, "self"), ancestors(host)
    mark("nvmlInit")
    told = None
    try:
        with host.nvml() as nvml:
            told = _told(nvml, mark, time.monotonic() + seconds, host, mine)
    except pynvml.NVMLError as error:
        # an answer outlives an error of nvmlShutdown
        if told is None:
            why = f"NVML could not start: {str(error)[:TEXT]} ({int(error.value)})"
            raise CannotObserve(why) from None
    return told


def _told(
    nvml: Any,
    mark: Callable[[str], None],
    until: float,
    host: Host,
    mine: tuple[str, frozenset[int]],
) -> Told:
    mark("nvmlDeviceGetCount")
    count = int(nvml.nvmlDeviceGetCount())
    gpus: list[Vitals] = []
    while len(gpus) < min(count, DEVICES_MAX) and time.monotonic() < until:
        each = mark if count <= MARKED_MAX else silent
        if each is silent:
            mark(f"nvmlDevice… of GPU {len(gpus)}")
        gpus.append(_vitals(nvml, len(gpus), each, host, mine))
    if any(gpu.brakes for gpu in gpus):
        time.sleep(AGAIN)
        gpus = [_second_look(nvml, gpu, mark) if gpu.brakes else gpu for gpu in gpus]
    return Told(count, tuple(gpus))


def silent(name: str) -> None:
    """No mark: the marks of one observation are bounded, and a late one must not be lost."""


def _vitals(
    nvml: Any,
    index: int,
    mark: Callable[[str], None],
    host: Host,
    mine: tuple[str, frozenset[int]],
) -> Vitals:
    ask_it = _Asker(nvml, index, mark)
    known: dict[str, Any] = {}
    try:
        handle = ask_it("nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            # step by step: what it says until it is lost stays
            for part in (_identity, _memory, _surroundings, _programs, _fabric):
                known |= part(ask_it, handle)
    except _Gone:
        pass
    if "programs" in known:
        known |= sorted_out(known.pop("programs"), host, *mine)
    return Vitals(index, **known, failed=ask_it.failed, refused=tuple(ask_it.refused))


def _identity(ask_it: _Asker, handle: Any) -> dict[str, Any]:
    pci = ask_it("nvmlDeviceGetPciInfo", handle)
    mig = ask_it("nvmlDeviceGetMigMode", handle)
    persistent = ask_it("nvmlDeviceGetPersistenceMode", handle)
    numa = ask_it("nvmlDeviceGetNumaNodeId", handle)
    return {
        "bus": bus_id(pci.busId) if pci else "",
        "name": str(ask_it("nvmlDeviceGetName", handle) or "")[:TEXT],
        "uuid": str(ask_it("nvmlDeviceGetUUID", handle) or "")[:TEXT],
        "mig": bool(mig and mig[0]),
        "virtual": ask_it("nvmlDeviceGetVirtualizationMode", handle),
        "persistent": None if persistent is None else bool(persistent),
        # the driver gives a NUMA node to those whose memory the kernel may use
        "coherent": numa is not None and numa >= 0,
    }


def _memory(ask_it: _Asker, handle: Any) -> dict[str, Any]:
    """Its memory's errors, and what the driver wants done about them."""
    # nvml.h: 1 uncorrected; 0 volatile, 1 aggregate
    known = {
        "volatile": ask_it("nvmlDeviceGetTotalEccErrors", handle, 1, 0),
        "aggregate": ask_it("nvmlDeviceGetTotalEccErrors", handle, 1, 1),
    }
    rows = ask_it("nvmlDeviceGetRemappedRows", handle)
    if rows is not None:
        known |= {"rows": rows[1], "remap_pending": bool(rows[2]), "remap_failed": bool(rows[3])}
    pending = ask_it("nvmlDeviceGetRetiredPagesPendingStatus", handle)
    known["pages_pending"] = None if pending is None else bool(pending)
    fields = ask_it("nvmlDeviceGetFieldValues", handle, [RECOVERY])
    if fields is not None and fields[0].nvmlReturn == 0:
        known["recovery"] = int(fields[0].value.uiVal)
    return known


def _surroundings(ask_it: _Asker, handle: Any) -> dict[str, Any]:
    """Heat, brakes and the PCIe slot."""
    brakes = _brakes(ask_it, handle)
    return {
        "brakes": None if brakes is None else brakes & BRAKED,
        "temperature": ask_it("nvmlDeviceGetTemperature", handle, 0),
        "slowdown_at": ask_it("nvmlDeviceGetTemperatureThreshold", handle, 1),
        "width": ask_it("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "width_max": ask_it("nvmlDeviceGetMaxPcieLinkWidth", handle),
    }


def _brakes(ask_it: _Asker, handle: Any) -> int | None:
    told = ask_it("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if told is None:  # its name until driver 535
        told = ask_it("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return None if told is None else int(told)


def _second_look(nvml: Any, gpu: Vitals, mark: Callable[[str], None]) -> Vitals:
    ask_it = _Asker(nvml, gpu.index, mark)
    try:
        handle = ask_it("nvmlDeviceGetHandleByIndex", gpu.index)
        still = None if handle is None else _brakes(ask_it, handle)
    except _Gone:
        return replace(gpu, failed={**gpu.failed, **ask_it.failed})
    return replace(gpu, brakes=None if still is None else (gpu.brakes or 0) & still)


def _fabric(ask_it: _Asker, handle: Any) -> dict[str, Any]:
    """Asked with the newest structure that pynvml and the driver both know."""
    for kind in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        if made := getattr(ask_it.nvml, kind, None):
            info = made()
            if ask_it("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info)) is not None:
                return {
                    "fabric": Fabric(
                        # a char in nvml.h, an int in pynvml: what lies behind it may be anything
                        state=info.state & 0xFF,
                        status=int(info.status),
                        mask=int(info.healthMask),
                        summary=int(getattr(info, "healthSummary", 0)),
                    )
                }
    return {}


def _programs(ask_it: _Asker, handle: Any) -> dict[str, Any]:
    memory = ask_it("nvmlDeviceGetMemoryInfo", handle)
    graphics = ask_it("nvmlDeviceGetGraphicsRunningProcesses", handle) or ()
    known = {
        "programs": (ask_it("nvmlDeviceGetComputeRunningProcesses", handle) or ())[:PROCESSES_MAX],
        "graphics": len(graphics),
    }
    return known | ({"memory": memory.total, "used": memory.used} if memory else {})


# --- whose program is it ---


def sorted_out(
    programs: Any, host: Host, own_job: str, own: frozenset[int]
) -> Mapping[str, object]:
    """Those of others, with their names. The job's own are whoever has started us, and what is in
    the same job or container by its control group; NVIDIA's MPS serves all."""
    others, ours = [], 0
    for program in programs:
        pid = int(program.pid)
        name = (host.read_or_none(f"/proc/{pid}/comm") or "").strip()[:64]
        mine = pid in own or (own_job and job(host, str(pid)) == own_job)
        if mine or name.startswith("nvidia-cuda-mp"):
            ours += 1
            continue
        memory = None if program.usedGpuMemory is None else int(program.usedGpuMemory)
        others.append(Process(pid, name, _owner(host, pid) if name else None, memory))
    return {"processes": tuple(others), "ours": ours}


def _owner(host: Host, pid: int) -> int | None:
    try:
        return os.stat(host.path(f"/proc/{pid}")).st_uid
    except OSError:
        return None


def job(host: Host, process: str) -> str:
    """The job, pod or container that a process's control group names; empty where it names none."""
    text = host.read_or_none(f"/proc/{process}/cgroup") or ""
    found = re.search(r"/(job_[0-9]+)\b|pod([0-9a-f]{8}[0-9a-f_-]{28})|([0-9a-f]{64})", text)
    return next(filter(None, found.groups()), "") if found else ""


def ancestors(host: Host) -> frozenset[int]:
    """This process and those that it comes from, without init."""
    pid, found = os.getpid(), set[int]()
    while pid > 1 and len(found) < ANCESTORS_MAX and pid not in found:
        found.add(pid)
        # the name before it may hold blanks and brackets
        fields = (host.read_or_none(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 and fields[1].isdecimal() else 0
    return frozenset(found)
