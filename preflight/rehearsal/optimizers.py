"""Reads what preflight_optimized.py tells of a rank: hostile, so each field is checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.domains.job.optimized import Held, Hooks, Loose, Optimized, Scheduler
from preflight.rehearsal.client import frame_from_json, mapping_or_empty
from preflight.rehearsal.history import count_of
from preflight.rehearsal.replicas import CHECKS, NAME, looks_of, texts_of
from preflight.sanitize import one_line

NAMES, SCHEDULERS = 64, 8
MOST = 1 << 40
"""Steps and counts."""


def optimized_of(dump: Mapping[str, Any]) -> Optimized:
    told = mapping_or_empty(dump.get("optimized"))
    hidden, unheld, ghosts = (
        tuple(_held(told.get(name))) for name in ("hidden", "unheld", "ghosts")
    )
    return Optimized(
        steps=count_of(told, "steps"),
        hidden=hidden,
        unheld=unheld,
        ghosts=ghosts,
        loose=_loose(told.get("loose")),
        hooks=_hooks(told.get("hooks"), told.get("most")),
        schedulers=tuple(_schedulers(told.get("schedulers"))),
    )


def _held(told: object) -> Iterator[Held]:
    for entry in told[:NAMES] if isinstance(told, list) else ():
        match entry:
            case [str(name), str(shape), frame, int(since), int(until)] if (
                0 <= since <= until < MOST
            ):
                texts = one_line(name, NAME), one_line(shape, NAME)
                yield Held(*texts, frame_from_json(frame), since, until)


def _loose(told: object) -> Loose | None:
    known = mapping_or_empty(told)
    names, shapes = texts_of(known.get("names")), texts_of(known.get("shapes"))
    if not names or len(names) != len(shapes):
        return None
    where, frame = one_line(known.get("where", ""), NAME), frame_from_json(known.get("frame"))
    return Loose(names[:NAMES], shapes[:NAMES], where, frame, tuple(looks_of(known.get("checks"))))


def _hooks(looks: object, most: object) -> Hooks:
    found = []
    for look in looks[:CHECKS] if isinstance(looks, list) else ():
        match look:
            case [int(step), int(count)] if 0 <= step < MOST and 0 <= count < MOST:
                found.append((step, count))
    match most:
        case [int(count), str(kind), str(owner), frame] if 0 <= count < MOST:
            texts = one_line(kind, NAME), one_line(owner, NAME)
            return Hooks(tuple(found), count, *texts, frame_from_json(frame))
    return Hooks(tuple(found))


def _schedulers(told: object) -> Iterator[Scheduler]:
    for entry in told[:SCHEDULERS] if isinstance(told, list) else ():
        match entry:
            case [frame, instead, int(counts), int(idle)] if (
                0 <= counts < MOST and 0 <= idle < MOST
            ):
                yield Scheduler(frame_from_json(frame), frame_from_json(instead), counts, idle)
