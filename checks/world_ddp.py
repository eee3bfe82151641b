"""Does a DistributedDataParallel step give every rank the same, correct model?

Level        standard
Looks at     a small model wrapped in DDP on the device and backend that the job would use: its
             gradients against the average of all ranks computed by hand, its parameters on all
             ranks after an optimizer step, a forward pass under autocast in the device's preferred
             type
Fails if     gradients are not that average; parameters differ between ranks; autocast produces
             non-finite values; backend and device do not match; a rank dies, fails or does not
             arrive
Warns if     the backend is Gloo although every rank has a GPU
Undecided    torch is not installed
Not covered  the job's own model: unused parameters, different shapes or numbers of batches; FSDP
Seen as      "DDP expects same model across all ranks", "Expected to have finished reduction in the
             prior iteration", "No backend type associated with device type cpu",
             "ProcessGroupNCCL is only supported with GPUs, no GPUs found!", a segmentation fault
             in the first DDP() under TORCH_DISTRIBUTED_DEBUG=DETAIL
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from preflight import humanize
from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.collectives import stalls
from preflight.domains.collectives.process_group import join, leave, on_all_ranks
from preflight.domains.collectives.stalls import Signature
from preflight.domains.torch.devices import own_gpu
from preflight.domains.torch.steps import Steps, Trouble
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration
from preflight.model import (
    Blame,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    Status,
    Subject,
    World,
)

CHECK = Check(
    scope=Scope.WORLD,
    stage=Stage.TRAINING,
    budget=30.0,
    needs=("world.gloo",),
    level=Level.STANDARD,
    requires=frozenset({Requirement.TORCH}),
    torch=True,
    preload=("torch._dynamo",),  # the first DDP() imports it, which takes a second
    disturbs="GPUs, where there are any",
    options={"backend": "the job's backend, nccl or gloo; without it the one that fits the device"},
)

# float32 rounds by 6e-8; both ways to the average add a few numbers, in different orders
GRADIENT_GAP = 1e-5
# what takes the place of NaN and infinity, which JSON does not have
NO_NUMBER = 1e38

INPUTS, HIDDEN, OUTPUTS, BATCH = 32, 64, 8, 16

SIGNATURES = (
    Signature(
        r"No backend type associated|only supported with GPUs|no GPUs found|have NCCL built in",
        "backend-mismatch",
        "nccl with a GPU for every rank, else gloo",
        job=True,
    ),
)

FINDINGS = {
    **stalls.FINDINGS,
    "wrong-gradient": FindingType(
        headline="{at} computes wrong gradients",
        cause="defective memory, a defective GPU, or a patched build of torch",
        means="no error at all: the loss falls more slowly, becomes NaN, or differs between runs",
        text="exclude that node, then test its memory and GPUs (dcgmi diag -r 3); run the same "
        "model on a single rank",
        blame=(Blame.NODE, Blame.UNKNOWN),
    ),
    "parameters-differ": FindingType(
        headline="{at} has different parameters from the others after one step",
        cause="defective memory or a defective GPU",
        means="every rank trains a different model, without an error; checkpoints of rank 0 hide "
        "that",
        text="exclude that node, then test its memory and GPUs (dcgmi diag -r 3); use the same "
        "torch build on all ranks",
        blame=(Blame.NODE, Blame.UNKNOWN),
    ),
    "not-finite": FindingType(
        headline="{at} computes infinite or NaN values",
        cause="a defective GPU, or a build of torch for another kind of device",
        means="the loss is NaN from the first step on under autocast",
        text="train in float32 until the GPU is tested (dcgmi diag -r 3); use a torch built for "
        "this device",
        blame=Blame.NODE,
    ),
    "backend-mismatch": FindingType(
        headline="{seen}",
        who="job author",
        cause="backend='nccl' in the script, on a machine or image without CUDA",
        means="'No backend type associated with device type cpu' or 'ProcessGroupNCCL is only "
        "supported with GPUs, no GPUs found!'",
        text="call init_process_group() without a backend: torch then chooses one per device; or "
        "use backend='gloo' for ranks without a GPU",
        blame=Blame.JOB,
        was=("backend-unfit",),
    ),
    "gloo-on-gpu": FindingType(
        headline="{seen}",
        who="job author",
        cause="a backend='gloo' left over from a test on the CPU",
        means="training works, but every gradient is copied through the CPU: many times slower",
        text="use backend='nccl'",
        status=Status.WARN,
        blame=Blame.JOB,
    ),
}


@dataclass(frozen=True, slots=True)
class Trained:
    """One step of one rank. `asked` is the backend that the user named. None: it did not come so
    far.

    gradient_gap  largest difference to the average by hand, relative to its largest number
    parameters    a checksum over all bits of the parameters after the step
    seconds       forward, backward with the exchange of gradients, and optimizer
    detail        TORCH_DISTRIBUTED_DEBUG=DETAIL was set and has been left out: it makes DDP()
                  over Gloo crash (seen in torch 2.13)
    """

    device: str
    backend: str
    asked: str = ""
    gradient_gap: float | None = None
    parameters: str = ""
    seconds: float | None = None
    autocast: str = ""
    finite: bool | None = None
    detail: bool = False
    trouble: Trouble | None = None


def observe(host: Host, ctx: Context) -> Trained:
    import torch

    torch.set_num_threads(1)
    steps = Steps(ctx)
    detail = _without_detail()
    on_gpu = _all_have_gpus(ctx)
    asked = str(ctx.options.get("backend", ""))[:40]
    backend = asked or ("nccl" if on_gpu else "gloo")
    kind = "cuda" if on_gpu else "cpu"
    if backend == "nccl" and not on_gpu:
        return Trained(kind, backend, asked, detail=detail)
    device = torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", own_gpu(ctx, torch.cuda.device_count()))
    found: dict[str, Any] = {}
    with steps.until_trouble():
        join(host, ctx, steps, backend, device)
        _train(ctx, steps, device, found)
    leave(ctx, steps)
    return Trained(kind, backend, asked, detail=detail, trouble=steps.trouble, **found)


def _without_detail() -> bool:
    """The variable was read when torch.distributed was imported: the level is set back as well."""
    import torch.distributed as dist

    if dist.get_debug_level() != dist.DebugLevel.DETAIL:
        return False
    os.environ.pop("TORCH_DISTRIBUTED_DEBUG", None)
    dist.set_debug_level(dist.DebugLevel.OFF)
    return True


def _all_have_gpus(ctx: Context) -> bool:
    """Whether each rank of the world has a GPU of its own: all must choose the same backend."""
    import torch

    ctx.mark("CUDA")
    mine = torch.cuda.is_available() and own_gpu(ctx, torch.cuda.device_count()) is not None
    return on_all_ranks(ctx, "gpu", mine) and mine


def _train(ctx: Context, steps: Steps, device: Any, found: dict[str, Any]) -> None:
    """One step, into `found` as far as it goes."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    cuda = device.type == "cuda"
    steps.at("DDP")
    torch.manual_seed(ctx.rank)  # other weights on every rank: DDP() must spread those of rank 0
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    plain = torch.nn.Sequential(linear(INPUTS, HIDDEN), relu(), linear(HIDDEN, OUTPUTS)).to(device)
    model = DistributedDataParallel(plain, device_ids=[device.index] if cuda else None)
    by_hand = deepcopy(model.module)
    batch = torch.randn(BATCH, INPUTS, device=device)
    steps.at("backward")
    model(batch).square().mean().backward()
    steps.at("average by hand")
    by_hand(batch).square().mean().backward()
    average = torch.cat([p.grad.flatten() for p in by_hand.parameters()])
    dist.all_reduce(average)
    average /= ctx.world_size
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    gap = float((gradients - average).abs().max() / average.abs().max())
    found["gradient_gap"] = gap if math.isfinite(gap) else NO_NUMBER
    steps.at("optimizer step")
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    bits = torch.cat([p.detach().flatten() for p in model.parameters()]).view(torch.int32)
    places = torch.arange(1, len(bits) + 1, device=device)
    found["parameters"] = f"{int((bits.long() * places).sum()) & (1 << 64) - 1:016x}"
    steps.at("autocast")
    found["seconds"] = round(steps.seconds["backward"] + steps.seconds["optimizer step"], 6)
    best = torch.float16 if cuda and not torch.cuda.is_bf16_supported() else torch.bfloat16
    with torch.no_grad(), torch.autocast(device.type, dtype=best):
        found["finite"] = bool(torch.isfinite(model.module(batch)).all())
    found["autocast"] = str(best).removeprefix("torch.")
    steps.done()


