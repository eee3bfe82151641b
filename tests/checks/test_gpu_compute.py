"""gpu.compute: the GPU that computes wrongly, or slowly, is named, and none that merely differs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from support.cases import Case, assert_case, judged, topology, world
from support.compute_stand_in import perform
from support.ranks import run_ranks

from preflight.check import conforms
from preflight.checks import gpu_compute
from preflight.domains.gpu import matmul
from preflight.domains.gpu.compute_probe import Computed, RankGpu
from preflight.domains.gpu.matmul import Throughput, VaryingBits, WrongNumbers
from preflight.domains.torch.steps import Trouble
from preflight.expect import Expect
from preflight.model import Blame, Cause, Confidence, Finding, Mark, Missing, Node, Status, World

conforms(gpu_compute)

MODEL = "NVIDIA H100 80GB HBM3"
SOFTWARE = "torch 2.9.1, CUDA 12.8, cuBLAS 12.8.4, driver 570.86.15"
RATES = {"bf16": 615.0, "fp16": 640.0, "fp32": 51.0, "copy": 2610.0, "to GPU": 55.0}
DIGESTS = {"bf16": "037e63f55a89fd77", "fp16": "be646ecebf9a862a", "fp32": "6e96035ddda235f1"}


def rates(by: float = 1.0, **changed: float) -> tuple[Throughput, ...]:
    own = {kind: rate * by for kind, rate in RATES.items()}
    own |= {kind.replace("_", " "): rate for kind, rate in changed.items()}
    return tuple(Throughput(kind, 4096, rate, 9) for kind, rate in own.items())


def gpu(number: int = 0, **changes: Any) -> Computed:
    card = RankGpu(str(number), MODEL, f"GPU-{number}", "0000:18:00.0", "9.0", 132, 80 << 30)
    made = Computed(card, SOFTWARE, rates(), DIGESTS, 400)
    return replace(made, **changes)


def card(number: int = 0, **changes: Any) -> Computed:
    one = gpu(number)
    return replace(one, card=replace(one.card, **changes))


def eight(*odd: Any, node: str = "n1", first: int = 0) -> dict[str, Any]:
    """A node of eight, of which the last ones are these."""
    sound = [gpu(n, rates=rates(1 + n / 200)) for n in range(8 - len(odd))]
    return {f"{node}/{first + n}": seen for n, seen in enumerate((*sound, *odd))}


def two_nodes(*odd: Any) -> dict[str, Any]:
    return eight() | eight(*odd, node="n2", first=8)


NODES = topology(16, nodes=(Node("n1", tuple(range(8))), Node("n2", tuple(range(8, 16)))))
OTHER = DIGESTS | {"fp16": "0000000000000000"}
THIRD = DIGESTS | {"fp16": "1111111111111111"}
WRONG = WrongNumbers("bf16", 3, 16777216, 12345, 12.0, 11.0)
BUS = WrongNumbers(matmul.BUS, 1, 16777216, 9, 8.0, 0.0)
UNLIKE = VaryingBits("fp16", 1, 16777216, 7)
ON = " on GPU 7"


def failed(text: str, step: str = "matmul bf16 on GPU 7") -> Computed:
    return gpu(7, rates=(), digests={}, trouble=Trouble(step, "AcceleratorError", text))


def ended(step: str, cause: Cause = Cause.TIMED_OUT, waited: float = 58.0, detail: str = "") -> Any:
    marks = (Mark("start CUDA", 0.0), Mark(step, 60.0 - waited))
    return Missing(cause, detail or "no answer in 60.0 s, killed", 60.0, marks)


def mig(number: int, **changes: Any) -> Computed:
    one = gpu(number, **changes)
    slices = {"model": f"{MODEL} MIG 1g.10gb", "identity": f"MIG-{number}", "processors": 16}
    return replace(one, card=replace(one.card, memory=10 << 30, **slices))


HEALTHY = (
    Case("eight that differ by 4 %", eight()),
    Case("two nodes", two_nodes(), topology=NODES),
    Case("one GPU", gpu()),
    Case(
        "two, one at half speed: too few to say", {"n1/0": gpu(), "n1/1": gpu(1, rates=rates(0.5))}
    ),
    Case("two ranks on one GPU", eight(*[gpu(7, rates=rates(0.5))] * 2)),
    Case(
        "another model, slower and with other bits",
        eight(
            *(
                replace(card(n, model="NVIDIA A100"), rates=rates(0.4), digests=OTHER)
                for n in (5, 6, 7)
            )
        ),
    ),
    Case(
        "slices of MIG beside whole GPUs",
        eight(*(mig(n, rates=rates(0.1), digests=OTHER) for n in (4, 5, 6, 7))),
    ),
    Case(
        "no bf16",
        {
            f"n1/{n}": gpu(n, rates=rates()[1:], digests={"fp16": "a", "fp32": "b"})
            for n in range(4)
        },
    ),
    Case(
        "other software, other bits",
        eight(gpu(7, software="torch 2.8.0, CUDA 12.6", digests=OTHER)),
    ),
    Case("the far socket", eight(*(gpu(n, rates=rates(to_GPU=30.0)) for n in (4, 5, 6, 7)))),
    Case("one far GPU", eight(gpu(7, rates=rates(to_GPU=30.0)))),
    Case(
        "a node of three whose bus is of another kind",
        two_nodes() | eight(*[gpu(7, rates=rates(to_GPU=12.0))] * 8, node="n3", first=16),
        topology=topology(24, nodes=(*NODES.nodes, Node("n3", tuple(range(16, 24))))),
    ),
    # an older driver calls a slice as it calls the whole GPU
    Case("slices by processors", eight(replace(card(7, processors=16), rates=rates(0.1)))),
    Case("slices by memory", eight(replace(card(7, memory=10 << 30), rates=rates(0.5)))),
    Case("a GPU with less free memory", eight(gpu(7, rates=(Throughput("bf16", 2048, 300.0, 9),)))),
    Case(
        "memory that was not pinned",
        eight(gpu(7, rates=(*rates()[:4], Throughput("to GPU, unpinned", 4096, 9.0, 9)))),
    ),
    Case(
        "AMD's library adds up in another order",
        eight(
            *(
                gpu(n, software="torch 2.9.1, HIP 6.4", digests=OTHER, unlike=(UNLIKE,))
                for n in (6, 7)
            )
        ),
    ),
    Case("no GPU", Missing(Cause.NOT_APPLICABLE, "no NVIDIA GPU")),
)

CASES = (
    *HEALTHY,
    Case(
        "a wrong product",
        eight(gpu(7, wrong=(BUS, WRONG))),
        "matmul-wrong",
        Status.FAIL,
        subject="n1 · GPU 7",
    ),
    Case(
        "a wrong copy", eight(gpu(7, wrong=(BUS,))), "copy-wrong", Status.FAIL, subject="n1 · GPU 7"
    ),
    Case(
        "bits that change",
        eight(gpu(7, unlike=(UNLIKE,))),
        "bits-vary",
        Status.FAIL,
        subject="n1 · GPU 7",
    ),
    Case(
        "other bits on one of eight",
        eight(gpu(7, digests=OTHER)),
        "bits-differ",
        Status.FAIL,
        subject="n1 · GPU 7",
    ),
    Case(
        "other bits on one of sixteen",
        two_nodes(gpu(7, digests=OTHER)),
        "bits-differ",
        Status.FAIL,
        topology=NODES,
        subject="n2 · GPU 7",
    ),
    Case(
        "other bits on one of two",
        {"n1/0": gpu(), "n1/1": gpu(1, digests=OTHER)},
        "bits-differ",
        Status.UNDECIDED,
    ),
    Case(
        "three of three",
        {"n1/0": gpu(), "n1/1": gpu(1, digests=OTHER), "n1/2": gpu(2, digests=THIRD)},
        "bits-differ",
        Status.UNDECIDED,
    ),
    Case(
        "the same other bits on two",
        eight(*(gpu(n, digests=OTHER) for n in (6, 7))),
        "bits-differ",
        Status.WARN,
        subject="n1 · GPU 6",
    ),
    Case(
        "half and half",
        eight(*(gpu(n, digests=OTHER) for n in (4, 5, 6, 7))),
        "bits-differ",
        Status.WARN,
    ),
    Case(
        "a slow GPU",
        eight(gpu(7, rates=rates(bf16=402.0))),
        "gpu-slow",
        Status.WARN,
        subject="n1 · GPU 7",
    ),
    Case(
        "slow memory",
        two_nodes(gpu(7, rates=rates(copy=1300.0))),
        "gpu-slow",
        Status.WARN,
        topology=NODES,
        subject="n2 · GPU 7",
    ),
    Case(
        "a slow slice",
        eight(*(mig(n, rates=rates(0.7 if n == 7 else 1.0)) for n in range(3, 8))),
        "gpu-slow",
        subject="n1 · GPU 7",
    ),
    Case(
        "a slow bus",
        eight(gpu(7, rates=rates(to_GPU=13.0))),
        "bus-slow",
        Status.WARN,
        subject="n1 · GPU 7",
    ),
    Case(
        "CUDA fails",
        eight(failed("CUDA error: an illegal memory access was encountered")),
        "cuda-failed",
        Status.FAIL,
        subject="n1 · GPU 7",
    ),
    Case(
        "CUDA does not start",
        eight(failed("CUDA error: system not yet initialized")),
        "cuda-failed",
    ),
    Case(
        "a torch for other GPUs",
        eight(failed("no kernel image is available for execution")),
        "cuda-failed",
        Status.FAIL,
    ),
    Case(
        "a hang", eight(ended("matmul bf16" + ON)), "gpu-hangs", Status.FAIL, subject="n1 · GPU 7"
    ),
    Case("a hang that nothing ends", eight(ended("copy" + ON, Cause.UNKILLABLE)), "gpu-hangs"),
    Case("a hang at the start", eight(ended("start CUDA" + ON)), "gpu-hangs"),
    Case(
        "a hang before a GPU is known",
        eight(ended("start CUDA")),
        "gpu-hangs",
        subject="n1 · rank 7",
    ),
    Case("a slow start is no evidence", eight(ended("start CUDA" + ON, waited=40.0))),
    Case("a short limit is no evidence", eight(ended("copy" + ON, waited=4.0))),
    Case(
        "a crash",
        eight(ended("matmul bf16" + ON, Cause.CRASHED, detail="x\nkilled by SIGSEGV")),
        "gpu-crashes",
        Status.FAIL,
        subject="n1 · GPU 7",
    ),
    Case("the OOM killer", eight(ended("copy" + ON, Cause.CRASHED, detail="killed by SIGKILL"))),
    Case("our own bug", eight(ended("copy" + ON, Cause.CRASHED, detail="TypeError: ours"))),
    Case("interrupted", eight(ended("copy" + ON, Cause.INTERRUPTED))),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(gpu_compute, case)


def only(name: str) -> Finding:
    (finding,) = judged(gpu_compute, next(case for case in CASES if case.name == name))
    return finding


def test_what_a_finding_says() -> None:
    assert only("a wrong product").saw == (
        "3 of 16777216 numbers of a product in bf16 are wrong: number 12345 is 12, not 11"
    )
    assert only("a wrong product").confidence is Confidence.CERTAIN
    assert only("other bits on one of eight").saw == (
        f"the product in fp16 has other bits than on the other 7 x {MODEL}"
    )
    tie = only("other bits on one of two")
    assert tie.saw == f"the product in fp16 has different bits on 2 x {MODEL}: ranks 0-1"
    assert (tie.blame, tie.confidence) == (Blame.UNKNOWN, Confidence.POSSIBLE)
    assert [str(s) for s in tie.subjects] == ["n1 · GPU 0", "n1 · GPU 1"]
    several = only("the same other bits on two")
    assert several.saw == (
        f"the product in fp16 has the same other bits on 2 of 8 x {MODEL}: ranks 6-7"
    )
    slow = only("a slow GPU")
    assert slow.saw == f"bf16 402 TFLOP/s, 65 % of the median of 8 x {MODEL}"
    assert slow.expected == "at least 85 % of the median of its model"
    assert only("a slow bus").saw.startswith("to GPU 13 GB/s, 23 % of the median of 8 x")
    assert only("a hang").saw == "'matmul bf16 on GPU 7' did not end in 58.0 s"
    assert only("a hang that nothing ends").confidence is Confidence.CERTAIN
    assert only("a crash").saw == "rank 7 was killed by SIGSEGV in 'matmul bf16 on GPU 7'"
    assert only("a torch for other GPUs").blame is Blame.UNKNOWN
    assert only("CUDA fails").blame is Blame.NODE


def test_what_is_shown() -> None:
    def text(saw: Mapping[str, Any]) -> str:
        return gpu_compute.measured(world("gpu.compute", saw)).text

    assert text(eight()) == (
        "bf16 615–637 TFLOP/s · fp16 640–662 TFLOP/s · fp32 51–52.8 TFLOP/s · copy 2.61–2.7 TB/s · "
        "to GPU 55–56.9 GB/s · products exact"
    )
    assert text(eight(gpu(7, wrong=(WRONG,)))).endswith("· WRONG on 1 GPU")
    assert text({"n1/0": gpu()}).endswith("products exact · 1 GPU: too few to compare speed")
    assert text(eight(gpu(6), gpu(6))).endswith("ranks share GPUs: speed not judged")
    assert text(eight(card(7, model="NVIDIA A100"))).endswith(f"of 7 x {MODEL}")
    assert "exact" not in text({"n1/0": gpu(digests={})})
    assert text({"n1/0": Missing(Cause.NOT_APPLICABLE, "none")}) == ""
    values = gpu_compute.measured(world("gpu.compute", {"n1/0": gpu()})).values
    assert values["bf16_tflops"] == {"n1/0": 615.0}
    assert values["to_gpu_gbs"] == {"n1/0": 55.0}


def test_what_others_say_is_no_command() -> None:
    """A number that is none stands in no command."""
    (finding,) = judged(
        gpu_compute,
        Case("", eight(replace(gpu(7), card=RankGpu("0; reboot", MODEL), wrong=(WRONG,)))),
    )
    assert finding.fields == {"index": "INDEX"}
    assert str(finding.subjects[0]) == "n1 · rank 7"
    odd = (Throughput("bf16", 4096, float("nan"), 1), Throughput("fp16", 4096, math.inf, 1))
    strange = eight(gpu(7, rates=(*odd, Throughput("copy", 4096, -1.0, 0))))
    assert judged(gpu_compute, Case("", strange)) == []
    text = gpu_compute.measured(world("gpu.compute", strange)).text
    assert not {"nan", "inf"} & set(re.findall("[a-z]+", text))


def test_who_computes_wrongly_is_no_witness() -> None:
    ill = {"n1/0": gpu(), "n1/1": gpu(1, digests=OTHER, wrong=(WRONG,))}
    assert [f.code for f in judged(gpu_compute, Case("", ill))] == ["matmul-wrong"]


def one_by_one(faults: Mapping[int, Mapping[str, str]], **more: Any) -> World[Computed]:
    of = {rank: {"STAND_IN_" + k: v for k, v in own.items()} for rank, own in faults.items()}
    return run_ranks("gpu.compute", len(faults), target=perform, env_of=of, **more)


def found(seen: World[Computed]) -> set[tuple[str, str]]:
    """What is wrong; how fast they are says nothing: they all are the same few CPUs."""
    findings = gpu_compute.judge(seen, Expect())
    return {(str(f.subjects[0]), f.code) for f in findings if not f.code.endswith("-slow")}


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_a_gpu_that_computes_wrongly_is_found_among_others() -> None:
    seen = one_by_one(
        {0: {}, 1: {"FAULT": "flip", "MAJOR": "7"}, 2: {}, 3: {"FAULT": "alike"}},
        seconds=360.0,  # a CPU computes what a GPU should, and others may want it, too
    )
    assert found(seen) == {("n1 · GPU 1", "matmul-wrong"), ("n1 · GPU 3", "bits-differ")}
    sound, old = seen.seen["n1/0"], seen.seen["n1/1"]
    assert [r.kind for r in sound.rates[:4]] == ["bf16", "fp16", "fp32", "copy"]
    assert [r.kind for r in old.rates[:3]] == ["fp16", "fp32", "copy"]
    assert sound.digests == seen.seen["n1/2"].digests


@pytest.mark.torch
def test_what_ends_early_is_named() -> None:
    seen = one_by_one(
        {0: {"FAULT": "error"}, 1: {"FAULT": "full"}, 2: {"FAULT": "crash"}, 3: {"FAULT": "hang"}},
        seconds=10.0,
    )
    full, hung = (seen.missing()[f"n1/{rank}"] for rank in (1, 3))
    # how late it is killed is a busy machine's affair
    early = replace(hung, seconds=hung.marks[-1].at + 9.0)
    assert found(replace(seen, observations={**seen.observations, "n1/3": early})) == {
        ("n1 · GPU 0", "cuda-failed"),
        ("n1 · GPU 2", "gpu-crashes"),
    }
    assert full.cause is Cause.CANNOT_OBSERVE
    assert full.detail.startswith("exact product bf16 on GPU 1: CUDA out of memory")
    assert hung.last_mark == "exact product bf16 on GPU 3"
    late = {**seen.observations, "n1/3": replace(hung, seconds=60.0)}
    assert ("n1 · GPU 3", "gpu-hangs") in found(replace(seen, observations=late))


@pytest.mark.torch
def test_without_a_gpu_there_is_nothing_to_look_at() -> None:
    seen = run_ranks("gpu.compute", 2)
    assert seen.missing(Cause.NOT_APPLICABLE) == seen.observations
