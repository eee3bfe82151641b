"""What torch, CUDA and NCCL say of a GPU that had too little memory for a rank, and what that shows
of the cause. Pure.

The texts are those of torch 2.4 to 2.13 (c10/cuda/CUDACachingAllocator.cpp and
CUDAMallocAsyncAllocator.cpp), cuBLAS, cuDNN, Triton and NCCL's alloc.h.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight.domains.job.gpu_errors import RAISED, gpu_error
from preflight.domains.job.memory_trend import Rise
from preflight.frozen import dataclass
from preflight.humanize import parties, plural, rank_list, size

UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = r"(\d{1,20}(?:\.\d{1,4})?) (bytes|[KMGT]iB)"
MUCH = 0.1
"""Part of a GPU's memory that others must hold to be why there is too little: a desktop or a few
contexts hold less."""
HELD = 0.5
"""Part of its limit that a rank's tensors must have come to by growing to be why there is too
little."""
PIECES = 0.03
"""Part of a GPU's memory that must be reserved and not in use to be why there is too little."""

# torch's own words, wherever a program has put them; or its class, which Ray has, too, for another
# memory. A program's own text that only mentions it is none of these
TORCH = re.compile(
    r"\bout of memory\. Tried to allocate \d"
    r"|^(?:[\w.]{1,80}\.)?OutOfMemoryError: .{0,120}out of memory"
    r"|would exceed allowed memory\. \(out of memory\)",
    re.IGNORECASE,
)
DRIVER = re.compile(
    rf"{RAISED}(?:CUDA|HIP)(?: driver)? error: "
    r"(?:out of memory\b|(?:CU|HIP)BLAS_STATUS_ALLOC_FAILED)"
    rf"|{RAISED}cuDNN error: CUDNN_STATUS_ALLOC_FAILED"
    rf"|{RAISED}Triton Error \[\w{{1,10}}\]: out of memory"
    r"|\b(?:Cuda|HIP) failure (?:\d{1,4} )?'out of memory'",
)
WORDS = ("memory", "ALLOC_FAILED", "Failed to CUDA")
"""Without any of these a text says nothing of memory."""
NCCL = re.compile(r"Failed to CUDA (?:m|c)alloc(?: async)? (\d{1,20}) bytes")

PROCESS = re.compile(rf"\bProcess (\d{{1,10}}) has {SIZE} memory in use")
DEVICE = re.compile(r"\bGPU (\d{1,4}) has a total|Allocation on device (\d{1,4}) ")
TOLD = {
    "tried": rf"Tried to allocate {SIZE}|Requested\s{{0,20}}: {SIZE}",
    "capacity": rf"total capaci?ty of {SIZE}|Device limit\s{{0,20}}: {SIZE}",
    "free": rf"of which {SIZE} is free|Free \(according to CUDA\): {SIZE}",
    "own": rf"this process has {SIZE} memory in use",
    "allowed": rf"\. {SIZE} allowed;|user-supplied memory fraction\)\s{{0,40}}: {SIZE}",
    "allocated": rf"allocated memory {SIZE} is allocated|Currently allocated\s{{0,20}}: {SIZE}",
    "unallocated": rf"and {SIZE} is reserved by PyTorch but unallocated",
}
"""In torch's own words, the second form that of its backend cudaMallocAsync."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """What torch says of a GPU on which an allocation failed, in bytes; None: it does not say.

    gpu          torch's number of it: the first of CUDA_VISIBLE_DEVICES is 0
    tried        what did not fit; free: what was left for anybody
    own          of this process, with what CUDA itself takes
    allocated    of that what tensors have; unallocated: what torch keeps beside, in pieces
    allowed      what set_per_process_memory_fraction lets this process have
    others       pid -> what other processes hold there
    known        the driver counts processes as this one does: not so in a container
    api          CUDA, HIP or XPU
    plain        torch's allocator itself says so; else a library found no memory
    """

    tried: int | None = None
    gpu: int | None = None
    capacity: int | None = None
    free: int | None = None
    own: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    allowed: int | None = None
    others: Mapping[int, int] | None = None
    known: bool = False
    api: str = "CUDA"
    plain: bool = True

    @property
    def name(self) -> str:
        return "the GPU" if self.gpu is None else f"GPU {self.gpu}"


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why memory was short. why: in words; advice: what to do about that, beginning with a verb,
    in words in which a shell finds nothing; foreign: others may hold the memory; doubt: what else
    it could be."""

    why: str
    advice: str
    foreign: bool = False
    doubt: tuple[str, ...] = ()


