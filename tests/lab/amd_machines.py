"""Machines with AMD's GPUs, healthy and not: what they have and what the checks are to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lab import amd as lab
from lab.amd import GIB, MI210, MI250X, MI300A, MI300X, Board, kernel

from preflight.model import Status

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED


@dataclass(frozen=True)
class Machine:
    """A board, what amdsmi tells that is different, and what the checks are to say: check -> the
    finding's code, its status and its subject."""

    name: str
    board: Board = MI300X
    changes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    play: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    installed: bool = True
    code: str = ""
    check: str = "gpu.health"
    status: Status = FAIL
    subject: str = "GPU 2"

    def __str__(self) -> str:
        return self.name

    @property
    def scenario(self) -> dict[str, Any] | None:
        return {"gpus": lab.gpus(self.board, self.changes), **self.play} if self.installed else None


ECC = {"amdsmi_get_gpu_total_ecc_count": {"correctable_count": 0, "uncorrectable_count": 3}}
ASLEEP = {"amdsmi_get_gpu_total_ecc_count": {"uncorrectable_count": 16 * 0xFFFF}}
HOT = {"amdsmi_get_temp_metric": [104, 100]}
BRAKED = {"amdsmi_get_violation_status": {"active_socket_thrm": True, "active_hbm_thrm": True}}
NARROW = {
    "amdsmi_get_pcie_info": {
        "pcie_static": {"max_pcie_width": 16},
        "pcie_metric": {"pcie_width": 8},
    }
}
NOTHING = {
    "amdsmi_get_gpu_asic_info": {"market_name": "N/A"},
    "amdsmi_get_gpu_total_ecc_count": {"uncorrectable_count": "N/A"},
    "amdsmi_get_temp_metric": ["N/A", 0],
    "amdsmi_get_pcie_info": {"pcie_static": {"max_pcie_width": "N/A"}, "pcie_metric": {}},
    "amdsmi_get_gpu_process_list": [{"pid": "N/A", "memory_usage": "N/A"}],
}
HOSTILE = {
    "amdsmi_get_gpu_asic_info": [1],
    "amdsmi_get_gpu_total_ecc_count": {"uncorrectable_count": -1},
    "amdsmi_get_gpu_bad_page_info": [None, 7, {"status": "PENDING"}, {"status": 99}],
    "amdsmi_get_temp_metric": [10**9, -273],
    "amdsmi_get_pcie_info": {
        "pcie_static": {"max_pcie_width": []},
        "pcie_metric": {"pcie_width": {}},
    },
    "amdsmi_get_violation_status": "hot",
    "amdsmi_get_gpu_process_list": [None, {"pid": -1}, "x"],
}
TAKEN = {
    "amdsmi_get_gpu_process_list": [
        {"name": "python", "pid": 4000000, "memory_usage": {"vram_mem": 60 * GIB}},
        {"name": "idle", "pid": 4000001, "memory_usage": {"vram_mem": 0}},
    ]
}


def pages(*statuses: int) -> dict[str, Any]:
    of = [{"value": i, "page_size": 4096, "status": s} for i, s in enumerate(statuses)]
    return {"amdsmi_get_gpu_bad_page_info": of}


RESET = "amdgpu 0000:2c:00.0: amdgpu: GPU reset"
FAILED, DONE = f"{RESET}(2) failed", f"{RESET}(3) succeeded!"
NOT_SUPPORTED, NO_PERM, INIT_ERROR = 2, 10, 18  # amdsmi_status_t
OLD = {"errors": {"amdsmi_get_violation_status": NOT_SUPPORTED}}

HEALTHY = (
    Machine("MI300X x8"),
    Machine("MI250X, 8 dies", MI250X, play=OLD),
    Machine("MI210 x4 with bridges over two", MI210, play=OLD),
    Machine("MI300A x4, whose memory is the machine's", MI300A),
    Machine("Radeon", lab.RADEON),
    Machine("an old amdsmi", play={"missing": ["amdsmi_get_violation_status"]}),
    Machine("an amdsmi that tells nothing", changes=dict.fromkeys(range(8), NOTHING)),
    Machine("an amdsmi of a driver gone mad", changes={2: HOSTILE}),
    Machine("counters of GPUs that sleep", changes={2: ASLEEP}),
    Machine("pages put out of use", changes={2: pages(0, 0, 0)}),
    Machine("a reset that succeeded at last", log=kernel(50, FAILED) + kernel(40, DONE)),
    Machine("a job with half of the node", replace(MI300X, hidden=frozenset(range(4, 8)))),
    Machine("a container with two", replace(MI300X, unrendered=frozenset(range(2, 8)))),
    Machine("masks", environ={"ROCR_VISIBLE_DEVICES": "4,5,6,7", "HIP_VISIBLE_DEVICES": "0,1"}),
    Machine("an empty mask hides nothing", environ={"HIP_VISIBLE_DEVICES": ""}),
)
FAULTY = (
    Machine("a page waits", changes={2: pages(0, 1)}, code="bad-pages"),
    Machine("a page stays", changes={2: pages(2)}, code="bad-pages"),
    Machine("uncorrectable errors", changes={2: ECC}, code="ras-errors", status=WARN),
    Machine("a reset failed", log=kernel(50, DONE) + kernel(40, FAILED), code="reset-failed"),
    Machine("hot", changes={2: HOT}, code="too-hot", status=WARN),
    Machine("throttled", changes={2: BRAKED}, code="clocks-throttled", status=WARN),
    Machine("x8", changes={2: NARROW}, code="pcie-downgraded", status=WARN),
    Machine(
        "taken",
        replace(MI250X, used=61 * GIB),
        {2: TAKEN},
        play=OLD,
        environ={"HIP_VISIBLE_DEVICES": "2"},
        code="gpu-busy",
    ),
    Machine(
        "errors may not be asked for",
        play={"errors": {f"amdsmi_get_gpu_total_ecc_count@{lab.bus(2)}": NO_PERM}},
        code="health-unknown",
        status=UNDECIDED,
    ),
    Machine(
        "a call fails",
        play={"errors": {f"amdsmi_get_pcie_info@{lab.bus(2)}": 16}},
        code="health-unknown",
        status=UNDECIDED,
    ),
    Machine(
        "amdsmi is absent", installed=False, code="amdsmi-unavailable", status=UNDECIDED, subject=""
    ),
    Machine(
        "amdsmi of another ROCm",
        play={"import": "KeyError: libamd_smi.so"},
        code="amdsmi-unavailable",
        status=UNDECIDED,
        subject="",
    ),
    Machine(
        "amdsmi does not start",
        play={"errors": {"amdsmi_init": INIT_ERROR}},
        code="amdsmi-unavailable",
        status=UNDECIDED,
        subject="",
    ),
    Machine(
        "a GPU without XGMI",
        replace(MI300X, hives=(1, 1, 0, 1, 1, 1, 1, 1)),
        code="xgmi-missing",
        check="gpu.links",
        status=WARN,
    ),
    Machine(
        "a container without /dev/kfd",
        replace(MI300X, kfd=False),
        code="kfd-not-exposed",
        check="gpu.visible",
        status=WARN,
        subject="AMD driver",
    ),
)
