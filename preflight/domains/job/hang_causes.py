"""Why a job stands still, in findings: whom the others wait for, and what that one does. Pure.

Who waits for whom is whowaits.py, where a process stands in the kernel standstill.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.domains.job import kernel_wait as standstill
from preflight.domains.job import wait_graph as whowaits
from preflight.domains.job.collective_order import last
from preflight.domains.job.hang import FOLLOWS, Hang, at, called, place, uneven
from preflight.domains.job.kernel_wait import Storage
from preflight.domains.job.record import Calls, Collective
from preflight.domains.job.wait_graph import COLLECTIVE, GONE, INIT, LOADER, OWN, UNKNOWN, Picture
from preflight.humanize import duration, numbered, plural
from preflight.model import Blame, Confidence, Finding, Status

LONG = 10.0
"""Seconds that others must have waited at the end of the watch before that is worth a word:
evaluation and checkpoints of a healthy job take some."""

LIKELY = Confidence.LIKELY


def held_up(hang: Hang) -> list[Finding]:
    """The one cause of a standstill; or, without one, whom others wait long for."""
    if hang.failed:
        return _one_more(hang)  # how ranks ended is job.ranks'
    found = whowaits.picture(hang.calls)
    calls = hang.calls
    gone = [r for r in found.roots if calls[r].at == GONE or calls[r].ended]
    if gone:
        return _left_early(hang, found, gone) if hang.stopped else []
    late = [r for r in found.roots if calls[r].at != COLLECTIVE]
    if not hang.stopped:
        return _busy(hang, found, late)
    if not late and not found.behind:  # nobody waits for anybody: each for itself
        told = (OWN, LOADER) if hang.distributed else (LOADER,)
        late = [r for r, seen in calls.items() if seen.at in told]
    if late:
        exhausted = uneven(hang, [*late, *found.behind])
        return exhausted or _stuck(hang, found, late)
    making = [r for r in found.behind if calls[r].at == INIT and calls[r].groups]
    if found.circle or (making and len(making) < len(found.behind)):
        # new_group, to which not all come, counts as a circle: they wait in another call meanwhile
        return _circle(hang, found, found.circle or tuple(found.behind))
    if found.unseen:
        return _unseen(hang, found)
    return _fabric(hang, found)


def _unseen(hang: Hang, found: Picture) -> list[Finding]:
    """They wait for ranks that nobody watches; those that never came are job.ranks'."""
    waiting = sorted(found.behind)
    return [
        Finding(
            "nothing-seen",
            Status.UNDECIDED,
            hang.subjects(waiting),
            saw=f"{_waiting(found, waiting, _long(hang, waiting))}, for {numbered(found.unseen)}, "
            "which nobody watches",
            expected="the command rehearsed on all its nodes",
            confidence=LIKELY,
        )
    ]


def _long(hang: Hang, waiting: Sequence[int]) -> str:
    """For how long they have waited."""
    return duration(max(_waited(hang.calls[r], hang) for r in waiting))


def _waited(seen: Calls, hang: Hang) -> float:
    """In a job that goes on what it did before it entered the call doesn't count; in one that has
    stopped its CPU may spin for the GPU meanwhile."""
    return seen.quiet if hang.stopped else min(seen.quiet, seen.still)


def _left_early(hang: Hang, found: Picture, gone: Sequence[int]) -> list[Finding]:
    """Few wait in a call that most will never come to: those few have called it too much. Otherwise
    who left is to blame, and job.ranks names it."""
    waiting = [r for r in found.waits if found.behind[r] & set(gone)]
    left = all(hang.calls[r].ended == "exited" for r in gone)
    if not left or not waiting or len(gone) <= len(waiting):
        return []
    wait = next(w for w in found.waits[waiting[0]] if w.missing & set(gone) or w.mate in gone)
    return [_extra(hang, waiting, gone, wait.call, Blame.JOB)]


