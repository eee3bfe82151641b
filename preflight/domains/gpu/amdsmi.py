"""Reads the health of each AMD GPU: from amdsmi, from /sys without it, and from the kernel's log.

amdsmi must be that of the ROCm on the machine, so it is none of our dependencies. Functions, keys
and enums: its Python API reference and py-interface/amdsmi_interface.py. Each call has its mark.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from preflight.domains import kernel_log
from preflight.domains.gpu import kfd, nvml_health
from preflight.domains.gpu.nvml import DEVICES_MAX, TEXT, bus_id
from preflight.domains.gpu.nvml_health import PROCESSES_MAX, CallRecorder
from preflight.domains.gpu.vitals import (
    AMD_THROTTLE_REASONS,
    Reset,
    Resets,
    Vitals,
    VitalsListing,
)
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.model import CannotObserve

# amdsmi.h, amdsmi_status_t: "this GPU, driver or version can't tell"; and for lack of a permission
UNTOLD = frozenset((2, 3, 5, 14, 20, 31, 40, 41, 42, 43, 52, 55))
NO_PERMISSION = 10

# amdsmi.h, amdsmi_memory_page_status_t; the same in gpu_vram_bad_pages of /sys as R, P and F
RESERVED, PENDING, UNRESERVABLE = 0, 1, 2
PAGES = {"R": RESERVED, "P": PENDING, "F": UNRESERVABLE}
PAGES_MAX = 65536

ALL_ONES = 0xFFFF
"""A count register of a GPU that sleeps reads as this, once a channel: such sums are no count."""

SHARED = re.compile(r"MI300A\b")
"""Models whose memory is the machine's, too: the kernel uses it as well."""

# drivers/gpu/drm/amd/amdgpu/amdgpu_device.c, after amdgpu_device_gpu_recover; the second "amdgpu:"
# came in 2020. RAS counts in the log are no sign: each look at a counter prints them again.
LINE = re.compile(
    r"amdgpu ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:amdgpu: )?"
    r"GPU reset\([0-9]{1,9}\) (failed|succeeded)",
    re.ASCII,
)


def read_vitals(host: Host, mark: Callable[[str], None], seconds: float) -> VitalsListing:
    """What /sys and amdsmi say. `untold` of the answer says why there is nothing of the latter."""
    until = time.monotonic() + seconds
    mark("/sys/class/kfd")
    gpus = [_from_sysfs(host, node, i) for i, node in enumerate(kfd.openable_nodes(host))]
    if not gpus:
        return VitalsListing(0, ())
    mark("import of amdsmi")
    try:
        import amdsmi
    except ImportError:
        untold = "the package amdsmi is not installed"
    except (OSError, KeyError, AttributeError, SystemExit) as error:
        # its wrapper loads libamd_smi.so and looks all functions up
        untold = f"amdsmi does not fit the ROCm here: {_last_line(error)}"
    else:
        return _read_all(amdsmi, gpus, host, mark, until)
    return _only_sysfs(gpus, host, mark, untold)


def _only_sysfs(
    gpus: list[Vitals], host: Host, mark: Callable[[str], None], why: str
) -> VitalsListing:
    """The vitals that /sys alone gives."""
    mark("ras of /sys")
    return VitalsListing(len(gpus), tuple(_with_sysfs_errors(host, gpu) for gpu in gpus), why)


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip()[:TEXT]


def _from_sysfs(host: Host, node: kfd.KfdNode, index: int) -> Vitals:
    model = kfd.model_name(host, node.bus)
    return Vitals(
        index,
        name=model,
        uuid=node.uuid,
        bus=node.bus,
        coherent=bool(SHARED.search(model)),
        width=kfd.pcie_width(host, node.bus, "current"),
        width_max=kfd.pcie_width(host, node.bus, "max"),
        memory=kfd.vram(host, node.bus),
        used=kfd.vram(host, node.bus, "used"),
    )


