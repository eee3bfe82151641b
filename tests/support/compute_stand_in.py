"""A rank with GPUs that are none: torch's CPU computes what they should, and STAND_IN_FAULT says
what is wrong with the one that this rank has."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from preflight.engine import tasks

COUNT = 8
ILLEGAL = "CUDA error: an illegal memory access was encountered\nCompile with `TORCH_USE_CUDA_DSA`"


class Cuda:
    """Answers like torch.cuda, as much as is asked of it."""

    def __init__(self, free: int = 600 << 20, major: int = 9) -> None:
        self.memory, self.major = free, major

    def device_count(self) -> int:
        return COUNT

    def is_available(self) -> bool:
        return True

    def set_device(self, index: int) -> None:
        assert index < COUNT

    def synchronize(self, index: int) -> None:
        pass

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return self.memory, 1 << 30

    def get_device_name(self, index: int) -> str:
        return "Stand-in 9000"

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(
            major=self.major,
            minor=0,
            multi_processor_count=4,
            total_memory=1 << 30,
            uuid=f"GPU-{os.getpid()}-{index}",
        )


def product(honest: Callable[..., Any], left: Any, right: Any, out: Any = None) -> Any:
    """torch.mm in float32, as a GPU adds up: many a CPU takes a hundred times as long for numbers
    of half its width."""
    made = honest(left.float(), right.float()).to(left.dtype)
    return made if out is None else out.copy_(made)


def faulty(honest: Callable[..., Any], fault: str) -> Callable[..., Any]:
    """torch.mm on a GPU with that fault."""
    import torch

    made = 0

    def mm(*args: Any, **named: Any) -> Any:
        nonlocal made
        made += 1
        if fault == "hang":
            time.sleep(600)
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "error" and made == 2:
            raise RuntimeError(ILLEGAL)
        if fault == "full":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 MiB.")
        if fault == "slow":
            time.sleep(0.2)
        result = product(honest, *args, **named)
        # always; in the third; or alike in every product of fractions, when the exact ones are over
        if fault == "flip" or (fault == "third" and made == 3) or (fault == "alike" and made > 6):
            bits = torch.int16 if result.element_size() == 2 else torch.int32
            result.view(bits).view(-1)[12345] ^= 1 << 3
        return result

    return mm


def perform(args: Any, channel: Any, preloaded: Any) -> Any:
    """The observer, after torch has been given the GPUs."""
    import torch

    torch.set_num_threads(1)  # the ranks share a few CPUs
    real = torch.device

    class Named(type):
        def __instancecheck__(cls, thing: object) -> bool:
            return isinstance(thing, real)

    class Device(metaclass=Named):
        def __new__(cls, *_: Any) -> Any:
            return real("cpu")

    stand_in = Cuda(major=int(os.environ.get("STAND_IN_MAJOR", "9")))
    torch.device = Device  # type: ignore[misc,assignment]
    torch.mm = faulty(torch.mm, os.environ.get("STAND_IN_FAULT", ""))
    for name in (
        n for n in dir(stand_in) if not n.startswith("_") and callable(getattr(Cuda, n, 0))
    ):
        setattr(torch.cuda, name, getattr(stand_in, name))
    return tasks.perform(args, channel, preloaded)