def _one_more(hang: Hang) -> list[Finding]:
    """The same where those few have failed by now: most had ended well, and had called less."""
    for members in hang.groups.values():
        left = [r for r in members if hang.calls[r].ended == "exited"]
        most = max((last(members[r]) for r in left), default=0)
        more = [r for r in members if hang.calls[r].ended == "raised" and last(members[r]) > most]
        if more and len(left) > len(more) and len(left) + len(more) == len(members):
            call = next((c for c in members[more[0]].calls if not c.p2p and c.seq > most), None)
            if call is not None:
                return [_extra(hang, more, left, call, Blame.UNKNOWN)]
    return []


def _extra(
    hang: Hang, more: Sequence[int], left: Sequence[int], call: Collective, blame: Blame
) -> Finding:
    return Finding(
        "collective-differs",
        Status.FAIL,
        hang.subjects(sorted(more)),
        saw=f"{numbered(more)}: {called(call)}, number {call.seq}; {numbered(left)} ended "
        "without it",
        expected="one call on all ranks",
        blame=blame,
        confidence=LIKELY,
        explains=FOLLOWS,
        fields={"line": str(call.frame or "that line")},
    )


def _busy(hang: Hang, found: Picture, late: Sequence[int]) -> list[Finding]:
    """Others wait, and whom they wait for is at work."""
    calls = hang.calls
    waiting = [r for r in found.behind if _waited(calls[r], hang) >= LONG]
    awaited = frozenset[int]().union(*(found.behind[r] for r in waiting))
    late = [r for r in late if r in awaited and calls[r].at != INIT and calls[r].groups]
    if not late or not any(calls[r].why in ("time", "steps", "interrupted") for r in late):
        return []
    first = calls[late[0]]
    what = "in its DataLoader " if first.at == LOADER else ""
    return [
        Finding(
            "rank-busy",
            Status.WARN,
            hang.subjects(late),
            saw=f"{numbered(late)} {what}{at(place(first))}, using {first.cpu:.0%} of a CPU · "
            f"{_waiting(found, waiting, _long(hang, waiting))}",
            expected="no rank that others wait for so long",
            blame=Blame.JOB,
            confidence=LIKELY,
            explains=("job.pace",),
        )
    ]


def _waiting(found: Picture, ranks: Sequence[int], long: str) -> str:
    """Who waits for how long, in which call, and until when."""
    wait = next((w for r in ranks for w in found.waits.get(r, ())), None)
    text = f"{numbered(ranks)} {'waits' if len(ranks) == 1 else 'wait'} {long} in "
    if wait is None:
        return text + "init_process_group"
    text += f"{called(wait.call)}, number {wait.call.seq}"
    limit = wait.call.timeout
    return text + (f"; torch gives up after {duration(limit)}" if limit else "")


def _stuck(hang: Hang, found: Picture, late: Sequence[int]) -> list[Finding]:
    """Where those are that hold up the others. What says most comes first: a file system, then the
    loader, then a place in the code."""
    calls = hang.calls
    held = {r: s for r in late if (s := _storage(calls[r])) is not None}
    waiting = sorted(found.behind)
    for_it = ""
    if waiting:
        for_it = f" · {_waiting(found, waiting, _long(hang, waiting))}"
    loading = [r for r in late if calls[r].at == LOADER]
    mine = list(held) or loading or list(late)
    first, one = calls[mine[0]], mine[0]
    still = duration(first.still)
    blame = Blame.JOB
    if held:
        code, what = "storage-stuck", f": {held[one]} since {still}, {at(place(first))}"
        blame = Blame.NETWORK if held[one].remote else Blame.UNKNOWN
    elif loading:
        verb = " waits for its" if len(mine) == 1 else " wait for their"
        code, what = "loader-stuck", f"{verb} DataLoader since {still}{_loader(first)}"
    else:
        code, what = "rank-stuck", _standing(first, still, several=len(mine) > 1)
    elsewhere = [r for r in mine[1:] if place(calls[r]) != place(first)][:2]
    what += "".join(f"; rank {r} {at(place(calls[r]))}" for r in elsewhere)
    return [
        Finding(
            code,
            Status.FAIL,
            hang.subjects(mine),
            saw=f"{numbered(mine)}{what}{for_it}",
            expected="every rank in the call that the others wait in" if waiting else "progress",
            blame=blame,
            confidence=LIKELY,
            explains=FOLLOWS,
            fields={"rank": str(one), "line": str(place(first) or "that line")},
        )
    ]


