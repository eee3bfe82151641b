"""Why a job hangs, as a finding: which rank the others wait for, and what that one does. Pure.

Which rank waits for which is in wait_graph.py, what a process waits for in the kernel in
kernel_wait.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.domains.job import kernel_wait
from preflight.domains.job.collective_order import last_seq
from preflight.domains.job.hang import (
    Hang,
    at_frame,
    describe_call,
    frame_of,
    location,
    mismatch_fields,
    numbered,
    pair_fields,
    uneven_data,
)
from preflight.domains.job.inferred_calls import in_work_wait
from preflight.domains.job.kernel_wait import BlockedOnStorage
from preflight.domains.job.mismatch_advice import pair_advice
from preflight.domains.job.record import CLOSING, Calls, Collective, Frame
from preflight.domains.job.ring import WrongPeer, wrong_peer
from preflight.domains.job.wait_graph import (
    COLLECTIVE,
    GONE,
    INIT,
    LOADER,
    OWN,
    STORE,
    UNKNOWN,
    Wait,
    WaitGraph,
    wait_graph,
)
from preflight.humanize import duration, plural, rank_list
from preflight.model import Blame, Confidence, Found

LONG = 10.0
"""Seconds that others must have waited at the end of the watch before that is worth a word:
evaluation and checkpoints of a healthy job take some."""

OF_INIT = ("job.pace", "job.memory")
"""Explained by ranks that don't get out of init: why they don't meet is job.ranks' to say, where
their arguments show it."""

LONG_KERNEL = "work that takes longer than this wait"

LIKELY = Confidence.LIKELY


def hang_cause(hang: Hang) -> Found | None:
    """The one cause of a hang; of a job that goes on, the rank that others wait long for."""
    if hang.failed:
        return _failed_in_extra_call(hang)  # how ranks ended is job.ranks'
    found = wait_graph(hang.calls)
    calls = hang.calls
    gone = [r for r in found.roots if calls[r].at == GONE or calls[r].ended]
    if gone:
        return _left_early(hang, found, gone) if hang.stopped else None
    late = [r for r in found.roots if calls[r].at != COLLECTIVE]
    if not hang.stopped:
        return _late_but_working(hang, found, late)
    if not late and not found.behind:  # nobody waits for anybody: each for itself
        told = (OWN, LOADER) if hang.distributed else (LOADER,)
        late = [r for r, seen in calls.items() if seen.at in told]
        # at its exit a rank may wait for those that have not come to theirs
        late = [r for r in late if not calls[r].leaving] or late
    asking = [r for r, seen in calls.items() if seen.at == STORE]
    late = [r for r in late if r not in asking]  # who waits for a key waits for them
    if asking and not late:
        return _unset_key(hang, found, asking)
    if late:
        exhausted = uneven_data(hang, [*late, *found.behind])
        return exhausted or _unpaired(hang, found, late) or _stuck(hang, found, late)
    if skipped := _skipped(hang, found):
        return skipped
    making = [r for r in found.behind if calls[r].at == INIT and calls[r].groups]
    if found.circle or (making and len(making) < len(found.behind)):
        # new_group, to which not all come, counts as a circle: they wait in another call meanwhile
        return _deadlock(hang, found, found.circle or tuple(found.behind))
    if found.unseen:
        return _waiting_for_unwatched(hang, found)
    return _all_in_one_call(hang, found)


def _waiting_for_unwatched(hang: Hang, found: WaitGraph) -> Found | None:
    """They wait for ranks that nobody watches; those that never came are job.ranks'."""
    waiting = sorted(found.behind)
    return Found(
        "nothing-seen",
        hang.subjects(waiting),
        saw=f"{_describe_wait(hang, found, waiting)}, for {rank_list(found.unseen)}, "
        "which is not watched",
        expected="the command rehearsed on all its nodes",
        confidence=LIKELY,
    )


def _longest_wait(hang: Hang, waiting: Sequence[int]) -> str:
    """For how long they have waited."""
    return duration(max(_seconds_waited(hang.calls[r], hang) for r in waiting))


