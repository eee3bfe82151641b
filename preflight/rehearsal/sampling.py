"""One look at one process of a command, by /proc. Only in a worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from preflight.rehearsal import procfs
from preflight.rehearsal.history import (
    NOTHING,
    PIPE_WAITS,
    UNIX_WAIT,
    History,
    Moved,
    ProcessSample,
)


def sample_process(
    pid: int,
    pulse: Mapping[str, Any] | None,
    began: int = 0,
    apart: Collection[int] = (),
    moved: Moved = NOTHING,
) -> ProcessSample | None:
    """What the kernel says of it and its children, with what its responder or py-spy says; None
    when it has ended. `began`: Stat.began of the process that is meant; `apart`: children that are
    ranks themselves."""
    found = procfs.stat(pid)
    if found is None or found.ended or (began and found.began != began):
        return None
    below = [
        s for child in procfs.children(pid) if child not in apart and (s := procfs.stat(child))
    ]
    further = [s for p in tree_below(pid, apart) if (s := procfs.stat(p)) is not None]
    burnt = sum(s.cpu for s in further)
    waits = procfs.wchan(pid)
    cpus = procfs.cpus(pid)
    return ProcessSample(
        at=time.monotonic(),
        cpu=found.cpu + burnt,
        rss=found.rss + sum(s.rss for s in below),
        state=found.state,
        wchan=waits,
        wakes=procfs.wakes(pid) if waits.startswith((UNIX_WAIT, *PIPE_WAITS)) else 0,
        children=tuple(procfs.child_process(s) for s in below),
        pulse=pulse,
        shm=procfs.shared_memory()[0],
        below=burnt,
        moved=moved,
        pinned=cpus if cpus < procfs.cpus(0) else frozenset(),
        on_cpu=procfs.on_cpu(pid),
    )


def tree_below(pid: int, apart: Collection[int]) -> list[int]:
    """What it has started, and what that has, but for other ranks with all of theirs."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < procfs.CHILDREN:
        fresh = [child for child in procfs.children(waiting.pop()) if child not in apart]
        found += fresh
        waiting += fresh
    return found


def select_ranks(
    known: Mapping[int, History], above: Callable[[int], Iterable[int]]
) -> list[History]:
    """Neither launchers nor what a rank has started, unless that is another rank of its job: as
    with Lightning, whose rank 0 starts the others of its node. Of those that had a rank one after
    the other the latest, since a launcher may start it again."""
    told = [h for h in known.values() if h.rank is not None]
    below: dict[int, list[History]] = {}
    for history in told:
        for pid in above(history.pid):
            below.setdefault(pid, []).append(history)
    # a launcher in a pod may have a RANK of its own, that of the pod
    told = [h for h in told if h.joined or h.pid not in below or _leads(h, below[h.pid])]
    here = {h.pid: h for h in told}
    ranks = [h for h in told if all(_peers(h, one) for one in _known_of(above(h.pid), here))]
    return list({h.rank: h for h in sorted(ranks, key=lambda h: h.born)}.values())


def select_unnumbered(
    known: Mapping[int, History], above: Callable[[int], Iterable[int]]
) -> list[History]:
    """Children that may be ranks and have not said which yet: not those of a rank, and not those of
    such a child."""
    apart = {h.pid for h in known.values() if h.child or h.rank is not None}
    found = (h for h in known.values() if h.child and h.rank is None)
    return [h for h in found if not any(pid in apart for pid in above(h.pid))]


def number_by_index(
    unnumbered: Iterable[History], ranks: Iterable[History], indexes: Mapping[int, object]
) -> None:
    """Those that torch.multiprocessing.spawn has started, by the number that it has given them: in
    a job of one machine that is the rank. `indexes`: pid -> what its last word says of it."""
    left, numbered = list(unnumbered), list(ranks)
    taken = {history.rank for history in numbered}
    world = max((history.world for history in numbered), default=len(left))
    for history in left:
        index = indexes.get(history.pid)
        if type(index) is int and 0 <= index < 1 << 20 and index not in taken:
            history.rank, history.world = index, world


def number_by_elimination(unnumbered: Iterable[History], ranks: Iterable[History]) -> None:
    """Where there is one of them for each rank that nobody is. With several their order must be
    that in which all were started."""
    left, numbered = sorted(unnumbered, key=lambda h: h.pid), list(ranks)
    world = max((h.world for h in numbered), default=0)
    if not left or world != len(left) + len(numbered):
        return
    absent = sorted(set(range(world)) - {h.rank for h in numbered})
    if len(absent) != len(left):
        return
    rank = {h.pid: h.rank for h in numbered} | dict(zip((h.pid for h in left), absent, strict=True))
    in_order = [rank[pid] for pid in sorted(rank)] == list(range(world))
    if len(left) == 1 or in_order:
        for history in left:
            history.rank, history.world = rank[history.pid], world


def _known_of(pids: Iterable[int], here: Mapping[int, History]) -> Iterator[History]:
    return (here[pid] for pid in pids if pid in here)


def _leads(history: History, started: Iterable[History]) -> bool:
    """Whether one that has started ranks is a rank, too: it has no RANK as a pod has one."""
    return history.by_node and any(_peers(history, one) for one in started)


def _peers(one: History, other: History) -> bool:
    """What a rank has started as its helper has its rank, too; and may have a world of its own."""
    return one.rank != other.rank and one.world == other.world
