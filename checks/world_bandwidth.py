"""What is the bus bandwidth of all-reduces, and is a node or link slower than the rest?

Level        standard
Looks at     all-reduces of increasing size (4 KiB to 1 GiB over NCCL where every rank has a GPU, to
             16 MiB over Gloo on several nodes without): median time and bus bandwidth of each; then
             exchanges both ways between the first ranks of two nodes, up to five rounds in which
             every node gets another partner, all pairs of a round at once, each round twice
Fails if     the bus bandwidth of the largest all-reduce is less than expected (--expect
             allreduce_busbw_gbs); never without that expectation; a rank dies, fails or hangs
Warns if     one of four or more nodes exchanges at least 25 % less than the others (60 % over Gloo)
             with each of its partners; two or more nodes do, perhaps because of what they share;
             two nodes exchange 60 % less (85 %) with each other than with others
Undecided    torch is not installed; less than 2 GiB are free on a GPU
Not covered  which GPU or NIC of a node it is: between nodes only the first rank's is measured
             (net.rdma checks the others); GPUs of one node one by one (gpu.p2p); two or three
             nodes, where the slow one can't be determined; a fabric that is slow between any two
             nodes. On GPUs tested with a stand-in only, never over NCCL
Seen as      no error at all: every step takes as long as its slowest pair; tokens per second that
             drop from two nodes on; many small all-reduces (bucket_cap_mb) that take half a step
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.collectives import gloo_unreachable, pair_bandwidth, reference_busbw, stalls
from preflight.domains.collectives.allreduce import busbw
from preflight.domains.collectives.busbw import Bench, Point
from preflight.domains.collectives.pair_bandwidth import Exchange, Pair, Rates, SlowThreshold
from preflight.domains.collectives.process_group import (
    agree,
    decline,
    join,
    leave,
    on_all_ranks,
)
from preflight.domains.collectives.reference_busbw import gbs
from preflight.domains.net.pairing import NodeNumber
from preflight.domains.net.slow_pairs import FAST, SLOW
from preflight.domains.torch.devices import own_gpu
from preflight.domains.torch.steps import Steps, Trouble
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import GIB, KIB, MIB, latency, parties, plural, size
from preflight.model import (
    Blame,
    CannotObserve,
    Cell,
    Command,
    Confidence,
    FindingType,
    Found,
    Grid,
    Kind,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
    place_of,
)

# after world.ddp it has the network and the GPUs to itself, and what hangs there is named there;
# world.nccl can't be needed: it has nothing to look at where there are no GPUs
CHECK = Check(
    scope=Scope.WORLD,
    stage=Stage.TRAINING,
    budget=45.0,
    needs=("world.ddp",),
    level=Level.STANDARD,
    required=False,
    requires=frozenset({Requirement.TORCH}),
    torch=True,
    disturbs="2 GiB of every GPU, the fabric",
    blame=Blame.NETWORK,
)

NCCL, GLOO = "nccl", "gloo"
SIZES = {
    NCCL: (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB),
    GLOO: (4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB),
}
MOST = {NCCL: 256 * MIB, GLOO: 4 * MIB}
"""Bytes of an exchange between two nodes at most."""
FREE = 2 * GIB
"""The largest all-reduce, both ends of an exchange and what NCCL takes."""

# a dead rail of four is 25 %, a port at half its rate 50 %; healthy nodes of one fabric scatter by
# a few percent. Over TCP the CPUs count as well: there it takes as much as in net.speed
LIMITS = {NCCL: SlowThreshold(0.25), GLOO: SlowThreshold(1 - SLOW, FAST / 1e9)}
# between two switches that share an uplink the half is usual; over TCP a link has one stream only,
# and two busy CPUs
LINKS = {NCCL: SlowThreshold(0.6), GLOO: SlowThreshold(0.85, FAST / 1e9)}

SEVERAL = 2
"""Slow nodes from which on they may share the cause."""
KEPT = 4
LISTED = 512
"""Pairs whose rates are kept in the report one by one; of more, the slowest so many."""

SLOW_SUMS = ("world.nccl:slow",)
"""Over Gloo it is world.gloo:slow."""

TEST = (Command("preflight run --only world.bandwidth -v", "the job"),)
PORTS = Command("ibstat; nvidia-smi topo -m", "{node}")

FINDINGS = {
    **stalls.FINDINGS,
    **gloo_unreachable.FINDINGS,
    "below-expected": FindingType(
        headline="all-reduce is slower than expected: {seen}",
        cause="a slow port or cable, GPUs no longer connected by NVLink, a different transport or "
        "tree from when the expectation was recorded, other jobs on the same switches",
        means="no error at all: training is slower than it was",
        text="check the transport that world.nccl shows, and what has changed: preflight baseline "
        "diff",
        commands=TEST,
        blame=(Blame.NETWORK, Blame.NODE),
        explains=SLOW_SUMS,
    ),
    "node-slow": FindingType(
        headline="{seen}",
        cause="a port that is down or fell back to a lower rate, a bad cable, GPUDirect RDMA that "
        "is off, a NIC far from its GPU",
        means="no error at all: every all-reduce of every rank waits for this node",
        text="exclude {node!s}; compare its ports, rates and error counters with those of another "
        "node",
        commands=(PORTS, *TEST),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=SLOW_SUMS,
    ),
    "link-slow": FindingType(
        headline="the path between {node} and {to} slows all-reduces down: {seen}",
        who="network administrator",
        cause="a path through a congested or broken switch port or uplink, or a bad route",
        means="no error at all: a ring that uses this link is as slow as the link",
        text="check the path between the two, and the counters of the switch ports on it",
        commands=(Command("ibtracert LID LID", "{node}"), *TEST),
        status=Status.WARN,
        explains=SLOW_SUMS,
    ),
    "nodes-slow": FindingType(
        headline="{seen}",
        who="network administrator",
        cause="a leaf switch, an uplink or a rail that these nodes share",
        means="no error at all: every all-reduce of every rank waits for these nodes",
        text="exclude them, or run on them only; check what they share: the switch, its uplinks, "
        "its firmware, the cooling of a rack",
        commands=(Command("ibnetdiscover", "{node}"), *TEST),
        status=Status.WARN,
        explains=SLOW_SUMS,
    ),
}


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What one rank measured. `each`: the ranks of its node. The first rank of a node also says
    which number that has among the nodes, and what it exchanged with each partner."""

    backend: str
    ranks: int = 0
    each: int = 0
    gpu: str = ""
    curve: tuple[Point, ...] = ()
    place: NodeNumber | None = None
    pairs: tuple[Exchange, ...] = ()
    trouble: Trouble | None = None