def _with_sysfs_errors(host: Host, gpu: Vitals) -> Vitals:
    """The driver's own files, from which amdsmi reads as well (Documentation/gpu/amdgpu/ras.rst):
    `ue: 0` a line, and `address : size : status` of each bad page."""
    folder = f"/sys/bus/pci/devices/{gpu.bus}/ras"
    counts: list[int] = []
    for name in host.listdir(folder):
        if name.endswith("_err_count"):
            told = re.search(
                r"^ue:\s*([0-9]{1,12})\s*$", host.read_or_none(f"{folder}/{name}") or "", re.M
            )
            counts += [int(told[1])] if told else []
    pages = None
    if host.exists(f"{folder}/gpu_vram_bad_pages"):
        lines = host.lines(f"{folder}/gpu_vram_bad_pages", PAGES_MAX)
        pages = [PAGES.get(line.rpartition(":")[2].strip(), -1) for line in lines]
    return replace(gpu, volatile=_counted(counts), **_pages(pages))


def _counted(counts: Iterable[object]) -> int | None:
    """A sum of counts; None where nobody told one."""
    real = [n for n in counts if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
    return sum(0 if n % ALL_ONES == 0 else n for n in real) if real else None


def _pages(statuses: list[int] | None) -> dict[str, Any]:
    if statuses is None:
        return {}
    return {
        "rows": sum(status == RESERVED for status in statuses),
        "pages_pending": PENDING in statuses,
        "remap_failed": UNRESERVABLE in statuses,
    }


class _AmdsmiCalls(CallRecorder):
    """Calls amdsmi about one GPU, call by call."""

    def answer(self, call: str, question: Callable[..., Any], *about: Any) -> Any:
        """Its answer; None where it can't tell. An error's number is kept as a negative one: the
        positive ones are NVML's."""
        try:
            return question(*about)
        except self.library.AmdSmiException as error:
            code = getattr(error, "err_code", None)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None  # what the driver said is not what its bindings had expected
        if code == NO_PERMISSION:
            self.refused.append(call)
        elif isinstance(code, int) and code not in UNTOLD:
            self.failed[call] = -code
        return None

    def enum(self, kind: str, name: str) -> Any:
        """A constant of amdsmi, such as its AmdSmiTemperatureType.HOTSPOT."""
        return getattr(getattr(self.library, kind, None), name, None)


def _read_all(
    amdsmi: Any, gpus: list[Vitals], host: Host, mark: Callable[[str], None], until: float
) -> VitalsListing:
    mark("amdsmi_init")
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiException as error:
        return _only_sysfs(gpus, host, mark, f"amdsmi_init: {_last_line(error)}")
    try:
        mark("amdsmi_get_processor_handles")
        handles = list(amdsmi.amdsmi_get_processor_handles())[:DEVICES_MAX]
        # the marks of one observation are bounded, and a late one must not be lost
        each = mark if len(handles) <= nvml_health.MARKED_MAX else nvml_health.no_mark
        by_bus = {}
        for number, handle in enumerate(handles):
            bus = _AmdsmiCalls(amdsmi, number, each)("amdsmi_get_gpu_device_bdf", handle)
            by_bus[bus_id(str(bus))] = handle
        mine = nvml_health.cgroup_job(host, "self"), nvml_health.ancestors(host)
        found: list[Vitals] = []
        for gpu in gpus:
            if time.monotonic() > until:
                break
            known = by_bus.get(gpu.bus)
            if each is nvml_health.no_mark:
                mark(f"amdsmi… of GPU {gpu.index}")
            if known is None:
                found.append(_with_sysfs_errors(host, gpu))
            else:
                found.append(_vitals(amdsmi, gpu, known, host, each, mine))
        if any(gpu.brakes for gpu in found):
            time.sleep(nvml_health.AGAIN)
            found = [_second_look(amdsmi, g, by_bus.get(g.bus), mark) for g in found]
        return VitalsListing(len(gpus), tuple(found))
    except amdsmi.AmdSmiException as error:
        return _only_sysfs(gpus, host, mark, f"amdsmi_get_processor_handles: {_last_line(error)}")
    finally:
        mark("amdsmi_shut_down")
        try:
            amdsmi.amdsmi_shut_down()
        except amdsmi.AmdSmiException:
            pass  # the answers outlive it


def _vitals(
    amdsmi: Any,
    gpu: Vitals,
    handle: Any,
    host: Host,
    mark: Callable[[str], None],
    mine: tuple[str, frozenset[int]],
) -> Vitals:
    call = _AmdsmiCalls(amdsmi, gpu.index, mark)
    known: dict[str, Any] = {}
    asic = _dict(call("amdsmi_get_gpu_asic_info", handle))
    model = str(asic.get("market_name") or "N/A")[:TEXT]
    if model != "N/A":
        known |= {"name": model, "coherent": gpu.coherent or bool(SHARED.search(model))}
    ecc = _dict(call("amdsmi_get_gpu_total_ecc_count", handle))
    known["volatile"] = _counted([ecc.get("uncorrectable_count")])
    pages = call("amdsmi_get_gpu_bad_page_info", handle)
    if isinstance(pages, (list, tuple)):
        known |= _pages([_integer(_dict(p).get("status"), -1) or 0 for p in pages[:PAGES_MAX]])
    known |= _temperature(call, handle)
    pcie = _dict(call("amdsmi_get_pcie_info", handle))
    now = _integer(_dict(pcie.get("pcie_metric")).get("pcie_width"))
    most = _integer(_dict(pcie.get("pcie_static")).get("max_pcie_width"))
    if now in kfd.WIDTHS and most in kfd.WIDTHS:
        known |= {"width": now, "width_max": most}
    programs = call("amdsmi_get_gpu_process_list", handle)
    known |= nvml_health.classify_programs(list(_programs(programs)), host, *mine)
    return replace(
        gpu,
        **known,
        brakes=_throttle_reasons(call, handle),
        failed=call.failed,
        refused=tuple(call.refused),
    )


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _integer(value: object, otherwise: int | None = None) -> int | None:
    """A number of amdsmi, which says "N/A" where there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _temperature(call: _AmdsmiCalls, handle: Any) -> dict[str, Any]:
    """Temperatures in °C; the limit is the one that the driver calls critical."""
    sensor = call.enum("AmdSmiTemperatureType", "HOTSPOT")
    found = []
    for metric in ("CURRENT", "CRITICAL"):
        which = call.enum("AmdSmiTemperatureMetric", metric)
        told = _integer(call("amdsmi_get_temp_metric", handle, sensor, which))
        found.append(told if told is not None and 0 < told < 200 else None)
    return {"temperature": found[0], "slowdown_at": found[1]}


def _throttle_reasons(call: _AmdsmiCalls, handle: Any) -> int | None:
    told = _dict(call("amdsmi_get_violation_status", handle))
    if not any(isinstance(told.get(key), bool) for key, _ in AMD_THROTTLE_REASONS.values()):
        return None
    return sum(bit for bit, (key, _) in AMD_THROTTLE_REASONS.items() if told.get(key) is True)


def _second_look(amdsmi: Any, gpu: Vitals, handle: Any, mark: Callable[[str], None]) -> Vitals:
    if not gpu.brakes:
        return gpu
    still = _throttle_reasons(_AmdsmiCalls(amdsmi, gpu.index, mark), handle)
    return replace(gpu, brakes=None if still is None else gpu.brakes & still)


@dataclass(frozen=True, slots=True)
class _Program:
    pid: int
    usedGpuMemory: int | None  # as NVML's bindings call it


def _programs(told: object) -> Iterator[_Program]:
    """Programs with memory on this GPU: KFD lists them on all GPUs that they have opened."""
    for one in told[:PROCESSES_MAX] if isinstance(told, list) else ():
        pid = _integer(_dict(one).get("pid"))
        used = _integer(_dict(_dict(one).get("memory_usage")).get("vram_mem"))
        if pid and used:
            yield _Program(pid, used)


def failed_resets(host: Host, seconds: float) -> Resets:
    """The GPUs whose last reset since boot has failed, as far back as the kernel's log goes."""
    up = kernel_log.uptime(host)
    if up is None:
        return Resets(refused="/proc/uptime says nothing")
    failed: dict[str, float] = {}
    try:
        for age, text in kernel_log.kernel_log(host, up, time.monotonic() + seconds):
            if told := LINE.search(text[:400]):
                failed.pop(told[1], None)
                if told[2] == "failed":
                    failed[told[1]] = age
    except CannotObserve as error:
        return Resets(refused=str(error))
    newest = list(failed.items())[-kernel_log.KEPT :]
    return Resets(tuple(Reset(bus, round(age, 1)) for bus, age in newest))
