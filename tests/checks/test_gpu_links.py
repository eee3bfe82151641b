"""gpu.links: lanes that are down, P2P that is off or in the way of an IOMMU; nothing elsewhere."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from lab import nvml
from support import amd_cases
from support.cases import Case, assert_case, context, judged, round_trips, topology, world
from support.pci_config import config

from preflight.check import conforms
from preflight.checks import gpu_links
from preflight.checks.gpu_links import GpuLinks
from preflight.domains import pci
from preflight.domains.gpu import nvlink
from preflight.domains.gpu.nvlink import GpuTopology, Lane, LinkedGpu, Pair
from preflight.host import Host
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Confidence,
    Mark,
    Missing,
    Node,
    NotApplicable,
    Status,
    Topology,
)

conforms(gpu_links)

FAIL, WARN = Status.FAIL, Status.WARN
H100, A100, L40S = "NVIDIA H100 80GB HBM3", "NVIDIA A100-PCIE-40GB", "NVIDIA L40S"
RTX4090, RTX3090 = "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090"
SWITCH = "0000:c0:00.0"
TORCHRUN = topology(4, launcher="torchrun")


def bus(index: int) -> str:
    return f"0000:{0x18 + 0x10 * index:02x}:00.0"


def lane(number: int, to: str = SWITCH, kind: int = 2) -> Lane:
    return Lane(number, active=True, version=4, remote=to, kind=kind)


def lanes(up: int, of: int | None = None, **to: object) -> tuple[Lane, ...]:
    """The first `up` links are up, the others down."""
    down = tuple(Lane(n, active=False) for n in range(up, up if of is None else of))
    return (*(lane(n, **to) for n in range(up)), *down)  # type: ignore[arg-type]


def gpu(index: int, name: str = H100, **changes: object) -> LinkedGpu:
    made = LinkedGpu(index, name, f"GPU-{index}a", bus(index), mig=False, virtual=0)
    return replace(made, **changes)


def node(
    gpus: tuple[LinkedGpu, ...],
    status: int | None = 0,
    near: int = nvlink.SYSTEM,
    pairs: Mapping[tuple[int, int], int | None] | None = None,
    redirects: Mapping[str, int] | None = None,
    driver: str = "550.54.15",
    **changes: object,
) -> GpuLinks:
    """A node with these GPUs; `status` of P2P is that of all pairs but those in `pairs`."""
    of = {
        key: (pairs or {}).get(key, status) for key in itertools.combinations(range(len(gpus)), 2)
    }
    made = tuple(Pair(*key, read=s, write=s, nvlink=s, level=near) for key, s in of.items())
    joined = GpuTopology(
        driver=driver, count=len(gpus), gpus=gpus, pairs=made, redirects=redirects or {}
    )
    return replace(GpuLinks(joined, virtual=False), **changes)


def switched(count: int = 8, **changes: object) -> GpuLinks:
    """An HGX board: every GPU has 18 lanes to the switches."""
    return node(tuple(gpu(i, lanes=lanes(18)) for i in range(count)), **changes)  # type: ignore[arg-type]


def short(*those: int, up: int = 16, count: int = 8, **changes: object) -> GpuLinks:
    """An HGX board where these GPUs have fewer lanes."""
    each = (gpu(i, lanes=lanes(up if i in those else 18, 18)) for i in range(count))
    return node(tuple(each), **changes)  # type: ignore[arg-type]


def bridged(*, pairs: int = 1, cards: int = 4, up: int = 12, **changes: object) -> GpuLinks:
    """PCIe cards, of which the first `pairs` pairs carry bridges."""
    made = []
    for index in range(cards):
        joined = index < 2 * pairs
        made.append(
            gpu(index, A100, lanes=lanes(up if joined else 0, 12, to=bus(index ^ 1), kind=0))
        )
    return node(tuple(made), **changes)  # type: ignore[arg-type]


FULL, HALF = 26562, 13281
"""MB/s of a lane of an H100, and of one at half of its speed."""


def at_speed(
    *those: tuple[int, int], speed: int = HALF, usual: int | None = FULL, count: int = 4
) -> GpuLinks:
    """An HGX board whose lanes have the usual speed, but `those`, (GPU, lane), another one."""
    seen = switched(count)
    gpus = (
        replace(
            gpu,
            lanes=tuple(
                replace(lane, speed=speed if (gpu.index, lane.number) in those else usual)
                for lane in gpu.lanes
            ),
        )
        for gpu in seen.joined.gpus
    )
    return replace(seen, joined=replace(seen.joined, gpus=tuple(gpus)))


def every_lane(index: int) -> list[tuple[int, int]]:
    return [(index, number) for number in range(18)]


def renamed(seen: GpuLinks, name: str, *those: int) -> GpuLinks:
    """The same with another model at these places."""
    gpus = (replace(gpu, name=name) if gpu.index in those else gpu for gpu in seen.joined.gpus)
    return replace(seen, joined=replace(seen.joined, gpus=tuple(gpus)))


def unlinked(seen: GpuLinks) -> GpuLinks:
    """The same GPUs without any lane, as the driver shows them with NVLink off."""
    gpus = tuple(replace(gpu, lanes=()) for gpu in seen.joined.gpus)
    return replace(seen, joined=replace(seen.joined, gpus=gpus), disabled=True, option=DWORD)


DWORD = "RegistryDwords: RMNvLinkEnable=0x0"
ROOT, UP = "0000:00:01.0", "0000:15:00.0"


def below_a_switch(index: int) -> tuple[str, ...]:
    return (ROOT, UP, f"0000:16:{index:02x}.0")


def wired(
    name: str = L40S, cards: int = 4, iommu: str = "", near: int = nvlink.SINGLE, **changes: object
) -> GpuLinks:
    """Cards without NVLink below one PCIe switch, with P2P over PCIe."""
    made = (gpu(i, name, above=below_a_switch(i), iommu=iommu) for i in range(cards))
    return node(tuple(made), near=near, **changes)  # type: ignore[arg-type]


ACS = {ROOT: 0x1D, UP: 0, "0000:16:00.0": 0x1D, "0000:16:01.0": 0x1D}
ACS_PASSES = dict.fromkeys(ACS, 0x11)
"""Source validation and upstream forwarding: nothing is redirected."""


def several(saw: Mapping[str, GpuLinks], ranks: int = 8) -> Topology:
    nodes = (Node(name, tuple(range(ranks * i, ranks * (i + 1)))) for i, name in enumerate(saw))
    return Topology(launcher="SLURM", size=ranks * len(saw), nodes=tuple(nodes))


def silent(cause: Cause, *marks: str) -> Missing:
    return Missing(cause, seconds=5.0, marks=tuple(Mark(name, 0.01) for name in marks))


def case(name: str, saw: dict[str, GpuLinks], *more: object, **others: object) -> Case:
    """Of several nodes."""
    return Case(name, saw, *more, topology=several(saw), **others)  # type: ignore[arg-type]


def mig(index: int, up: int = 18) -> LinkedGpu:
    return gpu(index, lanes=lanes(up, 18), mig=True)


def mesh(up: tuple[int, ...]) -> GpuLinks:
    """Four V100 that are wired to each other directly, with so many lanes up each."""
    made = (
        gpu(i, "Tesla V100-SXM2-16GB", lanes=lanes(n, 6, to=bus((i + 1) % 4), kind=0))
        for i, n in enumerate(up)
    )
    return node(tuple(made))


hgx = tuple(gpu(i, lanes=lanes(18)) for i in range(3))
passed = tuple(gpu(i, L40S, iommu="DMA", virtual=1) for i in range(2))
pair_of_a100 = bridged(cards=2).joined.gpus


def untold(seen: GpuLinks) -> GpuLinks:
    """NVML doesn't permit queries of links."""
    return replace(seen, joined=replace(seen.joined, refused=(nvlink.STATE,)))