def observe(host: Host, ctx: Context) -> Bandwidth:
    if ctx.world_size < 2:
        raise NotApplicable("one rank: no other to exchange data with")
    import torch

    torch.set_num_threads(1)
    steps = Steps(ctx)
    gpu = None
    with steps.until_trouble():
        steps.at("CUDA")
        gpu = _gpu(ctx)
    if steps.trouble is not None:
        decline(ctx, steps.trouble.text)  # the others need not wait for us
        return Bandwidth(NCCL, trouble=steps.trouble)
    alone = ctx.local_world_size == ctx.world_size
    agree(ctx, "one node without a GPU for every rank" if alone and gpu is None else "")
    backend = NCCL if on_all_ranks(ctx, "gpu", gpu is not None) else GLOO
    if backend == GLOO and alone:
        raise NotApplicable("not every rank says that it has a GPU")
    device, name = torch.device("cpu"), ""
    if backend == NCCL:
        device = torch.device("cuda", gpu)
        name = torch.cuda.get_device_name(device)[:80]
        if not on_all_ranks(ctx, "memory", torch.cuda.mem_get_info(device)[0] >= FREE):
            raise CannotObserve(f"less than {size(FREE)} are free on the GPU of a rank")
    curve: list[Point] = []
    best: dict[int, float] = {}
    place = None
    with steps.until_trouble():
        join(host, ctx, steps, backend, device)
        bench = Bench(ctx, steps, device)
        curve.extend(bench.curve(SIZES[backend]))  # an error leaves what came before it
        place = bench.pairs(curve[-1] if curve else None, MOST[backend], best)
    leave(ctx, steps)
    return Bandwidth(
        backend,
        ctx.world_size,
        ctx.local_world_size,
        name,
        tuple(curve),
        place,
        tuple(Exchange(peer, rate) for peer, rate in sorted(best.items())),
        steps.trouble,
    )