def _seconds_waited(seen: Calls, hang: Hang) -> float:
    """In a job that goes on what it did before it entered the call doesn't count; in one that has
    stopped its CPU may spin for the GPU meanwhile."""
    return seen.quiet if hang.stopped else min(seen.quiet, seen.still)


def _left_early(hang: Hang, found: WaitGraph, gone: Sequence[int]) -> Found | None:
    """Few wait in a call that most will never come to: those few have called it too much. Otherwise
    who left is to blame, and job.ranks names it."""
    waiting = [r for r in found.waits if found.behind[r] & set(gone)]
    left = all(hang.calls[r].ended == "exited" for r in gone)
    if not left or not waiting or len(gone) <= len(waiting):
        return None
    waits = found.waits[waiting[0]]  # the other end of a recv from anybody is not known
    wait = next((w for w in waits if w.missing & set(gone) or w.mate in gone), waits[0])
    return _extra_call(hang, waiting, gone, wait.call, None)


def _failed_in_extra_call(hang: Hang) -> Found | None:
    """The same where those few have failed by now: most had ended well, and had called less."""
    for members in hang.groups.values():
        left = [r for r in members if hang.calls[r].ended == "exited"]
        most = max((last_seq(members[r]) for r in left), default=0)
        more = [
            r for r in members if hang.calls[r].ended == "raised" and last_seq(members[r]) > most
        ]
        if more and len(left) > len(more) and len(left) + len(more) == len(members):
            call = next((c for c in members[more[0]].calls if not c.p2p and c.seq > most), None)
            if call is not None:
                return _extra_call(hang, more, left, call, Blame.UNKNOWN)
    return None


def _extra_call(
    hang: Hang, more: Sequence[int], left: Sequence[int], call: Collective, blame: Blame | None
) -> Found:
    return Found(
        "collective-mismatch",
        hang.subjects(sorted(more)),
        saw=f"{rank_list(more)}: {numbered(call)}; {rank_list(left)} ended without it",
        expected="one call on all ranks",
        blame=blame,
        confidence=LIKELY,
        fields=mismatch_fields(call.frame),
    )


def _late_but_working(hang: Hang, found: WaitGraph, late: Sequence[int]) -> Found | None:
    """Others wait, and the rank that they wait for is at work."""
    calls = hang.calls
    waiting = [r for r in found.behind if _seconds_waited(calls[r], hang) >= LONG]
    awaited = frozenset[int]().union(*(found.behind[r] for r in waiting))
    # one that tells nothing of its groups is in those that the others know it to be in
    joined = {r for of in found.waits.values() for wait in of for r in wait.missing}
    joined |= {r for r, seen in calls.items() if seen.groups}
    late = [r for r in late if r in awaited & joined and calls[r].at != INIT]
    if not late or not any(calls[r].why in ("time", "steps", "interrupted") for r in late):
        return None
    first = calls[late[0]]
    what = "in its DataLoader " if first.at == LOADER else ""
    return Found(
        "rank-busy",
        hang.subjects(late),
        saw=f"{rank_list(late)} {what}{location(first)}, using {first.cpu:.0%} of a CPU"
        + f", {first.works}" * bool(first.works)
        + f", in a sleep of {duration(first.pause)}" * bool(first.pause)
        + " · "
        + _describe_wait(hang, found, waiting),
        expected="no rank that others wait for this long",
        confidence=LIKELY,
    )


def _describe_wait(hang: Hang, found: WaitGraph, ranks: Sequence[int]) -> str:
    """Who waits for how long, in which call, and when torch gives up."""
    wait = next((w for r in ranks for w in found.waits.get(r, ())), None)
    verb = "has waited" if len(ranks) == 1 else "have waited"
    text = f"{rank_list(ranks)} {verb} {_longest_wait(hang, ranks)} in "
    if wait is None:
        return text + "init_process_group"
    text += numbered(wait.call)
    limit = wait.call.timeout
    return text + (f"; torch gives up after {duration(limit)}" if limit else "")