SLOW = at_speed((2, 7))

HEALTHY = (
    Case("HGX H100", switched()),
    Case("HGX H100 under torchrun", switched(4), topology=TORCHRUN),
    case("two HGX H100", {"n1": switched(), "n2": switched()}),
    Case("one GPU", switched(1)),
    Case("NVLink without P2P, and NCCL told not to use it", switched(status=4, disable="1")),
    Case("one GPU of four in MIG mode, its lanes down", node((*hgx, mig(3, 0)))),
    Case("pairs at several host bridges differ", wired(near=nvlink.BRIDGE, pairs={(0, 1): 1})),
    Case("a passed through GPU, its lanes down", short(0, up=0, count=1, virtual=True)),
    case(
        "such a machine among full boards",
        {"n1": switched(), "n2": switched(), "n3": short(0, up=0, count=1)},
    ),
    Case("PCIe cards without a bridge", bridged(pairs=0)),
    Case("one bridge between three cards", bridged(pairs=1, cards=3)),
    Case("one bridge in a box of four", bridged(pairs=1)),
    case("bridges on one of two nodes", {"n1": bridged(pairs=0), "n2": bridged()}),
    Case("V100 wired directly", mesh((6, 6, 6, 6))),
    Case("a share of a board in a virtual machine", replace(mesh((6, 6, 6, 4)), virtual=True)),
    Case("A800: a third of its lanes is off on all", short(*range(8), up=12)),
    Case("MIG has no P2P", node(tuple(mig(i) for i in range(4)), status=nvlink.UNSUPPORTED)),
    Case(
        "vGPU has none either",
        node(tuple(gpu(i, "NVIDIA A40-48Q", virtual=2) for i in range(2)), status=5),
    ),
    Case("GeForce without P2P", wired(RTX4090, status=1, near=nvlink.BRIDGE)),
    Case("GeForce on patched modules", wired(RTX4090, driver="565.57.01")),
    Case("old driver, but P2P switched off", wired(RTX4090, driver="525.60", disable="1")),
    Case("IOMMU in identity mode", wired(iommu="identity")),
    Case("IOMMU, nothing says in which mode", wired(iommu="unknown")),
    Case(
        "IOMMU, but NVLink", node(tuple(gpu(i, lanes=lanes(18), iommu="DMA-FQ") for i in range(4)))
    ),
    Case("IOMMU in a virtual machine", wired(iommu="DMA", virtual=True, redirects=ACS)),
    Case("IOMMU, nothing tells about a hypervisor", wired(iommu="DMA", virtual=None)),
    Case("passed through, says NVML", node(passed, near=nvlink.SINGLE)),
    Case("IOMMU, but too far apart for P2P", wired(iommu="DMA", near=nvlink.SYSTEM)),
    Case("IOMMU, but no P2P anyway", wired(iommu="DMA", status=3)),
    Case("IOMMU, P2P switched off", wired(iommu="DMA", disable="1", redirects=ACS)),
    Case("IOMMU, P2P over NVLink only", wired(iommu="DMA", level="NVL")),
    Case("the host groups GPUs of its virtual machine", wired(pairs={(0, 1): 1}, virtual=True)),
    Case("IOMMU, one rank", wired(iommu="DMA"), topology=topology(1, launcher="torchrun")),
    Case("ACS that redirects nothing", wired(redirects=ACS_PASSES)),
    Case("ACS above the shared switch only", wired(redirects={ROOT: 0x1D, UP: 0x1D})),
    Case("GeForce, and a level that NCCL doesn't know", wired(RTX3090, status=1, level="pix")),
    Case("nothing was seen", {}),
    Case("no GPU", Missing(Cause.NOT_APPLICABLE, gpu_links.NOTHING)),
    Case("another check blocks", Missing(Cause.BLOCKED, by="gpu.visible")),
    Case("crashed: can't tell", silent(Cause.CRASHED, "nvmlInit", "NVLink of GPU 0")),
    Case("hangs before any link: gpu.visible's", silent(Cause.TIMED_OUT, "nvmlInit")),
    Case("pairs that NVML doesn't tell", node((gpu(0, L40S), gpu(1, L40S)), status=None)),
    Case("links that NVML doesn't tell", untold(node((gpu(0), gpu(1))))),
    Case("an H100 and a display GPU", node((*hgx, gpu(3, "NVIDIA T400 4GB")))),
    Case("PCIe cards, and the driver's option", replace(wired(), disabled=True)),
    Case("the driver's option, and lanes that are up", replace(switched(), disabled=True)),
    case(
        "the driver's option on two nodes without bridges",
        dict.fromkeys(("n1", "n2"), unlinked(bridged())),
    ),
    case(
        "the driver's option on a node with one card, bridges on another",
        {"n1": bridged(), "n2": unlinked(bridged(cards=1))},
    ),
    Case("all lanes at full speed", at_speed()),
    Case("all lanes are slow alike", at_speed(usual=HALF)),
    Case("no speed is told", at_speed(usual=None)),
    Case("one speed is told", at_speed((2, 7), usual=None)),
    Case("a speed that is not told beside others", at_speed((2, 7), speed=0)),
    Case("speeds that differ by less than 2 %", at_speed((2, 7), (1, 3), speed=26100)),
    Case("one lane is faster", at_speed((2, 7), speed=2 * FULL)),
    Case("two GPUs that differ", at_speed(*every_lane(1), count=2)),
    Case("half of a board is slower", at_speed(*every_lane(1), *every_lane(2))),
    Case(
        "two models with speeds of their own",
        renamed(at_speed(*every_lane(2), *every_lane(3)), "NVIDIA A100-SXM4-80GB", 2, 3),
    ),
    Case("two lanes in all", bridged(cards=2, up=1)),
    Case("GPUs in instances", node(tuple(replace(g, mig=True) for g in SLOW.joined.gpus))),
    Case("one card of a bridged pair of pairs is laneless", node((*pair_of_a100, gpu(2, A100)))),
    Case("an SXM GPU of a guest", node((gpu(0),), virtual=True)),
)

