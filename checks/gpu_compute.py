"""Does every GPU compute right, the same each time, and as fast as the others of its model?

Looks at     on every rank's GPU: products of whole numbers in bf16, fp16 and fp32, each number of
             the result compared with the right one; products of fractions, made again and again,
             whose bits must not change and must be those of the other GPUs of the model; TFLOP/s
             of large products, bytes a second of copies within its memory, to it and from it
Fails if     a product is wrong; its bits change from one time to the next; one GPU alone has other
             bits than all others of its model with the same software; CUDA fails, or a product or
             a copy does not come back
Warns if     a GPU computes or copies at less than 85 % of the median of its model, or moves data to
             or from the host at less than half of what the others of its model do, here and on all
             nodes; several GPUs have the same other bits, which is no defect of one of them
Undecided    too little memory is free; one GPU has other bits, and no majority tells the right ones
Not covered  speed where there are fewer than four GPUs of a model, of GPUs that several ranks use,
             and beside other programs (gpu.health names them); faults that need minutes of load, or
             FP8 or FP64; whether bits change on AMD's GPUs, whose library does not promise the
             same. Seen with a stand-in on the CPU only, not yet on a GPU
Seen as      a loss that is NaN or differs from run to run, gradients that explode on one rank, one
             rank slower than all, "CUDA error: an illegal memory access was encountered",
             "CUBLAS_STATUS_EXECUTION_FAILED", 100 % utilisation at low power
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from preflight import humanize as whom
from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.gpu import compute_outliers as alike
from preflight.domains.gpu import compute_probe as computing
from preflight.domains.gpu import matmul as products
from preflight.domains.gpu.compute_outliers import Below
from preflight.domains.gpu.compute_probe import Computed
from preflight.domains.gpu.matmul import KINDS, Rate
from preflight.expect import Expect
from preflight.host import Host
from preflight.humanize import duration, plural
from preflight.inference import ENOUGH
from preflight.model import (
    Advice,
    Blame,
    Cause,
    Command,
    Confidence,
    Finding,
    Kind,
    Measured,
    Status,
    Subject,
    World,
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
)

# what takes less than a second, and CUDA's start: GPUs without persistence mode need up to 5 s each
STUCK, STUCK_AT_START = 10.0, 50.0

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
FOLLOWS = ("world.nccl", "world.ddp", "world.bandwidth")
# errors that the GPU or its driver makes, and no image and no setting
HARDWARE = re.compile(
    r"illegal (memory access|instruction|address)|launch (failure|timed out)|misaligned address|"
    r"uncorrectable|system not yet initialized|hardware stack|EXECUTION_FAILED|GPU is lost",
    re.I,
)
SPEEDS = (*(kind.name for kind in KINDS), products.COPY)
DIAGNOSE = Command("dcgmi diag -r 3 -i {index}", "the node", "all jobs on that GPU")
LOG = Command("dmesg -T | grep -E 'NVRM|Xid'", "the node, as root")
QUERY = Command("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK -i {index}", "the node")
OUT = "take the node out of the job"

ADVICE = {
    "wrong-product": Advice(
        who="cluster administrator",
        cause="a defective GPU: a multiprocessor or its memory",
        means="no error at all: wrong gradients, a loss that is NaN or that stops falling",
        now=OUT,
        text="drain the node, run NVIDIA's diagnosis, have the GPU replaced",
        commands=(DIAGNOSE,),
    ),
    "copy-wrong": Advice(
        who="cluster administrator",
        cause="a bus, a riser or memory that changes data",
        means="no error at all: wrong batches and wrong gradients",
        now=OUT,
        text="reseat the GPU, test it and the machine's memory",
        commands=(DIAGNOSE, LOG),
    ),
    "bits-vary": Advice(
        who="cluster administrator",
        cause="a GPU that computes wrongly now and then: heat, voltage, memory, age",
        means="no error at all: a loss that differs from run to run, or becomes NaN after hours",
        now=OUT,
        text="drain the node, run NVIDIA's diagnosis, have the GPU replaced",
        commands=(DIAGNOSE,),
    ),
    "bits-differ": Advice(
        who="cluster administrator",
        cause="a GPU that always computes the same wrongly; where several have the same bits, "
        "another library or setting than on the others",
        means="no error at all: one rank's gradients are not what the others would compute",
        now="run it again without these nodes",
        text="compare torch, cuBLAS and driver; then NVIDIA's diagnosis of the odd one",
        commands=(DIAGNOSE,),
    ),
    "gpu-slow": Advice(
        who="cluster administrator",
        cause="heat, a power limit, clocks that were locked, or another program on the GPU",
        means="every step waits for this GPU: the whole job runs at its speed",
        now="take the node out of the job, or accept its speed",
        text="compare clocks, power limit and temperature under load with another GPU",
        commands=(QUERY,),
    ),
    "bus-slow": Advice(
        who="cluster administrator",
        cause="a PCIe link that came up with fewer lanes or in an older generation",
        means="batches and checkpoints take long on this rank, and the others wait for it",
        text="look at the link under load; reseat the card",
        commands=(Command("nvidia-smi -q -i {index} | grep -A 12 'GPU Link Info'", "the node"),),
    ),
    "cuda-failed": Advice(
        who="cluster administrator",
        cause="a sick GPU or driver; or a torch that was not built for this GPU",
        means="the first CUDA call, or the first product, of this rank raises the error above",
        now=OUT,
        text="look into the kernel log; reset the GPU or reboot",
        commands=(LOG,),
    ),
    "gpu-hangs": Advice(
        who="cluster administrator",
        cause="a GPU or a driver that is stuck",
        means="this rank never comes to its first collective; the others wait until they time out",
        now=OUT,
        text="drain the node, look into the kernel log, reset the GPU or reboot",
        commands=(LOG, Command("systemctl reboot", "the node", "ENDS ALL JOBS THERE")),
    ),
    "gpu-crashes": Advice(
        who="whoever installed the driver",
        cause="a driver or a CUDA library that doesn't fit the others",
        means="this rank dies without a Python error as soon as it computes",
        now='python -c \'import torch; torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, '
        'device="cuda")\'',
        text="one CUDA in the image, the driver's own libcuda, no LD_LIBRARY_PATH",
        commands=(LOG,),
    ),
}


def observe(host: Host, ctx: Context) -> Computed:
    return computing.compute(host, ctx, computing.devices)


def judge(world: World[Computed], expect: Expect) -> Iterator[Finding]:
    yield from _stuck(world)
    sick = set()
    for key, seen in world.seen.items():
        for finding in _unwell(world, key, seen):
            sick.add(key)
            yield finding
    yield from _bits(world, sick)
    yield from _speed(world)


def _gpu(rank: Subject, number: str) -> tuple[Subject, dict[str, str]]:
    """The GPU of a rank, and what stands for it in a command; the rank where it is not known."""
    if not computing.NUMBER.fullmatch(number):
        return rank, {"index": "INDEX"}
    name = f"GPU {number}" if number.isdecimal() else number
    return replace(rank, kind=Kind.GPU, name=name), {"index": number}


def _finding(
    world: World[Computed], code: str, status: Status, keys: Sequence[str], saw: str, **more: Any
) -> Finding:
    """A finding that blames the node and is certain."""
    gpus = [_gpu(world.subject(key), world.seen[key].card.number) for key in keys]
    usual: dict[str, Any] = {
        "blame": Blame.NODE,
        "explains": FOLLOWS if status is FAIL else (),
        "fields": gpus[0][1],
    }
    return Finding(code, status, tuple(gpu for gpu, _ in gpus), saw, **(usual | more))


def _stuck(world: World[Computed]) -> Iterator[Finding]:
    """A step that never came back, or with which the worker died: its mark is the last one."""
    for key, missing in world.missing(Cause.TIMED_OUT, Cause.UNKILLABLE, Cause.CRASHED).items():
        last = missing.marks[-1] if missing.marks else None
        if last is None:
            continue
        gpu, fields = _gpu(world.subject(key), last.name.partition(" on GPU ")[2])
        likely: dict[str, Any] = {"confidence": Confidence.LIKELY, "explains": FOLLOWS}
        if missing.cause is Cause.CRASHED:
            fate = missing.detail.rpartition("\n")[2]
            # SIGKILL is the kernel's want of memory; a traceback is our own fault
            if re.match(r"killed by SIG(SEGV|BUS|ABRT|ILL|FPE)\b", fate):
                saw = f"rank {gpu.ranks[0]} was {fate} in '{last.name}'"
                yield Finding("gpu-crashes", FAIL, (gpu,), saw, fields=fields, **likely)
            continue
        waited, starts = max(0.0, missing.seconds - last.at), last.name.startswith(computing.START)
        if waited < (STUCK_AT_START if starts else STUCK):
            continue  # the time limit was short: that is no evidence
        undead = missing.cause is Cause.UNKILLABLE
        saw = f"'{last.name}' did not end in {duration(waited)}"
        saw += " · SIGKILL has no effect" * undead
        likely |= {"confidence": Confidence.CERTAIN} if undead else {}
        goal = "CUDA starts in a few seconds" if starts else "an end in less than 1 s"
        yield Finding(
            "gpu-hangs", FAIL, (gpu,), saw, goal, blame=Blame.NODE, fields=fields, **likely
        )


def _unwell(world: World[Computed], key: str, seen: Computed) -> Iterator[Finding]:
    """What one GPU shows by itself."""
    if seen.trouble is not None:
        hardware = HARDWARE.search(seen.trouble.text)
        saw = f"{seen.trouble.step}: {seen.trouble.text}"
        blame = Blame.NODE if hardware else Blame.UNKNOWN
        likely = Confidence.LIKELY
        yield _finding(world, "cuda-failed", FAIL, [key], saw, blame=blame, confidence=likely)
    for wrong in sorted(seen.wrong, key=lambda w: w.kind == products.BUS)[:1]:
        bus = wrong.kind == products.BUS
        what = f"a {wrong.kind}" if bus else f"a product in {wrong.kind}"
        saw = f"{wrong.count} of {wrong.of} numbers of {what} are wrong: number {wrong.index} is "
        saw += f"{wrong.got:g}, not {wrong.wanted:g}"
        goal = "what was sent" if bus else "the exact product: all its sums are whole numbers"
        yield _finding(
            world, "copy-wrong" if bus else "wrong-product", FAIL, [key], saw, expected=goal
        )
    if not seen.wrong and _promised(seen):
        for unlike in seen.unlike[:1]:
            saw = f"{unlike.count} of {unlike.of} numbers of the same product in {unlike.kind} had "
            saw += f"other bits at time {unlike.time}"
            goal = f"the same bits each time, as {seen.times} products on a sound GPU have"
            yield _finding(world, "bits-vary", FAIL, [key], saw, expected=goal)


def _promised(seen: Computed) -> bool:
    """Whether the library gives the same bits at every run; AMD's may add up in any order."""
    return bool(seen.software) and "HIP " not in seen.software


