"""gpu.p2p: content that changes on its way, copies that raise or never end, slow pairs; and silence
on whatever is healthy."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, world

from preflight.check import conforms
from preflight.checks import gpu_p2p
from preflight.domains.gpu import copy_probe
from preflight.domains.gpu.copy_results import Copied, Copy, CopyGpu, Pair
from preflight.host import Host
from preflight.humanize import MIB
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Confidence,
    Finding,
    Mark,
    Missing,
    Node,
    NotApplicable,
    Status,
    Topology,
)

conforms(gpu_p2p)

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
H100, L40S = "NVIDIA H100 80GB HBM3", "NVIDIA L40S"
SWITCH = "NVLink 18"


# --- what the judge makes of it ---


def node(
    count: int = 8,
    rate: float | Callable[[int, int], float] = 390.0,
    changed: Mapping[Pair, Mapping[str, object]] | None = None,
    *,
    name: str = H100,
    way: str | Callable[[int, int], str] = SWITCH,
    peer: bool = True,
    virtual: bool | None = False,
    **changes: object,
) -> Copied:
    """What was copied between so many GPUs, in GB/s; `changed`: of some pairs."""
    made = []
    for source, target in copy_probe.pair_order(range(count)):
        fast = rate(source, target) if callable(rate) else rate
        by = way(source, target) if callable(way) else way
        one = Copy(source, target, peer, by, rate=fast * 1e9)
        made.append(replace(one, **(changed or {}).get((source, target), {})))  # type: ignore[arg-type]
    parties = tuple(CopyGpu(n, name) for n in range(count))
    seen = Copied(parties, tuple(made), virtual=virtual)
    return replace(seen, **changes)  # type: ignore[arg-type]


ZEROS = {"wrong": "all 8388608 words wrong from byte 0 on: zeros arrived", "rate": None}
RAISED = {"error": "CUDA error: an illegal memory access was encountered", "rate": None}
FULL = {"error": "CUDA out of memory. Tried to allocate 64.00 MiB", "rate": None}
MANY = {"error": "CUDA error: peer mapping resources exhausted", "rate": None}


def at(number: int, how: Mapping[str, object], count: int = 8) -> dict[Pair, Mapping[str, object]]:
    """All pairs of one GPU."""
    return {pair: how for pair in itertools.permutations(range(count), 2) if number in pair}


def every(how: Mapping[str, object], count: int = 4) -> dict[Pair, Mapping[str, object]]:
    return dict.fromkeys(itertools.permutations(range(count), 2), how)


def silent(cause: Cause, *marks: str, seconds: float = 60.0) -> Missing:
    return Missing(cause, seconds=seconds, marks=tuple(Mark(name, 9.0) for name in marks))


def several(saw: Mapping[str, object]) -> Topology:
    nodes = tuple(Node(name, (i,)) for i, name in enumerate(saw))
    return Topology(launcher="SLURM", size=len(saw), nodes=nodes)


def of_nodes(name: str, saw: dict[str, Copied], *more: Any, **others: Any) -> Case:
    return Case(name, saw, *more, topology=several(saw), **others)


def sockets(one: int, other: int) -> str:
    """Eight cards, four below the switches of each socket."""
    return "PIX" if one // 2 == other // 2 else "PXB" if one // 4 == other // 4 else "SYS"


def socket_rates(one: int, other: int) -> float:
    return {"PIX": 26.0, "PXB": 24.0, "SYS": 9.0 if one < other else 6.0}[sockets(one, other)]


def slow_at(number: int, slow: float, fast: float = 390.0) -> Callable[[int, int], float]:
    return lambda one, other: slow if number in (one, other) else fast


def slow_pair(*pair: int, slow: float, fast: float = 390.0) -> Callable[[int, int], float]:
    return lambda one, other: slow if {one, other} == {*pair} else fast


def mesh(one: int, other: int) -> str:
    """V100 wired directly: two lanes to some, one to others, PCIe to the rest."""
    return ("NVLink 2", "NVLink 1", "SYS")[(one ^ other) % 3]


def mesh_rates(one: int, other: int) -> float:
    return {"NVLink 2": 96.0, "NVLink 1": 48.0, "SYS": 9.0}[mesh(one, other)]


def uneven(one: int, other: int) -> float:
    """Within a tenth of each other, as real ones are."""
    return 380.0 + (one * 7 + other * 13) % 30


HEALTHY = (
    Case("HGX H100", node(rate=uneven)),
    Case("two GPUs", node(2)),
    Case("sixteen GPUs behind NVSwitch", node(16, rate=uneven)),
    Case("slow, but all alike", node(rate=3.0)),
    Case("two sockets with PCIe switches", node(rate=socket_rates, way=sockets, name=L40S)),
    Case("the same in a virtual machine", node(rate=socket_rates, way="PIX", virtual=True)),
    Case("its topology is made up", node(rate=slow_at(2, 6.0, 25.0), way="PIX", virtual=True)),
    Case("below switches, not directly", node(rate=slow_at(2, 6.0), way="PIX", peer=False)),
    Case("what joins them is not known", node(rate=socket_rates, way="")),
    Case("one slot of four lanes, above it CPUs", node(4, rate=slow_at(3, 6.0, 25.0), way="PHB")),
    Case("V100 wired directly", node(rate=mesh_rates, way=mesh)),
    Case("all through the host's memory", node(rate=socket_rates, way="PHB", peer=False)),
    Case(
        "one way slower through the host's memory",
        node(2, rate=lambda one, other: 12.0 if one else 3.0, way="SYS", peer=False),
    ),
    Case(
        "two models in one machine",
        node(
            4,
            rate=slow_at(3, 60.0),
            parties=(*(CopyGpu(n, H100) for n in range(3)), CopyGpu(3, "NVIDIA A100-SXM4-80GB")),
        ),
    ),
    Case(
        "ten cards: CUDA maps eight peers each",
        node(10, 25.0, {(n, (n + 9) % 10): MANY for n in range(10)}, way="PHB"),
    ),
    of_nodes("many nodes", {f"n{i}": node(rate=uneven) for i in range(6)}),
    of_nodes(
        "PCIe of another generation in one node",
        {f"n{i}": node(4, rate=24.0 if i else 11.0, way="PIX") for i in range(6)},
    ),
    of_nodes(
        "smaller blocks on one node, whose memory is in use",
        {
            f"n{i}": node(2, rate=390.0 if i else 90.0, block=(64 if i else 4) * MIB)
            for i in range(6)
        },
    ),
    Case("torch sees no GPU", Missing(Cause.NOT_APPLICABLE, "torch sees no GPU here")),
    Case("another check blocks", Missing(Cause.BLOCKED, by="gpu.visible")),
    Case("CUDA does not start: not the pairs' matter", silent(Cause.TIMED_OUT, "CUDA")),
    Case("killed after all copies", silent(Cause.TIMED_OUT, "copy 0->1", copy_probe.AGAIN)),
    Case("interrupted in a copy", silent(Cause.INTERRUPTED, "copy 0->1", seconds=30.0)),
    Case("the budget was short", silent(Cause.TIMED_OUT, "copy 0->1", seconds=12.0)),
    Case("crashed: can't tell", silent(Cause.CRASHED, "copy 0->1")),
)

FAULTS = (
    Case(
        "one pair, one way",
        node(4, changed={(0, 3): ZEROS}),
        "copy-wrong",
        FAIL,
        subject="n1 · GPU 0",
    ),
    Case("two GPUs, both ways", node(2, changed=every(ZEROS, 2)), "copy-wrong", FAIL),
    Case("one GPU with all", node(changed=at(5, ZEROS)), "copy-wrong", FAIL, subject="n1 · GPU 5"),
    Case("all pairs", node(4, changed=every(ZEROS)), "copy-wrong", FAIL, subject="n1"),
    Case("raises", node(4, changed={(1, 2): RAISED}), "copy-fails", FAIL, subject="n1 · GPU 1"),
    Case(
        "never ends", node(4, changed={(1, 2): {"stuck": 12.0, "rate": None}}), "copy-hangs", FAIL
    ),
    Case(
        "blocks the worker",
        silent(Cause.TIMED_OUT, "CUDA", "copy 0->1", "copy 1->2"),
        "copy-hangs",
        FAIL,
        subject="n1 · GPU 1",
    ),
    Case("can't be killed", silent(Cause.UNKILLABLE, "copy 0->3"), "copy-hangs", FAIL),
    Case(
        "a wrong copy before the worker was lost",
        silent(Cause.CRASHED, "copy 0->1", "copy 1->0", "wrong 1->0: zeros", "copy 0->2"),
        "copy-wrong",
        FAIL,
    ),
    Case(
        "one GPU does a third",
        node(rate=slow_at(5, 130.0)),
        "copy-slow",
        WARN,
        subject="n1 · GPU 5",
    ),
    Case("of four", node(4, rate=slow_at(2, 130.0)), "copy-slow", WARN, subject="n1 · GPU 2"),
    Case(
        "one pair", node(rate=slow_pair(2, 6, slow=130.0)), "copy-slow", WARN, subject="n1 · GPU 2"
    ),
    Case(
        "one card below the switches",
        node(4, rate=slow_at(2, 6.0, 25.0), way="PIX", name=L40S),
        "copy-slow",
        WARN,
        subject="n1 · GPU 2",
    ),
    Case(
        "one way of two cards",
        node(2, rate=lambda one, other: 25.0 if one else 6.0, way="PHB"),
        "copy-slow",
        WARN,
        subject="n1 · GPU 0",
    ),
    of_nodes(
        "a bridge, by those of other nodes",
        {f"n{i}": node(2, rate=250.0 if i else 60.0, way="NVLink 12") for i in range(4)},
        "copy-slow",
        WARN,
        subject="n0 · GPU 0",
    ),
    Case(
        "one has no memory",
        node(
            parties=(
                *(CopyGpu(n, H100) for n in range(8)),
                CopyGpu(8, H100, "only 20 MiB are free"),
            )
        ),
        "copies-skipped",
        UNDECIDED,
        subject="n1 · GPU 8",
    ),
    Case(
        "no time",
        replace(node(4), copies=node(4).copies[:3], ended="there was no time for more"),
        "copies-skipped",
        UNDECIDED,
        subject="n1",
    ),
    Case("out of memory meanwhile", node(4, changed={(1, 2): FULL}), "copies-skipped", UNDECIDED),
    Case(
        "not waited for", node(2, changed={(0, 1): {"stuck": 0.9, "rate": None}}), "copies-skipped"
    ),
)
CASES = (*HEALTHY, *FAULTS)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(gpu_p2p, case)


@pytest.mark.parametrize("case", FAULTS, ids=lambda c: c.name)
def test_one_fault_is_one_finding(case: Case) -> None:
    assert len(judged(gpu_p2p, case)) == 1


def one(seen: Copied | Missing) -> Finding:
    (finding,) = judged(gpu_p2p, Case("", seen))
    return finding


def subjects(finding: Finding) -> list[str]:
    return [str(subject).removeprefix("n1 · ") for subject in finding.subjects]


def test_who_is_named() -> None:
    assert subjects(one(node(4, changed={(0, 3): ZEROS}))) == ["GPU 0", "GPU 3"]
    assert subjects(one(node(2, changed=every(ZEROS, 2)))) == ["GPU 0", "GPU 1"]
    assert subjects(one(node(changed=at(5, ZEROS)))) == ["GPU 5"]
    inbound = {pair: ZEROS for pair in itertools.permutations(range(4), 2) if pair[1] == 3}
    assert subjects(one(node(4, changed=inbound))) == ["GPU 3"]
    two = one(node(changed=at(5, ZEROS) | {(0, 1): ZEROS}))
    assert subjects(two) == ["GPU 0", "GPU 1", "GPU 5"]
    assert subjects(one(silent(Cause.TIMED_OUT, "copy 3->1"))) == ["GPU 3", "GPU 1"]


def test_what_is_said() -> None:
    finding = one(node(4, changed=every(ZEROS)))
    assert finding.saw == (
        "GPU 0->1, 1->2, 2->3, 3->0 and 8 more, of 12 pairs: "
        "all 8388608 words wrong from byte 0 on: zeros arrived"
    )
    assert finding.blame is Blame.NODE
    assert finding.confidence is Confidence.CERTAIN
    finding = one(node(2, changed=every(ZEROS, 2), peer=False))
    assert "of 2 pairs · through the host's memory: all" in finding.saw
    finding = one(silent(Cause.TIMED_OUT, "copy 0->1", "copy 1->2"))
    assert finding.saw == "the copy from GPU 1 to GPU 2 has not ended in 51.0 s"
    assert finding.confidence is Confidence.LIKELY
    finding = one(node(4, rate=slow_at(2, 130.0)))
    assert finding.saw == "GPU 1->2 130, 2->3 130, 0->2 130, 2->0 130 and 2 more GB/s"
    assert finding.expected == "about 390 GB/s, as the median of copies over NVLink 18"
    finding = one(node(2, rate=lambda one, other: 25.0 if one else 6.0, way="PHB"))
    assert finding.saw == "GPU 0->1 6.0 GB/s"
    assert finding.expected == "about 25.0 GB/s, as in the other direction"


def test_what_came_before_a_hang_is_not_lost() -> None:
    made = node(4).copies[:5]
    wrong = replace(made[1], wrong="zeros arrived")
    stuck = replace(made[4], stuck=12.0)
    seen = replace(node(4), copies=(made[0], wrong, *made[2:4], stuck), ended="it did not end")
    marks = [
        m for c in made for m in (f"copy {c}", *([f"wrong {c}: zeros arrived"] * (c is made[1])))
    ]
    for saw in (seen, silent(Cause.TIMED_OUT, *marks)):
        found = judged(gpu_p2p, Case("", saw))
        assert [f.code for f in found] == ["copy-wrong", "copy-hangs"]
        assert [subjects(f) for f in found] == [["GPU 1", "GPU 2"], ["GPU 0", "GPU 2"]]
    assert "7 of 12 pairs were not tried" in judged(gpu_p2p, Case("", seen))[0].saw


def test_the_advice_names_the_way_out() -> None:
    for code in ("copy-wrong", "copy-hangs"):
        advice = gpu_p2p.FINDINGS[code]
        assert "NCCL_P2P_DISABLE=1" in advice.now
        assert "iommu=pt" in advice.text
        assert "ACS off" in advice.text


def test_measured() -> None:
    shown = gpu_p2p.measured(world("gpu.p2p", node(rate=socket_rates, way=sockets)))
    assert shown.text == "56 pairs exact, 6.0-26.0 GB/s"
    assert shown.values["gb_per_s"]["n1"]["0->1"] == 26.0
    shown = gpu_p2p.measured(world("gpu.p2p", node(4, changed={(0, 3): ZEROS}, peer=False)))
    assert shown.text == "11 of 12 pairs exact, 390 GB/s · 11 through the host's memory"
    ten = node(10, 25.0, {(n, (n + 9) % 10): MANY for n in range(10)}, way="PHB")
    shown = gpu_p2p.measured(world("gpu.p2p", ten))
    assert shown.text == "80 pairs exact, 25.0 GB/s · 10 beyond eight peers a GPU"
    assert gpu_p2p.measured(world("gpu.p2p", {})).text == ""


def test_two_of_four_are_no_majority() -> None:
    assert not judged(gpu_p2p, Case("", node(3, rate=slow_at(2, 60.0))))
    half = node(4, rate=lambda one, other: 390.0 if {one, other} == {0, 1} else 60.0)
    assert all(len(f.subjects) == 2 for f in judged(gpu_p2p, Case("", half)))


def test_a_gpu_is_slow_only_if_its_best_copy_is() -> None:
    """Half of a GPU's pairs are slow: that is so many pairs, which may be the others' fault."""
    rates = {(5, n): 100.0 for n in range(3)} | {(n, 5): 100.0 for n in range(3)}
    seen = node(rate=lambda one, other: rates.get((one, other), 390.0))
    assert {len(f.subjects) for f in judged(gpu_p2p, Case("", seen))} == {2}


def test_it_survives_json() -> None:
    round_trips(node(4, changed={(0, 3): ZEROS, (1, 2): {"stuck": 12.0, "rate": None}}))


def test_here() -> None:
    """This machine, whatever it is: an answer that survives JSON, or a clear refusal."""
    with contextlib.suppress(NotApplicable, CannotObserve):
        round_trips(gpu_p2p.observe(Host(), context(seconds=20.0)))
