"""How well each AMD GPU is: what amdsmi tells, /sys where it is not installed, the kernel's log.

amdsmi must be that of the ROCm on the machine, so it is none of our dependencies. Functions, keys
and enums: its Python API reference and py-interface/amdsmi_interface.py. Each call has its mark.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from preflight.domains.gpu import kfd as amd
from preflight.domains.gpu import nvml_health as health
from preflight.domains.gpu import xid
from preflight.domains.gpu.nvml import DEVICES_MAX, TEXT, bus_id
from preflight.domains.gpu.nvml_health import PROCESSES_MAX, Told, Vitals
from preflight.host import Host
from preflight.model import CannotObserve

# amdsmi.h, amdsmi_status_t: "this GPU, driver or version can't tell"; and for want of a permission
UNTOLD = frozenset((2, 3, 5, 14, 20, 31, 40, 41, 42, 43, 52, 55))
NO_PERMISSION = 10

# amdsmi.h, amdsmi_memory_page_status_t; the same in gpu_vram_bad_pages of /sys as R, P and F
RESERVED, PENDING, UNRESERVABLE = 0, 1, 2
PAGES = {"R": RESERVED, "P": PENDING, "F": UNRESERVABLE}
PAGES_MAX = 65536

# amdsmi_get_violation_status: what slows a GPU down that is too hot, or that the platform holds
# back. The power limit (active_ppt_pwr) and idleness are no trouble
BRAKES = {
    0x1: ("active_prochot_thrm", "PROCHOT"),
    0x2: ("active_socket_thrm", "socket thermal"),
    0x4: ("active_vr_thrm", "voltage regulator thermal"),
    0x8: ("active_hbm_thrm", "HBM thermal"),
}

ALL_ONES = 0xFFFF
"""A count register of a GPU that sleeps reads as this, once a channel: such sums are no count."""

SHARED = re.compile(r"MI300A\b")
"""Models whose memory is the machine's, too: the kernel uses it as well."""

