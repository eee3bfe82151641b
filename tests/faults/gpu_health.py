"""GPUs that are listed and answer, but are not well."""

from __future__ import annotations

from typing import Any

from faults.inject import Fault

ON_4: dict[str, Any] = {"nproc": 4, "gpus": 4, "also": ("host.cpu cpus-few",)}
SAYS = "printf '%s\\n' \"3,9,$(cut -d. -f1 /proc/uptime)000000,-;{}\" >>/dev/kmsg\n"
"""A line of the machine's own /dev/kmsg, not of the kernel's log."""
KMSG = (
    "printf '%s\\n' '3,9,{at},-;NVRM: Xid (PCI:0000:38:00): 119, pid=77, name=python' >/dev/kmsg\n"
)

HEALTH = (
    Fault(
        "a row remap is pending",
        "gpu.health",
        "remap-pending",
        "n1 · GPU 2",
        scenario={"gpu2.remap_pending": 1, "gpu2.ecc_volatile": 2},
        **ON_4,
    ),
    Fault(
        "uncorrectable memory errors",
        "gpu.health",
        "memory-errors",
        "n1 · GPU 1",
        scenario={"gpu1.ecc_volatile": 2},
        **ON_4,
    ),
    Fault(
        "the driver wants a GPU reset",
        "gpu.health",
        "recovery-needed",
        "n1 · GPU 0",
        scenario={"field.230": 0, "gpu0.field.230": 1},
        **ON_4,
    ),
    Fault(
        "GSP timed out a moment ago",
        "gpu.health",
        "xid",
        "n1 · GPU 2",
        says="Xid 119",
        # the machine's own /dev, not the kernel's log
        setup=KMSG.replace("{at}", "'$(cut -d. -f1 /proc/uptime)'000000"),
        scenario={},
        **ON_4,
    ),
    Fault(
        "the driver asked for a reboot a moment ago, and NVML does not tell",
        "gpu.health",
        "xid",
        "n1 · GPU 3",
        says="Xid 154",
        setup=SAYS.format(
            "NVRM: Xid (PCI:0000:48:00): 154, GPU recovery action changed from 0x0 (None) to "
            "0x2 (Node Reboot Required)"
        ),
        scenario={},
        **ON_4,
    ),
    Fault(
        "a fatal SXid of an NVSwitch a moment ago",
        "gpu.health",
        "nvswitch-errors",
        "n1 · NVSwitch 0000:c1:00.0",
        says="SXid 24007",
        setup=SAYS.format(
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 sourcetrack timeout"
        ),
        scenario={},
        **ON_4,
    ),
    Fault(
        "Xid 74 of one GPU a moment ago",
        "gpu.health",
        "nvlink-errors",
        "n1 · GPU 1",
        status="warn",
        exit=0,
        says="Xid 74",
        setup=SAYS.format("NVRM: Xid (PCI:0000:28:00): 74, pid=7, NVLink: error on link 3(0x0)"),
        scenario={},
        **ON_4,
    ),
    Fault(
        "a fatal PCIe error above a GPU in the words of an older kernel",
        "gpu.health",
        "pcie-errors",
        "n1 · GPU 1",
        status="warn",
        exit=0,
        says="not recovered",
        setup="".join(
            SAYS.format(line)
            for line in (
                "pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010",
                "nvidia 0000:28:00.0: device has no AER-aware driver",
            )
        ),
        scenario={},
        **ON_4,
    ),
    Fault(
        "a GPU whose link was reset after a fatal error of the port above it",  # returnn#1500
        "gpu.health",
        "pcie-errors",
        "n1 · GPU 0",
        status="warn",
        exit=0,
        says="not recovered",
        setup="".join(
            SAYS.format(line)
            for line in (
                "pcieport 0000:16:01.0: AER: Uncorrectable (Fatal) error message received from "
                "0000:16:01.0",
                "nvidia 0000:18:00.0: AER: can't recover (no error_detected callback)",
                "pcieport 0000:16:01.0: AER: device recovery failed",
            )
        ),
        scenario={},
        **ON_4,
    ),
    Fault(
        "an uncorrected error of one GPU's PCIe link that the firmware has handled first",
        "gpu.health",
        "pcie-errors",
        "n1 · GPU 1",
        status="warn",
        exit=0,
        setup=SAYS.format("nvidia 0000:28:00.0: AER: aer_uncor_severity: 0x00062010"),
        scenario={},
        **ON_4,
    ),
    Fault(
        "uncorrected errors of one GPU's PCIe link",
        "gpu.health",
        "pcie-errors",
        "n1 · GPU 3",
        status="warn",
        exit=0,
        setup=SAYS.format(
            "pcieport 0000:47:01.0: AER: Uncorrectable (Non-Fatal) error message received from "
            "0000:48:00.0"
        ),
        scenario={},
        **ON_4,
    ),
    Fault(
        "a GPU is lost while it is asked",
        "gpu.health",
        "gpu-lost",
        "n1 · GPU 3",
        scenario={"gpu3.lost_after": 14},
        **ON_4,
    ),
    Fault(
        "one GPU hangs when it is asked for its memory errors",
        "gpu.health",
        "nvml-hangs",
        "n1 · GPU 1",
        says="nvmlDeviceGetTotalEccErrors",
        scenario={"gpu1.hang.nvmlDeviceGetTotalEccErrors": 1},
        seconds=10,
        **ON_4,
    ),
    Fault(
        "NVML crashes when it is asked for remapped rows",
        "gpu.health",
        "nvml-crashes",
        "n1 · GPU 1",
        says="nvmlDeviceGetRemappedRows",
        status="undecided",
        exit=4,
        scenario={"gpu1.crash.nvmlDeviceGetRemappedRows": 1},
        **ON_4,
    ),
    Fault(
        "the fabric manager does not run",
        "gpu.health",
        "fabric-down",
        "n1 · GPU 0",
        scenario={"fabric_state": 1},
        **ON_4,
    ),
    Fault(
        "a tray of GB200 is in no NVLink domain",
        "gpu.health",
        "nvlink-domain-down",
        "n1 · GPU 0",
        scenario={"fabric_state": 1, "name": "NVIDIA GB200"},
        **ON_4,
    ),
    Fault(
        "another program has filled a GPU",
        "gpu.health",
        "gpu-busy",
        "n1 · GPU 3",
        scenario={"gpu3.used": 84000000000, "gpu3.processes": "4000000:83000000000"},
        **ON_4,
    ),
    Fault(
        "70 of 80 GiB of a GPU are taken",
        "gpu.health",
        "gpu-busy",
        "n1 · GPU 1",
        scenario={"gpu1.used": 75161927680, "gpu1.processes": "4000000:74000000000"},
        **ON_4,
    ),
    Fault(
        "somebody holds a GPU in exclusive mode",
        "gpu.health",
        "gpu-busy",
        "n1 · GPU 2",
        says="Exclusive_Process",
        scenario={"compute_mode": 3, "gpu2.used": 900000000, "gpu2.processes": "4000000:300000000"},
        **ON_4 | {"also": ("host.cpu cpus-few", "gpu.visible compute-mode")},
    ),
    Fault(
        "one GPU of four has half the power limit",
        "gpu.health",
        "settings-differ",
        "n1 · GPU 1",
        status="warn",
        exit=0,
        says="power limit 350 W",
        scenario={"gpu1.power_limit": 350000},
        **ON_4,
    ),
    Fault(
        "ECC is off on one GPU of four",
        "gpu.health",
        "settings-differ",
        "n1 · GPU 3",
        status="warn",
        exit=0,
        says="ECC off",
        scenario={"gpu3.ecc": 0},
        **ON_4,
    ),
    Fault(
        "one GPU of four has an older VBIOS",
        "gpu.health",
        "vbios-differs",
        "n1 · GPU 1",
        status="warn",
        exit=0,
        says="96.00.61.00.01 on n1 GPU 1",
        scenario={"gpu1.vbios": "96.00.61.00.01"},
        **ON_4,
    ),
    Fault(
        "one GPU of four corrects thousands of memory errors",
        "gpu.health",
        "corrected-errors",
        "n1 · GPU 2",
        status="warn",
        exit=0,
        says="48211 corrected memory errors",
        scenario={"ecc_corrected": 3, "gpu2.ecc_corrected": 48211},
        **ON_4,
    ),
    Fault(
        "a GPU of a tray in another NVLink partition",
        "gpu.health",
        "nvlink-domain-differs",
        "n1 · GPU 2",
        status="warn",
        exit=0,
        says="clique 4 of cluster",
        scenario={
            "name": "NVIDIA GB200",
            "fabric_state": 3,
            "fabric_cluster": "rack-7",
            "fabric_clique": 3,
            "gpu2.fabric_clique": 4,
        },
        **ON_4,
    ),
    Fault(
        "a row could not be remapped a moment ago, and NVML counts no error",
        "gpu.health",
        "xid",
        "n1 · GPU 2",
        says="Xid 64",
        setup=SAYS.format(
            "NVRM: Xid (PCI:0000:38:00): 64, pid=77, name=python, Row Remapper: Unable to remap row"
        ),
        scenario={},
        **ON_4,
    ),
    Fault(
        "a GPU with half of the memory of the others",
        "gpu.health",
        "memory-differs",
        "n1 · GPU 1",
        status="warn",
        exit=0,
        says="memory 40 GiB",
        scenario={"gpu1.memory": 40 << 30},
        **ON_4,
    ),
    Fault(
        "NCCL is to use NVLink between nodes, and a tray has no IMEX channel",
        "gpu.health",
        "imex-channel-missing",
        env={"NCCL_MNNVL_ENABLE": "1"},
        scenario={
            **{"name": "NVIDIA GB200", "links": 18},
            **{"fabric_state": 3, "fabric_cluster": "rack-7", "fabric_clique": 3},
        },
        **ON_4,
    ),
    Fault(
        "a GPU under power brake",
        "gpu.health",
        "clocks-throttled",
        "n1 · GPU 2",
        status="warn",
        exit=0,
        scenario={"gpu2.reasons": 0x88},
        **ON_4,
    ),
    Fault(
        "a GPU in a slot of half the lanes",
        "gpu.health",
        "pcie-downgraded",
        "n1 · GPU 2",
        status="warn",
        exit=0,
        scenario={"gpu2.width": 8},
        **ON_4,
    ),
    Fault(
        "a GPU at its slowdown temperature",
        "gpu.health",
        "too-hot",
        "n1 · GPU 2",
        status="warn",
        exit=0,
        scenario={"gpu2.temperature": 88},
        **ON_4,
    ),
    Fault(
        "the memory of a GPU has 106 degrees",
        *("gpu.health", "too-hot", "n1 · GPU 1"),
        says="its memory has 106",
        status="warn",
        exit=0,
        scenario={"field.82": 55, "gpu1.field.82": 106},
        **ON_4,
    ),
)