BROKEN = {pair: nvlink.UNSUPPORTED for pair in itertools.combinations(range(8), 2) if 3 in pair}
NO_LANES = (
    Case("no lane of one passed through alone", short(0, up=0, count=1)),
    Case("no lane of a board of which nothing says whether it is one", bridged(pairs=0)),
    Case(
        "no lane of GPUs in instances",
        node(tuple(gpu(i, lanes=lanes(0, 18), mig=True) for i in range(4))),
    ),
    Case(
        "no lane of a node's H100 of PCIe",
        node(tuple(gpu(i, "NVIDIA H100 PCIe", lanes=lanes(0, 12)) for i in range(4))),
    ),
)

FAULTS = (
    Case("two lanes of one GPU", short(3), "nvlink-down", WARN, subject="n1 · GPU 3"),
    Case("no lane", short(3, up=0), "nvlink-down", FAIL, subject="n1 · GPU 3"),
    case(
        "no lane on a whole node",
        {"n1": switched(), "n2": switched(), "n3": short(*range(8), up=0)},
        "nvlink-down",
        FAIL,
        subject="n3 · GPU 0",
    ),
    Case(
        "no lane on any GPU of a board",
        short(*range(8), up=0),
        "nvlink-down",
        WARN,
        subject="n1 · GPU 0",
    ),
    Case("no lane of a guest", short(*range(4), up=0, count=4, virtual=True), "nvlink-down", WARN),
    Case(
        "a GPU without any link beside twins with 18",
        node((*hgx, gpu(3))),
        "nvlink-down",
        FAIL,
        subject="n1 · GPU 3",
    ),
    Case(
        "an SXM board without any link",
        node(tuple(gpu(i) for i in range(4)), disabled=False),
        "nvlink-down",
        WARN,
    ),
    case(
        "one node of two has no link",
        {"n1": switched(4), "n2": node(tuple(gpu(i) for i in range(4)))},
        "nvlink-down",
        WARN,
        subject="n2 · GPU 0",
    ),
    Case(
        "NVLink switched off in the driver",
        node(tuple(gpu(i) for i in range(4)), disabled=True),
        "nvlink-disabled",
        WARN,
        subject="n1 · GPU 0",
    ),
    case(
        "the same on one node of three",
        {
            **{"n1": switched(4), "n2": switched(4)},
            "n3": node(tuple(gpu(i) for i in range(4)), disabled=True),
        },
        "nvlink-disabled",
        WARN,
        subject="n3 · GPU 0",
    ),
    Case(
        "the same by a registry key",
        unlinked(switched()),
        "nvlink-disabled",
        WARN,
        subject="n1 · GPU 0",
    ),
    case(
        "cards whose bridges are up on another node, and NVLink off here",
        {"n1": bridged(), "n2": unlinked(bridged())},
        "nvlink-disabled",
        WARN,
        subject="n2 · GPU 0",
    ),
    case(
        "the same where it would be a bridge that most have",
        {"n1": bridged(), "n2": bridged(), "n3": unlinked(bridged())},
        "nvlink-disabled",
        WARN,
        subject="n3 · GPU 0",
    ),
    Case("one slow lane", SLOW, "nvlink-slow", WARN, subject="n1 · GPU 2"),
    Case(
        "all lanes of one GPU of four",
        at_speed(*every_lane(3)),
        "nvlink-slow",
        WARN,
        subject="n1 · GPU 3",
    ),
    Case(
        "one slow lane of one GPU alone",
        at_speed((0, 17), count=1),
        "nvlink-slow",
        WARN,
        subject="n1 · GPU 0",
    ),
    case("on one node of two", {"n1": at_speed(), "n2": SLOW}, "nvlink-slow", WARN),
    case(
        "one GPU a node",
        {"n1": switched(1), "n2": switched(1), "n3": short(0, count=1)},
        "nvlink-down",
        WARN,
        subject="n3 · GPU 0",
    ),
    case(
        "one lane between two V100, by the other nodes",
        {"n1": mesh((6, 6, 6, 6)), "n2": mesh((5, 5, 6, 6))},
        "nvlink-down",
        WARN,
        subject="n2 · GPU 0",
    ),
    case(
        "a bridge that two nodes have",
        {"n1": bridged(), "n2": bridged(), "n3": bridged(pairs=0)},
        "nvlink-differs",
        WARN,
        subject="n3",
    ),
    Case("NVLink, but no P2P with one GPU", switched(pairs=BROKEN), "nvlink-p2p-off", FAIL),
    Case("below one switch", switched(pairs=BROKEN, near=nvlink.SINGLE), "nvlink-p2p-off", FAIL),
    Case("with none", switched(status=4), "nvlink-p2p-off", FAIL, subject="n1"),
    Case("and NCCL told to ignore it", switched(status=4, ignore="1"), "nvlink-p2p-off", WARN),
    Case("bridged cards", bridged(status=5), "nvlink-p2p-off", FAIL, subject="n1"),
    Case("one pair without P2P", wired(pairs={(0, 1): 1}), "p2p-differs", WARN),
    case(
        "P2P switched off on one node",
        {"n1": wired(), "n2": wired(), "n3": wired(status=nvlink.BY_REGKEY)},
        "p2p-differs",
        WARN,
        subject="n3 · GPU 0",
    ),
    Case(
        "driver that only claims P2P", wired(RTX4090, driver="525.60.11"), "p2p-misreported", WARN
    ),
    Case(
        "GeForce asked for P2P",
        wired(RTX4090, status=1, near=nvlink.NODE, level="SYS"),
        "p2p-unsupported",
        WARN,
    ),
    Case("the same by an old number", wired(RTX3090, status=3, level="4"), "p2p-unsupported", WARN),
    Case("IOMMU translates", wired(iommu="DMA-FQ"), "p2p-iommu", WARN, subject="n1"),
    Case(
        "two cards of an AMD machine", wired(cards=2, iommu="DMA", near=50, amd=True), "p2p-iommu"
    ),
    Case("as far as it was asked", wired(iommu="DMA", near=50, level="SYS"), "p2p-iommu"),
    Case("ACS redirects", wired(redirects=ACS), "p2p-acs", WARN, subject="n1"),
    Case("links hang", silent(Cause.TIMED_OUT, "NVLink of GPU 2"), "links-hang", FAIL),
    Case(
        "pairs hang",
        silent(Cause.UNKILLABLE, "NVLink of GPU 2", "P2P of GPU 1"),
        "links-hang",
        FAIL,
        subject="n1 · GPU 1",
    ),
)
CASES = (*HEALTHY, *NO_LANES, *FAULTS, *amd_cases.LINKS)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(gpu_links, case)


