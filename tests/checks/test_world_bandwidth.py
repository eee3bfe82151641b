"""world.bandwidth: the slow node is told from the slow link and from a slow switch; a slow fabric
is nobody's fault."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import Case, assert_case, judged, round_trips, world

from preflight.check import conforms
from preflight.checks import world_bandwidth
from preflight.checks.world_bandwidth import GLOO, NCCL, SIZES, Bandwidth
from preflight.domains.collectives.busbw import Point
from preflight.domains.collectives.pair_bandwidth import Exchange, plan
from preflight.domains.net import pairing
from preflight.domains.torch.steps import Trouble
from preflight.model import Blame, Cause, Confidence, Mark, Missing, Node, Seen, Status, Topology

conforms(world_bandwidth)

Rate = Callable[[int, int], float]


def nodes(count: int, each: int = 1) -> Topology:
    met = tuple(
        Node(f"n{i}", tuple(range(i * each, (i + 1) * each)), addr=f"10.0.0.{i}")
        for i in range(count)
    )
    return Topology(size=count * each, nodes=met, master_addr="10.0.0.0", master_port=29500)


def curve(gbs: float, ranks: int, backend: str) -> tuple[Point, ...]:
    """All-reduces with 30 µs of latency."""
    return tuple(
        Point(count, 3e-5 + count * 2 * (ranks - 1) / ranks / gbs / 1e9) for count in SIZES[backend]
    )


def fabric(
    count: int,
    rate: Rate = lambda a, b: 46.0,
    backend: str = NCCL,
    gbs: float = 180.0,
    each: int = 1,
    gpu: str = "NVIDIA H100 80GB HBM3",
) -> dict[str, Any]:
    """What all ranks of a world saw; `rate` of the pair of two nodes."""
    met: dict[int, list[Exchange]] = {i: [] for i in range(count)}
    for made in plan(count):
        for a, b in made:
            met[a].append(Exchange(b, rate(a, b)))
            met[b].append(Exchange(a, rate(a, b)))
    found = {}
    for i in range(count):
        for local in range(each):
            seen = Bandwidth(backend, count * each, each, gpu, curve(gbs, count * each, backend))
            if local == 0 and count > 1:
                seen = dataclasses.replace(
                    seen, place=pairing.NodeNumber(i, count), pairs=tuple(met[i])
                )
            found[f"n{i}/{i * each + local}"] = seen
    return found


def slow(*bad: int, gbs: float = 23.0) -> Rate:
    return lambda a, b: gbs if {a, b} & set(bad) else 46.0


def link(x: int, y: int, gbs: float = 15.0) -> Rate:
    return lambda a, b: gbs if {a, b} == {x, y} else 46.0


def scattered(a: int, b: int) -> float:
    """A few percent around the same, as where nothing is wrong."""
    return 46.0 * (1 + ((a * 7 + b * 13) % 11 - 5) / 100)


def oversubscribed(leaf: int, share: float = 0.5) -> Rate:
    """Leaf switches of so many nodes whose uplinks carry a part of what the nodes can."""
    return lambda a, b: 46.0 if a // leaf == b // leaf else 46.0 * share


def tcp(a: int, b: int) -> float:
    """Streams that compete for CPUs."""
    return 2.0 + (a * 5 + b * 3) % 7 / 2


def case(name: str, count: int, saw: Any, *rest: Any, each: int = 1, **more: Any) -> Case:
    return Case(name, saw, *rest, topology=nodes(count, each), **more)


STEPS = ("TCPStore", "init_process_group", "all_reduce 4 KiB", "pairs, round 1")
RECV = "Timed out waiting 14000ms for recv operation to complete"
MESH = (
    "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, "
    "remote=[10.0.0.2]:37302$0"
)


def marks(count: int) -> tuple[Mark, ...]:
    return tuple(Mark(name, 0.0) for name in STEPS[:count])


def failed(step: int, text: str) -> Seen[Bandwidth]:
    trouble = Trouble(STEPS[step - 1], "RuntimeError", text)
    return Seen(Bandwidth(GLOO, trouble=trouble), 15.0, marks(step))


def silent(step: int) -> Missing:
    return Missing(Cause.TIMED_OUT, "no answer in 45.0 s, killed", 45.0, marks(step))


def ranks(*observations: object) -> dict[str, object]:
    return {f"n{rank}/{rank}": o for rank, o in enumerate(observations)}


WARN, FAIL = Status.WARN, Status.FAIL
NODE, LINK, NODES, BELOW = "node-slow", "link-slow", "nodes-slow", "below-expected"
FLOOR = "allreduce_busbw_gbs"

HEALTHY = (
    *(case(f"{n} nodes, alike", n, fabric(n)) for n in (2, 3, 4, 5, 8, 9, 33, 128)),
    *(case(f"{n} nodes that scatter", n, fabric(n, scattered)) for n in (4, 5, 16, 64)),
    *(case(f"{n} nodes over TCP", n, fabric(n, tcp, GLOO, 1.0)) for n in (4, 5, 8, 16)),
    case("one node of 8 GPUs", 1, fabric(1, each=8), each=8),
    case("4 nodes of 8", 4, fabric(4, each=8), each=8),
    case("one of two is slow: which?", 2, fabric(2, slow(1))),
    case("one of three is slow: too few", 3, fabric(3, slow(1))),
    case("20 % less than the others", 5, fabric(5, slow(2, gbs=37))),
    case("a link at 60 %: uplinks that others share too", 5, fabric(5, link(1, 3, gbs=27.6))),
    case("half over TCP", 5, fabric(5, lambda a, b: 0.5 if 2 in (a, b) else 1.0, GLOO)),
    case("TCP that a CPU limits", 5, fabric(5, lambda a, b: 1.1 if 2 in (a, b) else 5.0, GLOO)),
    case("two halves", 4, fabric(4, oversubscribed(2))),
    *(
        case(f"{n} nodes, leafs of {leaf} that share uplinks", n, fabric(n, oversubscribed(leaf)))
        for n, leaf in (
            (8, 2),
            (8, 4),
            (12, 4),
            (16, 4),
            (16, 8),
            (32, 16),
            (64, 16),
            (64, 32),
            (20, 5),
            (21, 7),
        )
    ),
    case("leafs of unequal size", 10, fabric(10, lambda a, b: 46 if (a < 7) == (b < 7) else 20)),
    case("one rank alone", 1, {"n0/0": Missing(Cause.NOT_APPLICABLE, "one rank")}),
    case("blocked", 2, ranks(*[Missing(Cause.BLOCKED, by="world.ddp")] * 2)),
    case("no memory", 2, ranks(*[Missing(Cause.CANNOT_OBSERVE, "less than 2 GiB")] * 2)),
    case("a part alone", 5, {"n0/0": fabric(5, slow(2))["n0/0"]}),
    case("as much as is expected", 4, fabric(4), expect={FLOOR: 178}),
    case("a floor, and nothing measured", 2, ranks(*[Bandwidth(NCCL)] * 2), expect={FLOOR: 9}),
    case(
        "pairs that are none",
        2,
        ranks(
            *[
                dataclasses.replace(
                    fabric(2)["n0/0"],
                    pairs=(Exchange(0, 1.0), Exchange(7, 1.0), Exchange(1, float("inf"))),
                )
            ]
            * 2
        ),
    ),
)

CASES = (
    *HEALTHY,
    case("a slow node of 4", 4, fabric(4, slow(2)), NODE, WARN, subject="n2"),
    case("of 5", 5, fabric(5, slow(4)), NODE, WARN, subject="n4"),
    case("of 64", 64, fabric(64, slow(17)), NODE, WARN, subject="n17"),
    case("of 4 with 8 ranks each", 4, fabric(4, slow(3), each=8), NODE, subject="n3", each=8),
    case(
        "among those that scatter",
        16,
        fabric(16, lambda a, b: scattered(a, b) * (0.6 if 5 in (a, b) else 1)),
        NODE,
        subject="n5",
    ),
    case("at 74 %", 9, fabric(9, slow(2, gbs=34)), NODE, subject="n2"),
    case(
        "a slow one over TCP",
        5,
        fabric(5, lambda a, b: 0.002 if 3 in (a, b) else 1.2, GLOO),
        NODE,
        subject="n3",
    ),
    case(
        "in a fabric that shares uplinks",
        16,
        fabric(16, lambda a, b: 5.0 if 6 in (a, b) else oversubscribed(8)(a, b)),
        NODE,
        subject="n6",
    ),
    case("two of 7", 7, fabric(7, slow(1, 5)), NODES, WARN, subject="n1"),
    case("a slow link", 5, fabric(5, link(1, 3)), LINK, WARN, subject="n1->n3"),
    case("of 4", 4, fabric(4, link(0, 2)), LINK, WARN, subject="n0->n2"),
    case("of 32", 32, fabric(32, link(0, 31)), LINK, WARN),
    case("over TCP", 5, fabric(5, lambda a, b: 0.01 if {a, b} == {1, 3} else 1.2, GLOO), LINK),
    case("eight of 64 at 72 %", 64, fabric(64, slow(*range(8), gbs=33)), NODES, WARN, subject="n0"),
    case("three of 9", 9, fabric(9, slow(6, 7, 8)), NODES, WARN, subject="n6"),
    case("less than expected", 4, fabric(4), BELOW, FAIL, {FLOOR: 200}, subject="job"),
    case("less over TCP", 2, fabric(2, tcp, GLOO, 0.2), BELOW, FAIL, {FLOOR: 1}, subject="job"),
    case("less, for one node", 4, fabric(4, slow(2)), BELOW, FAIL, {FLOOR: 200}, subject="n2"),
    case("less, for three", 9, fabric(9, slow(0, 1, 2)), BELOW, FAIL, {FLOOR: 200}, subject="n0"),
    case(
        "died",
        3,
        ranks(failed(4, RECV), Missing(Cause.CRASHED, "killed by SIGSEGV"), failed(4, RECV)),
        "rank-died",
    ),
    case(
        "stopped",
        4,
        ranks(*[failed(4, RECV)] * 2, silent(4), failed(4, RECV)),
        "rank-silent",
        subject="n2 · rank 2",
    ),
    case(
        "an error",
        3,
        ranks(failed(4, RECV), failed(4, "out of memory"), failed(4, RECV)),
        "rank-failed",
        subject="n1 · rank 1",
    ),
    case("all hang", 4, ranks(*[silent(4)] * 4), "stuck", FAIL, subject="job"),
    case(
        "an edge that Gloo names",
        3,
        ranks(silent(2), failed(2, MESH), silent(2)),
        "gloo-unreachable",
        subject="n1->n2",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(world_bandwidth, case)


def found(name: str) -> list[Any]:
    return judged(world_bandwidth, next(c for c in CASES if c.name == name))


def test_of_what_broke_off_nothing_is_expected() -> None:
    saw = fabric(4) | {"n2/2": failed(4, "out of memory")}
    (finding,) = judged(world_bandwidth, case("", 4, saw, expect={FLOOR: 1e6}))
    assert finding.code == "rank-failed"


def test_each_slow_thing_is_said_once() -> None:
    for one in CASES:
        if one.code in (NODE, LINK, NODES, BELOW):
            findings = judged(world_bandwidth, one)
            assert len(findings) == 1, one.name
            assert {f.status for f in findings} <= ({FAIL} if one.expect else {WARN})


def test_what_the_findings_say() -> None:
    (node,) = found("of 5")
    assert node.saw == (
        "n4 is in every slow pair (4/4): 23 GB/s or less, 50% of the median of the others"
    )
    assert node.expected == "about 46 GB/s, as between the others"
    assert (node.blame, node.confidence) == (Blame.NODE, Confidence.LIKELY)
    assert node.explains == ("world.nccl:slow",), "of its own backend"
    (pair,) = found("a slow link")
    assert pair.saw == "n1-n3 15 GB/s · both reach, with others, 46 GB/s or more"
    assert pair.blame is Blame.NETWORK
    (many,) = found("eight of 64 at 72 %")
    assert many.saw == (
        "8 nodes of 64 at 72% of the median: n0, n1, n2, n3 and 4 more; one leaf switch?"
    )
    assert (many.confidence, many.blame) == (Confidence.POSSIBLE, Blame.NETWORK)
    assert many.alternatives
    assert len(many.subjects) == 8
    (low,) = found("less than expected")
    assert low.saw == "busbw 179 GB/s in all-reduces of 1 GiB"
    assert low.expected == "at least 200 GB/s (--expect allreduce_busbw_gbs=200)"
    assert (low.confidence, low.blame) == (Confidence.POSSIBLE, Blame.NETWORK)
    (low,) = found("less, for one node")
    assert low.saw.startswith("busbw 179 GB/s in all-reduces of 1 GiB · n2 is in every slow pair")
    assert (low.confidence, low.blame) == (Confidence.LIKELY, Blame.NODE)
    (low,) = found("less, for three")
    assert low.blame is Blame.NETWORK, "of what they may share no node is drained"


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 24), st.data())
def test_noise_of_a_tenth_blames_nobody(count: int, data: st.DataObject) -> None:
    noise = data.draw(st.lists(st.floats(0.9, 1.1), min_size=count**2, max_size=count**2))
    saw = fabric(count, lambda a, b: 46.0 * noise[a * count + b])
    assert judged(world_bandwidth, case("noise", count, saw)) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 24), st.data())
def test_a_node_at_half_is_named_whatever_its_number(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, count - 1))
    noise = data.draw(st.lists(st.floats(0.97, 1.03), min_size=count**2, max_size=count**2))
    saw = fabric(count, lambda a, b: slow(bad)(a, b) * noise[a * count + b])
    (finding,) = judged(world_bandwidth, case("one", count, saw))
    assert (finding.code, str(finding.subjects[0])) == (NODE, f"n{bad}")


@settings(max_examples=100, deadline=None, derandomize=True)  # one of some thousands is not so
@given(st.integers(4, 48), st.integers(2, 4), st.floats(0.25, 0.9), st.randoms())
def test_leafs_that_share_uplinks_blame_nobody_wherever_the_nodes_are(
    count: int, leafs: int, share: float, random: Any
) -> None:
    leaf = [random.randrange(leafs) for _ in range(count)]
    saw = fabric(count, lambda a, b: 46.0 if leaf[a] == leaf[b] else 46.0 * share)
    alone = {i for i in range(count) if leaf.count(leaf[i]) == 1}
    findings = judged(world_bandwidth, case("leafs", count, saw))
    for finding in findings:
        named = {s.node for s in finding.subjects}
        assert named <= {f"n{i}" for i in alone} or finding.confidence is Confidence.POSSIBLE


def test_a_report_of_others_is_judged() -> None:
    """Two that claim one number have none; a number that nobody has is nobody's."""
    saw = fabric(5, slow(2))
    saw["n1/1"] = saw["n0/0"]
    assert judged(world_bandwidth, case("claims", 5, saw)) == []


