"""Do the ranks of a process group call the same, in the same order? Compares their flight records.
Pure.

A collective is known by its group and its number there: what two ranks have under one number meets
in the network, whatever was meant. Ranks are those of the whole job.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from preflight.domains.job.record import TEXT, Calls, Collective, Frame, Group
from preflight.frozen import dataclass
from preflight.inference import consensus

Key = tuple[str, tuple[int, ...]]
"""A group's name and its ranks: groups of different ranks may have the same name."""

EQUAL = frozenset({"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "barrier"})
"""Of these all ranks must bring as much, of one type. Not so scatter, gather, and all that may be
split unevenly (all_to_all, all_gather_into_tensor …)."""

EXCHANGES = frozenset({"all_to_all", "alltoall", "alltoall_base"})
"""In these each rank may bring and get what it likes, but all of them together get what they
bring."""

GATHERS = frozenset({"all_gather", "_all_gather_base"})
"""In these each rank gets what all of them bring. NCCL looks at its own amounts only: where a rank
has room for another amount it goes on with wrong values, and maybe out of step."""

SPLIT = frozenset({"all_gather", "reduce_scatter"})
"""NCCL takes these with unequal parts, Gloo doesn't."""

SYMMETRIC = frozenset({"all_reduce", "all_gather", "reduce_scatter"})
"""In these all ranks have the same part. In `if rank == root: broadcast(a) else: broadcast(b)` it
is right that they come from different lines."""

SUMS = frozenset({"all_reduce", "reduce", "reduce_scatter"})
"""A number of another type is wrong in these, also where they end."""

NEAR = 4
"""Calls between two that were exchanged: those of one step, not of different epochs."""


def groups_by_key(calls: Mapping[int, Calls]) -> dict[Key, dict[int, Group]]:
    """Every group as each of its ranks knows it."""
    found: dict[Key, dict[int, Group]] = {}
    for rank, seen in calls.items():
        for group in seen.groups:
            found.setdefault((group.name, group.ranks), {})[rank] = group
    return found


def calls_by_seq(group: Group) -> dict[int, Collective]:
    """The collectives of a group by their numbers; what shares its number with another (parts of
    a coalesced call) is left out, since nobody knows which of them is which."""
    found: dict[int, Collective] = {}
    twice = set()
    for call in group.calls:
        if not call.p2p:
            if call.seq in found:
                twice.add(call.seq)
            found[call.seq] = call
    return {seq: call for seq, call in found.items() if seq not in twice}


def last_seq(group: Group) -> int:
    """The number of the latest collective that a rank has entered, 0 when none."""
    without = 0 if group.calls else group.enqueued
    return max((call.seq for call in group.calls if not call.p2p), default=without)


@dataclass(frozen=True, slots=True)
class Amount:
    """How much a rank brings to a collective, of which type. Shapes of one size are one."""

    elements: int
    kind: str


def parse_shape(shape: str) -> Amount | None:
    """Of shapes as the flight recorder has them, `[8, 3] Float; [4] Float`; None when they are
    none."""
    elements, kinds = 0, []
    for part in shape[:1000].split(";"):
        found = re.fullmatch(r"\[([0-9, ]{0,200})\] ?(\w{1,40})", part.strip())
        numbers = [n.strip() for n in found[1].split(",") if n.strip()] if found else []
        if found is None or not all(n.isdecimal() and len(n) < 20 for n in numbers):
            return None
        elements += math.prod(map(int, numbers))
        kinds.append(found[2])
    return Amount(elements, " ".join(dict.fromkeys(kinds)))


@dataclass(frozen=True, slots=True)
class CallMismatch:
    """Ranks that have different calls under one number.

    what   "op", "root", "shape", "type", "gather" (a rank has room for more or less than all bring)
           or "exchange" (together they bring more or less than they get)
    calls  rank -> its call
    odd    the ranks that have another one; in a tie those that left a loop of all, else all of them
    """

    group: Key
    seq: int
    what: str
    calls: Mapping[int, Collective]
    odd: tuple[int, ...]
    tie: bool


@dataclass(frozen=True, slots=True)
class GroupMismatch:
    """Ranks that have other members under one group's name. odd: the one that is in all such
    pairs, or whose members none of these confirms where all others' do, else all of them. made: the
    lines that made it, of those ranks of which they are known."""

    name: str
    members: Mapping[int, tuple[int, ...]]
    odd: tuple[int, ...]
    made: Mapping[int, Frame]


def mixed_groups(
    known: Mapping[Key, Mapping[int, Group]], gloo: Collection[int] = ()
) -> GroupMismatch | None:
    """Groups are counted as they are made, and their counts are where they meet: whoever makes them
    in another order meets the members of another one. Of the ranks in `gloo` all groups are Gloo's:
    there two groups of one number meet also without a common rank, and sum each other's values.
    NCCL may have split them from one group, which counts once."""
    of: dict[str, dict[int, tuple[int, ...]]] = {}
    for (name, ranks), members in known.items():
        for rank in members:
            if ranks:
                of.setdefault(name, {})[rank] = ranks
    apart = [
        (name, a, b)
        for name, ranks in of.items()
        if len(set(ranks.values())) > 1
        for a in ranks
        for b in ranks
        if a < b
        and ranks[a] != ranks[b]
        and (
            b in ranks[a]
            or a in ranks[b]
            or (name.isdecimal() and {a, b} <= {*gloo} and min(len(ranks[a]), len(ranks[b])) > 1)
        )
    ]
    if not apart:
        return None
    common = set.intersection(*({a, b} for _, a, b in apart))
    every = sorted({rank for _, a, b in apart for rank in (a, b)})
    name = apart[0][0]
    alone = [r for r in every if r in of[name] and not _confirmed(r, of[name])]
    odd = next((sorted(few) for few in (common, alone) if len(few) == 1), every)
    here = {r: of[name][r] for r in every if r in of[name]}
    made = {r: f for r, ranks in here.items() if (f := known[name, ranks][r].made) is not None}
    return GroupMismatch(name, here, tuple(odd), made)


def crossed_groups(
    making: Mapping[int, Group],
) -> dict[tuple[int, ...], dict[str, tuple[int, ...]]]:
    """Groups of the same ranks to which these ranks give different numbers, since they have made
    more or fewer groups before. `making`: rank -> the group in whose new_group it is. Returns the
    ranks of each such group -> number -> the ranks that give it."""
    found: dict[tuple[int, ...], dict[str, tuple[int, ...]]] = {}
    for rank, group in sorted(making.items()):
        if group.ranks and not group.calls and not group.enqueued:
            names = found.setdefault(group.ranks, {})
            names[group.name] = (*names.get(group.name, ()), rank)
    return {ranks: names for ranks, names in found.items() if len(names) > 1}


def _confirmed(rank: int, of: Mapping[int, tuple[int, ...]]) -> bool:
    """Whether all that a rank has in its group have the same one, as far as they are in any."""
    others = [r for r in of[rank] if r != rank and r in of]
    return bool(others) and all(of[r] == of[rank] for r in others)


def mismatches(
    known: Mapping[Key, Mapping[int, Group]], *, equal: Collection[str] = EQUAL
) -> tuple[CallMismatch, ...]:
    """The first difference of every group that holds somebody up (a call that is not done on one
    of the ranks), or that makes a sum wrong. `equal`: operations in which shapes are compared too;
    where a job goes on, its library allows what it does."""
    found = (_first_mismatch(key, members, equal) for key, members in known.items())
    return tuple(d for d in found if d is not None)


def _first_mismatch(
    key: Key, members: Mapping[int, Group], equal: Collection[str]
) -> CallMismatch | None:
    for seq, calls in aligned(members):
        if len({(call.op, call.shape, call.output, call.root) for call in calls.values()}) == 1:
            continue
        held = not all(call.done for call in calls.values())
        ops = consensus({str(rank): call.op for rank, call in calls.items() if call.op})
        if ops.odd:
            if held:
                odd = _ranks_of(ops.odd.values())
                left = _left_the_loop(members, seq, calls) if ops.tie else ()
                return CallMismatch(key, seq, "op", calls, left or odd, ops.tie)
            continue
        roots = consensus({str(r): c.root for r, c in calls.items() if c.root is not None})
        if roots.odd:  # wrong also where it ends: each has what another one gave
            return CallMismatch(key, seq, "root", calls, _ranks_of(roots.odd.values()), roots.tie)
        op = next(iter(calls.values())).op
        shapes = {rank: parse_shape(call.shape) for rank, call in calls.items()}
        known = {str(rank): size for rank, size in shapes.items() if size is not None}
        elements = consensus({rank: size.elements for rank, size in known.items()})
        kinds = consensus({rank: size.kind for rank, size in known.items()})
        if op in GATHERS and (lost := _misfitting(key, members, calls, shapes)):
            return CallMismatch(key, seq, "gather", calls, lost, len(lost) == len(calls))
        exchanged = op in EXCHANGES and equal and held
        if exchanged and (lost := _unbalanced(key, members, calls, shapes)):
            return CallMismatch(key, seq, "exchange", calls, lost, len(lost) == len(calls))
        if elements.odd and held and op in equal:
            return CallMismatch(
                key, seq, "shape", calls, _ranks_of(elements.odd.values()), elements.tie
            )
        if kinds.odd and op in SUMS:
            # Gloo adds up the bytes of one type as the other, and says nothing
            return CallMismatch(key, seq, "type", calls, _ranks_of(kinds.odd.values()), kinds.tie)
    return None


def _unbalanced(
    key: Key,
    members: Mapping[int, Group],
    calls: Mapping[int, Collective],
    shapes: Mapping[int, Amount | None],
) -> tuple[int, ...]:
    """The ranks that bring or get another amount than the rest, where all together bring more or
    less than they get; all of them where there is no majority, none where it adds up."""
    known = _amounts(key, members, calls, shapes)
    if sum(b for b, _ in known.values()) == sum(g for _, g in known.values()):
        return ()
    return _odd_amounts(known)


def _misfitting(
    key: Key,
    members: Mapping[int, Group],
    calls: Mapping[int, Collective],
    shapes: Mapping[int, Amount | None],
) -> tuple[int, ...]:
    """The same where a rank gets another amount than all of them together bring."""
    known = _amounts(key, members, calls, shapes)
    brought = sum(brings for brings, _ in known.values())
    return () if all(gets == brought for _, gets in known.values()) else _odd_amounts(known)


def _amounts(
    key: Key,
    members: Mapping[int, Group],
    calls: Mapping[int, Collective],
    shapes: Mapping[int, Amount | None],
) -> dict[int, tuple[int, int]]:
    """Elements that each rank of the group brings and gets; nothing where one of them is not
    known."""
    if set(calls) != set(members) or (key[1] and set(key[1]) != set(calls)):
        return {}
    amounts = {
        rank: (shapes[rank], parse_shape(call.output))
        for rank, call in calls.items()
        if max(len(call.shape), len(call.output)) < TEXT  # else it may have been cut off
    }
    known = {r: (b.elements, g.elements) for r, (b, g) in amounts.items() if b and g}
    return known if len(known) == len(calls) else {}


def _odd_amounts(known: Mapping[int, tuple[int, int]]) -> tuple[int, ...]:
    agreed = consensus({str(rank): amount for rank, amount in known.items()})
    odd = _ranks_of(agreed.odd.values())
    return odd if odd and not agreed.tie else tuple(sorted(known))


def _left_the_loop(
    members: Mapping[int, Group], seq: int, calls: Mapping[int, Collective]
) -> tuple[int, ...]:
    """Of ranks without a majority those that make a call which nobody has made before, where the
    others go on with one that all have made: they left the loop in which all were."""
    before = {
        rank: {(c.op, str(c.frame)) for c in members[rank].calls if c.seq < seq and not c.p2p}
        for rank in calls
    }
    made = set[tuple[str, str]]().union(*before.values())
    new = tuple(sorted(r for r, call in calls.items() if (call.op, str(call.frame)) not in made))
    rest = [(call.op, str(call.frame)) for r, call in calls.items() if r not in new]
    usual = rest and all(call in before[rank] for call in rest for rank in calls)
    return new if usual else ()


def _ranks_of(holders: Iterable[tuple[str, ...]]) -> tuple[int, ...]:
    return tuple(sorted(int(rank) for ranks in holders for rank in ranks))


def aligned(members: Mapping[int, Group]) -> Iterator[tuple[int, dict[int, Collective]]]:
    """The numbers that at least two ranks have, in their order, with who has what there."""
    table = {rank: calls_by_seq(group) for rank, group in members.items()}
    for seq in sorted({seq for calls in table.values() for seq in calls}):
        calls = {rank: of[seq] for rank, of in table.items() if seq in of}
        if len(calls) > 1:
            yield seq, calls


@dataclass(frozen=True, slots=True)
class Swap:
    """Two calls that some ranks make in the other order, without any error: sizes are equal.

    first, second   the numbers, and one and other the places in the order of those who are more
    odd             the ranks that have them the other way round; in a tie all of them
    """

    group: Key
    first: int
    second: int
    one: str
    other: str
    odd: tuple[int, ...]
    tie: bool


def swaps(known: Mapping[Key, Mapping[int, Group]]) -> tuple[Swap, ...]:
    """The first exchange of every group of which all ranks are seen. In doubt none."""
    found = []
    for key, members in known.items():
        if len(members) > 1 and (not key[1] or set(key[1]) == set(members)):
            rows = {seq: calls for seq, calls in aligned(members) if len(calls) == len(members)}
            found.append(_first_swap(key, rows))
    return tuple(swap for swap in found if swap is not None)


def _first_swap(key: Key, rows: Mapping[int, Mapping[int, Collective]]) -> Swap | None:
    """Every rank has the places A and B at two near numbers, some of them as B and A."""
    for first, calls in rows.items():
        if len({str(call.frame) for call in calls.values()}) != 2:
            continue  # as nearly always: all from one line
        for second in range(first + 1, first + 1 + NEAR):
            others = rows.get(second)
            if others is None:
                break
            swap = _swap_at(key, first, calls, second, others)
            if swap is not None:
                return swap
            if len({str(call.frame) for call in others.values()}) > 1:
                break  # what is between them must be equal
    return None


def _swap_at(
    key: Key,
    first: int,
    calls: Mapping[int, Collective],
    second: int,
    others: Mapping[int, Collective],
) -> Swap | None:
    both = [*calls.values(), *others.values()]
    kinds = {(call.op, call.shape) for call in both}
    if len(kinds) != 1 or both[0].op not in SYMMETRIC or any(c.frame is None for c in both):
        return None
    ways = {str(rank): (str(calls[rank].frame), str(others[rank].frame)) for rank in calls}
    if len(set(ways.values())) != 2:
        return None
    one, other = dict.fromkeys(ways.values())
    if one != other[::-1] or one[0] == one[1]:
        return None
    agreed = consensus(ways)
    functions = {call.frame.function for call in both if call.frame is not None}
    if agreed.tie and len(functions) < 2:
        # `if rank == turn: all_reduce(mine) else: all_reduce(nothing)` is right
        return None
    usual = agreed.value or one
    return Swap(key, first, second, *usual, odd=_ranks_of(agreed.odd.values()), tie=agreed.tie)
