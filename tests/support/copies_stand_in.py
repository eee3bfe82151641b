"""Stand-ins of GPUs over the host's memory, as torch.cuda would show them, and what may go wrong
when they copy to each other. Time is the stand-in's, so that no test of speed ever flakes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from preflight.checks import gpu_p2p
from preflight.domains.gpu import copy_probe
from preflight.domains.gpu.copy_probe import CopyEngine
from preflight.domains.gpu.copy_results import Copied, Pair
from preflight.domains.torch.devices import Devices
from preflight.host import Host
from preflight.humanize import GIB, MIB
from preflight.model import Finding
from support.cases import Case, context, judged, round_trips

SMALL = 32 * MIB
"""Free memory with which a block is as small as it gets."""


@dataclass
class Clock:
    """Time that passes by what is done."""

    seconds: float = 100.0

    def now(self) -> float:
        self.seconds += 1e-6
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Cuda:
    """Answers like torch.cuda, over the CPU. `dead`: what every further call raises; `stuck`: GPUs
    that do nothing any more; `broken`: those that CUDA can't start."""

    count: int
    clock: Clock
    memory: Mapping[int, int] = field(default_factory=dict)
    broken: Mapping[int, str] = field(default_factory=dict)
    uuids: Mapping[int, str] = field(default_factory=dict)
    peers: Callable[[int, int], bool] = lambda one, other: True
    dead: str = ""
    stuck: set[int] = field(default_factory=set)
    asked: int = -1

    def device_count(self) -> int:
        return self.count

    def get_device_name(self, index: int) -> str:
        return "Stand-in"

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(uuid=self.uuids.get(index, ""))

    def mem_get_info(self, index: int) -> tuple[int, int]:
        if index in self.broken:
            raise RuntimeError(self.broken[index])
        return self.memory.get(index, SMALL), 80 * GIB

    def can_device_access_peer(self, one: int, other: int) -> bool:
        return self.peers(one, other)

    def current_stream(self, index: int) -> int:
        return index

    def Event(self) -> Any:
        if self.dead:
            raise RuntimeError(self.dead)
        return Event(self)


class Event:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.index = cuda, -1

    def record(self, stream: int) -> None:
        self.index = stream

    def query(self) -> bool:
        return self.index not in self.cuda.stuck


class Killed(BaseException):
    """The worker is no more: nothing that comes after this is done."""


Fault = Callable[["Rigged", int, int, Any, Any], None]


@dataclass(frozen=True)
class Rigged(CopyEngine):
    """Copies as the faults have it; `rates` in bytes per second."""

    faults: Mapping[Pair, Fault] = field(default_factory=dict)
    rates: Callable[[int, int], float] = lambda source, target: 20e9
    done: list[Any] = field(default_factory=list)

    def send(self, source: int, target: int, data: Any, into: Any) -> None:
        fault = self.faults.get((source, target))
        if fault is not None:
            fault(self, source, target, data, into)
        elif into[0] != data[0]:  # else it is there already
            super().send(source, target, data, into)
        self.devices.module.clock.sleep(data.numel() * 8 / self.rates(source, target))
        self.done[:] = [data]


def nothing(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    pass


def zeros(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    into.zero_()


def shifted(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    into.copy_(data.roll(1))


def swapped(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    """Two pages changed places."""
    into.copy_(data)
    into[:512], into[512:1024] = data[512:1024], data[:512]


def stale(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    """What the copy before this one has brought."""
    into.copy_(rig.done[-1])


def one_bit(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    into.copy_(data)
    into[-1] ^= 1 << 41


def cut(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    into[:-1].copy_(data[:-1])


def raises(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    raise RuntimeError(
        "CUDA error: peer access is not supported\nCompile with `TORCH_USE_CUDA_DSA`"
    )


def too_many(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    raise RuntimeError("CUDA error: peer mapping resources exhausted")


def poisons(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    """An error after which CUDA does nothing more in this process."""
    rig.devices.module.dead = "CUDA error: an illegal memory access was encountered"
    raise RuntimeError(rig.devices.module.dead)


def hangs(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    rig.devices.module.stuck |= {source, target}


def blocks(rig: Rigged, source: int, target: int, data: Any, into: Any) -> None:
    """Never returns: the worker is killed in it."""
    raise Killed


class Machine:
    """A machine of stand-ins and what was seen on it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        torch.set_num_threads(1)  # blocks this small are not worth the other CPUs
        self.root = root
        self.clock = Clock()
        ours = SimpleNamespace(
            monotonic=self.clock.now, perf_counter=self.clock.now, sleep=self.clock.sleep
        )
        monkeypatch.setattr(copy_probe, "time", ours)
        monkeypatch.setattr(gpu_p2p, "time", ours)
        self.marks: list[str] = []

    def observe(
        self,
        count: int,
        faults: Mapping[Pair, Fault] | None = None,
        seconds: float = 60.0,
        rates: Callable[[int, int], float] = lambda source, target: 20e9,
        environ: Mapping[str, str] | None = None,
        **cuda: Any,
    ) -> Copied:
        module = Cuda(count, self.clock, **cuda)
        rig = Rigged(Devices(module, "cpu"), faults or {}, rates)
        ctx = context(seconds=seconds, mark=self.marks.append)
        seen = gpu_p2p.between_all(Host(str(self.root), environ or {}), ctx, rig)
        round_trips(seen)
        return seen

    def findings(self, *args: Any, **more: Any) -> list[Finding]:
        return judged(gpu_p2p, Case("", self.observe(*args, **more)))