def _gpu(ctx: Context) -> int | None:
    """The number of this rank's GPU, in use; None: it has none, or torch has no NCCL."""
    import torch
    import torch.distributed as dist

    if not (dist.is_nccl_available() and torch.cuda.is_available()):
        return None
    gpu = own_gpu(ctx, torch.cuda.device_count())
    if gpu is not None:
        torch.cuda.set_device(gpu)
        torch.zeros(1, device=torch.device("cuda", gpu))
    return gpu


def judge(world: World[Bandwidth], expect: Expect) -> Iterator[Found]:
    yield from stalls.diagnose(world, (stalls.GLOO_UNREACHABLE,))
    explains = (f"world.{_backend(world)}:slow",)
    yield from (found.with_(explains=explains) for found in _slow_findings(world, expect))


def _slow_findings(world: World[Bandwidth], expect: Expect) -> Iterator[Found]:
    seen, backend = world.once(_rates), _backend(world)
    slow = pair_bandwidth.slow_nodes(seen, LIMITS[backend])
    below = _below(world, seen, slow, expect)
    if below is not None:
        yield below
    elif len(slow) >= SEVERAL:
        yield _shared_cause(world, seen, slow)
    else:
        yield from (_slow_node(world, seen, node, slow) for node in slow)
    if len(slow) < SEVERAL:  # else these are of the same switch
        for pair, usual in pair_bandwidth.slow_links(seen, LINKS[backend], slow).items():
            yield _slow_link(seen, pair, usual)


def _below(
    world: World[Bandwidth], seen: Rates, slow: tuple[str, ...], expect: Expect
) -> Found | None:
    """Less than somebody said. It is every rank's number; the pairs tell whose fault it is."""
    floor = expect.number("allreduce_busbw_gbs")
    curve = _curve(world)
    if floor is None or not curve or any(v.trouble for v in world.distinct):
        return None
    most = max(curve)
    rate = busbw(most, curve[most], _ranks(world))
    if rate >= floor:
        return None
    blamed = slow if len(slow) < SEVERAL else ()
    saw = f"busbw {gbs(rate)} in all-reduces of {size(most)}"
    saw += "".join(f" · {_share_of_median(seen, node, slow)}" for node in blamed)
    return Found(
        "below-expected",
        tuple(world.subject(node) for node in slow) or (Subject(Kind.JOB),),
        saw=saw,
        expected=f"at least {gbs(floor)}{expect.aside('allreduce_busbw_gbs')}{_hint(world)}",
        blame=Blame.NODE if blamed else None,
        confidence=Confidence.LIKELY if blamed else Confidence.POSSIBLE,
        alternatives=() if blamed else ("all nodes alike", "a switch that is shared and busy"),
        fields={"node": slow[0] if slow else "the nodes"},
    )


def _slow_node(world: World[Bandwidth], seen: Rates, node: str, slow: tuple[str, ...]) -> Found:
    usual = _usual(seen, slow)
    return Found(
        "node-slow",
        (world.subject(node),),
        saw=_share_of_median(seen, node, slow),
        expected=f"about {gbs(usual)}, as between the others",
        confidence=Confidence.LIKELY,
        fields={"node": node},
    )


def _share_of_median(seen: Rates, node: str, slow: tuple[str, ...]) -> str:
    """That it is the node: whoever its partner is, the pair is slow."""
    own = seen.of(node)
    best, usual = max(own.values()), _usual(seen, slow)
    return (
        f"{node} is in every slow pair ({len(own)}/{len(own)}): {gbs(best)} or less, "
        f"{best / usual:.0%} of the median of the others"
    )


def _shared_cause(world: World[Bandwidth], seen: Rates, slow: tuple[str, ...]) -> Found:
    usual = _usual(seen, slow)
    shares = sorted(seen.best(node) / usual for node in slow)
    span = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (shares[0], shares[-1])))
    return Found(
        "nodes-slow",
        tuple(world.subject(node) for node in slow),
        saw=f"{plural(len(slow), 'node')} of {len(seen.nodes)} at {span} of the median: "
        f"{parties(slow, KEPT)}; one leaf switch?",
        expected=f"about {gbs(usual)}, as between the others",
        confidence=Confidence.POSSIBLE,
        alternatives=("each of these nodes by itself",),
        fields={"node": slow[0]},
    )


