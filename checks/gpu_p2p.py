"""Do copies between GPUs arrive intact, and as fast as between the other pairs?

Level        standard
Looks at     copies between all GPUs that this agent sees, every pair in both directions, one after
             the other: a different pattern for each pair, over memory filled with something else
             before, compared on the GPU and in part by the host; the speed of each, twice, and
             whether the timed copies are correct too; whether the driver lets them write to each
             other, and what connects them according to NVML
Fails if     the data that arrives differs from what was sent; a copy raises an error; a copy hangs
Warns if     the same where P2P is disabled for NCCL (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL); a GPU or a
             pair has half the speed of similar ones: the same model, with as many NVLink lanes, or
             below PCIe switches of one machine; a pair has less than 40 % of its speed in the other
             direction
Undecided    torch sees none of the GPUs that the job is given; CUDA does not start on a GPU or has
             too little free memory; no time for all pairs
Not covered  copies between processes (CUDA IPC), all pairs at once (world.bandwidth); GPUs that
             this agent doesn't see; slow pairs connected through CPUs; pairs beyond the eight peers
             that CUDA maps for a GPU without NVSwitch. Tested with a stand-in only, not yet on GPUs
Seen as      the first all-reduce hangs while the GPUs show 100 % utilisation, it works with
             NCCL_P2P_DISABLE=1; a loss that is NaN or differs between runs; "peer access is not
             supported between these two devices"; IO_PAGE_FAULT in the kernel log
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.gpu import copy_probe, copy_results, nvlink
from preflight.domains.gpu.copy_probe import CopyEngine
from preflight.domains.gpu.copy_results import Copied, Copy, SlowCopies
from preflight.domains.gpu.given import undecided_where_given
from preflight.domains.settings.nccl_conf import nccl_setting
from preflight.domains.torch.devices import torch_gpus
from preflight.expect import Expect
from preflight.host import Host
from preflight.humanize import duration, parties, plural
from preflight.inference import blame
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
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
)

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=60.0,
    needs=("gpu.visible", "gpu.compute"),
    level=Level.STANDARD,
    requires=frozenset({Requirement.TORCH, Requirement.GPU}),
    torch=True,
    disturbs="1 GiB of every GPU, for some seconds",
    blame=Blame.NODE,
    explains=("world.nccl", "world.bandwidth"),
)

# parts of the budget: for copying, and for one that does not end. The rest is for the way back
COPYING, WAITING = 0.65, 0.2
# 256 MiB, which are timed at once, take 1 s over one lane of PCIe 1
STUCK = 5.0
SHOWN = 4
NODES_SHOWN = 8
"""Nodes of which the matrix is in the values: more are in the observations."""
ROWS_DRAWN = 512

AVOIDED = "NCCL does without"
"""A mark, since it must outlive the observation."""

# said by CUDA of GPUs that others have: nothing against the GPU or the way to it
TAKEN = re.compile(r"out of memory|busy or unavailable", re.IGNORECASE)

HOST_MEMORY = "export NCCL_P2P_DISABLE=1   slower: NCCL then copies through host memory"
IOMMU = "boot with iommu=pt, or the IOMMU off; ACS off in the BIOS or on the bridges above the GPUs"
LOOK = Command(
    "dmesg -T | grep -E 'NVRM|Xid|IO_PAGE_FAULT|DMAR'; cat /proc/cmdline; nvidia-smi topo -p2p w",
    "{node}, as root",
)

FINDINGS = {
    "copy-wrong": FindingType(
        headline="P2P copies of {at} arrive corrupted: {seen}",
        cause="an IOMMU or ACS that misdirects copies over PCIe, a driver that claims P2P for "
        "GPUs without it, a failing NVLink or memory",
        means="no error: sums of gradients are wrong, the loss is NaN; or the first all-reduce "
        "hangs at 100 % utilisation, since a flag never arrives",
        now=HOST_MEMORY,
        text="repair the path between them; "
        + f"without NVLink: {IOMMU}. With it: take the node out, reset or replace the GPU",
        commands=(LOOK,),
    ),
    "copy-fails": FindingType(
        headline="P2P copies of {at} fail: {seen}",
        cause="a failing GPU, NVLink or driver, or P2P that the driver claims but does not have",
        means="'unhandled cuda error' in the first collective, or 'CUDA error' on one rank",
        now=HOST_MEMORY,
        text="read what the kernel log says about these GPUs; reset them, or reboot the node",
        commands=(LOOK,),
    ),
    "copy-hangs": FindingType(
        headline="P2P copies of {at} hang: {seen}",
        cause="an IOMMU or ACS that blocks copies over PCIe, a bad NVLink bridge, a stuck GPU",
        means="the first all-reduce hangs, the GPUs show 100 % utilisation at low power",
        now=HOST_MEMORY,
        text=f"{IOMMU}; with NVLink: its errors, its bridges (Xid 74); reboot the node",
        commands=(LOOK, Command("nvidia-smi nvlink -s; nvidia-smi nvlink -e", "{node}")),
        was=("pair-hangs",),
    ),
    "copy-slow": FindingType(
        headline="P2P copies of {at} are slow: {seen}",
        cause="lanes that are down or have errors, a slot with fewer lanes, ACS on one bridge",
        means="no error: every all-reduce waits for this pair or GPU",
        text="exclude this node or accept its speed; compare lanes, error counters and slots of "
        "these GPUs with others while nothing else uses them",
        commands=(
            Command("nvidia-smi nvlink -s; nvidia-smi nvlink -e; nvidia-smi topo -m", "{node}"),
            Command("preflight run --only gpu.p2p", "{node}", "the GPUs for some seconds"),
        ),
        status=Status.WARN,
        explains=(),
    ),
    "copies-skipped": FindingType(
        headline="P2P of {at} was not tested: {seen}",
        who="whoever runs this node",
        cause="processes that use the GPUs or their memory, slow copies, an earlier error",
        means="whether data arrives intact between these GPUs is unknown",
        now="preflight run --only gpu.p2p --timeout gpu.p2p=120s",
        text="stop what uses the GPUs, and re-run with more time",
        commands=(Command("nvidia-smi", "{node}"),),
        status=Status.UNDECIDED,
        was=("not-copied",),
    ),
}


def observe(host: Host, ctx: Context) -> Copied:
    ctx.mark("CUDA")
    with undecided_where_given(host):
        engine = CopyEngine(torch_gpus())
    return between_all(host, ctx, engine)


def between_all(host: Host, ctx: Context, by: CopyEngine) -> Copied:
    """Copies between all of these devices."""
    until = time.monotonic() + COPYING * ctx.seconds
    try:
        count = by.devices.count
    except RuntimeError as error:
        raise CannotObserve(f"CUDA: {error}"[: copy_results.TEXT]) from None
    if count < 2:
        raise NotApplicable("torch sees one GPU here: there is no pair")
    if avoided := _avoided(host):
        ctx.mark(AVOIDED)
    seen = copy_probe.copy_all_pairs(host, by, ctx.mark, until, WAITING * ctx.seconds)
    return replace(seen, avoided=avoided)


def _avoided(host: Host) -> bool:
    disable, level = (nccl_setting(host, n) for n in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"))
    return nvlink.p2p_level_setting(disable, level) == nvlink.NO_P2P


def judge(world: World[Copied], expect: Expect) -> Iterator[Found]:
    yield from _from_marks(world)
    for here, seen in world.each():
        bad = [*_bad_copies(here, seen.copies)]
        bad += [_hangs(here, c, c.stuck) for c in seen.copies if c.stuck and c.stuck >= STUCK]
        rest = _untried(seen)
        harmless = seen.avoided and all(c.peer is not False or c.exact for c in seen.copies)
        yield from (_qualified(one, rest, harmless) for one in bad)
        yield from _not_copied(here, seen, "" if bad else rest)
    for key, slow in copy_results.slow_copies(world.seen).items():
        here = world.subject(key)
        yield from (_slow_copies(here, one) for one in slow)


def _finding(code: str, subjects: Sequence[Subject], saw: str, expected: str) -> Found:
    """A finding with the field that its advice takes."""
    return Found(code, tuple(subjects), saw, expected, fields={"node": subjects[0].node})


def _skipped(subjects: Sequence[Subject], saw: str, expected: str) -> Found:
    found = _finding("copies-skipped", subjects, saw, expected)
    return found.with_(confidence=Confidence.POSSIBLE)


def _gpus(here: Subject, numbers: Iterable[int]) -> list[Subject]:
    return [Subject(Kind.GPU, here.node, f"GPU {n}") for n in sorted({*numbers})]


def _copy_names(some: Sequence[Copy]) -> str:
    return parties([str(copy) for copy in some], SHOWN)


# --- content, errors, copies that do not end ---


def _bad_copies(here: Subject, made: Sequence[Copy]) -> Iterator[Found]:
    tried = [c for c in made if c.stuck is None and not c.beyond and not TAKEN.search(c.error)]
    kinds: tuple[tuple[str, Callable[[Copy], str]], ...] = (
        ("copy-wrong", lambda copy: copy.wrong),
        ("copy-fails", lambda copy: copy.error),
    )
    for code, told in kinds:
        bad = [copy for copy in tried if told(copy)]
        if bad:
            through = " · through the host's memory" * all(copy.peer is False for copy in bad)
            saw = (
                f"GPU {_copy_names(bad)}, of {plural(len(tried), 'pair')}{through}: {told(bad[0])}"
            )
            goal = "what was sent, in every word" if code == "copy-wrong" else "a copy, no error"
            yield _finding(code, _accused(here, bad, tried), saw, goal)


def _accused(here: Subject, bad: Sequence[Copy], tried: Sequence[Copy]) -> list[Subject]:
    """The GPUs that all bad pairs have in common while the others do well without them; the ends
    of few pairs; else the node."""
    edges = {(str(copy.source), str(copy.target)) for copy in tried}
    blamed = blame({(str(copy.source), str(copy.target)) for copy in bad}, edges)
    ends = {number for copy in bad for number in copy.pair}
    everybody = {number for copy in tried for number in copy.pair}
    if blamed.nodes:
        links = {int(n) for edge in (*blamed.links, *blamed.undetermined) for n in edge}
        return _gpus(here, {int(n) for n in blamed.nodes} | links)
    return [here] if ends == everybody and len(ends) > 2 else _gpus(here, ends)


def _qualified(one: Found, rest: str, harmless: bool) -> Found:
    """With what was not tried after it. NCCL that is told to go through the host's memory starts
    all the same; programs that copy between GPUs themselves do not."""
    saw = " · ".join(filter(None, (one.saw, rest, "NCCL is told to do without" * harmless)))
    return one.with_(saw=saw, status=Status.WARN, explains=()) if harmless else one.with_(saw=saw)


def _hangs(here: Subject, copy: Copy, seconds: float) -> Found:
    saw = f"the copy from GPU {copy.source} to GPU {copy.target} has not ended in "
    found = _finding(
        "copy-hangs",
        [*_gpus(here, [copy.source]), *_gpus(here, [copy.target])],
        saw + duration(seconds),
        "an end within 1 s",
    )
    # who names an alternative is not sure enough for the node to be drained
    others = () if copy.way.startswith("NVLink") else ("an IOMMU or ACS in the way over PCIe",)
    return found.with_(confidence=Confidence.LIKELY, alternatives=others)


def _from_marks(world: World[Copied]) -> Iterator[Found]:
    """What the marks tell of an observation that never answered."""
    ended = (Cause.TIMED_OUT, Cause.UNKILLABLE)
    for key, missing in world.missing(*ended, Cause.CRASHED, Cause.INTERRUPTED).items():
        here = world.subject(key)
        made, at = copy_results.copies_from_marks(missing.marks)
        bad = [*_bad_copies(here, made)]
        if at is not None and missing.cause in ended and missing.seconds - at[1] >= STUCK:
            bad.append(_hangs(here, at[0], missing.seconds - at[1]))
        harmless = any(mark.name == AVOIDED for mark in missing.marks)
        yield from (_qualified(one, "", harmless) for one in bad)


def _untried(seen: Copied) -> str:
    """How many pairs were not even begun, and why; empty when all were."""
    ready = sum(not party.lacks for party in seen.parties)
    pairs = ready * (ready - 1)
    left = pairs - len(seen.copies)
    return f"{left} of {pairs} pairs were not tried: {seen.ended}" if left > 0 else ""


def _not_copied(here: Subject, seen: Copied, rest: str) -> Iterator[Found]:
    """What was not copied, and why."""
    reasons: dict[str, list[int]] = {}
    for party in seen.parties:
        if party.lacks:
            reasons.setdefault(party.lacks, []).append(party.number)
    for why, numbers in reasons.items():
        yield _skipped(_gpus(here, numbers), why, "copies to all others")
    taken = [c for c in seen.copies if TAKEN.search(c.error)]
    short = [c for c in seen.copies if c.stuck is not None and c.stuck < STUCK]
    for some, why in ((taken, taken[0].error if taken else ""), (short, "no time to wait for it")):
        if some:
            ends = {number for copy in some for number in copy.pair}
            saw = f"GPU {_copy_names(some)}: {why}"
            yield _skipped(_gpus(here, ends), saw, "copies of all pairs")
    if rest:
        yield _skipped([here], rest, "copies of all pairs")


# --- speed ---


def _slow_copies(here: Subject, one: SlowCopies) -> Found:
    rates = ", ".join(f"{copy} {_gigabytes(copy.rate or 0.0)}" for copy in one.copies[:SHOWN])
    more = len(one.copies) - SHOWN
    rates += f" and {more} more" if more > 0 else ""
    way = one.copies[0].way
    like = "in the other direction" if one.back else f"the median of copies over {way}"
    goal = f"about {_gigabytes(one.usual)} GB/s, as {like}"
    found = _finding("copy-slow", _gpus(here, one.gpus), f"GPU {rates} GB/s", goal)
    return found.with_(
        confidence=Confidence.LIKELY,
        alternatives=("another process used these GPUs or their links at the same time",),
    )


def _gigabytes(rate: float) -> str:
    number = rate * 1e-9
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}"


def measured(world: World[Copied]) -> Measured:
    made = [copy for seen in world.seen.values() for copy in seen.copies]
    if not made:
        return Measured()
    exact = [copy for copy in made if copy.exact]
    rates = [copy.rate for copy in exact if copy.rate]
    beyond = sum(copy.beyond for copy in made)
    words = [f"{len(exact)} pairs exact" if len(exact) == len(made) - beyond else ""]
    words[0] = words[0] or f"{len(exact)} of {len(made) - beyond} pairs exact"
    if rates:
        low, high = _gigabytes(min(rates)), _gigabytes(max(rates))
        words[0] += f", {low if low == high else f'{low}-{high}'} GB/s"
    staged = sum(copy.peer is False for copy in exact)
    words += [f"{staged} through the host's memory"] if staged else []
    words += [f"{beyond} beyond eight peers a GPU"] if beyond else []
    values = {
        "pairs": len(made),
        "exact": len(exact),
        "direct": sum(copy.peer is True for copy in exact),
        "gb_per_s": {
            node: {str(c): round(c.rate * 1e-9, 1) for c in seen.copies if c.exact and c.rate}
            for node, seen in list(world.seen.items())[:NODES_SHOWN]
        },
    }
    return Measured(" · ".join(words), values, _grid(world))


def _grid(world: World[Copied]) -> Grid | None:
    """What each GPU copied to each other one of its node; 0 where it did not arrive as it was."""
    copies = [
        (f"{node} GPU {copy.source}", copy)
        for node, seen in world.seen.items()
        for copy in seen.copies
        if not copy.beyond and (copy.rate or not copy.exact)
    ]
    rates = [copy.rate for _, copy in copies if copy.rate]
    if len(rates) < 3:
        return None
    rows = tuple(dict.fromkeys(name for name, _ in copies))[:ROWS_DRAWN]
    columns = sorted({copy.target for _, copy in copies})
    usual = statistics.median(rates) * 1e-9
    return Grid(
        title=f"copies from the row to the column, as parts of the median, {usual:.3g} GB/s",
        rows=rows,
        columns=tuple(f"GPU {number}" for number in columns),
        cells=tuple(
            Cell(
                rows.index(name),
                columns.index(copy.target),
                (copy.rate or 0.0) * 1e-9 if copy.exact else 0.0,
            )
            for name, copy in copies
            if name in rows
        ),
        usual=usual,
        unit="GB/s",
    )
