"""Lists AMD's GPUs by /sys and the kernel's KFD, and knows HIP's rules for masks.

No library is asked: what HIP will find is what KFD lists and this process may open
(libhsakmt: topology.c, fmm.c). A driver that is stuck may hold a read of /sys: only in a worker.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence

from preflight.domains.gpu.nvml import (
    DEVICES_MAX,
    TEXT,
    DeviceMasks,
    GpuListing,
    ListedGpu,
    PciGpu,
    env_text,
    scan_pci,
)
from preflight.domains.gpu.vendor import AMD, AMD_PCI, DRI, KFD, KFD_NODES
from preflight.frozen import dataclass
from preflight.host import Host

NAME = AMD
ACCELERATORS = (0x0380, 0x1200)
"""PCI classes of Instinct cards, which have no display (pci.ids: display controller, processing
accelerator). VGA, of Radeons and of CPUs with graphics, says nothing of what it is for."""
DISPLAY = (0x0300, 0x0302)

MODULE = "/sys/module/amdgpu"
NODES_MAX, LINES_MAX, LINKS_MAX = 256, 64, 128
"""More than any machine has of them."""

SMALL = 4 << 30
"""Bytes of memory below which a GPU is the display of its machine: CPUs with graphics keep 0.5 to
2 GiB for it, and no Instinct has less than 16."""

# drivers/gpu/drm/amd/amdkfd/kfd_crat.h, CRAT_IOLINK_TYPE_*
XGMI = 11

WIDTHS = frozenset((1, 2, 4, 8, 12, 16, 32))
"""PCIe lanes that there are; the kernel writes 0 or 63 where a slot does not tell."""

HIDDEN = frozenset((errno.ENOENT, errno.EPERM, errno.ENXIO))
"""With these libhsakmt takes a GPU for one that was not given to this process, and goes on without
it: no device node in the container, or the control group's rule. With EACCES it gives up."""


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU of KFD's topology. `links` are the other nodes that XGMI leads to; `hidden`: the
    control group keeps this process from reading it."""

    number: int
    bus: str = ""
    render: int | None = None
    unique: int = 0
    gfx: str = ""
    links: tuple[int, ...] = ()
    hidden: bool = False

    @property
    def uuid(self) -> str:
        """As ROCR_VISIBLE_DEVICES names it; older GPUs have none."""
        return f"GPU-{self.unique:016x}" if self.unique else ""


def nodes(host: Host) -> tuple[KfdNode, ...]:
    """KFD's GPUs, in the order in which HIP numbers them."""
    numbers = sorted(int(n) for n in host.listdir(KFD_NODES) if re.fullmatch("[0-9]{1,5}", n))
    return tuple(n for i in numbers[:NODES_MAX] if (n := _read_node(host, i)) is not None)


def _read_node(host: Host, number: int) -> KfdNode | None:
    gpu_id = host.read_int(f"{KFD_NODES}/{number}/gpu_id")
    if gpu_id is None:
        return KfdNode(number, hidden=True)
    told = _properties(host, f"{KFD_NODES}/{number}/properties")
    if not gpu_id or not told.get("simd_count"):
        return None  # a CPU
    place, domain = told.get("location_id", 0), told.get("domain", 0)
    version = told.get("gfx_target_version", 0)
    return KfdNode(
        number,
        bus=f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}",
        render=told.get("drm_render_minor") or None,
        unique=told.get("unique_id", 0),
        # 90010 is gfx90a, 90402 is gfx942
        gfx=f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else "",
        links=tuple(_xgmi(host, number)),
    )


def _xgmi(host: Host, number: int) -> list[int]:
    folder = f"{KFD_NODES}/{number}/io_links"
    told = [_properties(host, f"{folder}/{n}/properties") for n in host.listdir(folder)[:LINKS_MAX]]
    return sorted(p["node_to"] for p in told if p.get("type") == XGMI and "node_to" in p)


def _properties(host: Host, path: str) -> dict[str, int]:
    """Lines such as `simd_count 1216`."""
    lines = [line.split() for line in host.lines(path, LINES_MAX)]
    return {w[0]: int(w[1]) for w in lines if len(w) == 2 and re.fullmatch("[0-9]{1,20}", w[1])}


def vram(host: Host, bus: str, which: str = "total") -> int | None:
    """Bytes of a GPU's own memory, in all or `used`."""
    return host.read_int(f"/sys/bus/pci/devices/{bus}/mem_info_vram_{which}")


def pcie_width(host: Host, bus: str, which: str) -> int | None:
    """PCIe lanes, `current` or `max`."""
    found = host.read_int(f"/sys/bus/pci/devices/{bus}/{which}_link_width")
    return found if found in WIDTHS else None


def gpus_on_pci(host: Host) -> tuple[PciGpu, ...]:
    """AMD's GPUs on the bus: accelerators, and those of other classes that KFD lists."""
    listed = {node.bus for node in nodes(host)}
    found = scan_pci(host, AMD_PCI, (*ACCELERATORS, *DISPLAY))
    given = [gpu for gpu, kind in found if kind in ACCELERATORS or gpu.bus in listed]
    return tuple(given[:DEVICES_MAX])