def _slow_link(seen: Rates, pair: Pair, usual: float) -> Found:
    a, b = pair
    return Found(
        "link-slow",
        (Subject(Kind.LINK, a, to=b),),
        saw=f"{a}-{b} {gbs(seen.pairs[pair])} · both reach, with others, {gbs(usual)} or more",
        expected=f"about {gbs(usual)}",
        confidence=Confidence.LIKELY,
        fields={"node": a, "to": b},
    )


def _usual(seen: Rates, slow: tuple[str, ...]) -> float:
    """The median of the pairs that no slow node is in."""
    others = sorted(seen.apart_from(slow))
    return others[len(others) // 2] if others else seen.median


def _rates(world: World[Bandwidth]) -> Rates:
    return pair_bandwidth.rates(
        {place_of(k)[0]: (v.place, v.pairs) for k, v in world.seen.items() if v.place is not None}
    )


def _backend(world: World[Bandwidth]) -> str:
    return NCCL if any(v.backend == NCCL for v in world.distinct) else GLOO


def _ranks(world: World[Bandwidth]) -> int:
    return max((v.ranks for v in world.distinct), default=0)


def _curve(world: World[Bandwidth]) -> Mapping[int, float]:
    """Bytes -> seconds of the slowest rank, as far as all came."""
    found: dict[int, float] = {}
    for value in world.distinct:
        for point in value.curve:
            found[point.bytes] = max(point.seconds, found.get(point.bytes, 0.0))
    return {count: seconds for count, seconds in sorted(found.items()) if seconds > 0}


def _hint(world: World[Bandwidth]) -> str:
    """What a node like this one is known to reach, where all ranks are on it."""
    models = {v.gpu for v in world.distinct}
    alone = {v.each for v in world.distinct} == {_ranks(world)}
    return f" · {told}" if alone and (told := reference_busbw.hint(models, _ranks(world))) else ""


def measured(world: World[Bandwidth]) -> Measured:
    curve, seen = _curve(world), world.once(_rates)
    if not curve:
        return Measured()
    speeds = {count: busbw(count, seconds, _ranks(world)) for count, seconds in curve.items()}
    least, most = min(curve), max(curve)
    bound = reference_busbw.bound_from(speeds)
    text = f"busbw {gbs(speeds[most])}"
    values: dict[str, Any] = {
        "busbw_gbs": round(speeds[most], 6),
        "latency_s": curve[least],
        "bandwidth_bound_from": bound,
        "seconds": {str(count): seconds for count, seconds in curve.items()},
    }
    if seen.pairs:
        slowest = sorted(seen.pairs.items(), key=lambda item: item[1])
        share = slowest[0][1] / seen.median
        text += f" · {plural(len(seen.pairs), 'pair')} {gbs(seen.median)}"
        text += f", slowest {share:.0%} of median" if len(seen.pairs) > 1 else ""
        values["pairs"] = len(seen.pairs)
        values["median_pair_gbs"] = seen.median
        values["pairs_gbs"] = {f"{a}-{b}": rate for (a, b), rate in slowest[:LISTED]}
    text += f" · {size(least)} {latency(curve[least])}"
    text += f", latency-bound below {size(bound)}" if bound > least else ""
    return Measured(text + _hint(world), values, _grid(seen))


def _grid(seen: Rates) -> Grid | None:
    """What each pair exchanged. Of two nodes there is one pair, which the row has."""
    if len(seen.nodes) < 3 or not seen.median:
        return None
    number = {node: index for index, node in enumerate(seen.nodes)}
    return Grid(
        title=f"pairs as parts of their median, {gbs(seen.median)}",
        rows=seen.nodes,
        columns=seen.nodes,
        cells=tuple(Cell(number[a], number[b], rate) for (a, b), rate in seen.pairs.items()),
        usual=seen.median,
        unit="GB/s",
    )
