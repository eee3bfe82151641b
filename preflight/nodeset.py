"""Sets of host names, as SLURM writes them: `gpu-b[07-08,19]`. Pure.

Only what is surely a name is folded; any other (blanks, commas, brackets, the `#2` of a second
machine that is called the same) stands for itself. Of ClusterShell what folds needs only the
arithmetic of ranges: its NodeSet reads four configuration files when it is imported, two of them in
HOME, which may be on a file system that no longer answers, and it knows groups (`@all`), which no
name may mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

HOSTS_MOST = 1 << 14
"""More hosts than any job has: a list beyond it is not expanded."""

TEXT_MOST = 1 << 16
"""Characters of a node list that are read."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")

TASKS = re.compile(r"\d{1,7}(\(x\d{1,6}\))?(,\d{1,7}(\(x\d{1,6}\))?)*", re.ASCII)

DIGITS = re.compile(r"(\d+)")
LAST_DIGITS = re.compile(r"(\d+)$")
DIGITS_MOST = 9
"""Digits of a number in a name; more of them are a serial number, not a place in a row."""


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
    except (NodeSetException, ValueError):  # ValueError: a number of thousands of digits
        return ()
    return tuple(dict.fromkeys(found))


def _most(part: str) -> int:
    """No fewer hosts than a part stands for, counted without making them."""
    product = 1
    for inside in re.findall(r"\[([^\]]*)\]", part):
        ranges = re.findall(r"(\d{1,12})(?:-(\d{1,12}))?", inside)
        product *= max(1, sum(max(1, int(b or a) - int(a) + 1) for a, b in ranges))
    return product


def foldable(name: str) -> bool:
    """Whether a name can stand in a set, and unquoted in a command."""
    return NAME.fullmatch(name) is not None


def folded(names: Iterable[str]) -> str:
    """`n[1-3,7],head`: names that differ in one number as one, the others as they are."""
    return _folded(names, DIGITS)


def hostlist(names: Iterable[str]) -> str:
    """Names as SLURM reads them, to be pasted behind --exclude: `gpu-b[07-08,11]`; what no node can
    be called is left out. Only the digits that a name ends in are folded, as SLURM does it itself:
    a list with anything but a further bracket behind a bracket (`r[1-2]n1`, `gpu[1-2].site`) is
    "Invalid hostlist" to it (22.05)."""
    return _folded(filter(foldable, names), LAST_DIGITS)


def _folded(names: Iterable[str], digits: re.Pattern[str]) -> str:
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for name in dict.fromkeys(names):
        parts = digits.split(name)
        numbers = parts[1::2] if foldable(name) else []
        if numbers and max(map(len, numbers)) <= DIGITS_MOST:
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


def same_host(one: str, other: str) -> bool:
    """Whether two names may be one host's: `gpu1` and `gpu1.cluster.example`."""
    one, other = one.lower().rstrip("."), other.lower().rstrip(".")
    if "." in one and "." in other:
        return one == other
    return one.partition(".")[0] == other.partition(".")[0]


def others_than(names: Iterable[str], gone: Iterable[str]) -> list[str]:
    """Those names that may be no host of `gone`, see same_host(): of ten thousand of them only
    such are compared that begin alike."""
    alike: dict[str, list[str]] = {}
    for name in gone:
        alike.setdefault(_short(name), []).append(name)
    return [n for n in names if not any(same_host(n, o) for o in alike.get(_short(n), ()))]


def _short(name: str) -> str:
    return name.lower().rstrip(".").partition(".")[0]


def tasks_on(listed: str, place: int) -> int:
    """How many tasks SLURM's list of them (`4(x2),3`) has for the node of this number in the step,
    0 where it ends before that or is no such list; one number alone stands for all nodes."""
    listed = listed.strip()[:4096]
    if not TASKS.fullmatch(listed):
        return 0
    if listed.isdecimal():
        return int(listed)
    for part in listed.split(","):
        count, _, times = part.rstrip(")").partition("(x")
        place -= int(times or 1)
        if place < 0:
            return int(count)
    return 0
