"""Builds of torch that do not fit the GPUs, their driver or their NCCL; and those that do.

The torch of the tests says that it is another build (stand_in/other_torch.py); one that can't be
imported is a package of that name which says why, in the words of the reports that it is from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faults.accelerators import CROWDED
from faults.inject import Fault

OTHER = Path(__file__).parent / "stand_in" / "other_torch.py"
WHEEL = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
"""What the wheels for CUDA 12.8 have had code for since torch 2.8."""
SO = "libtorch_cuda.so"


def build(version: str, cuda: str, code: str = WHEEL) -> dict[str, Any]:
    """Setup and environment under which torch says that it is this build."""
    return {
        "setup": f"mkdir stand; cp {OTHER} stand/sitecustomize.py\n",
        "env": {"PYTHONPATH": "{here}/stand", "OTHER_TORCH": f"{version};{cuda};{code}"},
    }


def broken(why: str, *packages: str) -> dict[str, Any]:
    """A torch whose import fails, beside packages that are installed: `NAME VERSION`."""
    lines = [f"mkdir -p stand/torch; echo 'raise ImportError(\"{why}\")' > stand/torch/__init__.py"]
    for package in packages:
        name, version = package.split()
        folder = f"stand/{name.replace('-', '_')}-{version}.dist-info"
        said = f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n"
        lines.append(f"mkdir {folder}; printf '{said}' > {folder}/METADATA")
    return {"setup": "\n".join(lines) + "\n", "env": {"PYTHONPATH": "{here}/stand"}}


def misfit(name: str, code: str, made: dict[str, Any], **more: Any) -> Fault:
    given = {"subject": "n1 · torch", "nproc": 2, "gpus": 2, "scenario": {}, "seconds": 40}
    given |= {"args": ("--level", "standard", "--only", "host.software,gpu.visible,gpu.compute")}
    return Fault(name, "host.software", code, also=CROWDED, **{**given, **made, **more})


def fits(title: str, made: dict[str, Any], **gpu: object) -> Fault:
    args = ("--level", "standard", "--only", "host.software,gpu.visible")
    return Fault(title, exit=0, seconds=40, nproc=2, gpus=2, scenario=gpu, args=args, **made)


RTX_5090 = {"name": "NVIDIA GeForce RTX 5090", "capability": "12.0"}
V100 = {"name": "Tesla V100-SXM2-32GB", "capability": "7.0"}

FAULTS = (
    misfit(
        "torch for CUDA 13 and a driver of branch 550",
        "driver-too-old",
        build("2.9.1+cu130", "13.0"),
        subject="n1 · NVIDIA driver",
        says="driver 550.54.15 · torch 2.9.1+cu130 for CUDA 13.0",
    ),
    misfit(
        "torch for CUDA 12.1 has no code for an RTX 5090",
        "arch-missing",
        build("2.5.1+cu121", "12.1", "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"),
        scenario=RTX_5090,
    ),
    misfit(
        "a recent torch has no code for a V100 any more",
        "arch-missing",
        build("2.9.1+cu128", "12.8"),
        scenario=V100,
    ),
    misfit(
        "libnccl.so.2 is not there",
        "torch-broken",
        broken("libnccl.so.2: cannot open shared object file: No such file or directory"),
        says="libnccl.so.2: cannot open",
    ),
    misfit(
        "two packages of NCCL, and torch finds the older one",
        "two-nccl",
        broken(
            f"{SO}: undefined symbol: ncclCommResume",
            "nvidia-nccl-cu12 2.29.3",
            "nvidia-nccl-cu13 2.29.7",
        ),
        says="nvidia-nccl-cu12 2.29.3 · nvidia-nccl-cu13 2.29.7",
    ),
    misfit(
        "one package of NCCL, older than torch was built with",
        "nccl-too-old",
        broken(f"{SO}: undefined symbol: ncclCommRegister", "nvidia-nccl-cu12 2.18.1"),
        says="nvidia-nccl-cu12 2.18.1",
    ),
    misfit(
        "a CPU torch replaced the image's, in a pod under torchrun",
        "cpu-build",
        {
            "env": {
                "KUBERNETES_SERVICE_HOST": "10.96.0.1",
                "PET_NNODES": "1",
                "PET_NPROC_PER_NODE": "2",
            }
        },
        nproc=None,
    ),
)
HEALTHY = (
    fits("torch for CUDA 12.6 and a driver of branch 550", build("2.7.0+cu126", "12.6")),
    fits("H100 and code for sm_90 alone", build("2.9.1+cu128", "12.8", "sm_90")),
    fits(
        "an L40S of 8.9 and code for sm_86",
        build("2.9.1+cu128", "12.8"),
        name="NVIDIA L40S",
        capability="8.9",
    ),
    fits(
        "a B300 of 10.3 and code for sm_100",
        build("2.9.1+cu128", "12.8"),
        name="NVIDIA B300",
        capability="10.3",
    ),
    fits(
        "a B200 and a build of one's own with PTX of compute_90",
        build("2.9.1", "12.8", "sm_80 sm_90 compute_90"),
        name="NVIDIA B200",
        capability="10.0",
    ),
)