def _alone(world: World[Computed]) -> dict[str, Computed]:
    """Those that have a GPU for themselves."""
    users = Counter(_place(world, key) for key in world.seen)
    return {k: v for k, v in world.seen.items() if users[_place(world, k)] == 1}


def _place(world: World[Computed], key: str) -> tuple[str, str]:
    """The node and the GPU of a rank."""
    return place_of(key)[0], world.seen[key].card.identity


def _bits(world: World[Computed], sick: Collection[str]) -> Iterator[Finding]:
    """Products that differ between GPUs that must have the same. A GPU has one voice."""
    ill = {_place(world, key) for key in sick}
    voices = {_place(world, k): k for k, v in world.seen.items() if v.card.model and _promised(v)}
    sound = {k: world.seen[k] for place, k in sorted(voices.items()) if place not in ill}
    alike_ = {k: (v.card.kind, v.card.capability, v.software) for k, v in sound.items()}
    for odd in alike.odd_bits({k: v.digests for k, v in sound.items()}, alike_):
        model = sound[odd.keys[0]].card.model
        product, these = f"the product in {', '.join(odd.kinds)}", len(odd.keys)
        likely: dict[str, Any] = {"confidence": Confidence.LIKELY}
        if odd.sure:
            saw = f"{product} has other bits than on the other {odd.of - 1} x {model}"
            yield _finding(world, "bits-differ", FAIL, odd.keys, saw, **likely)
            continue
        saw = f"{product} has different bits on {these} x {model}"
        if these < odd.of:
            saw = f"{product} has the same other bits on {these} of {odd.of} x {model}"
        yield _finding(
            world,
            "bits-differ",
            UNDECIDED if odd.unclear else WARN,
            odd.keys,
            f"{saw}: {whom.ranks(world, odd.keys)}",
            blame=Blame.UNKNOWN,
            confidence=Confidence.POSSIBLE,
            alternatives=("a library or a setting that is not the same everywhere",),
        )