def test_every_code_has_a_case() -> None:
    assert {c.code for c in CASES} - {None} == set(gpu_links.FINDINGS)


@pytest.mark.parametrize("case", FAULTS, ids=lambda c: c.name)
def test_one_fault_is_one_finding(case: Case) -> None:
    assert len(judged(gpu_links, case)) == 1


def test_a_lane_is_named() -> None:
    (finding,) = judged(gpu_links, Case("", short(3, 5)))
    assert finding.saw == (
        "GPU 3: link 16, 17 down, 16 of 18 lanes up · GPU 5: link 16, 17 down, 16 of 18 lanes up"
    )
    assert finding.blame is Blame.NODE
    assert [str(s) for s in finding.subjects] == ["n1 · GPU 3", "n1 · GPU 5"]


def test_a_slow_lane_is_named_with_both_speeds() -> None:
    (finding,) = judged(gpu_links, Case("", at_speed((2, 7), (1, 0), (1, 3))))
    assert (
        finding.saw
        == "GPU 1: lanes 0, 3 at 13281 of 26562 MB/s · GPU 2: lane 7 at 13281 of 26562 MB/s"
    )
    assert finding.expected == f"26562 MB/s, as on 69 of 72 lanes of {H100} here"
    assert [str(s) for s in finding.subjects] == ["n1 · GPU 1", "n1 · GPU 2"]
    assert finding.blame is Blame.NODE


