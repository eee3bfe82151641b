"""Many names and numbers in a few: `gpu-b[07,19]`, `ranks 0-3,7`, the way SLURM writes them.

Only what is surely a name is folded; any other (blanks, commas, brackets, the `#2` of a second
machine that is called the same) stands for itself. Of ClusterShell only the arithmetic of ranges is
used: its NodeSet reads four configuration files when it is imported, two of them in HOME, which may
be on a file system that no longer answers, and it knows groups (`@all`), which no name may mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from preflight.model import Subject

FOLDED_FROM = 5
"""As many nodes are written as a set; fewer are named one by one."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
DIGITS = re.compile(r"(\d+)")
DIGITS_LIMIT = 9
"""Digits of a number in a name; more of them are a serial number, not a place in a row."""


def foldable(name: str) -> bool:
    """Whether a name can stand in a set, and unquoted in a command."""
    return NAME.fullmatch(name) is not None


def folded(names: Iterable[str]) -> str:
    """`n[1-3,7],head`: names that differ in one number as one, the others as they are."""
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for name in dict.fromkeys(names):
        parts = DIGITS.split(name)
        numbers = parts[1::2] if foldable(name) else []
        if numbers and max(map(len, numbers)) <= DIGITS_LIMIT:
            alike.setdefault(tuple(parts[::2]), []).append(numbers)
        else:
            alike[(name,)] = [[]]
    return ",".join(text for texts, rows in alike.items() for text in _of_one_form(texts, rows))


def _of_one_form(texts: Sequence[str], rows: Sequence[list[str]]) -> Iterable[str]:
    """The names that consist of the same texts with other numbers between them. The number of which
    there are most is the one that becomes a range."""
    kinds = [len(set(column)) for column in zip(*rows, strict=True)]
    at = max(range(len(kinds)), key=lambda i: (kinds[i], i), default=0)
    groups: dict[tuple[str, ...], list[str]] = {}
    for numbers in rows:
        rest = (*numbers[:at], "", *numbers[at + 1 :])
        groups.setdefault(rest, []).append(numbers[at] if numbers else "")
    for rest, places in groups.items():
        place = places[0] if len(places) == 1 else f"[{_range(places)}]"
        numbers = [*rest[:at], place, *rest[at + 1 :]]
        yield "".join(a + b for a, b in zip(texts, [*numbers, ""], strict=False))


def _range(numbers: Sequence[str]) -> str:
    """`07-09,12`: numbers as they are written, with their zeros."""
    from ClusterShell.RangeSet import RangeSet  # only where there is something to fold

    return str(RangeSet.fromlist(numbers))


def ranks(numbers: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-3`, `ranks 0,2-5`; empty for none."""
    known = sorted(set(numbers))
    runs: list[list[int]] = []
    for rank in known:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return f"rank{'s' if len(known) > 1 else ''} {text}" if known else ""


def links(subjects: Iterable[Subject]) -> tuple[str, ...]:
    """`a->b` each; many of them as one set a node that all go out of, or that all go in to."""
    pairs = list(dict.fromkeys((s.node, s.to) for s in subjects))
    if len(pairs) < FOLDED_FROM:
        return tuple(f"{node}->{to}" for node, to in pairs)
    out: dict[str, list[str]] = {}
    into: dict[str, list[str]] = {}
    for node, to in pairs:
        out.setdefault(node, []).append(to)
        into.setdefault(to, []).append(node)
    if len(out) <= len(into):
        return tuple(f"{node}->{folded(others)}" for node, others in out.items())
    return tuple(f"{folded(others)}->{to}" for to, others in into.items())