def _storage(seen: Calls) -> Storage | None:
    children = seen.children if seen.at == LOADER else ()
    return standstill.storage(seen.state, seen.wchan, children)


def _standing(seen: Calls, still: str, *, several: bool) -> str:
    why = standstill.kernel(seen.state, seen.wchan)
    if seen.at == UNKNOWN:
        why = why or f"state {seen.state or 'unknown'} {seen.wchan}".strip()
        return f" {'do' if several else 'does'} not answer since {still}: {why}"
    text = f" {'stand' if several else 'stands'} still since {still} {at(place(seen))}"
    if not why and seen.state == standstill.DISK:
        why = f"is in the kernel, state D in {seen.wchan}"
    return f"{text}, and {why}" if why and not several else text


def _loader(seen: Calls) -> str:
    """How far it came, and how its workers are."""
    parts = []
    loader = seen.loader
    if loader is not None:
        of = f" of {loader.length}" if loader.length is not None else ""
        parts.append(f"{loader.given}{of} batches")
        parts += [plural(loader.workers, "worker")] if loader.workers else []
    if seen.lost:
        parts.append(f"{plural(seen.lost, 'child')} died".replace("childs", "children"))
    states = sorted({(c.state, c.wchan) for c in seen.children if c.state and c.state != "R"})
    odd = [f"a child {w}" for state, wchan in states if (w := standstill.kernel(state, wchan))]
    return f" {at(place(seen))}" + f" ({', '.join(parts + odd[:2])})" * bool(parts or odd)


def _circle(hang: Hang, found: Picture, circle: Sequence[int]) -> list[Finding]:
    """Ranks that wait for each other, each in another group or direction. Named are those in a call
    between two whose other end is elsewhere, else all, first those whom the most wait for."""
    count = {r: sum(r in of for of in found.behind.values()) for r in circle}
    ranks = sorted(circle, key=lambda r: (-count[r], r))
    rows: dict[str, list[int]] = {}
    for rank in ranks:
        wait = next(iter(found.waits.get(rank, ())), None)
        text = f"new_group {at(place(hang.calls[rank]))}"
        if wait is not None:
            text = called(wait.call) + hang.group(wait.group)
        text += f", for {numbered(found.behind[rank])}" if found.behind[rank] else ""
        rows.setdefault(text, []).append(rank)
    call = next((found.waits[r][0].call for r in ranks if r in found.waits), None)
    alone = [r for r in ranks if any(wait.call.p2p for wait in found.waits.get(r, ()))]
    return [
        Finding(
            "collective-differs",
            Status.FAIL,
            hang.subjects(alone or ranks),
            saw="; ".join(f"{numbered(of)}: {text}" for text, of in list(rows.items())[:4])
            + " · they wait for each other",
            expected="calls of different groups in one order on all ranks",
            blame=Blame.JOB,
            confidence=LIKELY,
            explains=FOLLOWS,
            alternatives=hang.either(ranks),
            fields={"line": str(call.frame) if call is not None and call.frame else "that line"},
        )
    ]


def _fabric(hang: Hang, found: Picture) -> list[Finding]:
    """All have come, nobody is late."""
    ranks = found.alone
    wait = next((w for r in ranks for w in found.waits.get(r, ())), None)
    members = set(wait.group[1] if wait is not None else ()) or set(hang.calls)
    if len(ranks) < 2 or ((wait is None or not wait.call.p2p) and not members <= set(ranks)):
        return []
    if wait is None and any(hang.calls[r].groups for r in ranks):
        # all make a group and don't meet, though they have met before: groups are counted, and
        # one of these is another one than it is for the others
        return _circle(hang, found, ranks)
    call = wait.call if wait is not None else None
    what = f"{called(call)}, number {call.seq}" if call is not None else "init_process_group"
    where = hang.group(wait.group) if wait is not None else ""
    return [
        Finding(
            "fabric-stuck",
            Status.FAIL,
            hang.subjects(ranks),
            saw=f"all of {numbered(ranks)} are in {what}{where} since {_long(hang, ranks)}: none "
            "of them is late",
            expected="an end of the call",
            blame=Blame.NETWORK,
            confidence=LIKELY,
            explains=FOLLOWS,
        )
    ]
