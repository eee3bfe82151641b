"""Whose GPUs are here. The checks ask through this; each vendor has a module that answers.

Nothing of a vendor's library is loaded to find out: /sys and /dev tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from preflight.domains.gpu import kfd as amd
from preflight.domains.gpu import nvml as nvidia
from preflight.domains.gpu.nvml import Answer, Masks, PciGpu, Shown
from preflight.host import Host


class Vendor(Protocol):
    """What a vendor's module can say of the GPUs here."""

    NAME: str

    def ask(self, host: Host, mark: Callable[[str], None], seconds: float) -> Answer:
        """The GPUs that this process may use, in the order in which programs number them."""
        ...

    def on_pci(self, host: Host) -> tuple[PciGpu, ...]:
        """Its GPUs on the bus."""
        ...

    def module_version(self, host: Host) -> str:
        """Version of the kernel's module; empty when none is loaded."""
        ...

    def beyond(
        self, host: Host, mark: Callable[[str], None], answer: Answer, pci: Sequence[PciGpu]
    ) -> tuple[int, tuple[PciGpu, ...]]:
        """Of those on the bus that it did not list: how many are not given to this process, and
        which are."""
        ...

    def masks(self, environ: Mapping[str, str]) -> Masks:
        """What the environment leaves of them."""
        ...


NVIDIA: Vendor = nvidia
AMD: Vendor = amd


def found(host: Host) -> Vendor:
    """AMD where there are GPUs of AMD to compute on and nothing of NVIDIA's: beside a GPU of
    NVIDIA's, one of AMD's is the display."""
    signs = ("/dev/nvidiactl", "/proc/driver/nvidia")
    if any(host.exists(sign) for sign in signs) or nvidia.on_pci(host):
        return NVIDIA
    return AMD if amd.present(host) else NVIDIA


def shown(masks: Masks, uuids: Sequence[str]) -> Shown:
    """What masks leave of the GPUs with these UUIDs; the second one counts in what the first one
    has left."""
    outer = nvidia.shown(masks.first, uuids)
    inner = nvidia.shown(masks.mask, [uuids[i] for i in outer.indexes])
    return Shown(
        tuple(outer.indexes[i] for i in inner.indexes),
        off=outer.off or inner.off,
        mig=outer.mig or inner.mig,
        problem=outer.problem or inner.problem,
    )
