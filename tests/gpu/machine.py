"""The GPUs of this machine and what torch makes of them, asked in processes of their own: a sick
driver hangs. NVML is asked by its own bindings here and not by what is tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from support.command import REPOSITORY

ASKING, IMPORTING = 60.0, 180.0
"""Seconds for NVML, whose GPUs may sleep, and for torch, which may be read for the first time."""

# a launcher's variables would change what is run, and a mask what there is
NOT_OURS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "SLURM_", "OMPI_", "PMI", "PET_", "TORCHEL")
MASKS = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")

NVML = """
import json
import pynvml as nvml

def told(call, *args):
    try:
        value = getattr(nvml, call)(*args)
    except nvml.NVMLError:
        return None
    return value.decode() if isinstance(value, bytes) else value

nvml.nvmlInit()
gpus = []
for index in range(nvml.nvmlDeviceGetCount()):
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    running = told("nvmlDeviceGetComputeRunningProcesses", gpu) or ()
    gpus.append({
        "name": told("nvmlDeviceGetName", gpu),
        "memory": memory.total,
        "used": memory.used,
        "pids": sorted(process.pid for process in running),
        "settings": {
            "compute mode": told("nvmlDeviceGetComputeMode", gpu),
            "persistence": told("nvmlDeviceGetPersistenceMode", gpu),
            "power limit": told("nvmlDeviceGetPowerManagementLimit", gpu),
        },
    })
print(json.dumps({"driver": told("nvmlSystemGetDriverVersion"), "gpus": gpus}))
"""

TORCH = """
import json
import torch

nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else ()
print(json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda or torch.version.hip or "",
    "nccl": ".".join(map(str, nccl)),
    "gpus": torch.cuda.device_count(),
}))
"""

# the most that was used on each GPU, until stdin ends
MEMORY = """
import json, select, sys
import pynvml as nvml

nvml.nvmlInit()
gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
first = most = [nvml.nvmlDeviceGetMemoryInfo(gpu).used for gpu in gpus]
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.02)[0]:
    now = [nvml.nvmlDeviceGetMemoryInfo(gpu).used for gpu in gpus]
    most = [max(pair) for pair in zip(most, now)]
print(json.dumps([high - low for high, low in zip(most, first)]))
"""


class NoGpu(Exception):
    """There is nothing here to measure; its argument says why, in a line."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML tells of it: bytes, the programs that compute on it, and what of its settings
    nobody but its owner may change."""

    name: str
    memory: int
    used: int
    pids: tuple[int, ...]
    settings: Mapping[str, int | None]


@dataclass(frozen=True)
class Machine:
    driver: str
    gpus: tuple[Gpu, ...]

    @property
    def models(self) -> str:
        """`8 x NVIDIA H100 80GB HBM3`."""
        names = [gpu.name for gpu in self.gpus]
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


@dataclass(frozen=True)
class Torch:
    """`gpus`: how many it sees."""

    version: str
    cuda: str
    nccl: str
    gpus: int


def environment() -> dict[str, str]:
    """What a command finds: this environment without what a launcher or a mask has set."""
    dropped = (*NOT_OURS, *MASKS, "PREFLIGHT_", "COLUMNS")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [kept.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, "NO_COLOR": "1"}


def asked() -> Machine:
    """The machine as it is now."""
    told = _asked(NVML, ASKING)
    gpus = tuple(
        Gpu(g["name"] or "GPU", g["memory"], g["used"], tuple(g["pids"]), g["settings"])
        for g in told["gpus"]
    )
    if not gpus:
        raise NoGpu("no GPU here: NVML lists none")
    return Machine(told["driver"] or "", gpus)


@cache
def torch() -> Torch:
    return Torch(**_asked(TORCH, IMPORTING))


def _asked(program: str, seconds: float) -> Any:
    try:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoGpu(f"no GPU can be used here: no answer in {seconds:g} s") from None
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        raise NoGpu(f"no GPU here: {last}")
    return json.loads(ended.stdout.splitlines()[-1])


@dataclass
class Peak:
    """Bytes that were used of each GPU at most, beyond what was used before."""

    bytes: tuple[int, ...] = ()


@contextmanager
def memory_watched() -> Iterator[Peak]:
    peak = Peak()
    with subprocess.Popen(
        [sys.executable, "-c", MEMORY],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        try:
            assert watching.stdout is not None
            assert watching.stdout.readline() == "ready\n", "NVML can't be asked"
            yield peak
            out, _ = watching.communicate(timeout=ASKING)
            peak.bytes = tuple(json.loads(out))
        finally:
            watching.kill()


def script(name: str) -> str:
    """A program of the folder scripts/."""
    return str(Path(__file__).parent / "scripts" / f"{name}.py")
