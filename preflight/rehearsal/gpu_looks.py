"""Looks at the node's GPUs once a second while a command runs, through the driver's library, and
which of them is whose. Only in a worker of its own: a sick driver may never answer, and what was
seen until then lies in a file of the rehearsal's folder, where the watch reads it at the end."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from preflight.domains.gpu import kfd
from preflight.domains.gpu.nvml import DEVICES_MAX, bus_id, visible_devices
from preflight.domains.job.gpu_use import GpuLook, WatchedGpu
from preflight.host import Host
from preflight.process.worker import Channel
from preflight.rehearsal import procfs
from preflight.rehearsal.client import mapping_or_empty, parse_json
from preflight.rehearsal.workdir import OVER
from preflight.sanitize import one_line

FILE = "gpus"
EVERY, LIMIT = 1.0, 8 << 20
"""Seconds between two looks; bytes of all of them."""
HALVED = 240
"""Looks after which they are taken half as often: an hour has 860 of them."""
SM = 1  # nvml.h, nvmlClockType_t: NVML_CLOCK_SM
NAME, MOST = 80, 1e18

Source = tuple[list[WatchedGpu], Callable[[], list[list[float | None]]]]
"""The GPUs, and a function that looks at each: busy, clock, used, power, as GpuLook has them."""


def look_until_over(args: Mapping[str, Any], channel: Channel, preloaded: object) -> int:
    """Look until the watch is over, or as long as the folder is there; how often that was."""
    path = os.path.join(str(args["folder"]), FILE)
    with _source(Host()) as (gpus, look):
        if not gpus:
            return 0
        known = [[g.index, g.name, g.uuid, g.bus, g.memory] for g in gpus]
        with open(path, "w", encoding="utf-8") as file:
            print(json.dumps({"gpus": known}), file=file, flush=True)
            count, every = 0, EVERY
            while not channel.hear(OVER, 1, every) and os.path.exists(path):
                told = {"at": round(time.monotonic(), 2), "looks": look()}
                if file.tell() < LIMIT:
                    print(json.dumps(told), file=file, flush=True)
                count += 1
                every = EVERY * 2 ** (count // HALVED)
            return count


@contextmanager
def _source(host: Host) -> Iterator[Source]:
    """What can be asked here; nothing where there is neither vendor's library."""
    if not host.no_nvml():
        with host.nvml() as nvml:
            yield _nvidia(nvml)
    elif kfd.openable_nodes(host):
        with _amd() as source:
            yield source
    else:
        yield [], list


# --- NVIDIA ---


