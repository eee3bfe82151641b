"""What a rank is in that could tell its counts and its stack but not its calls, since its recorder
is off or its answer came too late. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from preflight.domains.job.record import Calls, Collective, Group
from preflight.domains.job.wait_graph import COLLECTIVE, OWN

API = "/torch/distributed/distributed_c10d.py"
BETWEEN_TWO = frozenset({"send", "recv"})


def with_inferred_calls(calls: Mapping[int, Calls]) -> dict[int, Calls]:
    """The same, with the members of each group as any of its ranks knows them, and an open call
    where the counts say that there is one. Where one rank lacks its calls the operations of all
    are those that were called in Python: the recorder has other names for some."""
    members: dict[str, set[tuple[int, ...]]] = {}
    for seen in calls.values():
        for group in seen.groups:
            members.setdefault(group.name, set()).update({group.ranks} - {()})
    lacking = {group.name for seen in calls.values() for group in seen.groups if _lacks(group)}
    return {rank: _completed(rank, seen, members, lacking) for rank, seen in calls.items()}


def _lacks(group: Group) -> bool:
    return not group.calls and bool(group.enqueued)


def _completed(
    rank: int, seen: Calls, members: Mapping[str, set[tuple[int, ...]]], lacking: set[str]
) -> Calls:
    between = any(group.open is not None and group.open.p2p for group in seen.groups)
    if seen.at == OWN and between and in_work_wait(seen):
        seen = replace(seen, at=COLLECTIVE)
    groups = []
    for group in seen.groups:
        known = [ranks for ranks in members[group.name] if rank in ranks]
        if not group.ranks and len(known) == 1:
            group = replace(group, ranks=known[0])
        if group.name in lacking and seen.at == COLLECTIVE:
            group = _with_open_call(seen, group)
        groups.append(group)
    if seen.at == COLLECTIVE and not any(group.open for group in groups):
        op = _torch_function(seen)
        if not groups:  # it has done no collective yet
            groups = [Group(n, of) for n, known in members.items() for of in known if rank in of]
        p2p = op in BETWEEN_TWO
        # NCCL connects the ranks in their first call, and until then nothing records it
        first = bool(op) and not any(group.calls or group.enqueued for group in groups)
        if groups and (p2p or first):
            call = Collective(0, op, "", seen.own, p2p=p2p, done=False, first=first and not p2p)
            groups[0] = replace(groups[0], calls=(*groups[0].calls, call))
    return replace(seen, groups=tuple(groups))


def in_work_wait(seen: Calls) -> bool:
    """Whether it may be in Work.wait(), which is no function of Python's, so that the innermost
    frame is the user's. A lock of Python's own has a frame of its module; a sleep or a file has
    another place in the kernel."""
    innermost = seen.stack[0] if seen.stack else None
    return innermost is not None and innermost.own and seen.wchan.startswith("futex")


def _with_open_call(seen: Calls, group: Group) -> Group:
    if group.enqueued <= group.completed or _torch_function(seen) in BETWEEN_TWO:
        return group  # of the others the latest: the count of those that are done lags behind
    was = group.open or Collective(group.enqueued, "", "", seen.own, done=False)
    before = tuple(call for call in group.calls if call.done)
    return replace(group, calls=(*before, replace(was, op=_torch_function(seen), shape="")))


def _torch_function(seen: Calls) -> str:
    """The function of torch.distributed that it is in, empty where it is elsewhere, as in
    backward()."""
    inner = next((f for f in seen.stack if f.file.endswith(API)), None)
    return inner.function if inner is not None else ""
