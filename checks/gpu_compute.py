"""Does every GPU compute correctly, repeatably, and as fast as the others of its model?

Level        standard
Looks at     on every rank's GPU: matmuls of integers in bf16, fp16 and fp32, each element of the
             result compared with the correct value; matmuls of fractions, repeated, whose bits must
             not change and must equal those of the other GPUs of the model; TFLOP/s of large
             matmuls, bytes per second of copies within its memory, to it and from it
Fails if     a result is wrong; its bits change between repetitions; one GPU has different bits from
             all others of its model with the same software; CUDA fails, or a matmul or a copy hangs
Warns if     a GPU computes or copies at less than 85 % of the median of its model, or moves data to
             or from the host at less than half the rate of the others of its model, here and on all
             nodes; several GPUs share the same different bits, which is not a defect of one GPU
Undecided    torch sees none of the GPUs that the job is given; too little memory is free; one GPU
             has different bits, and there is no majority
Not covered  speed where there are fewer than four GPUs of a model, of GPUs that several ranks use,
             and while other processes use them (gpu.health names them); faults that need minutes of
             load, or FP8 or FP64; whether bits change on AMD's GPUs, whose library does not
             guarantee that. Tested with a stand-in on the CPU only, not yet on a GPU
Seen as      a loss that is NaN or differs between runs, gradients that explode on one rank, one
             rank slower than all, "CUDA error: an illegal memory access was encountered",
             "CUBLAS_STATUS_EXECUTION_FAILED", 100 % utilisation at low power
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from preflight import humanize
from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.gpu import compute_outliers, compute_probe, matmul
from preflight.domains.gpu.commands import KERNEL_LOG, REBOOT
from preflight.domains.gpu.compute_outliers import ComputeShortfall
from preflight.domains.gpu.compute_probe import Computed
from preflight.domains.gpu.given import undecided_where_given
from preflight.domains.gpu.matmul import KINDS, Throughput
from preflight.expect import Expect
from preflight.host import Host
from preflight.humanize import duration, plural
from preflight.inference import ENOUGH
from preflight.model import (
    Blame,
    Cause,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    Status,
    Subject,
    World,
    each_once,
    place_of,
)

CHECK = Check(
    scope=Scope.RANK,
    stage=Stage.MACHINE,
    budget=60.0,
    # gpu.health looks for programs on the GPUs: it must not find this one
    needs=("gpu.visible", "gpu.health"),
    level=Level.STANDARD,
    requires=frozenset({Requirement.TORCH, Requirement.GPU}),
    torch=True,
    disturbs="1 GiB of every GPU, for some seconds",
    blame=Blame.NODE,
    explains=("world.nccl", "world.ddp", "world.bandwidth"),
)

# what takes less than a second, and CUDA's start: GPUs without persistence mode need up to 5 s each
STUCK, STUCK_AT_START = 10.0, 50.0

# errors that the GPU or its driver makes, and no image and no setting
HARDWARE = re.compile(
    r"illegal (memory access|instruction|address)|launch (failure|timed out)|misaligned address|"
    r"uncorrectable|system not yet initialized|hardware stack|EXECUTION_FAILED|GPU is lost",
    re.I,
)
SPEEDS = (*(kind.name for kind in KINDS), matmul.COPY)
DIAGNOSE = Command("dcgmi diag -r 3 -i {index}", "the node", "all jobs on that GPU")
QUERY = Command("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK -i {index}", "the node")

FINDINGS = {
    "matmul-wrong": FindingType(
        headline="{at} computes wrong results: {seen}",
        cause="a defective GPU (a multiprocessor or its memory)",
        means="no error at all: wrong gradients, a loss that is NaN or that stops falling",
        text="drain the node, run NVIDIA's diagnostics, replace the GPU",
        commands=(DIAGNOSE,),
        was=("wrong-product",),
    ),
    "copy-wrong": FindingType(
        headline="{at} corrupts data that is copied to it and back: {seen}",
        cause="a bus, riser or memory that corrupts data",
        means="no error at all: wrong batches and wrong gradients",
        text="exclude this node; reseat the GPU, test it and the node's memory",
        commands=(DIAGNOSE, KERNEL_LOG),
    ),
    "bits-vary": FindingType(
        headline="{at} gives different results for the same matmul: {seen}",
        cause="a GPU that sometimes computes wrong results: heat, voltage, memory, age",
        means="no error at all: a loss that differs from run to run, or becomes NaN after hours",
        text="drain the node, run NVIDIA's diagnostics, replace the GPU",
        commands=(DIAGNOSE,),
    ),
    "bits-differ": FindingType(
        headline="{at} computes differently from the others: {seen}",
        cause="a GPU that always computes the same wrong result; where several GPUs agree, a "
        "different library or setting on them",
        means="no error at all: one rank's gradients are not what the others would compute",
        text="exclude the nodes of these GPUs and compare torch, cuBLAS and driver; then run "
        "NVIDIA's diagnostics on the GPU that differs",
        commands=(DIAGNOSE,),
        status=(Status.FAIL, Status.UNDECIDED, Status.WARN),
        blame=(Blame.UNKNOWN, Blame.NODE),
    ),
    "gpu-slow": FindingType(
        headline="{at} is slower than its peers: {seen}",
        cause="heat, a power limit, locked clocks, or another process on the GPU",
        means="every step waits for this GPU: the whole job runs at its speed",
        text="exclude this node or accept its speed; compare clocks, power limit and temperature "
        "under load with another GPU",
        commands=(QUERY,),
        status=Status.WARN,
        explains=(),
    ),
    "bus-slow": FindingType(
        headline="the bus of {at} is slow: {seen}",
        cause="a PCIe link that came up with fewer lanes or at an older generation",
        means="batches and checkpoints are slow on this rank, and the others wait for it",
        text="check the PCIe link under load; reseat the card",
        commands=(Command("nvidia-smi -q -i {index} | grep -A 12 'GPU Link Info'", "the node"),),
        status=Status.WARN,
        explains=(),
    ),
    "cuda-failed": FindingType(
        headline="CUDA fails on {at}: {seen}",
        cause="a faulty GPU or driver, or a torch that was not built for this GPU",
        means="the first CUDA call or the first matmul of this rank raises the error above",
        text="exclude this node; read the kernel log, then reset the GPU or reboot",
        commands=(KERNEL_LOG,),
        blame=(Blame.NODE, Blame.UNKNOWN),
    ),
    "gpu-hangs": FindingType(
        headline="{at} hangs: {seen}",
        cause="a GPU or a driver that is stuck",
        means="this rank never reaches its first collective; the others wait until they time out",
        text="drain the node, read the kernel log, then reset the GPU or reboot",
        commands=(KERNEL_LOG, REBOOT),
    ),
    "gpu-crashes": FindingType(
        headline="a CUDA program crashes on {at}: {seen}",
        who="whoever installed the driver",
        cause="a driver or CUDA library that does not match the others",
        means="this rank dies without a Python error as soon as it computes",
        now='python -c \'import torch; torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, '
        'device="cuda")\'',
        text="use one CUDA version in the image, the driver's own libcuda, and no LD_LIBRARY_PATH",
        commands=(KERNEL_LOG,),
        blame=Blame.UNKNOWN,
    ),
}


def observe(host: Host, ctx: Context) -> Computed:
    with undecided_where_given(host):
        return compute_probe.compute(host, ctx, compute_probe.torch_devices)


def judge(world: World[Computed], expect: Expect) -> Iterator[Found]:
    yield from _hangs_and_crashes(world)
    sick = set()
    for key, seen in world.seen.items():
        if seen.trouble is None and not (seen.wrong or seen.unlike):
            continue
        for finding in _faults(world, key, seen):
            sick.add(key)
            yield finding
    yield from _bits(world, sick)
    yield from _speed(world)


def _gpu(rank: Subject, number: str) -> tuple[Subject, dict[str, str]]:
    """The GPU of a rank, and what stands for it in a command; the rank where it is not known."""
    if not compute_probe.NUMBER.fullmatch(number):
        return rank, {"index": "INDEX"}
    name = f"GPU {number}" if number.isdecimal() else number
    return replace(rank, kind=Kind.GPU, name=name), {"index": number}


def _finding(
    world: World[Computed], code: str, keys: Sequence[str], saw: str, expected: str = ""
) -> Found:
    """A finding about the GPUs of these ranks."""
    gpus = [_gpu(world.subject(key), world.seen[key].card.number) for key in keys]
    return Found(code, tuple(gpu for gpu, _ in gpus), saw, expected, fields=gpus[0][1])


def _hangs_and_crashes(world: World[Computed]) -> Iterator[Found]:
    """A step that never came back, or with which the worker died: its mark is the last one."""
    for key, missing in world.missing(Cause.TIMED_OUT, Cause.UNKILLABLE, Cause.CRASHED).items():
        last = missing.marks[-1] if missing.marks else None
        if last is None:
            continue
        gpu, fields = _gpu(world.subject(key), last.name.partition(" on GPU ")[2])
        likely = Confidence.LIKELY
        if missing.cause is Cause.CRASHED:
            fate = missing.detail.rpartition("\n")[2]
            # SIGKILL is the kernel's want of memory; a traceback is our own fault
            if re.match(r"killed by SIG(SEGV|BUS|ABRT|ILL|FPE)\b", fate):
                saw = f"rank {gpu.ranks[0]} was {fate} in '{last.name}'"
                yield Found("gpu-crashes", (gpu,), saw, fields=fields, confidence=likely)
            continue
        waited, starts = (
            max(0.0, missing.seconds - last.at),
            last.name.startswith(compute_probe.START),
        )
        if waited < (STUCK_AT_START if starts else STUCK):
            continue  # the time limit was short: that is no evidence
        undead = missing.cause is Cause.UNKILLABLE
        saw = f"'{last.name}' did not end in {duration(waited)}"
        saw += " · SIGKILL has no effect" * undead
        sure = Confidence.CERTAIN if undead else likely
        goal = "CUDA starts in a few seconds" if starts else "an end within 1 s"
        yield Found("gpu-hangs", (gpu,), saw, goal, fields=fields, confidence=sure)


def _faults(world: World[Computed], key: str, seen: Computed) -> Iterator[Found]:
    """What one GPU shows by itself."""
    if seen.trouble is not None:
        hardware = HARDWARE.search(seen.trouble.text)
        saw = f"{seen.trouble.step}: {seen.trouble.text}"
        found = _finding(world, "cuda-failed", [key], saw)
        blame = None if hardware else Blame.UNKNOWN
        yield found.with_(blame=blame, confidence=Confidence.LIKELY)
    for wrong in sorted(seen.wrong, key=lambda w: w.kind == matmul.BUS)[:1]:
        bus = wrong.kind == matmul.BUS
        what = f"a {wrong.kind}" if bus else f"a product in {wrong.kind}"
        saw = f"{wrong.count} of {wrong.of} numbers of {what} are wrong: number {wrong.index} is "
        saw += f"{wrong.got:g}, not {wrong.wanted:g}"
        goal = "what was sent" if bus else "the exact result: all sums are integers"
        yield _finding(world, "copy-wrong" if bus else "matmul-wrong", [key], saw, goal)
    if not seen.wrong and _reproducible(seen):
        for unlike in seen.unlike[:1]:
            saw = f"{unlike.count} of {unlike.of} numbers of the same product in {unlike.kind} had "
            saw += f"other bits at time {unlike.time}"
            goal = f"the same bits each time, as {seen.times} products on a sound GPU have"
            yield _finding(world, "bits-vary", [key], saw, goal)


def _reproducible(seen: Computed) -> bool:
    """Whether the library gives the same bits at every run; AMD's may add up in any order."""
    return bool(seen.software) and "HIP " not in seen.software


