"""Which hosts a job has been given, and which ranks each of them should bring. Pure.

SLURM says it in a node list (`gpu-[007-009,012]`, read by ClusterShell's NodeSet) and a list of
tasks (`4(x2),3`). Of other launchers nothing is known: they leave no list in the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

HOSTS_MOST = 1 << 14
"""More hosts than any job has: a list beyond it is not expanded."""

TEXT_MOST = 1 << 16
"""Characters of a node list that are read."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")

DIGITS_MOST = 9
"""Digits at the end of a name that are a place in a row; more of them are a serial number."""

STEP, JOB = "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"


@dataclass(frozen=True, slots=True)
class Expected:
    """A host that should bring ranks; no ranks: which ones is not known."""

    host: str
    ranks: tuple[int, ...] = ()


def expected(environ: Mapping[str, str], own: int, size: int) -> tuple[Expected, ...]:
    """The hosts of this job step with their ranks. `own`: the ranks of the agent that asks, `size`:
    those of the job. The list of a whole job counts only if its numbers are those of this run: a
    run may well use a part of its job's nodes."""
    for names, tasks in (
        (STEP, "SLURM_STEP_TASKS_PER_NODE"),
        (JOB, "SLURM_TASKS_PER_NODE"),
    ):
        if hosts := expand(environ.get(names, "")):
            counts = _counts(environ.get(tasks, ""), len(hosts))
            way = re.split(r"[:,]", environ.get("SLURM_DISTRIBUTION", "block"))[0]
            if sum(counts) != size:  # not a task a rank: then one agent a node, its ranks in a row
                counts = (own,) * len(hosts) if own * len(hosts) == size else ()
                way = "block" if way == "cyclic" else way
            if counts and way in ("block", "cyclic", "*", ""):
                return tuple(map(Expected, hosts, _dealt(counts, way == "cyclic")))
            return tuple(map(Expected, hosts)) if names == STEP else ()
    return ()


def expand(text: str) -> tuple[str, ...]:
    """The hosts of a node list in its own order, which is that of the ranks; none when it is no
    node list."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    text = text.strip()
    if len(text) > TEXT_MOST or not re.fullmatch(r"[\w.\-\[\],]+", text, re.ASCII):
        return ()
    # NodeSet sorts: what stands between two commas is expanded by itself
    parts = re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text)
    if ",".join(parts) != text:
        return ()
    found: list[str] = []
    try:
        for part in parts:
            if _most(part) + len(found) > HOSTS_MOST:
                return ()
            found += NodeSet(part, resolver=RESOLVER_NOGROUP)
    except NodeSetException:
        return ()
    return tuple(dict.fromkeys(found))


def _most(part: str) -> int:
    """No fewer hosts than a part stands for, counted without making them."""
    product = 1
    for inside in re.findall(r"\[([^\]]*)\]", part):
        ranges = re.findall(r"(\d{1,12})(?:-(\d{1,12}))?", inside)
        product *= max(1, sum(max(1, int(b or a) - int(a) + 1) for a, b in ranges))
    return product


def folded(hosts: Iterable[str]) -> str:
    """Names as SLURM reads them, to be pasted behind --exclude: `gpu-b[07-08,11]`; what no node can
    be called is left out. Only the digits that a name ends in are folded, as SLURM does it itself:
    a list with anything but a further bracket behind a bracket (`r[1-2]n1`, `gpu[1-2].site`) is
    "Invalid hostlist" to it (22.05)."""
    rows: dict[str, list[str]] = {}
    for name in dict.fromkeys(hosts):
        if NAME.fullmatch(name):
            stem = name.rstrip("0123456789")
            if len(name) - len(stem) > DIGITS_MOST:
                stem = name
            rows.setdefault(stem, []).append(name[len(stem) :])
    return ",".join(part for stem, numbers in rows.items() for part in _row(stem, numbers))


def _row(stem: str, numbers: Sequence[str]) -> Iterator[str]:
    """The names of one stem: the bare one, and those with a number."""
    if "" in numbers:
        yield stem
    places = [number for number in numbers if number]
    if len(places) == 1:
        yield stem + places[0]
    elif places:
        # of ClusterShell only this: what imports its NodeSet reads configuration in HOME
        from ClusterShell.RangeSet import RangeSet

        yield f"{stem}[{RangeSet.fromlist(places)}]"


def _counts(text: str, hosts: int) -> tuple[int, ...]:
    """`4(x2),3` as (4, 4, 3); empty when it is not for so many hosts."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:\(x(\d{1,7})\))?", part.strip())
        if match is None or int(match[2] or 1) > hosts - len(found):
            return ()
        found += [int(match[1])] * int(match[2] or 1)
    return tuple(found) if len(found) == hosts else ()


def _dealt(counts: Sequence[int], cyclic: bool) -> list[tuple[int, ...]]:
    """The ranks of each host: one host after the other, or one rank for each in turn."""
    if not cyclic:
        ends = [sum(counts[: i + 1]) for i in range(len(counts))]
        return [tuple(range(end - n, end)) for n, end in zip(counts, ends, strict=True)]
    hands: list[list[int]] = [[] for _ in counts]
    ranks = iter(range(sum(counts)))
    for turn in range(max(counts)):
        for hand, most in zip(hands, counts, strict=True):
            if turn < most:
                hand.append(next(ranks))
    return [tuple(hand) for hand in hands]


def same_host(one: str, other: str) -> bool:
    """Whether two names may be one host's: `gpu1` and `gpu1.cluster.example`."""
    one, other = one.lower().rstrip("."), other.lower().rstrip(".")
    if "." in one and "." in other:
        return one == other
    return one.partition(".")[0] == other.partition(".")[0]


def span(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-3,6`."""
    known = sorted(set(ranks))
    runs = list(_runs(known))
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:12])
    more = ",…" if len(runs) > 12 else ""
    return f"rank{'s' if len(known) != 1 else ''} {text}{more}"


def _runs(known: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for rank in known:
        if first is None or last is None:
            first = last = rank
        elif rank == last + 1:
            last = rank
        else:
            yield first, last
            first = last = rank
    if first is not None and last is not None:
        yield first, last
