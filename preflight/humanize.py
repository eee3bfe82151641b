"""Ranks, sizes, times and counts in words: `ranks 0-3,7`, `1.5 GiB`, `4 min 10 s`. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from preflight.model import PreflightError, World, place_of


def nearest(word: str, words: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no word is near."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def one_of(value: str, words: Sequence[str], place: str) -> None:
    """PreflightError, with the nearest word, where `value` is none of `words`."""
    if value not in words:
        known = ", ".join(words)
        raise PreflightError(f"{place} is one of {known}, got {value!r:.40}{nearest(value, words)}")


def parties(keys: Sequence[str], most: int = 4) -> str:
    """The first of them, and how many more there are: `n1, n2, n3, n4 and 12 more`."""
    rest = len(keys) - most
    return ", ".join(keys[:most]) + (f" and {rest} more" if rest > 0 else "")


RUNS, NODES = 12, 4
"""So many runs of ranks, and nodes with ranks, a sentence names; of the others it says `…`, or how
many there are."""


def rank_list(numbers: Iterable[int], most: int | None = RUNS) -> str:
    """`rank 3`, `ranks 0-3,7`: the one way to write a list of ranks; empty for none. At most `most`
    runs (None: all of them), then `,…`."""
    runs: list[list[int]] = []
    for rank in sorted(set(numbers)):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    texts = ["-".join(map(str, run)) for run in runs]
    if most is not None and len(texts) > most:
        texts[most:] = ["…"]
    one = len(runs) == 1 and len(runs[0]) == 1
    return f"{'rank' if one else 'ranks'} {','.join(texts)}" if runs else ""


def several(world: World[Any]) -> bool:
    """Whether a rank's number alone leaves open on which node it is."""
    nodes = (place_of(key)[0] for key in world.observations)
    first = next(nodes, None)
    return any(node != first for node in nodes)


def on_nodes(keys: Iterable[str]) -> dict[str, list[str]]:
    """Node -> those of these keys that are its own."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(place_of(key)[0], []).append(key)
    return found


def whole_node(world: World[Any], keys: Iterable[str]) -> str:
    """The node whose ranks, all of them, these are, where there are several nodes; else empty."""
    if not several(world):
        return ""
    nodes = on_nodes(keys)
    if len(nodes) != 1:
        return ""
    ((node, own),) = nodes.items()
    return node if len(own) == len(on_nodes(world.observations)[node]) else ""


def one_of_two(world: World[Any], keys: Iterable[str]) -> bool:
    """Whether these are all ranks of one of two nodes: two parties, of which none is the majority,
    however many ranks each has."""
    return bool(whole_node(world, keys)) and len(on_nodes(world.observations)) == 2


def ranks_of(world: World[Any], keys: Iterable[str]) -> str:
    """The ranks of these keys: `rank 5`, `ranks 4-5`; of several nodes `rank 5 on n3`, `all 4 ranks
    of n3`."""
    nodes = on_nodes(keys)
    if not several(world):
        return " and ".join(_of_node(keys) for keys in nodes.values())
    everybody = on_nodes(world.observations)
    whole = [n for n, own in nodes.items() if len(own) == len(everybody[n]) and len(own) > 1]
    parts = []
    if len(whole) == 1:
        parts.append(f"all {len(everybody[whole[0]])} ranks of {whole[0]}")
    elif whole:
        parts.append(f"all ranks of {parties(whole, NODES)}")
    rest = [n for n in nodes if n not in whole]
    parts += [f"{_of_node(nodes[n])} on {n}" for n in rest[:NODES]]
    if len(rest) > NODES:
        parts.append(f"ranks of {len(rest) - NODES} more nodes")
    return " and ".join(parts)


def _of_node(keys: Sequence[str]) -> str:
    """The ranks of one node's keys, or its key where that has none."""
    return rank_list(rank for key in keys if (rank := place_of(key)[1]) is not None) or keys[0]


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def size(count: int) -> str:
    """A number of bytes: `64 MiB`, `1.5 GiB`; -1 is `unlimited`."""
    if count < 0:
        return "unlimited"
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            number = count / unit
            return (
                f"{number:.1f} {name}" if number < 10 and count % unit else f"{number:.0f} {name}"
            )
    return f"{count} B"


def count(number: int) -> str:
    """A limit that counts things: `1024`, `unlimited`."""
    return "unlimited" if number < 0 else str(number)


def duration(seconds: float) -> str:
    """A time: `0.4 ms`, `12 ms`, `3.1 s`, `4 min 10 s`, `30 min`, `26 h`, `12 days`."""
    if seconds < 0.001:
        return f"{seconds * 1000:.1f} ms" if seconds >= 0.00005 else "0 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"


def latency(seconds: float) -> str:
    """The time of a small message: `29 µs`; from a millisecond on as `duration`."""
    return f"{seconds * 1e6:.0f} µs" if seconds < 0.001 else duration(seconds)


def plural(number: int, word: str) -> str:
    """`1 rank`, `4 ranks`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def epoch(started: str) -> int | None:
    """The time of a report (`2026-05-01T10:00:00Z`) in seconds since 1970; None for what is no
    time."""
    import calendar  # few formats need it

    found = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z", started, re.ASCII)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups())
    known = year >= 1970 and 1 <= month <= 12 and hour < 24 and minute < 60 and second < 60
    if not known or not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    return calendar.timegm((year, month, day, hour, minute, second))
