"""A machine with AMD's GPUs that aren't there: its /sys, /dev and the stand-in for amdsmi.

board = Board(gpus=8)
tree = machine(root, board)
seen = observed("gpu.health", tree, {"gpus": …})
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import nvml

STAND_IN = Path(__file__).parents[1] / "support/amdsmi_stand_in/amdsmi"
GIB = 1 << 30
UP = 90_000.0


@dataclass(frozen=True)
class Board:
    """The GPUs of a node. `hives`: which hive each is in, 0 for none; `hidden`: those that the
    control group keeps from this process; `unrendered`: those whose render node is not there."""

    gpus: int = 8
    name: str = "AMD Instinct MI300X OAM"
    device: int = 0x74A1
    kind: str = "0x120000"
    memory: int = 192 * GIB
    used: int = 300 << 20
    gfx: int = 90402
    hives: tuple[int, ...] = (1,) * 8
    width: tuple[int, int] = (16, 16)
    hidden: frozenset[int] = frozenset()
    unrendered: frozenset[int] = frozenset()
    kfd: bool = True
    driver: str = "6.12.12"


MI300X = Board()
MI250X = Board(8, "", 0x7408, "0x038000", 64 * GIB, gfx=90010)
MI210 = Board(4, "", 0x740F, "0x038000", 64 * GIB, gfx=90010, hives=(1, 1, 2, 2), driver="")
MI300A = Board(4, "AMD Instinct MI300A", 0x74A0, memory=128 * GIB, used=90 * GIB, width=(0, 63))
RADEON = Board(1, "", 0x744C, "0x030000", 24 * GIB, gfx=110000, hives=(0,), driver="")
DESKTOP = Board(1, "", 0x164E, "0x030000", GIB // 2, gfx=100306, hives=(0,), driver="")

IDS = "# \n7408,\t00,\tAMD Instinct MI250X\n740F,\t02,\tAMD Instinct MI210\n"


def bus(number: int) -> str:
    return f"0000:{0x0C + 0x10 * number:02x}:00.0"


def node(number: int) -> int:
    """KFD's node of a GPU: two CPUs come first."""
    return number + 2


def write(path: Path, text: str | Mapping[str, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(text, str):
        text = "\n".join(f"{key} {value}" for key, value in text.items())
    path.write_text(text + "\n")


def machine(root: Path, board: Board = MI300X) -> Path:
    """The files of such a node."""
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    (root / "sys/module/amdgpu").mkdir(parents=True)
    if board.driver:
        write(root / "sys/module/amdgpu/version", board.driver)
    write(root / "proc/sys/kernel/osrelease", "6.8.0-60-generic")
    write(root / "proc/uptime", f"{UP} 1.00")
    write(
        root / "dev/kmsg",
        "6,1,500,-;Linux version 6.8.0\n6,2,600,-;[drm] amdgpu kernel modesetting",
    )
    write(root / "usr/share/libdrm/amdgpu.ids", IDS)
    for cpu in (0, 1):
        write(nodes / f"{cpu}/gpu_id", "0")
        write(nodes / f"{cpu}/properties", {"cpu_cores_count": 96, "simd_count": 0})
    if board.kfd:
        write(root / "dev/kfd", "")
    for number in range(board.gpus):
        device(root, board, number)
        if number not in board.unrendered:
            write(root / f"dev/dri/renderD{128 + number}", "")
        if number in board.hidden:
            (nodes / str(node(number))).mkdir()
            continue
        write(nodes / f"{node(number)}/gpu_id", str(40000 + number))
        told = {
            "simd_count": 1216,
            "gfx_target_version": board.gfx,
            "location_id": (0x0C + 0x10 * number) << 8,
            "domain": 0,
            "drm_render_minor": 128 + number,
            "unique_id": 0xA000000000000000 + number,
        }
        write(nodes / f"{node(number)}/properties", told)
        write(nodes / f"{node(number)}/io_links/0/properties", {"type": 2, "node_to": 0})
        peers = [n for n in range(board.gpus) if n != number]
        for place, peer in enumerate(peers, 1):
            if board.hives[number] == board.hives[peer] != 0:
                link = {"type": 11, "node_from": node(number), "node_to": node(peer), "weight": 15}
                write(nodes / f"{node(number)}/io_links/{place}/properties", link)
    return root


def device(root: Path, board: Board, number: int) -> None:
    folder = root / "sys/bus/pci/devices" / bus(number)
    facts: dict[str, object] = {
        "class": board.kind,
        "vendor": "0x1002",
        "device": f"{board.device:#06x}",
        "revision": "0x02" if board.device == 0x740F else "0x00",
        "current_link_width": board.width[0],
        "max_link_width": board.width[1],
        "mem_info_vram_total": board.memory,
        "mem_info_vram_used": board.used,
        "ras/umc_err_count": "ue: 0\nce: 4",
        "ras/gfx_err_count": "ue: 0\nce: 0",
        "ras/gpu_vram_bad_pages": "0x000001 : 0x00001000 : R",
    }
    if board.name:
        facts["product_name"] = board.name
    for name, value in facts.items():
        write(folder / name, str(value))
    (folder / "driver").symlink_to("../../../bus/pci/drivers/amdgpu")


def package(folder: Path, play: Mapping[str, Any]) -> Path:
    """A folder for PYTHONPATH that holds the stand-in, playing this scenario."""
    shutil.copytree(STAND_IN, folder / "amdsmi")
    (folder / "scenario.json").write_text(json.dumps(play))
    return folder


def gpus(board: Board, changes: Mapping[int, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """What amdsmi tells of a board: all well but for the changes of some GPUs."""
    return {bus(n): dict((changes or {}).get(n, {})) for n in range(board.gpus)}


def observed(
    check_id: str, root: Path, play: Mapping[str, Any] | None, **more: Any
) -> nvml.Observed:
    """The observation in a process of its own; without a scenario amdsmi is not installed."""
    folder = "" if play is None else package(root / "python", play)
    return nvml.observed(check_id, None, root=root, python_path=folder, **more)


def kernel(seconds_ago: float, text: str) -> str:
    return f"4,77,{int((UP - seconds_ago) * 1e6)},-;{text}\n"