def _with_own_gpu(world: World[Computed]) -> Mapping[str, Computed]:
    """Those that have a GPU for themselves."""
    if len({v.card.identity for v in world.seen.values()}) == len(world.seen):
        return world.seen
    gpus = _gpus(world)
    users = Counter(gpus.values())
    return {k: v for k, v in world.seen.items() if users[gpus[k]] == 1}


def _gpus(world: World[Computed]) -> Mapping[str, tuple[str, str]]:
    """The node and the GPU of each rank."""
    return {key: (place_of(key)[0], v.card.identity) for key, v in world.seen.items()}


def _bits(world: World[Computed], sick: Collection[str]) -> Iterator[Found]:
    """Products that differ between GPUs that must have the same. A GPU has one voice."""
    if _all_alike([v for v in world.seen.values() if v.card.model and _reproducible(v)]):
        return  # nothing to sort and to count
    gpus = _gpus(world)
    ill = {gpus[key] for key in sick}
    voices = {gpus[k]: k for k, v in world.seen.items() if v.card.model and _reproducible(v)}
    sound = {k: world.seen[k] for place, k in sorted(voices.items()) if place not in ill}
    alike_ = {k: (v.card.kind, v.card.capability, v.software) for k, v in sound.items()}
    for odd in compute_outliers.differing_bits({k: v.digests for k, v in sound.items()}, alike_):
        model = sound[odd.keys[0]].card.model
        product, these = f"the product in {', '.join(odd.kinds)}", len(odd.keys)
        if odd.sure:
            saw = f"{product} has other bits than on the other {odd.of - 1} x {model}"
            found = _finding(world, "bits-differ", odd.keys, saw)
            yield found.with_(blame=Blame.NODE, confidence=Confidence.LIKELY)
            continue
        saw = f"{product} has different bits on {these} x {model}"
        if these < odd.of:
            saw = f"{product} has the same other bits on {these} of {odd.of} x {model}"
        found = _finding(
            world, "bits-differ", odd.keys, f"{saw}: {humanize.ranks_of(world, odd.keys)}"
        )
        yield found.with_(
            status=Status.UNDECIDED if odd.unclear else Status.WARN,
            explains=(),
            confidence=Confidence.POSSIBLE,
            alternatives=("a library or setting that differs between them",),
        )


