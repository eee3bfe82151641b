"""Do the clocks of the nodes agree well enough for torchrun and for reading logs?

Level        standard
Looks at     the offset of each node's clock from that of the host of the meeting, with its
             uncertainty, measured over their connection; whether the kernel considers the clock
             synchronised (adjtimex), with its estimate of the largest error
Fails if     two clocks are more than 10 s apart under torchrun, but for a static one that is yet to
             be started: with c10d it considers a node with an old heartbeat dead and starts a
             smaller world without it, with exit code 0
Warns if     two clocks are more than 1 s apart
Undecided    no offset was measured, or the round trips vary too much to detect 1 s
Not covered  clocks that drift apart later; whether they are correct
Seen as      "has failed to send a keep-alive heartbeat", "The node … has no keep-alive",
             a world that is smaller than asked for, munge's "Expired credential" and "Rewound
             credential", "certificate is not yet valid"
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Iterator, Mapping

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration, plural
from preflight.identity.launchers import OPTIONS
from preflight.model import (
    Blame,
    Command,
    Confidence,
    FindingType,
    Found,
    Measured,
    NotApplicable,
    Status,
    World,
)

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MEETING,
    budget=3.0,
    level=Level.STANDARD,
    required=False,
    requires=frozenset({Requirement.PEERS}),
    blame=Blame.NODE,
    explains=("rdzv.torchrun",),
)

# torchrun's c10d rendezvous calls a node dead whose heartbeat is 15 s old by another one's clock:
# three of 5 s, and some of these have gone by before anybody looks
FAR = 10.0
OFF = 1.0
# an uncertainty beyond this can't tell the lesser of the two
UNSTEADY = 1.0
KEPT = 4

# include/uapi/linux/timex.h
STA_UNSYNC = 0x40

ASK = Command("timedatectl; chronyc tracking", "{where}")
STEP = Command(
    "chronyc makestep",
    "{where}",
    disturbs="programs that measure time with the wall clock at that moment",
)

FINDINGS = {
    "clock-skew-large": FindingType(
        headline="{seen}",
        cause="no time service on that node, or one that has lost its server",
        means="torchrun (c10d rendezvous) silently drops the node and trains with a smaller "
        "world, exit code 0. Without it the ranks meet; but munge says 'Expired credential', S3 "
        "'RequestTimeTooSkewed', and certificates are 'not yet valid'",
        text="set the clock of {node!s}, or exclude {it!s}; run a time service (chronyd) with the "
        "same servers on every node",
        commands=(ASK, STEP),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.NODE, Blame.UNKNOWN),
        was=("clock-far",),
    ),
    "clock-skew": FindingType(
        headline="{seen}",
        cause="no time service on that node, or one that has lost its server",
        means="logs of the nodes can't be compared; at 10 s torchrun drops the node",
        text="run a time service (chronyd) with the same servers on every node",
        commands=(ASK, STEP),
        status=Status.WARN,
        blame=(Blame.NODE, Blame.UNKNOWN),
        explains=(),
        was=("clock-off",),
    ),
    "clock-offset-uncertain": FindingType(
        headline="the clock of {at} could not be compared: {seen}",
        who="whoever runs this node",
        cause="a busy node or network: the two directions took unequal times",
        means="whether the clocks agree is unknown",
        now="preflight run --only agree.clock",
        text="compare them by hand, or re-run when the nodes are idle",
        commands=(Command("date +%s.%N", "every node, at once"),),
        status=Status.UNDECIDED,
        was=("clock-unsteady",),
    ),
}


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Seconds, where known. offset: this clock less that of the meeting's host, +- uncertainty.

    synchronised   what the kernel says of itself; None: it would not say
    max_error      the largest error that the kernel admits
    heartbeats     torchrun compares this clock with those of the other nodes, or may do so
    """

    offset: float | None
    uncertainty: float | None = None
    synchronised: bool | None = None
    max_error: float | None = None
    heartbeats: bool = False


