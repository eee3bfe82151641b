"""Which rank waits for which: from what every rank has entered and where it is, to those that hold
up the others. Pure.

The innocent ranks wait in a call; who they wait for is the one that has not entered it. If that one
waits too, its own wait is followed, until a rank that waits for none, or in a cycle.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from preflight.domains.job.collective_order import Key, groups_by_key, last_seq
from preflight.domains.job.record import Calls, Collective, Group
from preflight.frozen import dataclass

COLLECTIVE, LOADER, INIT, OWN, STORE = "collective", "loader", "init", "own", "store"
GONE, UNKNOWN = "gone", "unknown"
"""Calls.at"""


@dataclass(frozen=True, slots=True)
class Wait:
    """A call that a rank has entered and that is not done. missing: ranks that have not entered it;
    mate: of a call between two ranks the other."""

    group: Key
    call: Collective
    missing: frozenset[int] = frozenset()
    mate: int | None = None


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """Who holds up a world.

    waits   rank -> the calls it waits in; nothing for one that waits in init
    behind  rank that waits -> the ranks that it waits for, seen or not
    roots   ranks that others wait for and who wait for nobody that is seen
    circle  ranks that wait for each other
    alone   ranks that wait where all have come: in a call that all have entered, or in init
    unseen  ranks that are waited for and of which nothing is known
    """

    waits: Mapping[int, tuple[Wait, ...]]
    behind: Mapping[int, frozenset[int]]
    roots: tuple[int, ...]
    circle: tuple[int, ...]
    alone: tuple[int, ...]
    unseen: tuple[int, ...]


def wait_graph(calls: Mapping[int, Calls]) -> WaitGraph:
    """Builds it from what each rank has called and where it is."""
    known = groups_by_key(calls)
    missing: dict[tuple[Key, int], frozenset[int]] = {}
    waits: dict[int, tuple[Wait, ...]] = {}
    for rank, seen in calls.items():
        if seen.at == COLLECTIVE:
            at = {str(frame) for frame in seen.stack}
            found = [_wait(rank, g, known[g.name, g.ranks], missing, at) for g in seen.groups]
            if real := tuple(wait for wait in found if wait is not None):
                waits[rank] = real
    behind = {
        rank: frozenset(r for wait in found for r in _awaited(rank, wait, waits, calls))
        for rank, found in waits.items()
    }
    behind |= _in_init(calls)
    edges = {rank: of & calls.keys() for rank, of in behind.items()}
    edges = {rank: of for rank, of in edges.items() if of}
    ends = {r for of in edges.values() for r in of} - edges.keys()
    closed = edges.keys() - _reaching(edges, ends)
    alone = tuple(r for r, of in sorted(behind.items()) if not of)
    unseen = tuple(sorted(frozenset[int]().union(*behind.values()) - calls.keys()))
    return WaitGraph(waits, behind, tuple(sorted(ends)), _cycle(edges, closed), alone, unseen)


def _wait(
    rank: int,
    group: Group,
    members: Mapping[int, Group],
    missing: dict[tuple[Key, int], frozenset[int]],
    waits_at: Collection[str],
) -> Wait | None:
    key = (group.name, group.ranks)
    opened = [call for call in group.calls if not call.done]
    # a record may miss that a call came to its end: where a later one is open, and all others have
    # done with this one, it is no wait
    while len(opened) > 1 and _done_elsewhere(rank, opened[0], members):
        opened.pop(0)
    if not opened:
        return None
    call = _blocking(opened, waits_at)
    everybody = frozenset(group.ranks or members)
    if call.p2p:
        return Wait(key, call, mate=other_end(rank, group, call))
    if (key, call.seq) not in missing:
        came = {r: of for r, of in members.items() if of.calls or not call.first}
        # without a number, who is in a call between two has not come to this one
        entered = {
            r
            for r, of in came.items()
            if last_seq(of) >= call.seq and (call.seq or of.open is None or not of.open.p2p)
        }
        missing[key, call.seq] = everybody - entered
    return Wait(key, call, missing[key, call.seq] - {rank})


def _blocking(opened: Sequence[Collective], waits_at: Collection[str]) -> Collective:
    """The oldest that is not done; of calls between two the one where the rank stands, since it has
    begun the others and gone on (isend)."""
    here = [call for call in opened if call.p2p and str(call.frame) in waits_at]
    return here[0] if here and opened[0].p2p else opened[0]


def _done_elsewhere(rank: int, call: Collective, members: Mapping[int, Group]) -> bool:
    """Whether all others have done with a collective."""
    others = [of for other, of in members.items() if other != rank]
    return (
        not call.p2p
        and bool(others)
        and all(any(c.seq == call.seq and c.done and not c.p2p for c in of.calls) for of in others)
    )


def other_end(rank: int, group: Group, call: Collective) -> int | None:
    """The other one of a call between two: `send 0->1`, `recv 1<-0` by the numbers in the group."""
    found = re.search(r"(\d{1,9}) ?(?:->|<-) ?(\d{1,9})", call.op)
    if found is not None:
        ends = [int(n) for n in found.groups()]
        if group.ranks and max(ends) < len(group.ranks):
            ends = [group.ranks[n] for n in ends]
        others = [end for end in ends if end != rank]
        return others[0] if rank in ends and others else None
    return next((r for r in group.ranks if r != rank), None) if len(group.ranks) == 2 else None


def _awaited(
    rank: int, wait: Wait, waits: Mapping[int, tuple[Wait, ...]], calls: Mapping[int, Calls]
) -> Iterable[int]:
    """Of a collective who is missing; of a call between two the other one, unless he is in one with
    this rank in the other direction: then it is on its way."""
    if not wait.call.p2p:
        return wait.missing
    mates = [wait.mate] if wait.mate is not None else list(wait.group[1] or calls)
    for mate in mates:
        for back in waits.get(mate, ()):
            ours = back.call.p2p and back.mate in (rank, None) and back.group == wait.group
            if mate != rank and ours and _meets(rank, wait, mate, calls[mate]):
                return ()
    return [mate for mate in mates if mate != rank]


def _meets(rank: int, wait: Wait, mate: int, seen: Calls) -> bool:
    """Whether the other one has begun a call with this rank in the other direction, of this tag."""
    way = wait.call.op.partition(" ")[0]
    return any(
        call.p2p
        and not call.done
        and call.op.partition(" ")[0] != way
        and other_end(mate, group, call) in (rank, None)
        and (None in (call.tag, wait.call.tag) or call.tag == wait.call.tag)
        for group in seen.groups
        if (group.name, group.ranks) == wait.group
        for call in group.calls
    )


def _in_init(calls: Mapping[int, Calls]) -> dict[int, frozenset[int]]:
    """Who is in init waits for all that have no process group and are elsewhere. With a group of
    his own he makes another one (new_group), for which all ranks must come."""
    here = {rank for rank, seen in calls.items() if seen.at == INIT}
    world = max((seen.world for seen in calls.values()), default=0)
    absent = set(range(world)) - calls.keys() if world <= 1 << 20 else set()
    out = frozenset({rank for rank, seen in calls.items() if not seen.groups} - here | absent)
    elsewhere = frozenset(calls.keys() - here)
    return {rank: elsewhere if calls[rank].groups else out for rank in here}


def _reaching(edges: Mapping[int, frozenset[int]], ends: Iterable[int]) -> set[int]:
    """Who waits, directly or through others, for one of the ends."""
    before: dict[int, set[int]] = {}
    for rank, of in edges.items():
        for other in of:
            before.setdefault(other, set()).add(rank)
    found: set[int] = set()
    queue = list(ends)
    while queue:
        for rank in before.get(queue.pop(), ()):
            if rank not in found:
                found.add(rank)
                queue.append(rank)
    return found


def _cycle(edges: Mapping[int, frozenset[int]], closed: Iterable[int]) -> tuple[int, ...]:
    """Of those that reach no end the ones that another of them waits for: the cycle, without its
    onlookers."""
    left = set(closed)
    while True:
        awaited = {r for rank in left for r in edges[rank]}
        if left <= awaited:
            return tuple(sorted(left))
        left &= awaited
