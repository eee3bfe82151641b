"""Ranks of which nothing is known but their stacks: where they stand, and who of them stands at
another call than the others. Pure.

A stack tells no number: two ranks that are in one call may be in different rounds of a loop, and
who is more is not for that reason right. So both sides are shown, and the fewer are suspected only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from preflight.domains.job.collective_order import SYMMETRIC
from preflight.domains.job.hang import Hang, describe_call, mismatch_fields
from preflight.domains.job.record import Collective, Frame, Group
from preflight.humanize import plural, rank_list
from preflight.inference import consensus
from preflight.model import Blame, Confidence, Found, Kind, Subject, place_of

UNNUMBERED = 0
"""Collective.seq of a call of which only the stack is known."""
BACKWARD = "_engine_run_backward"
"""Where DDP's and FSDP's collectives of the backward pass are waited for, in C++."""
NAMES = {BACKWARD: "backward()"}
BETWEEN_TWO = frozenset({"send", "recv"})
SUBGROUP = "of a smaller group"
"""Collective.shape of a call whose `group` was given."""


def group_of_stack(stack: Sequence[Frame], world: int) -> Group:
    """The group of all ranks, with the one call that a main thread is in."""
    own = next((f for f in stack if f.own), None)
    name = NAMES.get(stack[0].function, stack[0].function)
    call = Collective(UNNUMBERED, name, "", own, p2p=name in BETWEEN_TWO, done=False)
    return Group("0", tuple(range(min(world, 4096))), 0, 0, (call,))


def with_arguments(group: Group, rank: int, told: Mapping[str, str]) -> Group:
    """The same with what its call was called with: the other end, a root, a group of its own."""
    (call,) = group.calls
    if not call.p2p and (root := told.get("root", "")).isdecimal():
        call = replace(call, root=int(root[:9]))
        group = replace(group, calls=(call,))
    if call.p2p and (other := told.get("dst") or told.get("src") or "").isdecimal():
        arrow = "->" if call.op == "send" else "<-"
        return replace(group, calls=(replace(call, op=f"{call.op} {rank}{arrow}{other[:9]}"),))
    if told.get("group"):
        return replace(group, calls=(replace(call, shape=SUBGROUP),))
    return group


def from_stacks(hang: Hang) -> Found | None:
    """Of a job that makes no progress, all of whose ranks are in a call: those in another one."""
    calls = {rank: call for rank in hang.calls if (call := _call(hang, rank)) is not None}
    if not hang.stopped or len(calls) < 2 or len(calls) < len(hang.calls):
        return None
    if any(call.p2p for call in calls.values()):
        return None
    if (roots := _other_roots(hang, calls)) is not None:
        return roots
    sites = {str(rank): (call.op, str(call.frame), call.shape) for rank, call in calls.items()}
    operations = {op for op, _, _ in sites.values()}
    if len(set(sites.values())) < 2 or (len(operations) == 1 and not operations & SYMMETRIC):
        return None  # root and others may well call a broadcast from different lines
    if len(operations) == 1 and all(call.first for call in calls.values()):
        return None  # nobody is a round ahead
    # who is in a call of all ranks waits for those that are not
    fewer = {rank: site for rank, site in sites.items() if site[2]}
    told = consensus(fewer)
    if not fewer or not told.odd or told.tie:
        told = consensus(sites)
    odd = sorted(int(rank) for ranks in told.odd.values() for rank in ranks)
    subjects: tuple[Subject, ...] = hang.subjects(odd)
    if told.tie:
        subjects = (Subject(Kind.JOB, place_of(hang.keys[odd[0]])[0], rank_list(odd)),)
    return Found(
        "collective-mismatch",
        subjects,
        saw=_said(calls, odd),
        expected="one call on all ranks",
        blame=Blame.UNKNOWN if told.tie else None,
        confidence=Confidence.POSSIBLE if told.tie else Confidence.LIKELY,
        alternatives=hang.either(odd) if told.tie else (),
        fields=mismatch_fields(calls[odd[0]].frame),
    )


def _other_roots(hang: Hang, calls: Mapping[int, Collective]) -> Found | None:
    """Ranks that stand in one call, each with another src or dst. Who sends first goes on: a rank
    may as well be a call ahead, in a loop over all of them."""
    roots = {rank: call.root for rank, call in calls.items() if call.root is not None}
    kinds = {(call.op, call.shape) for call in calls.values()}
    if len(roots) < len(calls) or len(kinds) > 1 or len({*roots.values()}) < 2:
        return None
    ranks = sorted(calls)
    return Found(
        "collective-mismatch",
        (Subject(Kind.JOB, place_of(hang.keys[ranks[0]])[0], rank_list(ranks)),),
        saw=_said(calls, ranks),
        expected="one src or dst on all ranks",
        blame=Blame.UNKNOWN,
        confidence=Confidence.POSSIBLE,
        alternatives=("one of them is a call ahead, and what it has sent does not arrive",),
        fields=mismatch_fields(
            calls[ranks[0]].frame, "all ranks are there, and not with one src or dst"
        ),
    )


def _said(calls: Mapping[int, Collective], first: Sequence[int]) -> str:
    """Who stands in which call, these ranks first."""
    rows: dict[str, list[int]] = {}
    for rank in sorted(calls, key=lambda r: (r not in first, r)):
        rows.setdefault(describe_call(calls[rank]), []).append(rank)
    said = [f"{rank_list(ranks)}: {call}" for call, ranks in rows.items()]
    more = f"; and {plural(len(said) - 4, 'other place')}" * (len(said) > 4)
    return f"{'; '.join(said[:4])}{more} · by their stacks alone, which tell no numbers"


def _call(hang: Hang, rank: int) -> Collective | None:
    calls = [group.open for group in hang.calls[rank].groups if group.open is not None]
    return calls[0] if len(calls) == 1 and calls[0].seq == UNNUMBERED else None