def test_what_switches_nvlink_off_is_named() -> None:
    (finding,) = judged(gpu_links, Case("", unlinked(switched(4))))
    assert finding.saw == f"{DWORD} in {nvlink.PARAMETERS} · none of 4 {H100} has a link"
    assert finding.confidence is Confidence.CERTAIN
    both = {"n1": bridged(), "n2": unlinked(bridged())}
    (finding,) = judged(gpu_links, case("", both))
    assert finding.expected == "lanes that are up, as on other nodes with this model"
    assert finding.confidence is Confidence.LIKELY


def test_lanes_that_are_off_on_all_are_not_named() -> None:
    """A model that uses twelve of its eighteen links, and one that has lost another."""
    gpus = (
        gpu(i, "NVIDIA A800-SXM4-80GB", lanes=lanes(11 if i == 2 else 12, 18)) for i in range(4)
    )
    (finding,) = judged(gpu_links, Case("", node(tuple(gpus))))
    assert finding.saw == "GPU 2: link 11 down, 11 of 12 lanes up"


def test_two_that_differ_are_no_majority() -> None:
    assert not judged(gpu_links, Case("", short(1, count=2)))
    apart = {"n1": switched(1), "n2": short(0, count=1)}
    assert not judged(gpu_links, case("", apart))
    assert not judged(gpu_links, case("", {"n1": wired(cards=2), "n2": wired(cards=2, status=1)}))
    half = bridged(pairs=1, cards=2), bridged(pairs=1, cards=2, up=4)
    assert not judged(gpu_links, case("", dict(zip(("n1", "n2"), half, strict=True))))


def test_the_gpu_is_named_that_no_other_one_reaches() -> None:
    (finding,) = judged(gpu_links, Case("", switched(pairs=BROKEN)))
    assert [str(s) for s in finding.subjects] == ["n1 · GPU 3"]
    assert finding.confidence is Confidence.CERTAIN


