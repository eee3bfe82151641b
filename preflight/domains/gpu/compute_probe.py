"""Runs all products and copies of gpu.compute on the GPU of one rank, step by step.

Only in a worker: CUDA is started, and a sick GPU makes every step hang.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial

from preflight.check import Context
from preflight.domains.gpu import matmul, nvml
from preflight.domains.gpu.matmul import KINDS, Throughput, VaryingBits, WrongNumbers
from preflight.domains.torch.devices import Devices, own_gpu, torch_gpus
from preflight.domains.torch.steps import Steps, Trouble
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import MIB, size
from preflight.model import CannotObserve, NotApplicable

TEXT = 120
"""Characters kept of an identity."""

NUMBER = re.compile(r"[0-9]{1,3}|(GPU|MIG)-[0-9a-fA-F/-]{1,64}")
"""What may stand for a GPU in a mask, and in a command."""

START = "start CUDA"

LEAST = 512 * MIB
"""Free memory below which nothing is tried: CUDA's libraries alone take some 300 MiB."""

BUDGET = 60.0
REPEATING, TIMING, COPYING, MOVING = 0.15, 0.6, 0.1, 0.12
"""Seconds of each measurement within that budget; of a smaller one they are the same part."""

OUT_OF_MEMORY = re.compile(r"out of memory|ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED", re.I)


@dataclass(frozen=True, slots=True)
class RankGpu:
    """A rank's GPU. `number`: as nvidia-smi calls it, where the mask says that; `identity`: no
    other GPU of the node has it; `memory`: bytes in all."""

    number: str = ""
    model: str = ""
    identity: str = ""
    bus: str = ""
    capability: str = ""
    processors: int = 0
    memory: int = 0

    @property
    def kind(self) -> tuple[str, int, int]:
        """What GPUs have alike that are compared: a slice of MIG has fewer processors or memory."""
        return self.model, self.processors, (self.memory + 128 * MIB) // (256 * MIB)


@dataclass(frozen=True, slots=True)
class Computed:
    """What a rank's GPU computed, as far as it came. `digests`: kind of numbers -> of the bits of
    its product; `times`: how often such products were made and compared."""

    card: RankGpu = RankGpu()
    software: str = ""
    rates: tuple[Throughput, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    times: int = 0
    wrong: tuple[WrongNumbers, ...] = ()
    unlike: tuple[VaryingBits, ...] = ()
    trouble: Trouble | None = None


def torch_devices() -> Devices:
    """Those of torch. Where it says that there are none, why: CUDA may have failed to start."""
    import torch

    try:
        return torch_gpus()
    except NotApplicable:
        if not (torch.version.cuda or torch.version.hip):
            raise
        try:
            torch.cuda.init()
        except RuntimeError as error:
            if not re.search(r"No (CUDA|HIP) GPUs|no NVIDIA driver", str(error)):
                raise
        raise


def compute(host: Host, ctx: Context, find: Callable[[], Devices]) -> Computed:
    """All steps on the GPU of this rank; every one is marked with the GPU's number."""
    steps = Steps(ctx)
    seen = Computed()
    with steps.until_trouble():
        matmul.make_reproducible()
        steps.at(START)
        gpus = find()
        index, turn = _own_gpu_and_turn(ctx, gpus.count)
        number = _nvidia_smi_id(host, index)
        seen = Computed(RankGpu(number))
        on = f" on GPU {number}"
        steps.at(START + on)
        gpus.start(index)
        seen = Computed(_describe(number, gpus, index))
        free = gpus.free(index)
        if free < LEAST:
            raise CannotObserve(
                f"only {size(free)} are free{on}: gpu.health names who has the rest"
            )
        pace = min(1.0, ctx.seconds / BUDGET)
        kinds = [kind for kind in KINDS if kind.name != "bf16" or gpus.has_bf16(index)]
        for kind in kinds:
            steps.at(f"exact product {kind.name}{on}")
            seen = _extended(seen, matmul.exact_product(gpus, index, kind))
        for kind in kinds:
            steps.at(f"repeated product {kind.name}{on}")
            digest, unlike, times = matmul.repeated_product(gpus, index, kind, REPEATING * pace)
            seen = replace(seen, digests={**seen.digests, kind.name: digest})
            seen = _extended(seen, unlike, times=times)
        seen = replace(seen, software=matmul.software(host, nvml.module_version(host)))
        for kind in kinds:
            steps.at(f"matmul {kind.name}{on}")
            rate, unlike = matmul.timed_products(gpus, index, kind, free, TIMING * pace)
            seen = _extended(seen, rate, unlike, times=rate.repeats)
        steps.at(f"copy{on}")
        seen = _extended(seen, matmul.time_device_copy(gpus, index, free, COPYING * pace))
        steps.at(f"copy to and from the host{on}")
        both, wrong = matmul.time_host_copies(gpus, index, free, MOVING * pace, turn)
        seen = _extended(seen, *both, wrong)
    if steps.trouble is not None and OUT_OF_MEMORY.search(steps.trouble.text):
        raise CannotObserve(f"{steps.trouble.step}: {steps.trouble.text}"[:200])
    return replace(seen, trouble=steps.trouble)


def _extended(
    seen: Computed, *more: Throughput | WrongNumbers | VaryingBits | None, times: int = 0
) -> Computed:
    """The same with what one step has shown."""
    return replace(
        seen,
        times=seen.times + times,
        rates=(*seen.rates, *(m for m in more if isinstance(m, Throughput))),
        wrong=(*seen.wrong, *(m for m in more if isinstance(m, WrongNumbers))),
        unlike=(*seen.unlike, *(m for m in more if isinstance(m, VaryingBits))),
    )


def _own_gpu_and_turn(ctx: Context, count: int) -> tuple[int, Callable[[], None]]:
    """The number of this rank's GPU, and what waits for its turn on the node's bus. In this stage
    an agent that was started for one rank knows no other: the launcher has told which it is."""
    ranks = max(ctx.local_world_size, ctx.topology.ranks_on(ctx.node))
    said = ctx.topology.facts.get("local_rank")
    mine = int(said.value) if said is not None and ctx.local_world_size == 1 else ctx.local_rank
    index = own_gpu(replace(ctx, local_rank=mine, local_world_size=ranks), count)
    if index is None or index >= count:
        raise NotApplicable(f"fewer GPUs than ranks: {count} < {ranks}")
    return index, partial(matmul.take_turns, mine, ranks)


def _nvidia_smi_id(host: Host, index: int) -> str:
    """Its entry in the mask, which nvidia-smi understands, too; the index where there is none."""
    entries = (nvml.env_text(host.environ, "CUDA_VISIBLE_DEVICES") or "").split(",")
    entry = entries[index].strip() if index < len(entries) else ""
    return entry if NUMBER.fullmatch(entry) else str(index)


def _describe(number: str, gpus: Devices, index: int) -> RankGpu:
    about = gpus.about(index)
    place = [int(getattr(about, f"pci_{part}_id", -1)) for part in ("domain", "bus", "device")]
    bus = "" if min(place) < 0 else "{:04x}:{:02x}:{:02x}.0".format(*place)
    return RankGpu(
        number=number,
        model=gpus.name(index),
        # an older torch tells neither of the first two
        identity=str(getattr(about, "uuid", "") or bus or number)[:TEXT],
        bus=bus,
        capability=f"{about.major}.{about.minor}",
        processors=int(about.multi_processor_count),
        memory=int(about.total_memory),
    )
