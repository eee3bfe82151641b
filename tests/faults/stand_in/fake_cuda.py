"""torch.cuda over the memory and the arithmetic of this machine's CPU, with faults.

What asks for a tensor on `cuda:2` gets one of the CPU that is known to lie on GPU 2; what is
computed is computed, what is copied is copied, and tensors of two GPUs in one product raise as they
do with CUDA. Time is the GPUs' own: time.perf_counter() goes on by what they would have needed, so
that no load of the machine that plays them makes one slow.

FAKE_CUDA holds a scenario as JSON, a flat object. For every GPU, or with `gpuN.` before it for one:

    count = 4                    name, major (9), free (bytes), total: of each GPU
    product                      flip: one bit of every product; vary: of one product, once; alike:
                                 of every product of fractions, the same; error, full: CUDA's; hang,
                                 crash
    start                        error, hang
    bus                          flip: one bit of what comes back from the host
    speed, memory_speed, bus_speed, copy_speed          a part of 1

and for the copies from one GPU to another, in this direction:

    copy.0.1                     zeros, nothing, bit, cut; rarely: a bit of every fifth copy; error:
                                 one, poison: and nothing after it; hang: it never ends, block: the
                                 call never returns
    copy_speed.0.1               a part of 1, whatever the two GPUs do
    reach.0.1 = 0                no peer access; reach: of all

GPUs are numbered as NVML does it; CUDA_VISIBLE_DEVICES is obeyed where it holds numbers.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

MIB = 1 << 20
FOREVER = 1e9

# a second: numbers that are added up, bytes of a GPU's memory, of its bus, of a way between two.
# Slow enough that a fraction of a second has few products in it, which the CPU has to compute
FLOPS, MEMORY, BUS, PEER = 2e10, 4e8, 2e8, 2e9
EXACT = 6
"""Products of whole numbers with which gpu.compute begins; their bits must be spared to make a
fault that only shows beside other GPUs."""

ILLEGAL = "CUDA error: an illegal memory access was encountered\nCompile with `TORCH_USE_CUDA_DSA`"
NOT_STARTED = "CUDA error: system not yet initialized"
NO_PEER = "CUDA error: peer access is not supported between these two devices"
FULL = "CUDA out of memory. Tried to allocate 32.00 MiB."
MIXED = "Expected all tensors to be on the same device, but found at least two devices"


class Scenario:
    """The lines of FAKE_CUDA."""

    def __init__(self, lines: dict[str, Any]) -> None:
        self.lines = lines
        count = int(lines["count"])
        mask = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.shown = [n for n in range(count) if mask is None]
        for entry in (mask or "").split(","):
            if mask is not None and not (entry.isdecimal() and int(entry) < count):
                break  # as CUDA does it
            self.shown += [int(entry)] if mask is not None else []

    def of(self, gpu: int, key: str, otherwise: Any) -> Any:
        return self.lines.get(f"gpu{gpu}.{key}", self.lines.get(key, otherwise))

    def between(self, one: int, other: int, key: str, otherwise: Any) -> Any:
        return self.lines.get(f"{key}.{one}.{other}", self.lines.get(key, otherwise))


class Gpus:
    """What they have to do yet, as the moment when each will have done it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.busy: dict[int, float] = {}
        self.products = self.copies = 0
        self.last: tuple[Any, ...] = None, None, None
        self.dead = ""

    def clock(self) -> float:
        """For time.perf_counter()."""
        self.now += 1e-6
        return self.now

    def works(self, seconds: float, *gpus: int) -> None:
        """All of them, for so long, once they have done what they have to do."""
        until = max(self.now, *(self.busy.get(gpu, 0.0) for gpu in gpus)) + seconds
        self.busy |= dict.fromkeys(gpus, until)

    def stuck(self, *gpus: int) -> None:
        self.busy |= dict.fromkeys(gpus, FOREVER)

    def done(self, moment: float) -> bool:
        """Whether that moment comes; then it is past."""
        if moment < FOREVER:
            self.now = max(self.now, moment)
        return moment < FOREVER

    def wait(self, gpu: int) -> None:
        self.alive()
        if not self.done(self.busy.get(gpu, 0.0)):
            time.sleep(FOREVER)

    def alive(self) -> None:
        if self.dead:
            raise RuntimeError(self.dead)

    # --- what they do ---

    def multiply(self, gpu: int, left: Any, right: Any, out: Any) -> Any:
        fault = self.scenario.of(gpu, "product", "")
        self.products += 1
        if fault == "hang":
            self.stuck(gpu)
        elif fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif fault == "error" and self.products == 2:
            raise RuntimeError(ILLEGAL)
        elif fault == "full":
            raise torch.OutOfMemoryError(FULL)
        product = self._product(left, right)
        product = product.clone() if out is None else out.copy_(product)
        if (
            fault == "flip"
            or (fault == "vary" and self.products == EXACT + 2)
            or (fault == "alike" and self.products > EXACT)
        ):
            _flip(product, 12345)
        count = 2 * left.shape[0] * left.shape[1] * right.shape[1]
        self.works(count / FLOPS / self.scenario.of(gpu, "speed", 1.0), gpu)
        return product

    def _product(self, left: Any, right: Any) -> Any:
        """What the CPU makes of them. The same product again takes no time of the CPU's: a GPU that
        computes right repeats itself. In float32, as a GPU adds up: many a CPU takes a hundred
        times as long for numbers of half its width."""
        if self.last[0] is not left or self.last[1] is not right:
            made = torch.mm(left.float(), right.float()).to(left.dtype)
            self.last = left, right, made
        return self.last[2]

    def within(self, gpu: int, size: int) -> None:
        self.works(2 * size / MEMORY / self.scenario.of(gpu, "memory_speed", 1.0), gpu)

    def bus(self, gpu: int, size: int, back: Any) -> None:
        """To the host, where `back` is what has come there, or from it."""
        self.works(size / BUS / self.scenario.of(gpu, "bus_speed", 1.0), gpu)
        if back is not None and back.numel() > MIB and self.scenario.of(gpu, "bus", "") == "flip":
            _flip(back, 54321)

    def peer(self, source: int, target: int, data: Any, into: Any) -> None:
        """A copy from one to the other."""
        fault = self.scenario.between(source, target, "copy", "")
        if fault == "hang":
            return self.stuck(source, target)
        if fault == "block":
            time.sleep(FOREVER)
        if fault == "error":
            raise RuntimeError(NO_PEER)
        if fault == "poison":
            self.dead = ILLEGAL
            raise RuntimeError(ILLEGAL)
        if fault == "zeros":
            into.zero_()
        elif fault == "cut":
            into[:-1].copy_(data[:-1])
        elif fault != "nothing":
            into.copy_(data)
        self.copies += 1
        if fault == "bit" or (fault == "rarely" and self.copies % 5 == 0):
            _flip(into, into.numel() - 1)
        slower = min(self.scenario.of(gpu, "copy_speed", 1.0) for gpu in (source, target))
        speed = self.scenario.lines.get(f"copy_speed.{source}.{target}", slower)
        self.works(data.numel() * data.element_size() / PEER / speed, source, target)
        return None