def _speed(world: World[Computed]) -> Iterator[Found]:
    """GPUs that are slower than the others of their model."""
    seen = {k: v for k, v in world.once(_with_own_gpu).items() if v.card.model}
    told = {id(v.rates): v.rates for v in seen.values()}  # of those who say the same there is one
    each = {one: {_metric(r): r.rate for r in some} for one, some in told.items()}
    rates = {k: each[id(v.rates)] for k, v in seen.items()}
    sizes = {k: _sizes(v) for k, v in seen.items()}
    of_each_size = dict(zip(sizes.values(), seen.values(), strict=True))
    kinds = {of: one.card.kind for of, one in of_each_size.items()}
    models = {k: kinds[of] for k, of in sizes.items()}
    ways = {r.kind for some in told.values() for r in some} - set(SPEEDS)
    for code, found, share in (
        ("gpu-slow", compute_outliers.slow_gpus(rates, models, SPEEDS), 1 - compute_outliers.SLOW),
        (
            "bus-slow",
            compute_outliers.slow_buses(rates, models, lambda key: place_of(key)[0], ways),
            1 - compute_outliers.BUS_SLOW,
        ),
    ):
        for key, below in found.items():
            saw = " · ".join(_shortfall_text(one) for one in below)
            saw += f" of {below[0].of} x {seen[key].card.model}"
            goal = f"at least {100 * share:.0f} % of the median of its model"
            yield _finding(world, code, [key], saw, goal).with_(
                confidence=Confidence.LIKELY,
                alternatives=("another process uses it: see gpu.health",),
            )


