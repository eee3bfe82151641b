"""Inference across ranks, apart from observation. Pure: no I/O, no clock, no torch.

What is concluded here must hold for worlds that nobody has seen yet, so every function says what
it can not tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from preflight.model import Mark


@dataclass(frozen=True, slots=True)
class Late:
    """Who has not reached the mark that others wait at.

    mark      the furthest mark that anybody reached
    waiting   the ranks that reached it
    behind    rank -> the last mark that it reached, empty when it never gave a sign
    clear     those behind are the fewer, or one of two: else it may be the others who went astray
    """

    mark: str
    waiting: tuple[int, ...]
    behind: Mapping[int, str]
    clear: bool


def late(marks: Mapping[int, tuple[Mark, ...]]) -> Late | None:
    """Who holds up a world in which all ranks take the same steps and mark each before they do it.

    The innocent ranks wait, and complain; the guilty one is silent. So the ranks that came least
    far are late, if anybody came further. Those between are not named: they may wait themselves (a
    store's server waits for its last client while the other clients have gone on to the next step).

    None when all stand at the same mark, nobody gave a sign, or there is only one rank: then the
    marks can't tell. Two parties are no majority, but a rank that has not reached the mark at which
    the other one waits is evidence enough.
    """
    paths = {rank: _numbered(m.name for m in seen) for rank, seen in marks.items()}
    # the longest path gives the order; a mark that only others have doesn't count as progress
    longest: tuple[tuple[str, int], ...] = max(paths.values(), key=len, default=())
    order = {step: i for i, step in enumerate(longest)}
    reached = {r: max((order.get(s, -1) for s in path), default=-1) for r, path in paths.items()}
    furthest, least = max(reached.values(), default=-1), min(reached.values(), default=-1)
    if least == furthest:
        return None
    names = [name for name, _ in order]
    waiting = tuple(sorted(r for r, at in reached.items() if at == furthest))
    behind = {r: names[at] if at >= 0 else "" for r, at in sorted(reached.items()) if at == least}
    clear = len(behind) * 2 < len(reached) or len(reached) == 2
    return Late(names[furthest], waiting, behind, clear)


def _numbered(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Each name with how often it came before, so that a repeated mark is a step of its own."""
    before: Counter[str] = Counter()
    found = []
    for name in names:
        found.append((name, before[name]))
        before[name] += 1
    return tuple(found)
