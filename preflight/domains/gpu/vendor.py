"""Which vendor's GPUs are here; each vendor has a module that lists them.

Nothing of a vendor's library is loaded to find out: /sys and /dev tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from preflight.domains.gpu import nvml
from preflight.domains.gpu.nvml import DeviceMasks, GpuListing, PciGpu, VisibleDevices
from preflight.host import Host


class Vendor(Protocol):
    """What a vendor's module can say of the GPUs here."""

    NAME: str

    def list_gpus(self, host: Host, mark: Callable[[str], None], seconds: float) -> GpuListing:
        """The GPUs that this process may use, in the order in which programs number them."""
        ...

    def gpus_on_pci(self, host: Host) -> tuple[PciGpu, ...]:
        """Its GPUs on the bus."""
        ...

    def module_version(self, host: Host) -> str:
        """Version of the kernel's module; empty when none is loaded."""
        ...

    def not_listed(
        self, host: Host, mark: Callable[[str], None], answer: GpuListing, pci: Sequence[PciGpu]
    ) -> tuple[int, tuple[PciGpu, ...]]:
        """Of those on the bus that it did not list: how many are not given to this process, and
        which are."""
        ...

    def masks(self, environ: Mapping[str, str]) -> DeviceMasks:
        """What the environment leaves of them."""
        ...


NVIDIA, AMD = nvml.NAME, "AMD"
AMD_PCI = 0x1002
KFD, DRI = "/dev/kfd", "/dev/dri"
KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"


def detect(host: Host) -> Vendor:
    """The module of the vendor whose GPUs are here: AMD's where there are GPUs of AMD to compute on
    and nothing of NVIDIA's. Beside a GPU of NVIDIA's, one of AMD's is the display."""
    signs = ("/dev/nvidiactl", "/proc/driver/nvidia")
    if any(host.exists(sign) for sign in signs) or nvml.gpus_on_pci(host) or not _amd_device(host):
        return nvml
    # only where it is needed: most machines have nothing of AMD's
    from preflight.domains.gpu import kfd

    return kfd if kfd.present(host) else nvml


def _amd_device(host: Host) -> bool:
    """Whether anything of AMD's graphics is here, a display too."""
    return (
        host.exists(KFD)
        or host.exists(KFD_NODES)
        or any(
            host.read_int(f"/sys/bus/pci/devices/{bus}/vendor") == AMD_PCI
            for bus in host.listdir("/sys/bus/pci/devices")[: nvml.DEVICES_MAX * 16]
        )
    )


def visible_devices(masks: DeviceMasks, uuids: Sequence[str]) -> VisibleDevices:
    """What masks leave of the GPUs with these UUIDs; the second one counts in what the first one
    has left."""
    if masks.first is None:
        return nvml.visible_devices(masks.mask, uuids)
    outer = nvml.visible_devices(masks.first, uuids)
    inner = nvml.visible_devices(masks.mask, [uuids[i] for i in outer.indexes])
    return VisibleDevices(
        tuple(outer.indexes[i] for i in inner.indexes),
        off=outer.off or inner.off,
        mig=outer.mig or inner.mig,
        problem=outer.problem or inner.problem,
        # as it must be written in the variable that is wrong
        once=inner.once or (outer.once if masks.mask is None else ()),
    )