def test_a_driver_that_is_known_to_be_wrong_is_said() -> None:
    """Release notes of 535.183.06: H100 boards of which NVML said that some GPUs have no P2P."""
    (finding,) = judged(gpu_links, Case("", switched(pairs=BROKEN, driver="535.104.05")))
    assert finding.alternatives
    assert finding.confidence is Confidence.LIKELY


def test_only_the_gpus_of_the_job_count() -> None:
    """A pair that NCCL won't meet is a warning about the node."""
    saw = switched(pairs=BROKEN)

    def status(ranks: int, **changes: object) -> Status:
        top = topology(ranks, launcher="torchrun")
        (finding,) = judged(gpu_links, Case("", replace(saw, **changes), topology=top))
        return finding.status

    assert status(4) is FAIL
    assert status(3) is WARN  # these take the first three
    assert status(1) is WARN
    assert status(4, mask="0,1,2,4,3") is WARN
    assert status(4, mask="3,2,1,0") is FAIL
    assert status(4, mask="0") is FAIL  # every task has a mask of its own: this isn't the job's
    far_apart = wired(iommu="DMA", mask="0", cards=4)
    assert not judged(gpu_links, Case("", far_apart, topology=topology(1, launcher="torchrun")))


def test_measured_says_what_there_is() -> None:
    text = gpu_links.measured(world("gpu.links", switched())).text
    assert text == "18 NVLink lanes per GPU · P2P 28 of 28 pairs · SYS"
    text = gpu_links.measured(world("gpu.links", wired(RTX4090, status=1, near=30))).text
    assert text == "no NVLink · P2P 0 of 6 pairs (chipset not supported) · PHB"
    saw = wired(iommu="DMA")
    saw = replace(saw, joined=replace(saw.joined, hidden=(ROOT, UP)))
    assert gpu_links.measured(world("gpu.links", saw)).text.endswith("IOMMU DMA · ACS not readable")


# --- what is observed ---


def machine(
    root: Path, gpus: int = 2, mode: str = "DMA", control: int = 0x1D, flags: str = "fpu sse"
) -> None:
    """The /sys and /proc of a machine whose GPUs lie below one PCIe switch."""
    nvml.machine(root, 0)
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    (root / "proc/cpuinfo").write_text(
        f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\n"
    )
    for index in range(gpus):
        above = below_a_switch(index)
        place = Path("devices/pci0000:00", *above, bus(index))
        real = root / "sys" / place
        real.mkdir(parents=True)
        (devices / bus(index)).symlink_to(Path("../../..") / place)
        group = root / f"sys/kernel/iommu_groups/{index + 7}"
        group.mkdir(parents=True)
        (group / "type").write_text(mode + "\n")
        (real / "iommu_group").symlink_to(f"../../../../../../kernel/iommu_groups/{index + 7}")
        for depth, bridge in enumerate(above):
            if not (devices / bridge).exists():
                folder = Path("devices/pci0000:00", *above[: depth + 1])
                (devices / bridge).symlink_to(Path("../../..") / folder)
                (root / "sys" / folder / "config").write_bytes(config(control))


def observed(
    root: Path, scenario: dict[str, object], gpus: int = 2, environ: Mapping[str, str] | None = None
) -> GpuLinks:
    seen = nvml.observed(
        "gpu.links", nvml.settings(gpus, scenario), root=root, environ=dict(environ or {})
    )
    assert not seen.raised, seen
    round_trips(seen.value)
    value: GpuLinks = seen.value
    return value


def test_here() -> None:
    """This machine, whatever it is: an answer that survives JSON, or a clear refusal."""
    with contextlib.suppress(NotApplicable):
        round_trips(gpu_links.observe(Host(), context()))


def test_without_a_gpu_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    assert nvml.observed("gpu.links", None, root=tmp_path).raised == "NotApplicable"
    assert nvml.observed("gpu.links", {"count": 0}, root=tmp_path).raised == "NotApplicable"
    # NVML that may not be asked is neither green nor red
    refused = nvml.observed("gpu.links", {"count": 1, "error.nvmlInit": 4}, root=tmp_path)
    assert refused.raised == "CannotObserve"


def test_a_copied_tree_can_not_answer(tmp_path: Path) -> None:
    with pytest.raises(CannotObserve):
        gpu_links.observe(Host(str(tmp_path)), context())


def test_observe_a_board_with_switches(tmp_path: Path) -> None:
    machine(tmp_path, gpus=4)
    scenario: dict[str, object] = {"links": 18, "gpu2.link4.state": 0, "gpu2.link7.state": 0}
    seen = observed(tmp_path, scenario, gpus=4)
    assert [g.active for g in seen.joined.gpus] == [18, 18, 16, 18]
    assert seen.joined.gpus[0].lanes[3] == lane(3)
    assert len(seen.joined.pairs) == 6
    assert seen.joined.pairs[0] == Pair(0, 1, 0, 0, 0, nvlink.SYSTEM)
    (finding,) = judged(gpu_links, Case("", seen))
    assert finding.saw == "GPU 2: link 4, 7 down, 16 of 18 lanes up"