# drivers/gpu/drm/amd/amdgpu/amdgpu_device.c, after amdgpu_device_gpu_recover; the second "amdgpu:"
# came in 2020. RAS counts in the log are no sign: each look at a counter prints them anew.
LINE = re.compile(
    r"amdgpu ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:amdgpu: )?"
    r"GPU reset\([0-9]{1,9}\) (failed|succeeded)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Reset:
    """A GPU whose last reset has failed, and how many seconds ago."""

    bus: str
    age: float


@dataclass(frozen=True, slots=True)
class Resets:
    """What the kernel's log says. `refused`: why it could not be read, empty when it could."""

    failed: tuple[Reset, ...] = ()
    refused: str = ""


def ask(host: Host, mark: Callable[[str], None], seconds: float) -> Told:
    """What /sys and amdsmi say. `untold` of the answer says why there is nothing of the latter."""
    until = time.monotonic() + seconds
    mark("/sys/class/kfd")
    gpus = [_from_sys(host, node, i) for i, node in enumerate(amd.visible(host))]
    if not gpus:
        return Told(0, ())
    mark("import of amdsmi")
    try:
        import amdsmi
    except ImportError:
        untold = "the package amdsmi is not installed"
    except (OSError, KeyError, AttributeError, SystemExit) as error:
        # its wrapper loads libamd_smi.so and looks all functions up
        untold = f"amdsmi does not fit the ROCm here: {_words(error)}"
    else:
        return _asked(amdsmi, gpus, host, mark, until)
    return _by_sys(gpus, host, mark, untold)


def _by_sys(gpus: list[Vitals], host: Host, mark: Callable[[str], None], why: str) -> Told:
    """What there is without amdsmi."""
    mark("ras of /sys")
    return Told(len(gpus), tuple(_errors(host, gpu) for gpu in gpus), why)


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip()[:TEXT]


def _from_sys(host: Host, node: amd.Node, index: int) -> Vitals:
    model = amd.name(host, node.bus)
    return Vitals(
        index,
        name=model,
        uuid=node.uuid,
        bus=node.bus,
        coherent=bool(SHARED.search(model)),
        width=amd.width(host, node.bus, "current"),
        width_max=amd.width(host, node.bus, "max"),
        memory=amd.memory(host, node.bus),
        used=amd.memory(host, node.bus, "used"),
    )


def _errors(host: Host, gpu: Vitals) -> Vitals:
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


class _Asker:
    """Asks amdsmi about one GPU, call by call."""

    def __init__(self, amdsmi: Any, index: int, mark: Callable[[str], None]) -> None:
        self.amdsmi = amdsmi
        self.index = index
        self.mark = mark
        self.failed: dict[str, int] = {}
        self.refused: list[str] = []

    def __call__(self, call: str, *about: Any) -> Any:
        """Its answer; None where it can't tell. An error's number is kept as a negative one: the
        positive ones are NVML's."""
        self.mark(f"{call} of GPU {self.index}")
        question = getattr(self.amdsmi, call, None)
        if question is None:  # an amdsmi older than this call
            return None
        try:
            return question(*about)
        except self.amdsmi.AmdSmiException as error:
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
        return getattr(getattr(self.amdsmi, kind, None), name, None)


def _asked(
    amdsmi: Any, gpus: list[Vitals], host: Host, mark: Callable[[str], None], until: float
) -> Told:
    mark("amdsmi_init")
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiException as error:
        return _by_sys(gpus, host, mark, f"amdsmi_init: {_words(error)}")
    try:
        mark("amdsmi_get_processor_handles")
        handles = list(amdsmi.amdsmi_get_processor_handles())[:DEVICES_MAX]
        # the marks of one observation are bounded, and a late one must not be lost
        each = mark if len(handles) <= health.MARKED_MAX else health.silent
        by_bus = {}
        for number, handle in enumerate(handles):
            bus = _Asker(amdsmi, number, each)("amdsmi_get_gpu_device_bdf", handle)
            by_bus[bus_id(str(bus))] = handle
        mine = health.job(host, "self"), health.ancestors(host)
        found: list[Vitals] = []
        for gpu in gpus:
            if time.monotonic() > until:
                break
            known = by_bus.get(gpu.bus)
            if each is health.silent:
                mark(f"amdsmi… of GPU {gpu.index}")
            if known is None:
                found.append(_errors(host, gpu))
            else:
                found.append(_vitals(amdsmi, gpu, known, host, each, mine))
        if any(gpu.brakes for gpu in found):
            time.sleep(health.AGAIN)
            found = [_second_look(amdsmi, g, by_bus.get(g.bus), mark) for g in found]
        return Told(len(gpus), tuple(found))
    except amdsmi.AmdSmiException as error:
        return _by_sys(gpus, host, mark, f"amdsmi_get_processor_handles: {_words(error)}")
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
    ask_it = _Asker(amdsmi, gpu.index, mark)
    known: dict[str, Any] = {}
    asic = _table(ask_it("amdsmi_get_gpu_asic_info", handle))
    model = str(asic.get("market_name") or "N/A")[:TEXT]
    if model != "N/A":
        known |= {"name": model, "coherent": gpu.coherent or bool(SHARED.search(model))}
    ecc = _table(ask_it("amdsmi_get_gpu_total_ecc_count", handle))
    known["volatile"] = _counted([ecc.get("uncorrectable_count")])
    pages = ask_it("amdsmi_get_gpu_bad_page_info", handle)
    if isinstance(pages, (list, tuple)):
        known |= _pages([_number(_table(p).get("status"), -1) or 0 for p in pages[:PAGES_MAX]])
    known |= _heat(ask_it, handle)
    pcie = _table(ask_it("amdsmi_get_pcie_info", handle))
    now = _number(_table(pcie.get("pcie_metric")).get("pcie_width"))
    most = _number(_table(pcie.get("pcie_static")).get("max_pcie_width"))
    if now in amd.WIDTHS and most in amd.WIDTHS:
        known |= {"width": now, "width_max": most}
    programs = ask_it("amdsmi_get_gpu_process_list", handle)
    known |= health.sorted_out(list(_programs(programs)), host, *mine)
    return replace(
        gpu,
        **known,
        brakes=_brakes(ask_it, handle),
        failed=ask_it.failed,
        refused=tuple(ask_it.refused),
    )


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object, otherwise: int | None = None) -> int | None:
    """A number of amdsmi, which says "N/A" where there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _heat(ask_it: _Asker, handle: Any) -> dict[str, Any]:
    """In degrees; the limit is the one that the driver calls critical."""
    sensor = ask_it.enum("AmdSmiTemperatureType", "HOTSPOT")
    found = []
    for metric in ("CURRENT", "CRITICAL"):
        which = ask_it.enum("AmdSmiTemperatureMetric", metric)
        told = _number(ask_it("amdsmi_get_temp_metric", handle, sensor, which))
        found.append(told if told is not None and 0 < told < 200 else None)
    return {"temperature": found[0], "slowdown_at": found[1]}


def _brakes(ask_it: _Asker, handle: Any) -> int | None:
    told = _table(ask_it("amdsmi_get_violation_status", handle))
    if not any(isinstance(told.get(key), bool) for key, _ in BRAKES.values()):
        return None
    return sum(bit for bit, (key, _) in BRAKES.items() if told.get(key) is True)


def _second_look(amdsmi: Any, gpu: Vitals, handle: Any, mark: Callable[[str], None]) -> Vitals:
    if not gpu.brakes:
        return gpu
    still = _brakes(_Asker(amdsmi, gpu.index, mark), handle)
    return replace(gpu, brakes=None if still is None else gpu.brakes & still)


@dataclass(frozen=True, slots=True)
class _Program:
    pid: int
    usedGpuMemory: int | None  # as NVML's bindings call it


def _programs(told: object) -> Iterator[_Program]:
    """Programs with memory on this GPU: KFD lists them on all GPUs that they have opened."""
    for one in told[:PROCESSES_MAX] if isinstance(told, list) else ():
        pid = _number(_table(one).get("pid"))
        used = _number(_table(_table(one).get("memory_usage")).get("vram_mem"))
        if pid and used:
            yield _Program(pid, used)


def failed_resets(host: Host, seconds: float) -> Resets:
    """The GPUs whose last reset since boot has failed, as far back as the kernel's log goes."""
    up = xid.uptime(host)
    if up is None:
        return Resets(refused="/proc/uptime says nothing")
    failed: dict[str, float] = {}
    try:
        for age, text in xid.of_kernel(host, up, time.monotonic() + seconds):
            if told := LINE.search(text[:400]):
                failed.pop(told[1], None)
                if told[2] == "failed":
                    failed[told[1]] = age
    except CannotObserve as error:
        return Resets(refused=str(error))
    newest = list(failed.items())[-xid.KEPT :]
    return Resets(tuple(Reset(bus, round(age, 1)) for bus, age in newest))
