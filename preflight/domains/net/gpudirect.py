"""What is on the way between an RDMA device and the nearest GPU: the bridges of the PCI switch that
they share, their ACS settings, the IOMMU.

NCCL lets an HCA reach into the memory of a GPU where both are below one PCI switch
(src/graph/paths.cc, ncclTopoCheckGdr). The switch passes that on by itself, unless ACS or the
addresses of an IOMMU send it to the CPU (NCCL user guide, "GPU Direct RDMA" and "PCI Access Control
Services (ACS)").
"""

from __future__ import annotations

from collections.abc import Collection

from preflight.domains import pci
from preflight.domains.net import rdma
from preflight.frozen import dataclass
from preflight.host import Host

# PCI Express Base Specification, "ACS Control Register": requests and completions that a port sends
# to the root complex, and addresses that an IOMMU has translated before (ATS), which it does not
REQUESTS, COMPLETIONS, DIRECT = 0b100, 0b1000, 0b100_0000


@dataclass(frozen=True, slots=True)
class GpuPath:
    """The way from an RDMA device to a GPU below the PCI switch that they share.

    gpu       its PCI address
    ours      the bridges from the switch to the device, theirs: to the GPU; each with its ACS
              control word, None where that may not be read
    iommu     how the IOMMU treats the device: see pci.iommu()
    """

    device: str
    gpu: str
    ours: tuple[tuple[str, int | None], ...]
    theirs: tuple[tuple[str, int | None], ...]
    iommu: str = ""

    @property
    def near(self) -> bool:
        """Below one switch (PIX), not a switch below another one (PXB)."""
        return len(self.ours) == len(self.theirs) == 1

    @property
    def direct(self) -> bool:
        """ACS is set up for addresses that are translated before."""
        words = [word for _, word in (*self.ours, *self.theirs)]
        return any(word is not None and word & DIRECT for word in words)

    @property
    def redirected(self) -> tuple[str, ...]:
        """The bridges that send to the CPU what the device has for the GPU, or what it answers."""
        if self.direct:
            return ()
        asks = (bridge for bridge, word in self.ours if (word or 0) & REQUESTS)
        answers = (bridge for bridge, word in self.theirs if (word or 0) & COMPLETIONS)
        return (*asks, *answers)

    @property
    def translated(self) -> bool:
        return self.iommu.startswith("DMA") and not self.direct


def read_paths(host: Host, gpus: Collection[str]) -> tuple[GpuPath, ...]:
    """The way of each RDMA device to the nearest of the GPUs with these PCI addresses; none of a
    device that shares no switch with one."""
    above = {gpu: pci.bridges(host, gpu) for gpu in gpus}
    words: dict[str, int | None] = {}
    found = []

    def side(bridges: tuple[str, ...]) -> tuple[tuple[str, int | None], ...]:
        for bridge in bridges:
            if bridge not in words:
                words[bridge] = pci.acs_control(host, bridge)
        return tuple((bridge, words[bridge]) for bridge in bridges)

    for device in rdma.devices(host) if above else ():
        bus = host.readlink(f"{rdma.TOP}/{device}/device").rpartition("/")[2]
        mine = pci.bridges(host, bus)
        gpu = max(above, key=lambda gpu: pci.shared(mine, above[gpu]))
        shared = pci.shared(mine, above[gpu])
        ours, theirs = mine[shared:], above[gpu][shared:]
        if shared and ours and theirs:
            found.append(GpuPath(device, gpu, side(ours), side(theirs), pci.iommu(host, bus)))
    return tuple(found)
