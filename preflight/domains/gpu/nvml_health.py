"""Reads the health of each NVIDIA GPU from NVML, and which programs are on it.

Each call has a mark of its own before it, so that the one that never returns or crashes is known
by name. What NVML does not tell is None: never a fault.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from preflight.domains.gpu.nvml import (
    DEVICES_MAX,
    LOST,
    NO_LIBRARY,
    NO_PERMISSION,
    NOT_LOADED,
    RESET,
    TEXT,
    UNTOLD,
    NvmlFailure,
    bus_id,
    in_session,
    screen_only,
)
from preflight.domains.gpu.vitals import (
    THROTTLE_REASONS,
    GpuProcess,
    NvSwitchFabric,
    Vitals,
    VitalsListing,
)
from preflight.host import Host
from preflight.model import CannotObserve, NotApplicable

AGAIN = 0.3
"""Seconds to the second look at a GPU that is throttled: one that lasts a moment is none."""

MEMORY_TEMPERATURE, RECOVERY = 82, 230
"""nvml.h: NVML_FI_DEV_MEMORY_TEMP, which cards without HBM lack, and
NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, which drivers before 565 lack."""
SLOWDOWN_AT, MEMORY_MAX = 1, 2
"""nvml.h, nvmlTemperatureThresholds_t."""

THROTTLED = sum(THROTTLE_REASONS)
PROCESSES_MAX = 64
MARKED_MAX = 32
"""GPUs up to which each call has its mark."""
ANCESTORS_MAX = 64


class _Gone(Exception):
    """The GPU is lost, or gives no answer before a reset: no use in asking on."""


class CallRecorder:
    """Calls a vendor's library about one GPU: each call is marked before it, and those that are
    refused or fail are kept. This one speaks NVML, and _AmdsmiCalls amdsmi."""

    def __init__(self, library: Any, index: int, mark: Callable[[str], None]) -> None:
        self.library = library
        self.index = index
        self.mark = mark
        self.failed: dict[str, int] = {}
        self.refused: list[str] = []

    def __call__(self, call: str, *about: Any) -> Any:
        """The library's answer; None where it can't tell."""
        self.mark(f"{call} of GPU {self.index}")
        question = getattr(self.library, call, None)
        # None: the bindings are older than this call
        return None if question is None else self.answer(call, question, *about)

    def answer(self, call: str, question: Callable[..., Any], *about: Any) -> Any:
        try:
            return question(*about)
        except self.library.NVMLLibraryMismatchError:  # its word for an unknown version of a call
            return None
        except self.library.NVMLError as error:
            code = int(error.value)
        if code == NO_PERMISSION:
            self.refused.append(call)
        elif code not in UNTOLD:
            self.failed[call] = code
        if code in (LOST, RESET):
            raise _Gone
        return None


def read_vitals(host: Host, mark: Callable[[str], None], seconds: float) -> VitalsListing:
    """What NVML says; CannotObserve where it can't start, NotApplicable where it is not meant to.
    No further GPU is asked once `seconds` are over."""
    mine = cgroup_job(host, "self"), ancestors(host)

    def read(nvml: Any) -> VitalsListing:
        return _read_all(nvml, mark, time.monotonic() + seconds, host, mine)

    told = in_session(host, mark, read)
    if isinstance(told, NvmlFailure):
        if told.code in (NOT_LOADED, NO_LIBRARY) and screen_only(host):
            raise NotApplicable("the NVIDIA GPU here shows a screen, by nouveau")
        raise CannotObserve(f"NVML could not start: {told.text} ({told.code})")
    return told


def _read_all(
    nvml: Any,
    mark: Callable[[str], None],
    until: float,
    host: Host,
    mine: tuple[str, frozenset[int]],
) -> VitalsListing:
    mark("nvmlDeviceGetCount")
    count = int(nvml.nvmlDeviceGetCount())
    gpus: list[Vitals] = []
    while len(gpus) < min(count, DEVICES_MAX) and time.monotonic() < until:
        each = mark if count <= MARKED_MAX else no_mark
        if each is no_mark:
            mark(f"nvmlDevice… of GPU {len(gpus)}")
        gpus.append(_vitals(nvml, len(gpus), each, host, mine))
    if any(gpu.brakes for gpu in gpus):
        time.sleep(AGAIN)
        gpus = [_second_look(nvml, gpu, mark) if gpu.brakes else gpu for gpu in gpus]
    return VitalsListing(count, tuple(gpus))


def no_mark(name: str) -> None:
    """No mark: the marks of one observation are bounded, and a late one must not be lost."""


def _vitals(
    nvml: Any,
    index: int,
    mark: Callable[[str], None],
    host: Host,
    mine: tuple[str, frozenset[int]],
) -> Vitals:
    call = CallRecorder(nvml, index, mark)
    known: dict[str, Any] = {}
    try:
        handle = call("nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            # step by step: what it says until it is lost stays
            for part in PARTS:
                known |= part(call, handle)
    except _Gone:
        pass
    if "programs" in known:
        known |= classify_programs(known.pop("programs"), host, *mine)
    return Vitals(index, **known, failed=call.failed, refused=tuple(call.refused))


def _identity(call: CallRecorder, handle: Any) -> dict[str, Any]:
    pci = call("nvmlDeviceGetPciInfo", handle)
    mig = call("nvmlDeviceGetMigMode", handle)
    persistent = call("nvmlDeviceGetPersistenceMode", handle)
    numa = call("nvmlDeviceGetNumaNodeId", handle)
    return {
        "bus": bus_id(pci.busId) if pci else "",
        "name": str(call("nvmlDeviceGetName", handle) or "")[:TEXT],
        "uuid": str(call("nvmlDeviceGetUUID", handle) or "")[:TEXT],
        "vbios": str(call("nvmlDeviceGetVbiosVersion", handle) or "")[:TEXT],
        "board": int(pci.pciSubSystemId) if pci else 0,
        "mig": bool(mig and mig[0]),
        "virtual": call("nvmlDeviceGetVirtualizationMode", handle),
        "persistent": None if persistent is None else bool(persistent),
        # the driver gives a NUMA node to those whose memory the kernel may use
        "coherent": numa is not None and numa >= 0,
    }


def _memory(call: CallRecorder, handle: Any) -> dict[str, Any]:
    """Its memory's errors, and what the driver wants done about them."""
    # nvml.h: 0 corrected, 1 uncorrected; 0 volatile, 1 aggregate
    known = {
        "volatile": call("nvmlDeviceGetTotalEccErrors", handle, 1, 0),
        "aggregate": call("nvmlDeviceGetTotalEccErrors", handle, 1, 1),
        "corrected": call("nvmlDeviceGetTotalEccErrors", handle, 0, 0),
    }
    rows = call("nvmlDeviceGetRemappedRows", handle)
    if rows is not None:
        known |= {"rows": rows[1], "remap_pending": bool(rows[2]), "remap_failed": bool(rows[3])}
    pending = call("nvmlDeviceGetRetiredPagesPendingStatus", handle)
    known["pages_pending"] = None if pending is None else bool(pending)
    names = {"recovery": RECOVERY, "memory_temperature": MEMORY_TEMPERATURE}
    fields = call("nvmlDeviceGetFieldValues", handle, [*names.values()]) or ()
    told = {field.fieldId: field for field in fields if field.nvmlReturn == 0}
    found = {name: int(told[n].value.uiVal) for name, n in names.items() if n in told}
    return known | found


