"""Reads what preflight_optimized.py, preflight_settings.py, preflight_resets.py, preflight_ties.py,
preflight_clips.py, preflight_copies.py and preflight_needless.py tell of a rank: hostile, so each
field is checked."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight.domains.job.clipping import Clip, Clipping
from preflight.domains.job.copies import FORWARD, LOAD, CopyUse, ModelCopy
from preflight.domains.job.discarded import Discarded
from preflight.domains.job.needless import (
    Collected,
    Compiled,
    Gathered,
    Needless,
    NoSync,
    Profiled,
    Table,
    WorkerStarts,
)
from preflight.domains.job.optimized import Held, Hooks, Loose, Optimized, Plateau, Scheduler
from preflight.domains.job.optimizer_settings import (
    GroupSettings,
    OptimizerSettings,
    SettingsLook,
)
from preflight.domains.job.tied import Untied
from preflight.rehearsal.client import frame_from_json, mapping_or_empty
from preflight.rehearsal.history import count_of
from preflight.rehearsal.replicas import CHECKS, NAME, looks_of, texts_of
from preflight.sanitize import one_line

NAMES, SCHEDULERS, TIES, WINDOWS = 64, 8, 16, 8
CLIPS, COPIES, USES, LINES = 32, 8, 8, 16
OPTIMIZERS, GROUPS, SETTINGS, NUMBERS = 4, 16, 24, 4
REASON = 120
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
        plateaus=tuple(_plateaus(told.get("plateaus"))),
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


def _plateaus(told: object) -> Iterator[Plateau]:
    for entry in told[:SCHEDULERS] if isinstance(told, list) else ():
        match entry:
            case [frame, int(rounds), int(least), int(most)] if (
                0 < rounds < MOST and 0 < least <= most < MOST
            ):
                yield Plateau(frame_from_json(frame), rounds, least, most)


def settings_of(dump: Mapping[str, Any]) -> tuple[OptimizerSettings, ...]:
    """What its optimizers are set to."""
    told = dump.get("settings")
    entries = told[:OPTIMIZERS] if isinstance(told, list) else []
    return tuple(_settings(entry) for entry in entries if isinstance(entry, dict))


def _settings(entry: Mapping[str, Any]) -> OptimizerSettings:
    full = entry.get("full")
    looks = tuple(_setting_looks(entry.get("looks")))
    groups = min((len(look.groups) for look in looks), default=0)
    return OptimizerSettings(
        kind=one_line(entry.get("kind", ""), NAME),
        signature=count_of(entry, "signature"),
        frame=frame_from_json(entry.get("frame")),
        schedule=frame_from_json(entry.get("schedule")),
        looks=looks,
        changes=tuple(_changes(entry.get("changes"), groups)),
        full=full if type(full) is int and 0 <= full < MOST else None,
    )


def _setting_looks(told: object) -> Iterator[SettingsLook]:
    for entry in told[:CHECKS] if isinstance(told, list) else ():
        match entry:
            case [int(step), int(clock), list(groups)] if 0 <= step < MOST and 0 <= clock < MOST:
                yield SettingsLook(step, clock, tuple(_groups(groups[:GROUPS])))


def _groups(told: list[Any]) -> Iterator[GroupSettings]:
    for entry in told:
        match entry:
            case [bool(averaged), dict(given)]:
                values = {one_line(n, NAME): _numbers(v) for n, v in [*given.items()][:SETTINGS]}
                known = tuple((name, of) for name, of in values.items() if of)
                yield GroupSettings(averaged, known)
            case _:
                yield GroupSettings(averaged=False)


def _numbers(told: object) -> tuple[float, ...]:
    given = told[:NUMBERS] if isinstance(told, list) else []
    known = [float(one) for one in given if isinstance(one, (int, float)) and math.isfinite(one)]
    return tuple(known) if len(known) == len(given) else ()


def _changes(told: object, groups: int) -> Iterator[tuple[int, int, int, float]]:
    for entry in told[:CHECKS] if isinstance(told, list) else ():
        match entry:
            case [int(step), int(clock), int(group), int() | float() as rate] if (
                min(step, clock) >= 0
                and max(step, clock) < MOST
                and 0 <= group < groups
                and math.isfinite(rate)
            ):
                yield step, clock, group, float(rate)


def discarded_of(dump: Mapping[str, Any]) -> tuple[Discarded, ...]:
    """Resets of gradients that no step had used."""
    told = dump.get("resets")
    found = []
    for entry in told[:WINDOWS] if isinstance(told, list) else ():
        match entry:
            case [str(kind), frame, int(steps), int(wasted), int(resets), int(batches)] if (
                0 < wasted <= steps < MOST and wasted <= resets < MOST and batches < MOST
            ):
                counts = steps, wasted, resets, max(batches, 0)
                found.append(Discarded(one_line(kind, NAME), frame_from_json(frame), *counts))
    return tuple(found)


def untied_of(dump: Mapping[str, Any]) -> tuple[Untied, ...]:
    """Weights that were one, and are two."""
    told = dump.get("ties")
    found = []
    for entry in told[:TIES] if isinstance(told, list) else ():
        match entry:
            case [str(name), str(other), str(shape), frame, int(since), int(until)] if (
                0 <= since <= until < MOST
            ):
                names = one_line(name, NAME), one_line(other, NAME)
                of, line = one_line(shape, NAME), frame_from_json(frame)
                found.append(Untied(*names, of, line, since, until))
    return tuple(found)


def clipping_of(dump: Mapping[str, Any]) -> Clipping:
    """By how much its gradients were clipped."""
    told = mapping_or_empty(dump.get("clips"))
    looks = told.get("looks")
    found = []
    for look in looks[:CHECKS] if isinstance(looks, list) else ():
        match look:
            case [int(step), list(clips)] if 0 <= step < MOST:
                found.append((step, tuple(_clips(clips[:CLIPS]))))
    return Clipping(frame_from_json(told.get("frame")), tuple(found))


def _clips(told: list[Any]) -> Iterator[Clip]:
    for entry in told:
        match entry:
            case [
                bool(flat),
                int(count),
                int(numbers),
                int(largest),
                int() | float() as limit,
                int() | float() as norm,
            ] if min(count, numbers, largest) >= 0 and max(count, numbers, largest) < MOST:
                yield Clip(flat, count, numbers, largest, float(limit), float(norm))


def copies_of(dump: Mapping[str, Any]) -> tuple[ModelCopy, ...]:
    """Copies of its models."""
    told = dump.get("copies")
    entries = told[:COPIES] if isinstance(told, list) else []
    found = []
    for entry in entries:
        known = mapping_or_empty(entry)
        names, shapes = texts_of(known.get("names")), texts_of(known.get("shapes"))
        if names and len(names) == len(shapes):
            frame, looks = frame_from_json(known.get("frame")), looks_of(known.get("looks"))
            uses, replaced = tuple(_uses(known.get("uses"))), known.get("replaced") is True
            found.append(ModelCopy(frame, names, shapes, tuple(looks), uses, replaced))
    return tuple(found)


def _uses(told: object) -> Iterator[CopyUse]:
    for entry in told[:USES] if isinstance(told, list) else ():
        match entry:
            case [str(how), int(number), int(step), frame, str(sums), str(sizes)] if (
                how in (LOAD, FORWARD) and 0 <= number < MOST
            ):
                for looked in looks_of([[step, sums, sizes]]):
                    yield CopyUse(how, number, frame_from_json(frame), looked)


def needless_of(dump: Mapping[str, Any], profiled_before: object = None) -> Needless:
    """What it pays for without need; `profiled_before`: what it said of a profiler in the last
    look, where there is no dump."""
    told = mapping_or_empty(dump.get("needless"))
    profiled, no_sync = Profiled(), NoSync()
    match told.get("profiled", profiled_before):
        case [int(since), int(steps), frame] if 0 <= since < MOST and 0 <= steps < MOST:
            profiled = Profiled(since, steps, frame_from_json(frame))
    match told.get("no_sync"):
        case [int(late), int(right), frame] if 0 <= late < MOST and 0 <= right < MOST:
            no_sync = NoSync(late, right, frame_from_json(frame))
    starts, compiled = WorkerStarts(), Compiled()
    match told.get("starts"):
        case [int(times), float(seconds), float(first), float(latest), frame] if (
            0 <= times < MOST and 0.0 <= seconds < MOST and 0.0 <= latest - first < MOST
        ):
            starts = WorkerStarts(times, seconds, latest - first, frame_from_json(frame))
    match told.get("compiled"):
        case [int(times), float(seconds), float(within), str(why), frame] if (
            0 <= times < MOST and 0.0 <= seconds < MOST and 0.0 <= within < MOST
        ):
            compiled = Compiled(times, seconds, within, _reason(why), frame_from_json(frame))
    collected = Collected()
    match told.get("garbage"):
        case [int(times), float(total), float(longest), float(within), float(there), frame] if (
            0 < times < MOST and all(0.0 <= n < MOST for n in (total, longest, within, there))
        ):
            place = frame_from_json(frame)
            collected = Collected(times, total, longest, within, there, place)
    gathered, whole = tuple(_gathered(told.get("gathered"))), count_of(told, "whole")
    tables = tuple(_tables(told.get("tables")))
    return Needless(profiled, gathered, whole, no_sync, starts, compiled, collected, tables)


def _tables(told: object) -> Iterator[Table]:
    for entry in told[:LINES] if isinstance(told, list) else ():
        match entry:
            case [str(name), [int(rows), int(columns)], int(size), float(used), int(whole)] if (
                all(0 < number < MOST for number in (rows, columns, size, whole))
                and 0.0 <= used <= 1.0
            ):
                yield Table(one_line(name, NAME), rows, columns, size, used, whole)


def _reason(told: str) -> str:
    """The guard that failed, as Dynamo says it: `0/3: len(keep) == 5   # for i in keep: …`."""
    guard = told.partition("\n")[0].partition("#")[0]
    return one_line(re.sub(r"^\d+/\d+: ", "", guard)).strip()[:REASON]


def _gathered(told: object) -> Iterator[Gathered]:
    for entry in told[:LINES] if isinstance(told, list) else ():
        match entry:
            case [line, int(first), int(last), int(steps), int(numbers)] if (
                0 <= first <= last < MOST and 0 < steps < MOST and numbers >= 0
            ):
                if (frame := frame_from_json(line)) is not None:
                    yield Gathered(frame, first, last, steps, numbers)