def test_observe_the_speed_of_lanes(tmp_path: Path) -> None:
    machine(tmp_path, gpus=3)
    scenario: dict[str, object] = {"links": 18, "field.164": FULL, "gpu1.field.164.7": HALF}
    seen = observed(tmp_path, {**scenario, "gpu2.link4.state": 0}, gpus=3)
    speeds = [[lane.speed for lane in gpu.lanes] for gpu in seen.joined.gpus]
    assert speeds[0] == [FULL] * 18
    assert speeds[1] == [FULL] * 7 + [HALF] + [FULL] * 10
    assert speeds[2][4] is None, "a lane that is down has none"
    slow = [f.saw for f in judged(gpu_links, Case("", seen)) if f.code == "nvlink-slow"]
    assert slow == ["GPU 1: lane 7 at 13281 of 26562 MB/s"]


def test_observe_the_speed_of_lanes_with_an_old_driver(tmp_path: Path) -> None:
    """It has a field for each of the first twelve lanes: 84-89 and 132-137 (nvml.h)."""
    machine(tmp_path)
    old = {f"field.{n}": 25781 for n in (*range(84, 90), *range(132, 138))}
    seen = observed(tmp_path, {"links": 12, **old, "gpu1.field.137": 12890})
    assert [lane.speed for lane in seen.joined.gpus[0].lanes] == [25781] * 12
    assert seen.joined.gpus[1].lanes[11].speed == 12890


@pytest.mark.parametrize(
    "trouble",
    [
        {"gpu1.hang.nvmlDeviceGetFieldValues": 1},
        {"error.nvmlDeviceGetFieldValues": 999},
        {"error.nvmlDeviceGetFieldValues": 13},
        {"field.164": 0},
    ],
)
def test_speeds_that_do_not_come_cost_nothing_else(
    tmp_path: Path, trouble: dict[str, object]
) -> None:
    machine(tmp_path, gpus=3)
    seen = observed(tmp_path, {"links": 18, "field.164": FULL, **trouble}, gpus=3)
    assert [gpu.active for gpu in seen.joined.gpus] == [18] * 3
    assert len(seen.joined.pairs) == 3
    assert not any(lane.speed for gpu in seen.joined.gpus[1:] for lane in gpu.lanes)
    assert not judged(gpu_links, Case("", seen))


def test_observe_a_driver_with_nvlink_off(tmp_path: Path) -> None:
    machine(tmp_path, gpus=4)
    params = tmp_path / "proc/driver/nvidia/params"
    params.write_text('NvLinkDisable: 0\nRegistryDwords: "RMNvLinkEnable=0x0"\n')
    seen = observed(tmp_path, {"links": 0}, gpus=4)
    assert (seen.disabled, seen.option) == (True, DWORD)
    assert [f.code for f in judged(gpu_links, Case("", seen))] == ["nvlink-disabled"]
    params.write_text('NvLinkDisable: 0\nRegistryDwords: "PeerMappingOverride=1;"\n')
    seen = observed(tmp_path, {"links": 18}, gpus=4)
    assert (seen.disabled, seen.option) == (False, "")


def test_observe_bridges(tmp_path: Path) -> None:
    """Four lanes between two cards, and P2P that NVML denies for reading only."""
    machine(tmp_path)
    to = {f"gpu{i}.link_{key}": v for i in (0, 1) for key, v in (("remote", bus(1 - i)),)}
    scenario: dict[str, object] = {"links": 4, "link_remote_type": 0, **to}
    seen = observed(tmp_path, scenario)
    assert seen.joined.gpus[0].lanes_to(seen.joined.gpus[1]) == 4
    assert not judged(gpu_links, Case("", seen))
    seen = observed(tmp_path, {**scenario, "gpu1.p2p.0": 4})
    assert [f.code for f in judged(gpu_links, Case("", seen))] == ["nvlink-p2p-off"]


def test_observe_pcie_iommu_and_acs(tmp_path: Path) -> None:
    machine(tmp_path)
    seen = observed(tmp_path, {"name": L40S, "topology": 10})
    assert seen.virtual is False
    assert [g.iommu for g in seen.joined.gpus] == ["DMA", "DMA"]
    assert seen.joined.gpus[1].above == below_a_switch(1)
    assert set(seen.joined.redirects.values()) == {0x1D}
    (finding,) = judged(gpu_links, Case("", seen))
    assert finding.code == "p2p-iommu"
    assert "ACS redirects at 0000:16:00.0, 0000:16:01.0" in finding.saw


