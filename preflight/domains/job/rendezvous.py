"""Where the ranks of a job meet, as each of them says in its call of init_process_group: whether
they agree, and whether the place can be what is meant. Pure.

Nothing of it is said of ranks that have met: two jobs in one command meet at two places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from preflight.domains.job.load import rank_subject
from preflight.domains.job.rank_exits import ended_badly
from preflight.domains.job.record import Joins, Life
from preflight.humanize import duration, rank_list
from preflight.model import Confidence, Found, World, place_of

CERTAIN, LIKELY = Confidence.CERTAIN, Confidence.LIKELY

PLACES = 4
"""Addresses that are shown."""
STALE = 5.0
"""Seconds by which a file must be older than the command: clocks of file servers differ."""
UNREACHABLE = re.compile(r"client socket has (?:failed to connect|timed out)")
"""In the error of a rank that has not come to the address."""


def rendezvous_conflict(world: World[Life]) -> Found | None:
    """Of ranks that have not met the first contradiction between what they were given."""
    lives = {k: life for k, life in world.seen.items() if life.joins is not None}
    failed = any(
        life.command.why == "stuck" or (life.end is not None and ended_badly(life.end))
        for life in lives.values()
    )
    if all(life.joined for life in lives.values()):
        return None
    if not failed:  # where the start is slow, --for is over before anybody has waited for long
        return _replaced(world, lives, refused=True)
    return (
        _twice(world, lives)
        or _sizes(world, lives)
        or _replaced(world, lives)
        or _places(world, lives)
        or _stale(world)
    )


def _twice(world: World[Life], lives: Mapping[str, Life]) -> Found | None:
    """Two processes that were there at one time as one rank."""
    for key, life in lives.items():
        same = [joins for joins in (life.joins, *life.twins) if joins is not None]
        of = {k: o for k, o in lives.items() if o.rank == life.rank and life.rank is not None}
        same += [o.joins for k, o in of.items() if k != key and o.joins is not None]
        if len(same) > 1:
            told = ", ".join(f"pid {j.pid}{_given(j)}" for j in same[:4])
            return Found(
                "rank-duplicate",
                tuple(rank_subject(world.subject(k), life.rank) for k in {key: 0, **of}),
                saw=f"{len(same)} processes are rank {life.rank}: {told}",
                expected="a different rank for each process",
                confidence=CERTAIN,
                fields={"line": _line(same)},
            )
    return None


def _sizes(world: World[Life], lives: Mapping[str, Life]) -> Found | None:
    return _differs(
        world,
        lives,
        "world-size-differs",
        lambda joins: f"world_size {joins.world}" if joins.world else "",
        "one world size on all ranks",
    )


def _places(world: World[Life], lives: Mapping[str, Life]) -> Found | None:
    """Two host names may mean one machine; two ports or two files are never one."""
    return _differs(
        world,
        lives,
        "rendezvous-differs",
        lambda joins: f"port {joins.port}" if joins.port else joins.path and f"file {joins.path}",
        "one address on all ranks",
    )


def _differs(
    world: World[Life],
    lives: Mapping[str, Life],
    code: str,
    value: Callable[[Joins], str],
    expected: str,
) -> Found | None:
    """Those that are fewer are named; in a tie those without rank 0, since that one is waited for
    where it listens."""
    by_value: dict[str, list[str]] = {}
    for key, life in lives.items():
        if life.joins is not None and life.rank is not None and (said := value(life.joins)):
            by_value.setdefault(said, []).append(key)
    if len(by_value) < 2:
        return None
    ordered = sorted(
        by_value.items(), key=lambda item: (-len(item[1]), all(lives[k].rank for k in item[1]))
    )
    # where each has its own nobody is nearer to right than the others
    each = len(by_value) > 2 and all(len(keys) == 1 for keys in by_value.values())
    odd = [key for _, keys in ordered[not each :] for key in keys]
    rows = [
        f"{rank_list([lives[k].rank or 0 for k in keys])}: {said}{_given(lives[keys[0]].joins)}"
        for said, keys in reversed(ordered[:4])
    ]
    return Found(
        code,
        tuple(rank_subject(world.subject(key), lives[key].rank) for key in odd),
        saw="; ".join(rows),
        expected=expected,
        confidence=CERTAIN,
        fields={"line": _line(lives[key].joins for key in odd)},
    )


def _replaced(world: World[Life], lives: Mapping[str, Life], refused: bool = False) -> Found | None:
    """An address of the script's own, at which nobody listens: the launcher does so at another one.
    Two host names may mean one machine, unless nobody could be reached there. refused: of those
    alone of which that was tried."""
    found = {
        key: (life, joins, joins.held)
        for key, life in lives.items()
        if (joins := life.joins) is not None and joins.held is not None and not life.joined
        if joins.refused or (joins.port != joins.held.port and not refused)
    }
    ranks = [life.rank for life, *_ in found.values() if life.rank is not None]
    if not ranks:
        return None
    _, joins, held = next(iter(found.values()))
    where = f", set at {held.frame}" if held.frame is not None else ""
    why = f": {joins.refused}" if joins.refused else ""
    by_place: dict[str, list[int]] = {}
    for life, at, _ in found.values():
        if life.rank is not None:
            by_place.setdefault(f"{at.host}:{at.port}", []).append(life.rank)
    rows = [f"{rank_list(numbers)} at {place}" for place, numbers in by_place.items()]
    more = f" and {len(rows) - PLACES} other addresses" if len(rows) > PLACES + 1 else ""
    shown = ", ".join(rows[: PLACES if more else None])
    own = f" ({len(rows)} different addresses)" if len(rows) > 1 else ""
    return Found(
        "rendezvous-replaced",
        tuple(rank_subject(world.subject(key), life.rank) for key, (life, *_) in found.items()),
        saw=f"{shown}{more}{own}{where}{why} · torchrun has the store "
        f"at {held.host}:{held.port} · init_process_group at {joins.frame or 'an unknown line'}",
        expected=f"MASTER_ADDR {held.host} and MASTER_PORT {held.port}, as torchrun sets them",
        confidence=CERTAIN,
        fields={"line": str(held.frame or joins.frame or "the line that sets it")},
    )


def _stale(world: World[Life]) -> Found | None:
    """A file that an earlier job has left: what it has in it is read as if it were of this one."""
    old = {k: j for k, life in world.seen.items() if (j := life.joins) and j.stale > STALE}
    if not old:
        return None
    first = next(iter(old.values()))
    # who came later has found it written by those who came before
    users = [k for k, life in world.seen.items() if life.joins and life.joins.path == first.path]
    return Found(
        "rendezvous-file-stale",
        tuple(rank_subject(world.subject(k), world.seen[k].rank) for k in users),
        saw=f"file://{first.path} was there before the command, written "
        f"{duration(first.stale)} before it began{_given(first)}",
        expected="a file that is not there before the job",
        confidence=LIKELY,
        fields={"line": _line([first]), "path": first.path},
    )


def unreachable_address(world: World[Life]) -> Found | None:
    """An address of which nobody could be reached when the ranks had waited for long, though rank 0
    was there to listen."""
    seen = world.seen
    home = {place_of(k)[0] for k, life in seen.items() if life.rank == 0 and life.joins is not None}
    waiting = {
        k: life
        for k, life in seen.items()
        if home and life.joins is not None and not life.joined and life.joins.port
    }
    lost = {k: why for k, life in waiting.items() if (why := _why_not(life))}
    if not lost:
        return None
    key, why = next(iter(lost.items()))
    joins = waiting[key].joins
    ranks = [life.rank for k in lost if (life := waiting[k]).rank is not None]
    if joins is None or not ranks:
        return None
    return Found(
        "rendezvous-unreachable",
        tuple(rank_subject(world.subject(k), waiting[k].rank) for k in lost),
        saw=f"{rank_list([r for r in ranks if r is not None])} can't reach "
        f"{joins.host}:{joins.port}{_given(joins)}: {why}",
        expected="the address of rank 0, where it listens",
        confidence=LIKELY,
        fields={
            "place": f"{joins.host}:{joins.port}",
            "host": joins.host,
            "command": "",
        },
    )


def _why_not(life: Life) -> str:
    if life.joins is not None and life.joins.refused:
        return life.joins.refused
    end = life.end
    return end.text if end is not None and UNREACHABLE.search(end.text) else ""


def _given(joins: Joins | None) -> str:
    """` (tcp://10.0.0.1:29500 at train.py:12)`"""
    if joins is None:
        return ""
    what = f"{joins.host}:{joins.port}" if joins.port else joins.path
    way = {"env": "MASTER_ADDR, MASTER_PORT", "store": "store="}.get(joins.how, joins.how)
    where = f" at {joins.frame}" if joins.frame is not None else ""
    url = f"{joins.how}://{what}" if joins.how in ("tcp", "file") else f"{what} by {way}".strip()
    return f" ({url}{where})"


def _line(joins: Iterable[Joins | None]) -> str:
    return next((str(j.frame) for j in joins if j is not None and j.frame), "init_process_group")
