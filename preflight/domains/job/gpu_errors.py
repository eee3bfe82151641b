"""Errors of CUDA, HIP and their libraries that end a rank: where to look for the cause. Pure.

The texts are cudaGetErrorString()'s with what torch 2.4 to 2.13 puts around them
(c10/cuda/CUDAException.cpp, CUDAMiscFunctions.cpp, ATen/cuda/Exceptions.h), and NCCL's.
"""

from __future__ import annotations

import re
from enum import Enum

from preflight.frozen import dataclass
from preflight.humanize import size
from preflight.model import Blame

RAISED = r"(?:Error|Exception): "
"""What ends the name of an exception, also of one of a worker's that another one quotes."""
MAKERS = ("CUDA", "HIP", "Cuda", "cuda", "NVIDIA", "cuDNN", "Triton", "cusolver", "MIOpen")
"""A text without any of these is not about a GPU."""
HOST = re.compile(r"Failed to CUDA host alloc (\d{1,20}) bytes")
"""Page-locked memory of the host, not of the GPU."""


class Area(Enum):
    """Where to look for the cause of an error, and whose it is."""

    ASSERTION = "assertion"
    KERNEL = "kernel"
    HARDWARE = "hardware"
    UNKNOWN = "unknown"
    ORDINAL = "ordinal"
    BUILD = "build"
    DRIVER = "driver"
    BUSY = "busy"
    FORK = "fork"
    FABRIC = "fabric"
    PINNED = "pinned"
    OTHER = "other"


AREAS = (
    (Area.ASSERTION, r"device-side assert"),
    (
        Area.HARDWARE,
        r"uncorrectable (?:ECC|NVLink) error|GPU is lost|fallen off the bus"
        r"|over nvlink or a hardware error|\bXid\b",
    ),
    (
        Area.KERNEL,
        r"illegal (?:memory access|instruction|address)|misaligned address|memory access fault"
        r"|launch failure|launch timed out|invalid program counter|address space"
        r"|hardware stack error|cooperative launch|_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)"
        r"|_STATUS_(?:MAPPING_ERROR|NOT_INITIALIZED)",
    ),
    (Area.ORDINAL, r"invalid device ordinal"),
    (
        Area.BUILD,
        r"no kernel image is available|kernel image is invalid|no binary for gpu"
        r"|invalid device function|ARCH_MISMATCH",
    ),
    (
        Area.DRIVER,
        r"driver version is insufficient|unsupported toolchain|forward compatibility"
        r"|unsupported display driver|driver on your system is too old",
    ),
    (Area.BUSY, r"busy or unavailable|exclusive-thread device"),
    (Area.FORK, r"initialization error|re-initialize CUDA in forked"),
    (Area.FABRIC, r"system not yet initialized"),
    (Area.UNKNOWN, r"unknown error|unspecified"),
)


@dataclass(frozen=True, slots=True)
class Repair:
    """What is done about an error. advice begins with a verb, in words in which a shell finds
    nothing; `{blocking}` in it is how the line of the kernel is found. doubt: what else it could
    be; looks: what the GPU itself says is worth a look."""

    advice: str
    blame: Blame = Blame.JOB
    doubt: tuple[str, ...] = ()
    looks: bool = False