def _flip(tensor: Any, number: int) -> None:
    """The fourth bit of one of its numbers."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    tensor.view(kinds[tensor.element_size()]).view(-1)[number] ^= 1 << 3


class OnGpus(TorchFunctionMode):
    """Sees every call of torch before it is made: which GPU it is for, and what that does."""

    def __init__(self, gpus: Gpus) -> None:
        super().__init__()
        self.gpus = gpus

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func is torch.device or name in ("pin_memory", "is_pinned"):
            return args[0] if name == "pin_memory" else func(*args, **named)
        asked = [d for d in (*args, *named.values()) if isinstance(d, torch.device)]
        here = {gpu for t in _tensors((*args, *named.values())) if (gpu := _on(t)) is not None}
        target = self._number(asked[0]) if asked else min(here, default=None)
        if not here and target is None:
            return func(*args, **named)
        self.gpus.alive()
        if name == "copy_":
            return self._copy(func, args, named)
        host = [t for t in _tensors((*args, *named.values())) if _on(t) is None and t.dim()]
        if len(here) > 1 or (here and host):
            raise RuntimeError(MIXED)
        args = tuple(torch.device("cpu") if isinstance(a, torch.device) else a for a in args)
        named |= {"device": torch.device("cpu")} if "device" in named else {}
        if name == "mm":
            made = self.gpus.multiply(target, *args, named.get("out"))
        else:
            made = func(*args, **named)
        if name == "cpu" or (name == "to" and asked):
            made = made.clone() if made is args[0] else made
            back = made if name == "cpu" else None
            gpu = min(here) if name == "cpu" else target
            self.gpus.bus(gpu, made.numel() * made.element_size(), back)
            self.gpus.wait(gpu)
        for tensor in _tensors((made,)):
            tensor.gpu = None if name == "cpu" else target
        return made

    def _copy(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        into, data = args[:2]
        source, target = _on(data), _on(into)
        size = data.numel() * data.element_size()
        if source is not None and target is not None and source != target:
            self.gpus.peer(source, target, data, into)
            return into
        made = func(*args, **named)
        if source == target:
            self.gpus.within(source, size)
        else:
            gpu = target if source is None else source
            self.gpus.bus(gpu, size, into if target is None else None)
        return made

    def _number(self, device: torch.device) -> int | None:
        """As NVML has it."""
        if device.type != "cuda":
            return None
        return self.gpus.scenario.shown[device.index or 0]


def _tensors(things: Any) -> Iterator[Any]:
    """Also those of an index, and of lists."""
    for thing in things:
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, (tuple, list)):
            yield from _tensors(thing)


def _on(tensor: Any) -> int | None:
    return getattr(tensor, "gpu", None)


class Event:
    """torch.cuda.Event: `stream` is a GPU, which has but one."""

    def __init__(self, gpus: Gpus) -> None:
        gpus.alive()
        self.gpus, self.moment = gpus, 0.0

    def record(self, stream: int) -> None:
        self.moment = self.gpus.busy.get(stream, 0.0)

    def query(self) -> bool:
        self.gpus.alive()
        return self.gpus.done(self.moment)


class Cuda:
    """What torch.cuda answers. The first question of a process to it lets the GPUs see what is
    called from then on."""

    def __init__(self, gpus: Gpus) -> None:
        self._gpus, self._scenario = gpus, gpus.scenario
        self._mode: OnGpus | None = None

    def is_available(self) -> bool:
        if self._mode is None:
            self._mode = OnGpus(self._gpus)
            self._mode.__enter__()
            torch.set_num_threads(1)  # the ranks share a few CPUs
            time.perf_counter = self._gpus.clock
        return bool(self._scenario.shown)

    def device_count(self) -> int:
        return len(self._scenario.shown)

    def set_device(self, index: int) -> None:
        gpu = self._scenario.shown[index]
        if (fault := self._scenario.of(gpu, "start", "")) == "hang":
            time.sleep(FOREVER)
        if fault:
            raise RuntimeError(NOT_STARTED)

    def synchronize(self, index: int) -> None:
        self._gpus.wait(self._scenario.shown[index])

    def mem_get_info(self, index: int) -> tuple[int, int]:
        gpu = self._scenario.shown[index]
        self._gpus.alive()
        total = self._scenario.of(gpu, "total", 80 << 30)
        return self._scenario.of(gpu, "free", 600 * MIB), total

    def get_device_name(self, index: int) -> str:
        return str(self._scenario.of(self._scenario.shown[index], "name", "NVIDIA H100 80GB HBM3"))

    def get_device_properties(self, index: int) -> Any:
        """The UUID is that of the fake NVML."""
        gpu = self._scenario.shown[index]
        return SimpleNamespace(
            major=self._scenario.of(gpu, "major", 9),
            minor=0,
            multi_processor_count=132,
            total_memory=self._scenario.of(gpu, "total", 80 << 30),
            uuid=f"{0x1A2B3C00 + gpu:08x}-5f9e-4c1d-8a3b-0123456789ab",
        )

    def can_device_access_peer(self, one: int, other: int) -> bool:
        ends = (self._scenario.shown[index] for index in (one, other))
        return bool(self._scenario.between(*ends, "reach", 1))

    def current_stream(self, index: int) -> int:
        return self._scenario.shown[index]

    def Event(self) -> Event:
        return Event(self._gpus)


def install() -> None:
    """Into the torch of this process, once; and the torch that says so is one for CUDA."""
    if hasattr(torch.cuda, "stand_in"):
        return
    torch.cuda.stand_in = Cuda(Gpus(Scenario(json.loads(os.environ["FAKE_CUDA"]))))
    for name in vars(Cuda):
        if not name.startswith("_"):
            setattr(torch.cuda, name, getattr(torch.cuda.stand_in, name))
    torch.version.cuda = "12.8"
    torch._C._cuda_getArchFlags = lambda: "sm_80 sm_90 sm_100"
    torch.distributed.is_nccl_available = lambda: True