def _nvidia(nvml: Any) -> Source:
    count = min(int(nvml.nvmlDeviceGetCount()), DEVICES_MAX)
    handles, gpus = [], []
    for index in range(count):
        ask = _asking(nvml.NVMLError)
        handle = ask(nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            continue  # lost: another check tells of it
        pci = ask(nvml.nvmlDeviceGetPciInfo, handle)
        memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        handles.append(handle)
        gpus.append(
            WatchedGpu(
                index,
                str(ask(nvml.nvmlDeviceGetName, handle) or "")[:NAME],
                str(ask(nvml.nvmlDeviceGetUUID, handle) or "")[:NAME],
                bus_id(pci.busId) if pci else "",
                int(memory.total) if memory else 0,
            )
        )

    def look() -> list[list[float | None]]:
        found: list[list[float | None]] = []
        for handle in handles:
            ask = _asking(nvml.NVMLError)
            busy = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
            memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
            power = ask(nvml.nvmlDeviceGetPowerUsage, handle)
            found.append(
                [
                    busy.gpu / 100 if busy else None,
                    ask(nvml.nvmlDeviceGetClockInfo, handle, SM),
                    memory.used if memory else None,
                    power / 1000 if power is not None else None,
                ]
            )
        return found

    return gpus, look


def _asking(*errors: type[Exception]) -> Callable[..., Any]:
    """Calls a function of a driver's library: None where it can't tell."""

    def ask(question: Callable[..., Any], *about: Any) -> Any:
        try:
            return question(*about)
        except errors:
            return None

    return ask


# --- AMD ---


@contextmanager
def _amd() -> Iterator[Source]:
    """By amdsmi, which must be that of the ROCm here."""
    try:
        import amdsmi
    except (ImportError, OSError, KeyError, AttributeError, SystemExit):
        yield [], list
        return
    ask = _asking(amdsmi.AmdSmiException, ValueError, TypeError, KeyError, AttributeError)
    amdsmi.amdsmi_init()
    try:
        yield _amd_gpus(amdsmi, ask)
    finally:
        ask(amdsmi.amdsmi_shut_down)


def _amd_gpus(amdsmi: Any, ask: Callable[..., Any]) -> Source:
    handles = list(ask(amdsmi.amdsmi_get_processor_handles) or ())[:DEVICES_MAX]
    gpus = []
    for index, handle in enumerate(handles):
        asic = mapping_or_empty(ask(amdsmi.amdsmi_get_gpu_asic_info, handle))
        vram = mapping_or_empty(ask(amdsmi.amdsmi_get_gpu_vram_usage, handle))
        bus = bus_id(str(ask(amdsmi.amdsmi_get_gpu_device_bdf, handle) or ""))
        memory = int((_number(vram.get("vram_total")) or 0) * (1 << 20))
        gpus.append(WatchedGpu(index, str(asic.get("market_name"))[:NAME], "", bus, memory))
    graphics = getattr(getattr(amdsmi, "AmdSmiClkType", None), "GFX", None)

    def look() -> list[list[float | None]]:
        found: list[list[float | None]] = []
        for handle in handles:
            activity, clock, vram, power = (
                mapping_or_empty(ask(getattr(amdsmi, name, None), handle, *more))
                for name, more in (
                    ("amdsmi_get_gpu_activity", ()),
                    ("amdsmi_get_clock_info", (graphics,)),
                    ("amdsmi_get_gpu_vram_usage", ()),
                    ("amdsmi_get_power_info", ()),
                )
            )
            busy, used = _number(activity.get("gfx_activity")), _number(vram.get("vram_used"))
            watts = _number(power.get("current_socket_power"))
            found.append(
                [
                    None if busy is None else busy / 100,
                    _number(clock.get("clk", clock.get("cur_clk"))),
                    None if used is None else used * (1 << 20),
                    _number(power.get("average_socket_power")) if watts is None else watts,
                ]
            )
        return found

    return gpus, look


def _number(told: object) -> float | None:
    """A number; amdsmi says "N/A" where there is none."""
    if not isinstance(told, (int, float)) or isinstance(told, bool) or not math.isfinite(told):
        return None
    return float(told) if 0 <= told < MOST else None


# --- what was seen ---


def read_looks(folder: str) -> tuple[WatchedGpu, ...]:
    """The GPUs with all looks at them; none where nobody looked. The command may write there, too:
    it is read like what comes out of the command."""
    data = procfs.read_regular(os.path.join(folder, FILE), LIMIT)
    first, *lines = data.decode(errors="replace").split("\n")
    told = mapping_or_empty(parse_json(first)).get("gpus")
    gpus = [_gpu(one) for one in told[:DEVICES_MAX]] if isinstance(told, list) else []
    looks: list[list[GpuLook]] = [[] for _ in gpus]
    for line in lines:
        seen = mapping_or_empty(parse_json(line))
        at, each = _number(seen.get("at")), seen.get("looks")
        if at is not None and isinstance(each, list):
            for of, one in zip(looks, each, strict=False):
                of.append(_look(at, one))
    return tuple(replace(gpu, looks=tuple(of)) for gpu, of in zip(gpus, looks, strict=True))


def _gpu(told: object) -> WatchedGpu:
    match told:
        case [int(index), str(name), str(uuid), str(bus), int(memory)]:
            name, uuid, bus = (one_line(text, NAME) for text in (name, uuid, bus))
            return WatchedGpu(index, name, uuid, bus, memory)
    return WatchedGpu(-1)


def _look(at: float, told: object) -> GpuLook:
    match told:
        case [busy, clock, used, power]:
            share, memory = _number(busy), _number(used)
            return GpuLook(
                at,
                None if share is None else min(1.0, share),
                _number(clock),
                None if memory is None else int(memory),
                _number(power),
            )
    return GpuLook(at)


def gpu_of(device: Mapping[str, Any], gpus: Sequence[WatchedGpu]) -> WatchedGpu | None:
    """The GPU that a rank's torch means (gpu_in_use() of preflight_responder.py). By its UUID or
    its place on the bus; where torch tells neither, by what the mask shows under its number, which
    holds only while CUDA counts the GPUs in the driver's order: all of one model. None where that
    can't be told, as of a part of a GPU (MIG)."""
    uuid, bus, number = (device.get(name) for name in ("uuid", "bus", "number"))
    if uuid and (own := [g for g in gpus if g.uuid.removeprefix("GPU-") == str(uuid)]):
        return own[0]
    if bus and (own := [g for g in gpus if g.bus == bus]):
        return own[0]
    if uuid or bus or type(number) is not int or len({gpu.name for gpu in gpus}) > 1:
        return None
    mask = device.get("mask")
    shown = visible_devices(mask if isinstance(mask, str) else None, [gpu.uuid for gpu in gpus])
    return gpus[shown.indexes[number]] if 0 <= number < len(shown.indexes) else None