def present(host: Host) -> bool:
    """Whether there are GPUs of AMD here that one computes on."""
    if host.exists(KFD) or host.exists(KFD_NODES):
        sizes = [vram(host, node.bus) for node in nodes(host) if not node.hidden]
        if any(size is None or size >= SMALL for size in sizes):
            return True
    return any(
        (host.read_int(f"/sys/bus/pci/devices/{gpu.bus}/class") or 0) >> 8 in ACCELERATORS
        for gpu in gpus_on_pci(host)
    )


def module_version(host: Host) -> str:
    """Version of the loaded amdgpu; the one that comes with the kernel has the kernel's. Empty
    where none is loaded."""
    told = (host.read_or_none(f"{MODULE}/version") or "").strip()[:TEXT]
    if told or not host.exists(MODULE):
        return told
    release = (host.read_or_none("/proc/sys/kernel/osrelease") or "").strip()[:TEXT]
    return f"of kernel {release}" if release else "of the kernel"


def model_name(host: Host, bus: str) -> str:
    """A GPU's model: what its board says, or libdrm's table of ids, else its PCI id."""
    folder = f"/sys/bus/pci/devices/{bus}"
    told = (host.read_or_none(f"{folder}/product_name") or "").strip()[:TEXT]
    if told:
        return told
    device = host.read_int(f"{folder}/device")
    revision = host.read_int(f"{folder}/revision")
    if device is None:
        return ""
    wanted = f"{device:04X}, {revision or 0:02X},"
    for table in ("/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids"):
        for line in host.lines(table, 4096):
            if line.upper().replace("\t", " ").startswith(wanted):
                return line.split(",", 2)[2].strip()[:TEXT]
    return f"AMD {device:#06x}"


def list_gpus(host: Host, mark: Callable[[str], None], seconds: float) -> GpuListing:
    """What HIP would find. `code` is the errno with which it could not start, `text` on what; no
    further GPU is looked at once `seconds` are over."""
    began = time.monotonic()
    if not host.exists(MODULE):
        return GpuListing(errno.ENODEV, "amdgpu is not loaded", seconds=time.monotonic() - began)
    mark("/sys/class/kfd")
    driver, listed = module_version(host), [n for n in nodes(host) if not n.hidden]
    mark(f"open {KFD}")
    code, text = host.refused(KFD), KFD
    given: list[KfdNode] = []
    for node in listed:
        path = f"{DRI}/renderD{node.render}"
        mark(f"open {path}")
        refusal = host.refused(path) if node.render is not None else errno.ENOENT
        if refusal == errno.EACCES and not code:
            code, text = refusal, path
        if refusal not in HIDDEN:
            given.append(node)
    gpus: list[ListedGpu] = []
    for node in given:
        if time.monotonic() > began + seconds:
            break
        mark(f"device {len(gpus)}")
        gpus.append(_describe(host, node, len(gpus)))
    return GpuListing(
        code=code,
        text=f"{text}: {os.strerror(code)}" if code else "",
        driver=driver,
        count=len(given),
        gpus=tuple(gpus),
        seconds=time.monotonic() - began,
    )


def _describe(host: Host, node: KfdNode, index: int) -> ListedGpu:
    return ListedGpu(
        index,
        name=model_name(host, node.bus),
        uuid=node.uuid,
        bus=node.bus,
        minor=node.render,
        capability=node.gfx,
        memory=vram(host, node.bus),
        used=vram(host, node.bus, "used"),
    )


def not_listed(
    host: Host, mark: Callable[[str], None], answer: GpuListing, pci: Sequence[PciGpu]
) -> tuple[int, tuple[PciGpu, ...]]:
    """How many GPUs of amdgpu are on the bus, but not given to this process."""
    listed = {gpu.bus for gpu in answer.gpus}
    return sum(gpu.driver == "amdgpu" and gpu.bus not in listed for gpu in pci), ()


def masks(environ: Mapping[str, str]) -> DeviceMasks:
    """ROCR_VISIBLE_DEVICES is applied first; of what it leaves, HIP_VISIBLE_DEVICES shows some, or
    CUDA_VISIBLE_DEVICES where that one is empty or not set. An empty one of these two hides
    nothing (clr: rocclr/device/rocm/rocdevice.cpp; torch/cuda/__init__.py)."""
    names = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    found = next(((n, m) for n in names if (m := env_text(environ, n))), (names[0], None))
    return DeviceMasks(found[0], found[1], env_text(environ, "ROCR_VISIBLE_DEVICES"))


def openable_nodes(host: Host) -> tuple[KfdNode, ...]:
    """The GPUs that this process may open, in HIP's order; masks are not looked at."""
    if host.refused(KFD):
        return ()
    return tuple(
        node
        for node in itertools.islice(nodes(host), NODES_MAX)
        if node.render is not None and not host.refused(f"{DRI}/renderD{node.render}")
    )