KEPT = (
    "print torch.cuda.memory_summary before that line to see what holds it, and see job.memory for "
    "a growth per step"
)
UNEVEN = (
    "look for what this rank alone has: larger batches or longer sequences, as job.balance "
    "compares them, or work that no other has"
)
"""What is done where the numbers show no cause."""


def out_of_memory(text: str) -> GpuMemory | None:
    """What is said of the memory; None: the text is about something else."""
    if not any(word in text for word in WORDS):
        return None
    if (failed := NCCL.search(text)) and "Cuda failure" not in text:
        return GpuMemory(tried=int(failed[1]), plain=False)
    if not (TORCH.search(text) or DRIVER.search(text)):
        return None
    found = {name: _size(re.search(pattern, text)) for name, pattern in TOLD.items()}
    device = DEVICE.search(text)
    known = found["own"] is not None
    # 17179869184.00 GiB stand for what the driver does not say, or a limit that nobody has set
    most = found["capacity"] or UNITS["TiB"]
    found |= {n: None for n in ("own", "allowed") if (found[n] or 0) > most}
    others = {int(one[1]): _bytes(one[2], one[3]) for one in PROCESS.finditer(text)}
    others = {pid: held for pid, held in others.items() if held <= most}
    if not known:
        others = _without_own(others, (found["allocated"] or 0) + (found["unallocated"] or 0))
    api = re.search(r"\b(CUDA|HIP|XPU) (?:out of|error)", text)
    return GpuMemory(
        gpu=int(device[1] or device[2]) if device else None,
        others=others,
        known=known,
        api=api[1] if api else "CUDA",
        plain=TORCH.search(text) is not None,
        **found,
    )


def _size(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    number, unit = (group for group in found.groups() if group is not None)
    return _bytes(number, unit)


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * UNITS[unit])


def _without_own(processes: Mapping[int, int], reserved: int) -> dict[int, int]:
    """In a container the driver has another number for this process than it has itself: it is the
    smallest one that can hold what torch has reserved."""
    if not reserved:
        return {}
    able = [pid for pid, held in processes.items() if held >= reserved]
    mine = min(able, key=processes.__getitem__, default=None)
    return {pid: held for pid, held in processes.items() if pid != mine}