class Timex(ctypes.Structure):
    """struct timex of adjtimex(2), up to what is read here, with room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def observe(host: Host, ctx: Context) -> ClockOffset:
    roll = ctx.roll
    if roll is None:
        raise NotApplicable("there was no meeting")
    ctx.mark("adjtimex")
    offset, uncertainty = (0.0, 0.0) if roll.hosts else (roll.offset, roll.uncertainty)
    kernel = _kernel() if host.live else (None, None)
    return ClockOffset(offset, uncertainty, *kernel, heartbeats=_has_heartbeats(host.environ))


def _has_heartbeats(environ: Mapping[str, str]) -> bool:
    """With c10d; a rank of torchrun is not told which rendezvous it was."""
    return environ.get("PET_RDZV_BACKEND", "").strip() == "c10d" or (
        "TORCHELASTIC_RUN_ID" in environ and OPTIONS not in environ
    )


def _kernel() -> tuple[bool | None, float | None]:
    """Whether the clock is synchronised, and its largest error; a sandbox may forbid to ask."""
    asked = Timex()  # modes is 0: nothing is set
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked))
    except AttributeError:  # a C library without it
        return None, None
    if state < 0:
        return None, None
    return not asked.status & STA_UNSYNC, asked.maxerror / 1e6


@dataclass(frozen=True, slots=True)
class _SkewedNodes:
    """Nodes whose clocks are off. `spread`: the largest difference, `error`: its uncertainty."""

    odd: tuple[str, ...]
    others: tuple[str, ...]
    spread: float
    error: float
    confidence: Confidence
    why: str


def judge(world: World[ClockOffset], expect: Expect) -> Iterator[Found]:
    clocks = {here.node: clock for here, clock in world.each()}
    if len(clocks) < 2:
        return
    known = {n: c for n, c in clocks.items() if _known(c)}
    far = _skewed_nodes(known, FAR)
    if far is not None:
        yield _finding(world, known, far, "clock-skew-large", FAR)
    named = far.odd if far is not None else ()
    rest = {n: c for n, c in known.items() if n not in named}
    steady = {n: c for n, c in rest.items() if _error(c) <= UNSTEADY}
    off = _skewed_nodes(steady, OFF)
    if off is not None:
        yield _finding(world, known, off, "clock-skew", OFF)
    blind = [n for n in clocks if n not in named and n not in steady]
    if blind:
        yield Found(
            "clock-offset-uncertain",
            tuple(world.subject(n) for n in blind),
            saw=" · ".join(
                f"{n}: {_offset(clocks[n])}, round trip too unsteady"
                if n in known
                else f"{n}: not measured"
                for n in blind[:KEPT]
            ),
            expected=f"an offset known to {duration(UNSTEADY)}",
            confidence=Confidence.POSSIBLE,
        )


def _known(clock: ClockOffset) -> bool:
    return all(n is not None and math.isfinite(n) for n in (clock.offset, clock.uncertainty))


def _error(clock: ClockOffset) -> float:
    return abs(clock.uncertainty or 0.0)


def _low(clock: ClockOffset) -> float:
    return (clock.offset or 0.0) - _error(clock)


def _high(clock: ClockOffset) -> float:
    return (clock.offset or 0.0) + _error(clock)


def _gap(clocks: Iterable[ClockOffset], others: Iterable[ClockOffset]) -> float:
    """How far at least the furthest of the ones is from the furthest of the others, however unlucky
    the measuring was; below 0 when all of them may be equal."""
    ones, rest = list(clocks), list(others)
    above = max(map(_low, ones), default=-math.inf) - min(map(_high, rest), default=math.inf)
    below = max(map(_low, rest), default=-math.inf) - min(map(_high, ones), default=math.inf)
    return max(above, below)


def _surely_within(one: ClockOffset, other: ClockOffset, limit: float) -> bool:
    return max(_high(one) - _low(other), _high(other) - _low(one)) <= limit


def _skewed_nodes(clocks: Mapping[str, ClockOffset], limit: float) -> _SkewedNodes | None:
    """Who is too far from the others; None when nobody is for sure. Whoever keeps torchrun's state
    may be any of them, so that every two must agree."""
    order = sorted(clocks, key=lambda n: (clocks[n].offset or 0.0, n))
    everybody = clocks.values()
    if _gap(everybody, everybody) <= limit:
        return None
    # the two at the ends of what is certain, where each of them is a pair of bounds
    first = min(everybody, key=_high)
    last = max(everybody, key=_low)
    spread = (last.offset or 0.0) - (first.offset or 0.0)
    error = _error(first) + _error(last)
    suspects = _unsynchronised(clocks, limit)
    if suspects:
        others = tuple(n for n in order if n not in suspects)
        why = "their kernel calls these clocks unsynchronised, the others synchronised"
        return _SkewedNodes(suspects, others, spread, error, Confidence.LIKELY, why)
    # a group of more than half holds the middle one, whoever else there is
    middle = clocks[order[(len(order) - 1) // 2]]
    odd = tuple(n for n in order if _gap([clocks[n]], [middle]) > limit)
    agreed = tuple(n for n in order if _surely_within(clocks[n], middle, limit))
    if odd and len(order) > 2 and len(agreed) * 2 > len(order):
        why = f"{len(agreed)} of {plural(len(order), 'node')} agree"
        return _SkewedNodes(odd, agreed, spread, error, Confidence.CERTAIN, why)
    ends = tuple(n for n in order if _gap([clocks[n]], (first, last)) > limit)
    return _SkewedNodes(
        ends, (), spread, error, Confidence.POSSIBLE, "no majority shows which is wrong"
    )


def _unsynchronised(clocks: Mapping[str, ClockOffset], limit: float) -> tuple[str, ...]:
    """Those whose kernel admits it, where all the others are synchronised and agree, and these are
    far from them: a reason that counts more than a majority."""
    good = [c for c in clocks.values() if c.synchronised]
    bad = {n: c for n, c in clocks.items() if c.synchronised is False}
    if not good or len(good) + len(bad) < len(clocks) or _gap(good, good) > limit:
        return ()
    return tuple(n for n, c in bad.items() if _gap([c], good) > limit)


def _finding(
    world: World[ClockOffset],
    clocks: Mapping[str, ClockOffset],
    apart: _SkewedNodes,
    code: str,
    limit: float,
) -> Found:
    unsure = apart.confidence is Confidence.POSSIBLE
    heeded = any(clock.heartbeats for clock in clocks.values())
    shown = [*apart.odd[:KEPT], *apart.others[:1]]
    return Found(
        code,
        tuple(world.subject(n) for n in apart.odd),
        saw=f"clocks {_seconds(apart.spread)} +- {duration(apart.error)} apart: "
        + ", ".join(f"{n} {_offset(clocks[n])}" for n in shown)
        + f" · {apart.why}",
        expected=f"every two within {duration(limit)}",
        status=Status.FAIL if heeded and limit == FAR else Status.WARN,
        blame=Blame.UNKNOWN if unsure else None,
        confidence=apart.confidence,
        alternatives=tuple(f"the clock of {n} is wrong" for n in apart.odd[:KEPT])
        if unsure
        else (),
        fields=_fields(apart.odd, unsure),
    )


def _fields(odd: tuple[str, ...], unsure: bool) -> dict[str, str]:
    """Whose clock is to be set, and where to look: any of them, where nobody knows which."""
    alone = len(odd) == 1
    return {
        "node": (" or " if unsure else " and ").join(odd) if len(odd) <= KEPT else "these nodes",
        "it": "it" if alone or unsure else "them",
        "where": odd[0] if alone else "each of them",
    }


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if OFF <= seconds < 100 else duration(seconds)


def _offset(clock: ClockOffset) -> str:
    offset = clock.offset or 0.0
    words = _seconds(abs(offset))
    # next to nothing has no sign
    words = f"{'-' if offset < 0 and words != duration(0) else '+'}{words}"
    if _error(clock) > UNSTEADY:
        words += f" +- {duration(_error(clock))}"
    return words + (" (unsynchronised)" if clock.synchronised is False else "")


def measured(world: World[ClockOffset]) -> Measured:
    clocks = {here.node: clock for here, clock in world.each() if _known(clock)}
    if len(clocks) < 2:
        return Measured("not measured") if len(world.seen) > 1 else Measured()
    highest = max((c.offset or 0.0) + _error(c) for c in clocks.values())
    lowest = min((c.offset or 0.0) - _error(c) for c in clocks.values())
    values = {"offset_s": {n: c.offset for n, c in clocks.items()}, "at_most_s": highest - lowest}
    left_out = len(world.seen) - len(clocks)
    text = f"offset <= {_seconds(highest - lowest)}"
    return Measured(text + (f" · {left_out} not measured" if left_out else ""), values)