def _speed(world: World[Computed]) -> Iterator[Finding]:
    """GPUs that are slower than the others of their model."""
    seen = {k: v for k, v in _alone(world).items() if v.card.model}
    rates = {k: {_metric(r): r.rate for r in v.rates} for k, v in seen.items()}
    models = {k: v.card.kind for k, v in seen.items()}
    nodes = {k: place_of(k)[0] for k in seen}
    ways = {r.kind for v in seen.values() for r in v.rates} - set(SPEEDS)
    for code, found, goal in (
        ("gpu-slow", alike.behind(rates, models, SPEEDS), 1 - alike.SLOW),
        ("bus-slow", alike.behind_on_bus(rates, models, nodes, ways), 1 - alike.BUS_SLOW),
    ):
        for key, below in found.items():
            saw = " · ".join(_words(one) for one in below)
            yield _finding(
                world,
                code,
                WARN,
                [key],
                f"{saw} of {below[0].of} x {seen[key].card.model}",
                expected=f"at least {100 * goal:.0f} % of the median of its model",
                confidence=Confidence.LIKELY,
                alternatives=("another program is at work on it: gpu.health tells",),
            )


def _metric(rate: Rate) -> str:
    """What numbers of one size are compared under."""
    return f"{rate.kind} of {rate.size}"


def _words(below: Below) -> str:
    kind = below.metric.partition(" of ")[0]
    return (
        f"{kind} {_shown(kind, below.rate)}, {100 * below.rate / below.median:.0f} % of the median"
    )


def _shown(kind: str, *rates: float) -> str:
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
    most = {k: v for k, v in seen.items() if v.card.model == models[0][0]}
    kinds: dict[str, dict[str, float]] = {}
    for key, one in seen.items():
        for rate in (r for r in one.rates if 0 < r.rate < math.inf):
            kinds.setdefault(rate.kind, {})[key] = rate.rate
    words = []
    for kind, own in kinds.items():
        shown = [rate for key, rate in own.items() if key in most]
        if shown and kind in (*SPEEDS, products.TO):
            words.append(f"{kind} {_shown(kind, *shown)}")
    wrong = sum(bool(v.wrong or (v.unlike and _promised(v))) for v in seen.values())
    alone = _alone(world)
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
