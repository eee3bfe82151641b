"""A rank that passes on to another one than its neighbour, in a ring of send and recv. Pure.

A wrong peer leaves several ranks waiting for each other, and which of them is wrong can't be told
from that alone. In a ring it can: all ranks but one pass on to the next rank, or all but one to the
previous one.
"""

from __future__ import annotations

from collections.abc import Mapping

from preflight.domains.job.collective_order import groups_by_key
from preflight.domains.job.record import Calls, Collective, Group
from preflight.domains.job.wait_graph import other_end
from preflight.frozen import dataclass
from preflight.inference import MAJORITY_OF


@dataclass(frozen=True, slots=True)
class WrongPeer:
    """The rank that is not as the others of the ring, its call with the wrong peer, and the rank
    that it should be with."""

    rank: int
    call: Collective
    peer: int
    meant: int


@dataclass(frozen=True, slots=True)
class _Passed:
    """A call that moves data by `step` places, between the places `start` and `end`."""

    call: Collective
    mate: int
    start: int
    end: int
    step: int


def wrong_peer(calls: Mapping[int, Calls]) -> WrongPeer | None:
    """The one rank whose recorded peers are not those of the ring that all others follow. None
    where a rank is not seen or has called nothing between two, and where there is no ring: it takes
    one of the others to pass on between the last and the first rank, as no pipeline does."""
    everybody = tuple(range(max((seen.world for seen in calls.values()), default=0)))
    for (_, ranks), members in groups_by_key(calls).items():
        order = ranks or everybody
        if len(order) < MAJORITY_OF or set(members) != set(order):
            continue
        passed = {r: _passed(r, group, order) for r, group in members.items()}
        for step in (1, len(order) - 1):
            other = [r for r, of in passed.items() if {one.step for one in of} != {step}]
            if len(other) == 1 and (found := _wrong(other[0], passed, order, step)):
                return found
    return None


def _wrong(
    rank: int, passed: Mapping[int, list[_Passed]], order: tuple[int, ...], step: int
) -> WrongPeer | None:
    ends = {0, len(order) - 1}
    closed = any(
        {one.start, one.end} == ends for r, of in passed.items() if r != rank for one in of
    )
    wrong = [one for one in passed[rank] if one.step != step]
    if not closed or not wrong:
        return None
    first = next((one for one in wrong if not one.call.done), wrong[0])
    here = order.index(rank)
    forward = step if first.start == here else -step
    return WrongPeer(rank, first.call, first.mate, order[(here + forward) % len(order)])


def _passed(rank: int, group: Group, order: tuple[int, ...]) -> list[_Passed]:
    """Its calls between two of which both ends are known."""
    place = {r: i for i, r in enumerate(order)}
    found = []
    for call in group.calls:
        mate = other_end(rank, group, call) if call.p2p else None
        if mate in place and call.op.startswith(("send", "recv")):
            ends = (place[rank], place[mate])
            start, end = ends if call.op.startswith("send") else ends[::-1]
            found.append(_Passed(call, mate, start, end, (end - start) % len(order)))
    return found