def _temperature_and_pcie(call: CallRecorder, handle: Any) -> dict[str, Any]:
    """Temperature, throttle reasons and the PCIe slot."""
    brakes = _throttle_reasons(call, handle)
    return {
        "brakes": None if brakes is None else brakes & THROTTLED,
        "temperature": call("nvmlDeviceGetTemperature", handle, 0),
        "slowdown_at": call("nvmlDeviceGetTemperatureThreshold", handle, SLOWDOWN_AT),
        "memory_max": call("nvmlDeviceGetTemperatureThreshold", handle, MEMORY_MAX),
        "width": call("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "width_max": call("nvmlDeviceGetMaxPcieLinkWidth", handle),
    }


def _settings(call: CallRecorder, handle: Any) -> dict[str, Any]:
    """What should be alike on GPUs of one model."""
    ecc = call("nvmlDeviceGetEccMode", handle)
    return {
        "power_limit": call("nvmlDeviceGetPowerManagementLimit", handle),
        "ecc": bool(ecc[0]) if ecc else None,
        # nvml.h, nvmlClockType_t: 1 is that of the multiprocessors
        "clock": call("nvmlDeviceGetApplicationsClock", handle, 1),
        "generation_max": call("nvmlDeviceGetMaxPcieLinkGeneration", handle),
    }


def _throttle_reasons(call: CallRecorder, handle: Any) -> int | None:
    told = call("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if told is None:  # its name until driver 535
        told = call("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return None if told is None else int(told)


def _second_look(nvml: Any, gpu: Vitals, mark: Callable[[str], None]) -> Vitals:
    call = CallRecorder(nvml, gpu.index, mark)
    try:
        handle = call("nvmlDeviceGetHandleByIndex", gpu.index)
        still = None if handle is None else _throttle_reasons(call, handle)
    except _Gone:
        return replace(gpu, failed={**gpu.failed, **call.failed})
    return replace(gpu, brakes=None if still is None else (gpu.brakes or 0) & still)


def _fabric(call: CallRecorder, handle: Any) -> dict[str, Any]:
    """Asked with the newest structure that pynvml and the driver both know."""
    for kind in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        if made := getattr(call.library, kind, None):
            info = made()
            if call("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info)) is not None:
                return {
                    "fabric": NvSwitchFabric(
                        # a char in nvml.h, an int in pynvml: what lies behind it may be anything
                        state=info.state & 0xFF,
                        status=int(info.status),
                        mask=int(info.healthMask),
                        summary=int(getattr(info, "healthSummary", 0)),
                        cluster=cluster
                        if (cluster := bytes(info.clusterUuid).hex()).strip("0")
                        else "",
                        clique=int(info.cliqueId),
                    )
                }
    return {}


def _programs(call: CallRecorder, handle: Any) -> dict[str, Any]:
    memory = call("nvmlDeviceGetMemoryInfo", handle)
    graphics = call("nvmlDeviceGetGraphicsRunningProcesses", handle) or ()
    known = {
        "programs": (call("nvmlDeviceGetComputeRunningProcesses", handle) or ())[:PROCESSES_MAX],
        "graphics": len(graphics),
        "compute_mode": call("nvmlDeviceGetComputeMode", handle),
    }
    return known | ({"memory": memory.total, "used": memory.used} if memory else {})


PARTS = (_identity, _memory, _temperature_and_pcie, _settings, _programs, _fabric)
"""What a GPU is asked, in this order."""


# --- whose program is it ---


def classify_programs(
    programs: Any, host: Host, own_job: str, own: frozenset[int]
) -> Mapping[str, object]:
    """Those of others, with their names. The job's own are whoever has started us, and what is in
    the same job or container by its control group; NVIDIA's MPS serves all."""
    others, ours, mps = [], 0, False
    for program in programs:
        pid = int(program.pid)
        name = (host.read_or_none(f"/proc/{pid}/comm") or "").strip()[:64]
        mine = pid in own or (own_job and cgroup_job(host, str(pid)) == own_job)
        serves = name.startswith("nvidia-cuda-mp")
        mps = mps or serves
        if mine or serves:
            ours += 1
            continue
        memory = None if program.usedGpuMemory is None else int(program.usedGpuMemory)
        others.append(GpuProcess(pid, name, _owner(host, pid) if name else None, memory))
    return {"processes": tuple(others), "ours": ours, "mps": mps}


def _owner(host: Host, pid: int) -> int | None:
    try:
        return os.stat(host.path(f"/proc/{pid}")).st_uid
    except OSError:
        return None


def cgroup_job(host: Host, process: str) -> str:
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
