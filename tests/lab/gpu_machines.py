"""Machines with GPUs, healthy and faulty, as lines for the fake NVML: what their drivers tell and
what they keep to themselves. Models, limits and what is not supported where: NVIDIA's data sheets
and nvml.h; no figure is a measurement of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

GIB = 1 << 30
HOUR = 3600.0
UP = 90_000.0
"""Seconds since the machines' boot."""

NOT_SUPPORTED, NO_PERMISSION, UNKNOWN_FUNCTION = 3, 4, 13
NOBODY_TELLS = (
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRetiredPagesPendingStatus",
)


def errors(code: int, *calls: str) -> dict[str, object]:
    """Calls that answer with this nvmlReturn_t, on every GPU."""
    return {f"error.{call}": code for call in calls}


AMPERE_ON = errors(NOT_SUPPORTED, "nvmlDeviceGetRetiredPagesPendingStatus")
A100 = {
    "count": 8,
    "name": "NVIDIA A100-SXM4-80GB",
    "capability": "8.0",
    "slowdown_at": 92,
    **AMPERE_ON,
    # the driver of an older image: no such calls
    "fabric_version": 0,
    **errors(UNKNOWN_FUNCTION, "nvmlDeviceGetCurrentClocksEventReasons"),
}
H100 = {
    "count": 8,
    "fabric_state": 3,
    "fabric_mask": 0x51AA,  # nothing is wrong, a partition is assigned, the manager there
    "fabric_summary": 1,
    "field.230": 0,
    **AMPERE_ON,
}
L4 = {"count": 4, "name": "NVIDIA L4", "capability": "8.9", "memory": 24 * GIB, **AMPERE_ON}
RTX = {
    "count": 2,
    "name": "NVIDIA GeForce RTX 4090",
    "capability": "8.9",
    "memory": 24 * GIB,
    "persistence": 0,
    **errors(NOT_SUPPORTED, *NOBODY_TELLS),
}
GB200 = {
    "count": 4,
    "name": "NVIDIA GB200",
    "capability": "10.0",
    "memory": 186 * GIB,
    "used": 9 * GIB,  # the kernel may use it as well
    "numa": 2,
    "width": 1,
    "fabric_state": 3,
    "fabric_mask": 0x51AA,
    "fabric_summary": 1,
    "field.230": 0,
    **AMPERE_ON,
}
MIG = {**H100, "mig": 1, "fabric_state": 1, **errors(NO_PERMISSION, *NOBODY_TELLS)}
VGPU = {
    "count": 1,
    "name": "NVIDIA A16-8C",
    "virtual": 2,
    "memory": 8 * GIB,
    "used": 700 << 20,
    "width": 4,
    **errors(
        NOT_SUPPORTED,
        *NOBODY_TELLS,
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetTemperatureThreshold",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    ),
}
V100 = {
    "count": 4,
    "name": "Tesla V100-SXM2-32GB",
    "capability": "7.0",
    "memory": 32 * GIB,
    **errors(NOT_SUPPORTED, "nvmlDeviceGetRemappedRows"),
    **errors(
        UNKNOWN_FUNCTION,
        "nvmlDeviceGetGpuFabricInfo",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetGraphicsRunningProcesses",  # pynvml has an exception of its own for these
        "nvmlDeviceGetComputeRunningProcesses",
    ),
}


@dataclass(frozen=True)
class Machine:
    """What its NVML says, its kernel log, and the finding that it must lead to; code None: no
    finding at all."""

    name: str
    scenario: Mapping[str, object]
    code: str | None = None
    status: str = "fail"
    subject: str = ""
    log: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def record(ago: float, text: str, facility: int = 0) -> str:
    """A line of /dev/kmsg."""
    return f"{facility * 8 + 3},9,{int((UP - ago) * 1e6)},-;{text}"


def xid(ago: float, code: int, bus: str = "0000:38:00") -> str:
    """What the driver writes; 0000:38:00 is GPU 2 of the fake."""
    return record(ago, f"NVRM: Xid (PCI:{bus}): {code}, pid=4242, name=python, Ch 00000008")


NOISE = (
    record(80_000, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15"),
    record(50, "perf: interrupt took too long (2506 > 2500)"),
    " SUBSYSTEM=pci",
    "torn;",
)

HEALTHY = (
    Machine("eight A100", A100),
    Machine(
        "A100 whose rows were remapped at a reset", {**A100, "remap_rows": 2, "ecc_aggregate": 9}
    ),
    Machine("H100 with NVSwitch", H100, log=NOISE),
    Machine("H100 with a driver that knows less of the fabric", {**H100, "fabric_version": 2}),
    Machine("H100 that answers only what it did years ago", {**H100, "fabric_version": 0}),
    Machine("H100 at its power limit", {**H100, "reasons": 0x4}),
    Machine("H100 with a few corrected errors", {**H100, "gpu3.ecc_corrected": 212}),
    Machine("GB200 in an NVLink domain", {**GB200, "fabric_cluster": "rack-7", "fabric_clique": 3}),
    Machine("H100 that was braked for a moment", {**H100, "reasons": 0x88, "reasons2": 0x1}),
    Machine("H100 after a program failed", H100, log=(xid(60, 13), xid(50, 31), xid(40, 43))),
    Machine("H100 long after a reset", H100, log=(xid(5 * HOUR, 95), xid(5 * HOUR, 48))),
    Machine(
        "a log that root has written to",
        H100,
        log=(record(9, "NVRM: Xid (PCI:0000:38:00): 79", 1),),
    ),
    Machine("the log of a GPU of others", H100, log=(xid(9, 119, "0000:e8:00"),)),
    Machine("L4 on PCIe", L4),
    Machine(
        "L4 of others in a job's mask",
        {**L4, "gpu3.used": 23 * GIB, "gpu3.processes": f"77:{22 * GIB}"},
        environ={"CUDA_VISIBLE_DEVICES": "0,1"},
    ),
    Machine(
        "RTX 4090 of a workstation with a screen",
        {**RTX, "gpu0.used": 3 * GIB, "gpu0.graphics": "900:2000000000"},
    ),
    Machine("RTX 4090 with an MPS daemon's context", {**RTX, "gpu0.processes": "78:30000000"}),
    Machine("GB200, whose memory the kernel uses", GB200),
    Machine("H100 in MIG mode, asked without root", MIG),
    Machine("a vGPU", VGPU),
    Machine("V100 with an old driver", V100),
    Machine(
        "GPUs that may not be opened",
        {**L4, "gpu2.error": NO_PERMISSION, "gpu3.error": NO_PERMISSION},
    ),
)

FAULTY = (
    Machine(
        "a row remap is pending",
        {**H100, "gpu2.remap_pending": 1, "gpu2.ecc_volatile": 1, "gpu2.field.230": 1},
        "remap-pending",
        subject="GPU 2",
        log=(xid(100, 95),),
    ),
    Machine(
        "row remapping has failed",
        {**A100, "gpu5.remap_failure": 1},
        "rows-exhausted",
        subject="GPU 5",
    ),
    Machine(
        "V100 with pages to retire",
        {**V100, "gpu1.retired_pending": 1},
        "remap-pending",
        subject="GPU 1",
    ),
    Machine(
        "uncorrectable errors", {**A100, "gpu3.ecc_volatile": 4}, "memory-errors", subject="GPU 3"
    ),
    Machine(
        "uncorrectable errors that the driver has dealt with",
        {**H100, "gpu3.ecc_volatile": 4},
        "memory-errors",
        "warn",
        "GPU 3",
    ),
    Machine(
        "the driver requests a reset",
        {**H100, "gpu0.field.230": 1},
        "recovery-needed",
        subject="GPU 0",
    ),
    Machine(
        "the driver wants a reboot",
        {**GB200, "gpu0.field.230": 2},
        "recovery-needed",
        subject="GPU 0",
    ),
    Machine(
        "GSP does not answer",
        A100,
        "xid",
        subject="GPU 2",
        log=(xid(900, 119), *NOISE, xid(30, 119)),
    ),
    Machine(
        "GSP did not answer, and was reset", H100, "xid", "warn", "GPU 2", log=(xid(900, 119),)
    ),
    Machine("memory error before a reset", A100, "xid", "warn", "GPU 2", log=(xid(900, 95),)),
    Machine("a GPU fell off and is back", A100, "xid", "warn", "GPU 2", log=(xid(900, 79),)),
    Machine(
        "a GPU fell off for good",
        A100,
        "gpu-lost",
        "fail",
        "0000:98:00.0",
        log=(xid(900, 79, "0000:98:00"),),
    ),
    Machine("power brake", {**A100, "reasons": 0x88}, "clocks-throttled", "warn", "GPU 0"),
    Machine(
        "one GPU is braked by heat",
        {**L4, "gpu1.reasons": 0x48},
        "clocks-throttled",
        "warn",
        "GPU 1",
    ),
    Machine("one GPU is too hot", {**RTX, "gpu1.temperature": 91}, "too-hot", "warn", "GPU 1"),
    Machine(
        "the memory of one GPU is at its limit",
        {**A100, "memory_max": 95, "field.82": 47, "gpu6.field.82": 95},
        *("too-hot", "warn", "GPU 6"),
    ),
    Machine("x8 in place of x16", {**L4, "gpu1.width": 8}, "pcie-downgraded", "warn", "GPU 1"),
    Machine(
        "one GPU with an older VBIOS",
        {**H100, "gpu5.vbios": "96.00.61.00.01"},
        "vbios-differs",
        "warn",
        "GPU 5",
    ),
    Machine(
        "a flood of corrected errors",
        {**H100, "ecc_corrected": 3, "gpu5.ecc_corrected": 48211},
        "corrected-errors",
        "warn",
        "GPU 5",
    ),
    Machine(
        "a GPU of a tray in another partition",
        {**GB200, "fabric_cluster": "rack-7", "fabric_clique": 3, "gpu2.fabric_clique": 4},
        "nvlink-domain-differs",
        "warn",
        "GPU 2",
    ),
    Machine("no fabric manager", {**H100, "fabric_state": 1}, "fabric-down", subject="GPU 0"),
    Machine(
        "the fabric never comes up", {**H100, "fabric_state": 2}, "fabric-down", subject="GPU 0"
    ),
    Machine(
        "the fabric ended with an error",
        {**H100, "fabric_status": 999},
        "fabric-down",
        subject="GPU 0",
    ),
    Machine(
        "an unhealthy route",
        {**GB200, "gpu2.fabric_mask": 0x519A, "gpu2.fabric_summary": 2},
        "fabric-unhealthy",
        subject="GPU 2",
    ),
    Machine(
        "less bandwidth",
        {**GB200, "gpu2.fabric_mask": 0x51A9, "gpu2.fabric_summary": 3},
        "fabric-unhealthy",
        "warn",
        "GPU 2",
    ),
    Machine(
        "another job's program",
        {**L4, "gpu1.used": 6 * GIB, "gpu1.processes": f"77:{5 * GIB}"},
        "gpu-busy",
        "warn",
        "GPU 1",
    ),
    Machine(
        "a GPU is full",
        {**L4, "gpu1.used": 23 * GIB, "gpu1.processes": f"77:{22 * GIB}"},
        "gpu-busy",
        "fail",
        "GPU 1",
    ),
    Machine(
        "memory in use by nobody", {**A100, "gpu1.used": 30 * GIB}, "gpu-busy", "warn", "GPU 1"
    ),
    Machine(
        "corrupt InfoROM",
        {**A100, "gpu4.error.nvmlDeviceGetTotalEccErrors": 14},
        "inforom-corrupt",
        "warn",
        "GPU 4",
    ),
    Machine("lost half-way", {**H100, "gpu6.lost_after": 9}, "gpu-lost", subject="GPU 6"),
    Machine(
        "in want of a reset",
        {**H100, "gpu6.error.nvmlDeviceGetRemappedRows": 16},
        "gpu-lost",
        subject="GPU 6",
    ),
    Machine(
        "no permission",
        {**H100, **errors(NO_PERMISSION, *NOBODY_TELLS)},
        "health-unknown",
        "undecided",
        "GPU 0",
    ),
    Machine(
        "errors that say nothing",
        {**H100, "gpu1.error.nvmlDeviceGetTemperature": 999},
        "health-unknown",
        "undecided",
        "GPU 1",
    ),
)