# --- what is shown ---


def text(saw: Any, count: int, each: int = 1) -> str:
    return world_bandwidth.measured(world("world.bandwidth", saw, nodes(count, each))).text


def test_what_is_measured() -> None:
    assert text(fabric(4), 4) == (
        "busbw 179 GB/s · 6 pairs 46 GB/s, slowest 100% of median · 4 KiB 30 µs, latency-bound "
        "below 16 MiB"
    )
    assert "1 pair 46 GB/s · 4 KiB" in text(fabric(2), 2)
    assert text(fabric(5, slow(2)), 5).startswith(
        "busbw 179 GB/s · 10 pairs 46 GB/s, slowest 50% of median"
    )
    alone = text(fabric(1, each=8, gbs=470.0), 1, 8)
    assert "pair" not in alone
    assert alone.endswith(" · 8 x H100 80GB HBM3 reach about 476 GB/s")
    assert text(ranks(silent(1), silent(1)), 2) == ""


def test_what_is_kept_does_not_grow_with_the_square_of_the_nodes() -> None:
    values = world_bandwidth.measured(
        world("world.bandwidth", fabric(1024, slow(3)), nodes(1024))
    ).values
    assert values["pairs"] == 2558  # some neighbours meet again
    assert len(values["pairs_gbs"]) == world_bandwidth.LISTED
    assert values["pairs_gbs"]["n2-n3"] == 23.0, "the slowest are among them"


def test_no_status_comes_of_a_hint() -> None:
    saw = fabric(1, each=8, gbs=50.0)
    assert judged(world_bandwidth, case("slow by the table", 1, saw, each=8)) == []


def test_an_observation_survives_json() -> None:
    for value in fabric(4, each=2).values():
        round_trips(value)