def judge(world: World[Trained], expect: Expect) -> Iterator[Found]:
    yield from _judge_backend(world)
    yield from stalls.diagnose(world, SIGNATURES)
    wrong = world.told(_wrong_gap)
    if wrong:
        worst = max(wrong.values())
        yield _numbers_differ(
            world,
            "wrong-gradient",
            list(wrong),
            f"gradients differ by up to {worst:.2g} of the largest from the average by hand",
            f"less than {GRADIENT_GAP:g}",
        )
    else:
        yield from _judge_parameters(world)
    bad = [*world.told(lambda v: True if v.finite is False else None)]
    if bad:
        kind = world.seen[bad[0]].autocast
        yield Found(
            "not-finite",
            tuple(world.subject(k) for k in bad),
            saw=f"numbers of a {kind} forward pass are infinite or NaN on "
            + humanize.ranks_of(world, bad),
            expected="finite: inputs and weights are",
            confidence=Confidence.LIKELY,
        )


def _wrong_gap(seen: Trained) -> float | None:
    """By how much the gradients of a rank differ, where that is too much."""
    gap = seen.gradient_gap or 0.0
    return gap if gap > GRADIENT_GAP else None


def _judge_backend(world: World[Trained]) -> Iterator[Found]:
    asked = next((v for v in world.distinct if v.asked), None)
    if asked is None:
        return
    job = Subject(Kind.JOB, name="backend")
    have = "every rank has a GPU" if asked.device == "cuda" else "not every rank has a GPU"
    saw = f"backend {asked.asked!r} is requested, and {have}"
    if asked.backend == "nccl" and asked.device == "cpu":
        yield Found("backend-mismatch", (job,), saw=saw, expected="gloo, or a GPU for every rank")
    elif asked.backend == "gloo" and asked.device == "cuda":
        yield Found("gloo-on-gpu", (job,), saw=saw, expected="nccl")


