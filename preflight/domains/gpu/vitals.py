"""The health of a GPU as any vendor's library tells it: types and tables, no probing.

A report that was saved on another machine is judged with these alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from preflight.domains.gpu.nvml import LOST, RESET
from preflight.frozen import dataclass

INFOROM = 14
"""nvml.h: NVML_ERROR_CORRUPTED_INFOROM."""
VGPU = 2
"""nvml.h, nvmlGpuVirtualizationMode_t: a share of a GPU inside a virtual machine."""

# nvml.h, nvmlClocksEventReasons: what throttles a GPU, with the words of nvidia-smi. Idle (0x1),
# clocks that somebody has set (0x2) and the power limit under load (0x4) are no trouble.
THROTTLE_REASONS = {
    0x80: "power brake",
    0x40: "HW thermal",
    0x20: "SW thermal",
    0x8: "HW slowdown",
}

# amdsmi_get_violation_status: what slows a GPU down that is too hot, or that the platform holds
# back. The power limit (active_ppt_pwr) and idleness are no trouble
AMD_THROTTLE_REASONS = {
    0x1: ("active_prochot_thrm", "PROCHOT"),
    0x2: ("active_socket_thrm", "socket thermal"),
    0x4: ("active_vr_thrm", "voltage regulator thermal"),
    0x8: ("active_hbm_thrm", "HBM thermal"),
}


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A program of somebody else on a GPU. name is empty where its pid is of another pid
    namespace; memory is in bytes."""

    pid: int
    name: str = ""
    uid: int | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class NvSwitchFabric:
    """How far a GPU has joined its NVSwitch fabric: state 1 not started, 2 in progress, 3
    completed; then `status` is the nvmlReturn_t of its end. mask and summary: its health. cluster,
    clique: its NVLink domain; a cluster (hexadecimal) is empty where the GPU is in none."""

    state: int
    status: int = 0
    mask: int = 0
    summary: int = 0
    cluster: str = ""
    clique: int = 0


@dataclass(frozen=True, slots=True)
class Vitals:
    """One GPU. None: it doesn't tell.

    vbios, board          its firmware, and the PCI subsystem: who made the board, and which it is
    volatile, aggregate   uncorrectable memory errors since the driver was loaded, and ever
    corrected             those that cost nothing, since the driver was loaded
    rows, remap_pending, remap_failed     rows replaced because of such errors
    pages_pending         the same of GPUs before Ampere
    recovery              what the driver wants done: 0 nothing, 1 a reset … (nvml.h)
    brakes                bits of the vendor's throttle reasons, set at both of two looks
    memory_temperature    of its memory, and memory_max: up to which that may run, in °C
    coherent              its memory is the machine's, too (Grace): it is used by the kernel as well
    power_limit           as it is set, in mW; ecc: it is on; clock: of applications, in MHz;
                          generation_max: of PCIe, in this slot
    compute_mode          as nvmlComputeMode_t: 0 is the default, 3 one process a GPU
    processes             compute programs of others; ours: how many of this job; graphics: others;
                          mps: NVIDIA's MPS server is on it, through which programs share it
    failed                call -> NVML's code, of those that mean trouble; refused: for lack of a
                          permission. After `LOST` or `RESET` nothing more was asked
    """

    index: int
    name: str = ""
    uuid: str = ""
    bus: str = ""
    mig: bool = False
    virtual: int | None = None
    coherent: bool = False
    persistent: bool | None = None
    volatile: int | None = None
    aggregate: int | None = None
    rows: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    pages_pending: bool | None = None
    recovery: int | None = None
    brakes: int | None = None
    temperature: int | None = None
    slowdown_at: int | None = None
    memory_temperature: int | None = None
    memory_max: int | None = None
    width: int | None = None
    width_max: int | None = None
    memory: int | None = None
    used: int | None = None
    fabric: NvSwitchFabric | None = None
    processes: tuple[GpuProcess, ...] = ()
    power_limit: int | None = None
    ecc: bool | None = None
    clock: int | None = None
    generation_max: int | None = None
    ours: int = 0
    mps: bool = False
    compute_mode: int | None = None
    graphics: int = 0
    vbios: str = ""
    board: int = 0
    corrected: int | None = None
    failed: Mapping[str, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    @property
    def gone(self) -> int:
        """LOST or RESET when NVML has said so while it was asked, 0 otherwise."""
        if not self.failed:
            return 0
        return next((code for code in self.failed.values() if code in (LOST, RESET)), 0)


@dataclass(frozen=True, slots=True)
class VitalsListing:
    """The vitals of all GPUs that were asked; fewer than `count` when there was no time for all.
    `untold`: why the vendor's library told nothing of them, empty where it did."""

    count: int
    gpus: tuple[Vitals, ...]
    untold: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """An AMD GPU whose last reset has failed, and how many seconds ago."""

    bus: str
    age: float


@dataclass(frozen=True, slots=True)
class Resets:
    """The failed resets in the kernel's log. `refused`: why it could not be read, else empty."""

    failed: tuple[Reset, ...] = ()
    refused: str = ""