def shortage(
    memory: GpuMemory, ranks: Mapping[int, int], rank: int | None, grown: Rise | None = None
) -> Shortage | None:
    """Which cause the numbers show; None where they show none. `ranks`: pid -> rank of the job on
    this node; `grown`: what its own memory did before."""
    others = memory.others or {}
    tried, capacity = memory.tried or 0, memory.capacity or 0
    free = memory.free or 0
    if not tried:
        return None
    if grown is not None and grown.most >= HELD * (memory.allowed or capacity or grown.most):
        return Shortage(
            f"its tensors grew from {size(grown.least)} after {plural(grown.first, 'step')} to "
            f"{size(grown.most)} after {grown.last}, by {size(int(grown.per_step))} per step",
            "keep nothing of a step that holds its graph: use loss.item or detach in what is "
            "collected, and torch.no_grad in an evaluation, and see by "
            "torch.cuda.memory._record_memory_history which lines hold it",
        )
    if memory.allowed is not None and free >= tried:
        return Shortage(
            f"its own limit is {size(memory.allowed)} (set_per_process_memory_fraction)",
            "raise or remove the limit of torch.cuda.set_per_process_memory_fraction: "
            f"{size(free)} of {memory.name} are free",
        )
    if not capacity:
        return None
    sharing = {ranks[pid]: held for pid, held in others.items() if memory.known and pid in ranks}
    shared = sum(sharing.values())
    if shared >= MUCH * capacity and free + shared >= tried:
        return _shared(memory, sharing, rank)
    pieces = memory.unallocated or 0
    if pieces >= max(tried, PIECES * capacity):
        return Shortage(
            f"{size(pieces)} are reserved but in pieces (fragmentation)",
            "set PYTORCH_ALLOC_CONF=expandable_segments:True for all ranks, which was "
            "PYTORCH_CUDA_ALLOC_CONF before torch 2.9",
        )
    if sharing and free + shared >= tried:
        return _shared(memory, sharing, rank)
    strange = {pid: held for pid, held in others.items() if not (memory.known and pid in ranks)}
    held = sum(strange.values())
    if held >= MUCH * capacity and free + held >= tried:
        return _foreign(memory, strange, len(ranks) > 1)
    unseen = capacity - free - memory.own - shared - held if memory.own is not None else 0
    if unseen >= MUCH * capacity and free + unseen >= tried:
        return Shortage(
            f"{size(unseen)} are held by processes that can't be seen from here",
            f"look on the host, by nvidia-smi, who uses {memory.name}, or use one that nobody else "
            "uses",
            foreign=True,
            doubt=("ranks of this job in other containers hold it",),
        )
    return None


def _shared(memory: GpuMemory, sharing: Mapping[int, int], rank: int | None) -> Shortage:
    both = sharing.keys() | ({rank} if rank is not None else set())
    return Shortage(
        f"{rank_list(both)} share {memory.name}, {size(sum(sharing.values()))} of it held by "
        f"{rank_list(sharing)}",
        "give each rank a GPU of its own: torch.cuda.set_device of LOCAL_RANK before anything else "
        "of CUDA, map_location in torch.load, no more ranks than GPUs",
    )


def _foreign(memory: GpuMemory, strange: Mapping[int, int], several: bool) -> Shortage:
    first = sorted(strange, key=strange.__getitem__, reverse=True)
    held = f"{size(sum(strange.values()))} of {memory.name}"
    of_each = parties([f"{pid}: {size(strange[pid])}" for pid in first], 3)
    who = f"pid {first[0]} holds {held}"
    if len(first) > 1:
        who = f"{len(first)} other processes hold {held} (pid {of_each})"
    return Shortage(
        who + ("" if memory.known else ", by the host's pids"),
        "use a GPU that nobody else uses, or end what an earlier run has left there: nvidia-smi "
        f"shows who pid {first[0]} is",
        foreign=True,
        doubt=()
        if memory.known or not several
        else ("they are ranks of this job, which the driver knows by the host's pids",),
    )


def describe(memory: GpuMemory) -> str:
    """`GPU 0: tried to allocate 1 GiB, 64 GiB of 79 GiB free, this rank has 2.2 GiB`"""
    parts = [f"tried to allocate {size(memory.tried)}"] if memory.tried else []
    if memory.free is not None and memory.capacity is not None:
        parts.append(f"{size(memory.free)} of {size(memory.capacity)} free")
    if memory.own is not None:
        parts.append(f"this rank has {size(memory.own)}")
    if memory.allocated is not None and memory.unallocated is not None:
        parts.append(
            f"{size(memory.allocated)} in tensors, {size(memory.unallocated)} reserved beside"
        )
        outside = (memory.own or 0) - memory.allocated - memory.unallocated
        if outside > MUCH * (memory.capacity or 0):
            parts.append(f"{size(outside)} outside of torch's allocator")
    return f"{memory.name}: {', '.join(parts)}" if parts else ""


def brief(text: str) -> str:
    """An exception's text without what torch adds where a GPU failed."""
    memory = out_of_memory(text)
    if memory is not None:
        tried = f", tried to allocate {size(memory.tried)}" if memory.tried else ""
        return f"{memory.api} out of memory{tried}"
    error = gpu_error(text)
    return error.text if error is not None else text