SIZES = ("card.model", "card.processors", "card.memory")
_sizes = attrgetter(*SIZES)
"""What the kind of a GPU is made of, which is asked of a hundred thousand."""
_circumstances = attrgetter("software", "card.capability", *SIZES)
"""What two GPUs that have the same bits differ in at most by their sizes."""


def _all_alike(all_of: Sequence[Computed]) -> bool:
    """Whether all have the same bits, and what must be the same so that they have."""
    digests = [*each_once([one.digests for one in all_of])]
    told = dict(zip(map(_circumstances, all_of), all_of, strict=True)).values()
    alike_ = {(one.software, one.card.capability, one.card.kind) for one in told}
    return len(alike_) < 2 and all(one == digests[0] for one in digests)


def _metric(rate: Throughput) -> str:
    """What numbers of one size are compared under."""
    return f"{rate.kind} of {rate.size}"


def _shortfall_text(below: ComputeShortfall) -> str:
    kind = below.metric.partition(" of ")[0]
    share = 100 * below.rate / below.median
    return f"{kind} {_rate_text(kind, below.rate)}, {share:.0f} % of the median"


def _rate_text(kind: str, *rates: float) -> str:
    """`612-618 TFLOP/s`, `2.6 TB/s`."""
    least, most = min(rates), max(rates)
    unit = "TFLOP/s" if kind in {k.name for k in KINDS} else "GB/s"
    if unit == "GB/s" and least >= 1000:
        least, most, unit = least / 1000, most / 1000, "TB/s"
    low, high = f"{least:.3g}", f"{most:.3g}"
    return f"{low} {unit}" if low == high else f"{low}–{high} {unit}"