def test_observe_acs_alone_and_who_may_not_read_it(tmp_path: Path) -> None:
    machine(tmp_path, mode="identity")
    seen = observed(tmp_path, {"name": L40S, "topology": 10})
    assert [f.code for f in judged(gpu_links, Case("", seen))] == ["p2p-acs"]
    # the kernel gives users the first 64 bytes
    for path in tmp_path.glob("sys/devices/**/config"):
        path.write_bytes(path.read_bytes()[:64])
    seen = observed(tmp_path, {"name": L40S, "topology": 10})
    assert len(seen.joined.hidden) == 4
    assert not judged(gpu_links, Case("", seen))


def test_a_virtual_machine_is_not_judged(tmp_path: Path) -> None:
    machine(tmp_path, flags="fpu sse hypervisor")
    seen = observed(tmp_path, {"name": L40S, "topology": 10})
    assert seen.virtual
    assert not judged(gpu_links, Case("", seen))


def test_an_old_kernel_says_less(tmp_path: Path) -> None:
    machine(tmp_path, gpus=1)
    (tmp_path / "sys/kernel/iommu_groups/7/type").unlink()
    assert pci.iommu(Host(str(tmp_path)), bus(0)) == "unknown"
    (tmp_path / "proc/cmdline").write_text("ro quiet iommu=pt\n")
    assert pci.iommu(Host(str(tmp_path)), bus(0)) == "identity"
    assert pci.iommu(Host(str(tmp_path)), "../../../etc") == ""


def test_a_driver_that_lacks_the_calls_tells_nothing(tmp_path: Path) -> None:
    machine(tmp_path)
    calls = ("NvLinkState", "TopologyCommonAncestor", "VirtualizationMode")
    lacks = {f"error.nvmlDeviceGet{name}": 13 for name in calls}
    seen = observed(tmp_path, {"links": 18} | lacks)
    assert not any(g.lanes for g in seen.joined.gpus)
    assert seen.joined.pairs == (Pair(0, 1, 0, 0, 0),)
    assert not judged(gpu_links, Case("", seen))
    assert gpu_links.measured(world("gpu.links", seen)).text.startswith("NVLink not told")


@pytest.mark.parametrize("code", [4, 13])
@pytest.mark.parametrize("gpus", [1, 2])
def test_who_is_told_nothing_is_undecided(tmp_path: Path, code: int, gpus: int) -> None:
    machine(tmp_path, gpus)
    scenario = {f"error.nvmlDeviceGet{name}": code for name in ("NvLinkState", "P2PStatus")}
    seen = nvml.observed("gpu.links", nvml.settings(gpus, scenario), root=tmp_path)
    assert seen.raised == "CannotObserve"


def test_a_lost_gpu_is_left_to_gpu_visible(tmp_path: Path) -> None:
    machine(tmp_path, gpus=4)
    seen = observed(tmp_path, {"links": 18, "gpu2.error": 15}, gpus=4)
    assert seen.joined.gpus[2] == LinkedGpu(2)
    assert not judged(gpu_links, Case("", seen))


def test_a_hostile_environment(tmp_path: Path) -> None:
    machine(tmp_path)
    wild = dict.fromkeys(("NCCL_P2P_LEVEL", "CUDA_VISIBLE_DEVICES"), "\udcff{x}9" * 3000)
    seen = observed(tmp_path, {"name": "{x}" * 30}, environ=wild)
    assert len(seen.level) <= 64
    assert not judged(gpu_links, Case("", seen))


def test_the_last_mark_names_what_hangs(tmp_path: Path) -> None:
    machine(tmp_path)
    for call, mark in (("NvLinkState", "NVLink of GPU 1"), ("P2PStatus", "P2P of GPU 0")):
        who = "gpu1" if mark.startswith("NVLink") else "gpu0"
        scenario = nvml.settings(2, {f"{who}.hang.nvmlDeviceGet{call}": 1})
        process = nvml.start("gpu.links", scenario, root=tmp_path)
        try:
            assert process.stderr
            marks = [process.stderr.readline().strip()]
            while marks[-1] and marks[-1] != mark:
                marks.append(process.stderr.readline().strip())
        finally:
            process.kill()
            process.communicate()
        assert marks[-1] == mark


def test_a_driver_that_starts_slowly_is_asked_all_the_same(tmp_path: Path) -> None:
    """Without persistence mode nvmlInit takes seconds: a row without anything is no ✓."""
    slow = nvml.settings(4, {"sleep_ms.nvmlInit": 700})
    seen = nvml.observed("gpu.links", slow, root=tmp_path, seconds=1.0)
    assert len(seen.value.joined.gpus) == 4
    assert len(seen.value.joined.pairs) == 6