def _judge_parameters(world: World[Trained]) -> Iterator[Found]:
    if len({v.parameters for v in world.distinct if v.parameters}) < 2:
        return
    sums = {k: v.parameters for k, v in world.seen.items() if v.parameters}
    common, times = Counter(sums.values()).most_common(1)[0]
    odd = [k for k, v in sums.items() if v != common]
    clear = times * 2 > len(sums)
    yield _numbers_differ(
        world,
        "parameters-differ",
        odd if clear else list(sums),
        f"after one step the parameters have {len(set(sums.values()))} different values"
        + (f", {times} ranks agree" if clear else ""),
        "the same on all ranks, to the last bit",
    )


def _numbers_differ(
    world: World[Trained], code: str, keys: list[str], saw: str, expected: str
) -> Found:
    """A wrong number on these ranks: of a few it is their own fault, of many one may have sent it
    to all of them, and of two nodes it may be either."""
    few = len(keys) * 2 < len(world.observations) and not humanize.one_of_two(world, keys)
    subjects = tuple(world.subject(k) for k in keys)
    return Found(
        code,
        subjects if few else (Subject(Kind.JOB), *subjects),
        saw=f"{humanize.ranks_of(world, keys)}: {saw}",
        expected=expected,
        blame=None if few else Blame.UNKNOWN,
        confidence=Confidence.LIKELY if few else Confidence.POSSIBLE,
        alternatives=() if few else ("one rank sends wrong values to all", "the build of torch"),
    )


def measured(world: World[Trained]) -> Measured:
    done = [v for v in world.distinct if v.seconds is not None and v.finite is not None]
    if not done:
        return Measured()
    first, slowest = done[0], max(v.seconds or 0.0 for v in done)
    gap = max(v.gradient_gap or 0.0 for v in done)
    text = f"{first.backend} on {first.device} · {_exactness(gap)} · "
    text += f"step {duration(slowest)} · autocast {first.autocast}"
    if any(v.detail for v in done):
        text += " · TORCH_DISTRIBUTED_DEBUG=DETAIL left out"
    values = {
        "backend": first.backend,
        "device": first.device,
        "gradient_gap": gap,
        "step_s": slowest,
        "autocast": first.autocast,
        "debug_detail_left_out": any(v.detail for v in done),
    }
    return Measured(text, values)


def _exactness(gap: float) -> str:
    """How far gradients are from the average by hand, relative to the largest."""
    return f"gradients exact (max error {gap:.1g})" if not gap else f"gradients within {gap:.1g}"
