"""Sets of host names, as SLURM writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

HOSTS_MOST = 1 << 14
"""More hosts than any job has: a list beyond it is not expanded."""

TEXT_MOST = 1 << 16
"""Characters of a node list that are read."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")

DIGITS_MOST = 9
"""Digits at the end of a name that are a place in a row; more of them are a serial number."""


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


def same_host(one: str, other: str) -> bool:
    """Whether two names may be one host's: `gpu1` and `gpu1.cluster.example`."""
    one, other = one.lower().rstrip("."), other.lower().rstrip(".")
    if "." in one and "." in other:
        return one == other
    return one.partition(".")[0] == other.partition(".")[0]