def _unset_key(hang: Hang, found: WaitGraph, asking: Sequence[int]) -> Found:
    """Ranks that wait for keys of a store, and nobody is left who would set them."""
    calls = hang.calls
    first = calls[asking[0]]
    rows: dict[str, list[int]] = {}
    for rank in asking:
        rows.setdefault(f"{_keys(calls[rank])} {location(calls[rank])}", []).append(rank)
    told = "; ".join(
        f"{rank_list(of)} {_waits(of)} for {text}" for text, of in list(rows.items())[:4]
    )
    waiting = sorted(found.behind.keys() - {*asking})
    said = _others_ended(hang) + f" · {_describe_wait(hang, found, waiting)}" if waiting else ""
    return Found(
        "store-key-unset",
        hang.subjects(asking),
        saw=f"{told}, for {duration(max(calls[r].still for r in asking))}{said}",
        expected="a rank that sets the key",
        confidence=LIKELY,
        alternatives=("a process outside of this command sets it later",),
        fields={"key": _keys(first), "line": str(frame_of(first) or "that line")},
    )


def _waits(ranks: Sequence[int]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _keys(seen: Calls) -> str:
    """`key 'ready'`, `keys 'a', 'b'`."""
    names = ", ".join(repr(key) for key in seen.keys)
    return f"key {names}" if len(seen.keys) == 1 else f"keys {names}"


def _stuck(hang: Hang, found: WaitGraph, late: Sequence[int]) -> Found | None:
    """Where those are that hold up the others. What says most comes first: a file system, then the
    loader, then a place in the code."""
    calls = hang.calls
    held = {r: s for r in late if (s := _blocking_storage(calls[r])) is not None}
    waiting = sorted(found.behind.keys() - {*late})  # one in init also waits for who never came
    for_it = f" · {_describe_wait(hang, found, waiting)}" if waiting else ""
    loading = [r for r in late if calls[r].at == LOADER]
    mine = list(held) or loading or list(late)
    first, one = calls[mine[0]], mine[0]
    still = duration(first.still)
    blame = None
    if held:
        code, what = "storage-stuck", f": {held[one]} for {still}, {location(first)}"
        blame = None if held[one].remote else Blame.UNKNOWN
    elif loading:
        verb = " has waited for its" if len(mine) == 1 else " have waited for their"
        code, what = "loader-stuck", f"{verb} DataLoader for {still}{_describe_loader(first)}"
    else:
        code, what = "rank-stuck", _describe_stuck(first, still, several=len(mine) > 1)
        if first.failure is not None:
            code, what = "failed-not-ended", _describe_failure(first)
        elif not waiting and all(calls[r].leaving for r in mine):
            code, for_it = "exit-stuck", _others_ended(hang)
        elif all(calls[r].gpu_wait for r in mine):
            code, blame = "gpu-stuck", Blame.UNKNOWN
            what += f", where it waits for its GPU ({first.gpu_wait})"
    asking = [r for r, seen in calls.items() if seen.at == STORE]
    if asking:
        for_it += f" · {rank_list(asking)} {_waits(asking)} for {_keys(calls[asking[0]])} of the "
        for_it += f"store {location(calls[asking[0]])}"
    elsewhere = [r for r in mine[1:] if frame_of(calls[r]) != frame_of(first)][:2]
    what += "".join(f"; rank {r} {location(calls[r])}" for r in elsewhere)
    return Found(
        code,
        hang.subjects(mine),
        saw=f"{rank_list(mine)}{what}{for_it}",
        expected="every rank in the call that the others wait in" if waiting else "progress",
        blame=blame,
        confidence=LIKELY,
        alternatives=_alternatives(code, first),
        explains=OF_INIT if first.at == INIT else None,
        fields={
            "rank": str(one),
            "line": str(_worker_line(first) or frame_of(first) or "that line"),
            "raised": str(first.failure.frame or "its end") if first.failure else "",
            "doing": f"it is in {CLOSING}" if _closes(first) else "its program is over",
        },
    )


def _describe_failure(seen: Calls) -> str:
    raised = seen.failure
    text, frame = (raised.text, raised.frame) if raised is not None else ("", None)
    return f": {text} {at_frame(frame)} · its process does not end: a thread is {location(seen)}"


def _worker_line(seen: Calls) -> Frame | None:
    """Where the first of the workers is that its DataLoader waits for."""
    at_work = (c.frame for c in seen.children if c.frame is not None)
    return next(at_work, None) if seen.at == LOADER else None


def _alternatives(code: str, first: Calls) -> tuple[str, ...]:
    if code == "gpu-stuck":
        return (LONG_KERNEL,)
    return ("the service that it asks is still at work",) if first.asks else ()


def _closes(seen: Calls) -> bool:
    return any(frame.function == CLOSING for frame in seen.stack)


def _others_ended(hang: Hang) -> str:
    left = [r for r, seen in hang.calls.items() if seen.ended]
    return f" · {rank_list(left)} {'has' if len(left) == 1 else 'have'} ended" if left else ""


def _unpaired(hang: Hang, found: WaitGraph, late: Sequence[int]) -> Found | None:
    """A rank that may wait for a call between two that it began before (Work.wait() has no frame),
    where another one is in such a call, too: which of them has the wrong partner is not known."""
    pairs = [r for r in found.waits if any(wait.call.p2p for wait in found.waits[r])]
    if not pairs or any(not in_work_wait(hang.calls[r]) for r in late):
        return None
    ranks = sorted({*pairs, *late})
    call = next(w.call for w in found.waits[pairs[0]] if w.call.p2p)
    at = "; ".join(f"rank {r} {location(hang.calls[r])}" for r in late[:3])
    saw = f"{at}, in a wait for a call begun before; {_describe_wait(hang, found, pairs)}"
    if (broken := wrong_peer(hang.calls)) is not None:
        return _broken_ring(hang, broken, saw)
    return Found(
        "peer-mismatch",
        hang.subjects(ranks),
        saw=f"{saw} · a send or recv is never matched",
        expected="a recv for each send, between the same two ranks",
        confidence=LIKELY,
        alternatives=hang.either(ranks),
        fields=pair_fields(call.frame),
    )


def _broken_ring(hang: Hang, broken: WrongPeer, saw: str) -> Found:
    """All others pass on around a ring; this rank has another peer than they."""
    call = broken.call
    way = "send to" if call.op.startswith("send") else "receive from"
    return Found(
        "peer-mismatch",
        hang.subjects([broken.rank]),
        saw=f"rank {broken.rank}: {describe_call(call)}; every other rank passes on around the ring"
        f" · {saw}",
        expected=f"rank {broken.rank} to {way} rank {broken.meant}, not rank {broken.peer}",
        confidence=LIKELY,
        fields=pair_fields(call.frame),
    )


def _blocking_storage(seen: Calls) -> BlockedOnStorage | None:
    children = seen.children if seen.at == LOADER else ()
    return kernel_wait.blocking_storage(seen.state, seen.wchan, children)


def _describe_stuck(seen: Calls, still: str, *, several: bool) -> str:
    why = kernel_wait.wait_reason(seen.state, seen.wchan)
    if seen.at == UNKNOWN:
        why = why or f"state {seen.state or 'unknown'} {seen.wchan}".strip()
        return f" {'have' if several else 'has'} not answered for {still}: {why}"
    text = f" {'have' if several else 'has'} been stuck for {still} {location(seen)}"
    if _closes(seen):
        text += f", in {CLOSING}"
    if not why and seen.state == kernel_wait.DISK:
        why = f"is in the kernel, state D in {seen.wchan}"
    if not why and seen.asks:
        why = "waits for an answer over the network: no byte has come meanwhile"
    return f"{text}, and {why}" if why and not several else text


def _describe_loader(seen: Calls) -> str:
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
    odd = [
        f"a child {w}" for state, wchan in states if (w := kernel_wait.wait_reason(state, wchan))
    ]
    places = dict.fromkeys(c.frame for c in seen.children if c.frame is not None)
    odd = [f"a worker {at_frame(place)}" for place in places] or odd
    return f" {location(seen)}" + f" ({', '.join(parts + odd[:2])})" * bool(parts or odd)


def _skipped(hang: Hang, found: WaitGraph) -> Found | None:
    """Ranks that are in a call of another group than those that wait for them. All have begun that
    one, but the GPUs of the others come to it after the call that is missing here."""
    ahead = [r for r in found.roots if r in found.alone and r in found.waits]
    waiting = [r for r in found.waits if found.behind[r] & {*ahead}]
    wait = next((w for r in waiting for w in found.waits[r] if {*ahead} & w.missing), None)
    if wait is None:
        return None
    theirs = found.waits[ahead[0]][0]
    if theirs.group == wait.group or not _is_open(hang, theirs, waiting):
        return None  # it is held up in a call with which the others have done
    members = hang.groups[wait.group]
    made = {r: last_seq(members[r]) for r in (waiting[0], ahead[0]) if r in members}
    fewer = made.get(waiting[0], 0) - made.get(ahead[0], 0)
    has = "has" if len(ahead) == 1 else "have"
    count = plural(fewer, "call") if len(made) > 1 and fewer > 0 else "calls"
    extra = len(waiting) < len(ahead)
    tie = len(waiting) == len(ahead)
    line = next((c.frame for c in (wait.call, theirs.call)[:: 1 if extra else -1] if c.frame), None)
    return Found(
        "collective-mismatch",
        hang.subjects(sorted([*ahead, *waiting] if tie else waiting if extra else ahead)),
        saw=f"{rank_list(waiting)}: {numbered(wait.call)}{hang.group(wait.group)}; "
        f"{rank_list(ahead)} {has} made {count} fewer there: {numbered(theirs.call)} of another "
        "group",
        expected="calls of different groups in one order on all ranks",
        confidence=LIKELY,
        alternatives=hang.either([*ahead, *waiting]) if tie else (),
        fields=mismatch_fields(line),
    )


def _is_open(hang: Hang, wait: Wait, ranks: Sequence[int]) -> bool:
    """Whether these have begun the call as well, and none of them has done with it."""
    members = hang.groups[wait.group]
    return all(
        any(c.seq == wait.call.seq and not c.p2p and not c.done for c in members[r].calls)
        for r in ranks
        if r in members
    )


def _deadlock(hang: Hang, found: WaitGraph, circle: Sequence[int]) -> Found | None:
    """Ranks that wait for each other, each in another group or direction. Named are those in a call
    between two whose other end is elsewhere, else all, first those that most ranks wait for."""
    count = {r: sum(r in of for of in found.behind.values()) for r in circle}
    ranks = sorted(circle, key=lambda r: (-count[r], r))
    rows: dict[str, list[int]] = {}
    for rank in ranks:
        wait = next(iter(found.waits.get(rank, ())), None)
        text = f"new_group {location(hang.calls[rank])}"
        if wait is not None:
            text = describe_call(wait.call) + hang.group(wait.group)
        text += f", for {rank_list(found.behind[rank])}" if found.behind[rank] else ""
        rows.setdefault(text, []).append(rank)
    said = "; ".join(f"{rank_list(of)}: {text}" for text, of in list(rows.items())[:4])
    if (broken := wrong_peer(hang.calls)) is not None:
        others = [r for r in ranks if r != broken.rank]
        return _broken_ring(hang, broken, _describe_wait(hang, found, others))
    call = next((found.waits[r][0].call for r in ranks if r in found.waits), None)
    alone = [r for r in ranks if any(wait.call.p2p for wait in found.waits.get(r, ()))]
    ends = [{r, w.mate} for r in alone for w in found.waits[r] if w.call.p2p and w.mate is not None]
    shared = set.intersection(*ends) if len(ends) > 1 else set()
    # the one end that all calls without a partner have in common has turned to the wrong one
    wrong = [r for r in alone if shared == {r}] or _few(found, ranks)
    line = call.frame if call is not None else None
    turns = [
        (wait.call.frame, advice)
        for r in alone
        for wait in found.waits[r]
        if (advice := pair_advice(hang.calls, wait.call, wait.mate))
    ]
    return Found(
        "peer-mismatch" if alone else "collective-mismatch",
        hang.subjects(wrong or alone or ranks),
        saw=said + " · they wait for each other",
        expected="a recv for each send, and calls of different groups in one order on all ranks",
        confidence=LIKELY,
        alternatives=() if wrong else hang.either(ranks),
        fields=pair_fields(*(turns or [(line, "")])[0]) if alone else mismatch_fields(line),
    )


def _few(found: WaitGraph, ranks: Sequence[int]) -> list[int]:
    """The few that are in another group's call than most, where the groups have the same members:
    DeepSpeed and FSDP make a copy of the group of all ranks."""
    inside: dict[tuple[str, tuple[int, ...], str], list[int]] = {}
    for rank in ranks:
        waits = found.waits.get(rank, ())
        if len(waits) != 1 or waits[0].call.p2p or not waits[0].group[1]:
            return []
        (name, members), call = waits[0].group, waits[0].call
        inside.setdefault((name, members, call.op), []).append(rank)
    most = max(inside.values(), key=len)
    alike = len({frozenset(members) for _, members, _ in inside}) == 1
    return [r for r in ranks if r not in most] if alike and 2 * len(most) > len(ranks) else []


def _blocked_gpus(hang: Hang, found: WaitGraph) -> list[int]:
    """Those whose GPU has not reached the call that all have made, though it had reached earlier
    ones, while others' has."""
    calls = {r: found.waits[r][0].call for r in found.alone if found.waits.get(r)}
    timed = [
        r for r in calls if any(c.started for g in hang.calls[r].groups for c in g.calls if c.done)
    ]
    started = [r for r in calls if calls[r].started]
    return [r for r in timed if r not in started] if started else []


def _all_in_one_call(hang: Hang, found: WaitGraph) -> Found | None:
    """All have come, nobody is late."""
    ranks = found.alone
    wait = next((w for r in ranks for w in found.waits.get(r, ())), None)
    members = set(wait.group[1] if wait is not None else ()) or set(hang.calls)
    if len(ranks) < 2 or ((wait is None or not wait.call.p2p) and not members <= set(ranks)):
        return None
    if wait is None and any(hang.calls[r].groups for r in ranks):
        # all make a group and don't meet, though they have met before: groups are counted, and
        # one of these is another one than it is for the others
        return _deadlock(hang, found, ranks)
    call = wait.call if wait is not None else None
    what = numbered(call) if call is not None else "init_process_group"
    where = hang.group(wait.group) if wait is not None else ""
    if (blocked := _blocked_gpus(hang, found)) and call is not None:
        others = rank_list(r for r in ranks if r not in blocked)
        return Found(
            "gpu-stuck",
            hang.subjects(blocked),
            saw=f"all of {rank_list(ranks)} have called {what}{where} and wait for "
            f"{_longest_wait(hang, ranks)}: the GPU of {others} has started it, that of "
            f"{rank_list(blocked)} has not",
            expected="all GPUs start it within the same step",
            confidence=LIKELY,
            alternatives=(LONG_KERNEL,),
            fields={"line": str(call.frame) if call.frame else "that call"},
        )
    certain = call is None or call.seq > 0 or call.first
    return Found(
        "fabric-stuck",
        hang.subjects(ranks),
        saw=f"all of {rank_list(ranks)} have been in {what}{where} for "
        f"{_longest_wait(hang, ranks)}: none of them is late",
        expected="the call ends",
        confidence=LIKELY if certain else Confidence.POSSIBLE,
        alternatives=()
        if certain
        else ("one of them is a call ahead: stacks alone tell no numbers",),
        explains=OF_INIT if call is None else None,
    )