def measured(world: World[Computed]) -> Measured:
    seen = {k: v for k, v in world.seen.items() if v.card.model}
    if not seen:
        return Measured()
    models = Counter(v.card.model for v in seen.values()).most_common()
    kinds: dict[str, dict[str, float]] = {}
    of_rates: dict[int, list[tuple[dict[str, float], float]]] = {}
    for key, one in seen.items():
        if id(one.rates) not in of_rates:  # many have the same ones
            able = [r for r in one.rates if 0 < r.rate < math.inf]
            of_rates[id(one.rates)] = [(kinds.setdefault(r.kind, {}), r.rate) for r in able]
        for of_kind, number in of_rates[id(one.rates)]:
            of_kind[key] = number
    words = []
    for kind, own in kinds.items():
        if kind not in (*SPEEDS, matmul.TO):
            continue
        shown = [r for key, r in own.items() if seen[key].card.model == models[0][0]]
        if shown:
            words.append(f"{kind} {_rate_text(kind, min(shown), max(shown))}")
    wrong = sum(bool(v.wrong or (v.unlike and _reproducible(v))) for v in seen.values())
    alone = world.once(_with_own_gpu)
    if wrong or all(v.digests for v in seen.values()):
        words.append(f"WRONG on {plural(wrong, 'GPU')}" if wrong else "products exact")
    words += [f"of {models[0][1]} x {models[0][0]}"] if len(models) > 1 else []
    words += ["ranks share GPUs: speed not judged"] if len(alone) < len(seen) else []
    few = len(alone) == len(seen) and models[0][1] < ENOUGH
    words += [f"{plural(len(seen), 'GPU')}: too few to compare speed"] if few else []
    values: dict[str, Any] = {"gpus": len(seen), "models": dict(models), "wrong": wrong}
    for kind, own in kinds.items():
        unit = "tflops" if kind in {k.name for k in KINDS} else "gbs"
        values[f"{re.sub('[ ,]+', '_', kind.lower())}_{unit}"] = own
    return Measured(" · ".join(words), values)