BLOCKING = "set CUDA_LAUNCH_BLOCKING=1 on that rank, which gives the line of the kernel"
AT_THE_LINE = "look at that line, which is the line of the kernel"
OF_GPU = "the GPU itself, if only this one fails: Xid in dmesg, and preflight run --only gpu"
REPAIRS = {
    Area.ASSERTION: Repair(
        "read the assertion that the kernel printed above, most often an index that is not below "
        "num_embeddings or a label that is not below the number of classes, and run the same batch "
        "on the CPU, where it raises with the line, or {blocking}",
    ),
    Area.KERNEL: Repair(
        "{blocking}, or run it under compute-sanitizer, and look at custom kernels and at indices "
        "that are out of range",
        doubt=(OF_GPU,),
        looks=True,
    ),
    Area.HARDWARE: Repair(
        "look for Xid in the log of dmesg, exclude the node, and let the GPU be reset or replaced",
        Blame.NODE,
        looks=True,
    ),
    Area.UNKNOWN: Repair(
        "look for Xid in the log of dmesg, and if there is none, {blocking}",
        Blame.UNKNOWN,
        ("the GPU or its driver", "a kernel of the job"),
        looks=True,
    ),
    Area.ORDINAL: Repair(
        "start no more ranks per node than it shows GPUs, see CUDA_VISIBLE_DEVICES, and choose the "
        "GPU by LOCAL_RANK, not by RANK",
    ),
    Area.BUILD: Repair(
        "install a torch that was built for this GPU, as preflight run --only host.software "
        "compares, or build the extension with its TORCH_CUDA_ARCH_LIST",
    ),
    Area.DRIVER: Repair(
        "install a torch for the CUDA version of this driver, or update the driver, as preflight "
        "run --only host.software compares",
        Blame.UNKNOWN,
    ),
    Area.BUSY: Repair(
        "look who uses the GPU and whether it is in exclusive mode, by nvidia-smi -q -d "
        "COMPUTE,PIDS, and give each rank a GPU of its own",
        Blame.UNKNOWN,
        looks=True,
    ),
    Area.FORK: Repair(
        "start processes that use CUDA with spawn or forkserver, or call nothing of CUDA before "
        "they are forked",
    ),
    Area.FABRIC: Repair(
        "start nvidia-fabricmanager on the node, in the version of its driver",
        Blame.NODE,
        looks=True,
    ),
    Area.PINNED: Repair(
        "give the job more memory of the host or a higher ulimit -l, start fewer ranks, or let "
        "NCCL use fewer channels",
    ),
    Area.OTHER: Repair("{blocking}, and look up what CUDA says of it", doubt=(OF_GPU,), looks=True),
}
LATE = frozenset({Area.ASSERTION, Area.KERNEL, Area.HARDWARE, Area.UNKNOWN, Area.OTHER})
"""What a kernel did before: CUDA tells of it at a later call."""
SUFFIX = "kernel errors might be"
"""Torch appends it to its own errors where CUDA_LAUNCH_BLOCKING is not set."""

ERROR = re.compile(
    rf"{RAISED}(?P<name>(?:CUDA|HIP|cuDNN|cusolver|MIOpen)(?: driver)? error"
    r"|Triton Error \[\w{1,10}\]): (?P<what>.+)"
    r"|(?P<nccl>\b(?:Cuda|HIP) failure) (?:\d{1,4} )?'(?P<failed>[^']{1,200})'"
    rf"|{RAISED}Unexpected error from (?P<count>cudaGetDeviceCount)\(\)"
    r".{0,300}?Error \d{1,4}: (?P<counted>.+)"
    rf"|{RAISED}(?P<old>The NVIDIA driver on your system is too old"
    r"(?: \(found version \d{1,9}\))?)"
    rf"|{RAISED}(?P<forked>Cannot re-initialize CUDA in forked subprocess)",
)
# what torch appends for everybody: from here on it is no longer about this error
BOILERPLATE = re.compile(
    r"\s*(?:Search for `|CUDA kernel errors might be|HIP kernel errors might be|For debugging"
    r"|Compile with `|Device-side assertion tracking|GPU device may be out of range|Exception rai"
    r"|https?://|\(Triggered internally).*",
    re.DOTALL,
)
SHOWN = 160


@dataclass(frozen=True, slots=True)
class GpuError:
    """An error of a kernel, a device or a driver: its one line, where to look, and whether it may
    come from before the line that raised it."""

    text: str
    area: Area
    late: bool = False

    @property
    def advice(self) -> str:
        """What to do about it, beginning with a verb."""
        late = self.late or self.area not in LATE
        return REPAIRS[self.area].advice.format(blocking=BLOCKING if late else AT_THE_LINE)


def gpu_error(text: str) -> GpuError | None:
    """An error of CUDA, HIP, cuBLAS, cuDNN, Triton, or of CUDA within NCCL; None: the text is about
    something else."""
    if (failed := HOST.search(text)) is not None:
        told = f"NCCL could not allocate {size(int(failed[1]))} of page-locked memory of the host"
        return GpuError(told, Area.PINNED)
    found = ERROR.search(text) if any(maker in text for maker in MAKERS) else None
    if found is None:
        return None
    said = found["what"] or found["failed"] or found["counted"] or found["old"] or found["forked"]
    what = BOILERPLATE.sub("", said).strip(" .:\n")
    area = next((a for a, words in AREAS if re.search(words, what, re.IGNORECASE)), Area.OTHER)
    name = found["name"] or ("CUDA error in NCCL" if found["nccl"] else found["count"] or "CUDA")
    short = f"{name}: {what}" if len(what) <= SHOWN else f"{name}: {what[: SHOWN - 1]}…"
    blocking = found["name"] == "CUDA error" and "_STATUS_" not in what and SUFFIX not in text
    return GpuError(short, area, area in LATE and not blocking)
