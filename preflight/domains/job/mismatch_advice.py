"""What to do about ranks that make different calls, where what they did before and where they stand
shows how they came apart. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.domains.job.collective_order import CallMismatch, aligned
from preflight.domains.job.hang import Hang
from preflight.domains.job.record import Calls, Collective, Frame
from preflight.humanize import plural, rank_list

JOIN = "/torch/distributed/algorithms/join.py"
BACKWARD = "backward"
REDUCE = "reduce"
RECENT = 3
"""Latest calls that all had in common, one of which may have decided where a rank goes next."""
AT_ONE_LINE = {
    "op": "not with one operation",
    "root": "not with one src or dst",
    "shape": "not with one shape",
    "type": "not with one type",
    "gather": "not with room for as much as all bring",
    "exchange": "what they send is not what they receive",
}
"""How calls of one line differ."""
OFTEN = 3
"""Sends to one rank from which on src, dst and tag of a pair are right."""


Place = tuple[Frame, str]
"""A line of the user's, and what to do there."""


def mismatch_advice(hang: Hang, one: CallMismatch) -> Place | None:
    """None where nothing shows it."""
    return (
        _joined(hang, one)
        or _without_backward(hang, one)
        or _in_other_order(one)
        or _reduced_before(hang, one)
        or _left(hang, one)
        or _at_one_line(one)
    )


def _joined(hang: Hang, one: CallMismatch) -> Place | None:
    """Ranks without data, which answer for DDP only."""
    done = [r for r in one.calls if any(f.file.endswith(JOIN) for f in hang.calls[r].stack)]
    rest = [call.frame for r, call in one.calls.items() if r not in done and call.frame]
    if not done or not rest:
        return None
    has = "has" if len(done) == 1 else "have"
    return rest[0], (
        f"{rank_list(done)} {has} no data left, and Join answers for calls of DDP alone, so "
        "give all ranks as many batches, or keep this call out of the forward"
    )


def _without_backward(hang: Hang, one: CallMismatch) -> Place | None:
    """Ranks whose backward has not come to the call that it made for the others, and for them in
    the steps before."""
    places = _places(one.calls)
    inside = [frame for frame in places.values() if frame.function == BACKWARD]
    rest = [r for r, frame in places.items() if frame.function != BACKWARD]
    if not inside or not rest or not all(_made(hang, one, r, inside[0]) for r in rest):
        return None
    return inside[0], (
        f"find out why backward leaves it out on {rank_list(rest)}, where what does not depend on "
        "the input, such as new zeros for no samples, has no backward"
    )


def _in_other_order(one: CallMismatch) -> Place | None:
    """All at one line, with another src each."""
    place = _one_place(one)
    if one.what != "root" or place is None:
        return None
    if all(call.root == rank for rank, call in one.calls.items()):
        return place, "give the same src on all ranks, where each has its own number"
    if len({call.shape for call in one.calls.values()}) == 1:
        return None
    return place, (
        "sort what this loop goes over, since a set of strings, or what a folder lists, is in "
        "another order in each process"
    )


def _reduced_before(hang: Hang, one: CallMismatch) -> Place | None:
    """What was summed for one rank alone, before they went to different places."""
    if len({*_places(one.calls).values()}) < 2:
        return None
    common = [
        calls
        for seq, calls in aligned(hang.groups[one.group])
        if seq < one.seq and {*calls} >= {*one.calls}
    ]
    for calls in common[: -RECENT - 1 : -1]:
        call = next(iter(calls.values()))
        if call.op == REDUCE and call.frame is not None and call.root is not None:
            return call.frame, (
                "use all_reduce there if its result decides what a rank does next, since rank "
                f"{call.root} alone has it"
            )
    return None


def _left(hang: Hang, one: CallMismatch) -> Place | None:
    """Ranks that make a call that nobody has made before, where the others go on as before."""
    places = _places(one.calls)
    if one.what != "op" or len(places) < len(one.calls):
        return None
    ranks = [*one.calls]
    new = [r for r in ranks if not any(_made(hang, one, rank, places[r]) for rank in ranks)]
    usual = [r for r in ranks if all(_made(hang, one, rank, places[r]) for rank in ranks)]
    if not new or not usual or len(new) + len(usual) < len(ranks):
        return None
    return places[new[0]], (
        f"find out what brings {rank_list(new)} alone there, such as an if of the rank, a timer, a "
        "signal, a loss or the number of batches, on which all have to agree"
    )


def _at_one_line(one: CallMismatch) -> Place | None:
    place = _one_place(one)
    return None if place is None else (place, f"all ranks are there, and {AT_ONE_LINE[one.what]}")


def _one_place(one: CallMismatch) -> Frame | None:
    """Where all of them are."""
    places = _places(one.calls)
    same = len({*places.values()}) == 1 and len(places) == len(one.calls)
    return next(iter(places.values())) if same else None


def pair_advice(calls: Mapping[int, Calls], call: Collective, mate: int | None) -> str:
    """Of a recv that waits for a rank which has sent often before, and is elsewhere now: the number
    of their turns differs. `mate`: the other end. Empty where nothing shows it."""
    seen = calls.get(mate) if mate is not None else None
    if seen is None or seen.own is None or not call.op.startswith("recv"):
        return ""
    wanted = f"send {mate}->{call.op.removeprefix('recv ').partition('<-')[0]}"
    sent = max((_done(group.calls, wanted) for group in seen.groups), default=0)
    if sent < OFTEN:
        return ""
    return (
        "compare how often both go around, as drop_last or a small last batch may differ: "
        f"rank {mate} is at {seen.own} after {plural(sent, 'send')} or more"
    )


def _done(calls: Sequence[Collective], op: str) -> int:
    return sum(call.p2p and call.done and call.op == op for call in calls)


def _made(hang: Hang, one: CallMismatch, rank: int, frame: Frame) -> bool:
    """Whether a rank has made a call there before, in this group."""
    calls = hang.groups[one.group][rank].calls
    return any(c.frame == frame and c.seq < one.seq and not c.p2p for c in calls)


def _places(calls: Mapping[int, Collective]) -> dict[int, Frame]:
    return {rank: call.frame for rank, call in calls.items() if call.frame is not None}
