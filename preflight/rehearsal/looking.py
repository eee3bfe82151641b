"""One look at one process of a command, by /proc. Only in a worker."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from preflight.rehearsal import processes
from preflight.rehearsal.history import Look


def look_at(
    pid: int, pulse: Mapping[str, Any] | None, began: int = 0, apart: Collection[int] = ()
) -> Look | None:
    """What the kernel says of it and its children, with what its inside or py-spy has told; None
    when it has ended. `began`: Stat.began of the process that is meant; `apart`: children that are
    ranks themselves."""
    found = processes.stat(pid)
    if found is None or found.ended or (began and found.began != began):
        return None
    below = [
        s
        for child in processes.children(pid)
        if child not in apart and (s := processes.stat(child))
    ]
    return Look(
        at=time.monotonic(),
        cpu=found.cpu + sum(s.cpu for s in below),
        rss=found.rss + sum(s.rss for s in below),
        state=found.state,
        wchan=processes.wchan(pid),
        children=tuple(processes.described(s) for s in below),
        pulse=pulse,
        shm=processes.shared_memory()[0],
    )
