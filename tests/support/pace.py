"""How fast this machine is, for bounds in seconds of CPU."""

from __future__ import annotations

import json
import time
from functools import cache

WORK = 0.11
"""Seconds of CPU of work() where judging took 0.55 ms a node (docs/scale.md): estimated, from a
machine on which both take 2.2 times as long."""


def work() -> None:
    """Of the kind that judging and rendering are: objects, texts, sorting."""
    document = {"a": [{"n": i, "s": str(i) * 4, "f": i / 7} for i in range(2000)]}
    for _ in range(20):
        json.loads(json.dumps(document))
        sorted(str(i) for i in range(20_000))


@cache
def slower() -> float:
    """How many times slower than that machine this one is; at least 1."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return max(1.0, best / WORK)
