"""RDMA devices as /sys/class/infiniband shows them: small trees, in the kernel's formats.

The layout and the words are those of Documentation/ABI/stable/sysfs-class-infiniband and of
drivers/infiniband/core/sysfs.c; names, numbers and machines are made up here. An active port of
InfiniBand is what one gets without saying anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

STATES = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE"}
PHYSICAL = {2: "Polling", 3: "Disabled", 5: "LinkUp"}
ZERO = ":".join(["0000"] * 8)
LOCAL = "fe80:0000:0000:0000:ba59:9fff:fe10:2030"
V4 = "0000:0000:0000:0000:0000:ffff:0a0a:0a05"
V6 = "fd00:0000:0000:0001:0000:0000:0000:0005"
V1, V2 = "IB/RoCE v1", "RoCE v2"
ROCE = ((LOCAL, V1), (LOCAL, V2), (V4, V1), (V4, V2))
"""What mlx5 shows of an interface with one IPv4 address."""


def hca(
    root: Path,
    device: str = "mlx5_0",
    *,
    port: int = 1,
    state: int = 4,
    physical: int = 5,
    rate: str = "400 Gb/sec (4X NDR)",
    layer: str = "InfiniBand",
    kind: str = "MT4129",
    pci: str = "0000:18:00.0",
    driver: str = "mlx5_core",
    node_type: str = "1: CA",
    verbs: int | None = 0,
    numa: int = 0,
    mtu: int = 4200,
    gids: tuple[tuple[str, str], ...] = ROCE,
    pkeys: tuple[str, ...] = ("0xffff", "0x0000"),
    counters: Mapping[str, int] = {"symbol_error": 0, "link_downed": 1, "port_rcv_errors": 0},
    virtual: bool = False,
) -> Path:
    """One port of a device below a root; a second call with the same device adds another port.
    `verbs` is the number of its uverbs node, None: there is no node that can be opened."""
    card = root / f"sys/devices/pci0000:00/{pci}"
    card.mkdir(parents=True, exist_ok=True)
    (card / "numa_node").write_text(f"{numa}\n")
    if not (card / "driver").is_symlink():
        (card / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    if virtual:
        (card / "physfn").mkdir(exist_ok=True)
    folder = root / f"sys/class/infiniband/{device}"
    here = folder / f"ports/{port}"
    here.mkdir(parents=True)
    if not (folder / "device").is_symlink():
        (folder / "device").symlink_to(f"../../../devices/pci0000:00/{pci}")
    about = {"hca_type": kind, "board_id": "MT_0000000838", "fw_ver": "28.39.1002"}
    write(folder, about | {"node_type": node_type})
    write(
        here,
        {
            "state": f"{state}: {STATES[state]}",
            "phys_state": f"{physical}: {PHYSICAL[physical]}",
            "rate": rate,
            "link_layer": layer,
        },
    )
    write(here / "counters", {name: str(value) for name, value in counters.items()})
    write(here / "pkeys", dict(enumerate(pkeys)))
    if layer == "Ethernet":
        write(card / f"net/eth{device[-1]}", {"mtu": str(mtu)})
        entries = (*gids, *[(ZERO, "")] * (8 - len(gids)))
        write(here / "gids", {i: address for i, (address, _) in enumerate(entries)})
        write(here / "gid_attrs/types", {i: kind for i, (_, kind) in enumerate(entries) if kind})
    else:
        write(here / "gids", {0: LOCAL})
    if verbs is not None:
        write(root / f"sys/class/infiniband_verbs/uverbs{verbs}", {"ibdev": device})
        write(root / "dev/infiniband", {f"uverbs{verbs}": ""})
    return here


def write(folder: Path, files: Mapping[str, str] | Mapping[int, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / str(name)).write_text(f"{text}\n")


def gpus(
    root: Path, count: int = 8, driver: str = "Open Kernel Module", kernel: str = "6.8.0"
) -> None:
    """NVIDIA's GPUs, as far as their device files and their driver's version."""
    write(root / "dev", {f"nvidia{n}": "" for n in range(count)})
    write(root / "proc/driver/nvidia", {"version": f"NVRM version: NVIDIA UNIX {driver} 570.1"})
    write(root / "proc/sys/kernel", {"osrelease": f"{kernel}-generic"})
