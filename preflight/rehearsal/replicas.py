"""Reads what the injected files tell of a rank: hostile, so each field is checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight.domains.job.backends import Backends, GroupBackends, StridedCall
from preflight.domains.job.draws import Draw
from preflight.domains.job.labels import Labels
from preflight.domains.job.record import CALLS, TEXT, End
from preflight.domains.job.replica import Load, Replica, Sampled
from preflight.domains.job.shared_data import Dealt, Samples, Sharer, Shares
from preflight.domains.job.step_parts import Backward, BatchAmount, Sent, StepPart, StepParts, Timed
from preflight.domains.settings.agreement import fatal_if_different
from preflight.redact import redact
from preflight.rehearsal.client import frame_from_json, mapping_or_empty, sane_numbers
from preflight.rehearsal.history import count_of
from preflight.sanitize import one_line

MODELS, NAMES, CHECKS = 8, 4096, 48
NAME, PLACED = 120, 200
DEALT, LARGEST, THREADS = 32, 1 << 64, 1 << 16
"""Passes over data; numbers of a sampler; threads."""
LOOPS, SHARERS, SAMPLES, MARKS = 16, 12, 6, 32
"""Of loops over data; of one what divides its samples, what is known of these, and of each."""
STRIDED = 16
"""Lines that give views with gaps to collectives."""
LATEST, PARTS = 64, frozenset(map(str, StepPart))
PASSES, ERA, SINGLE = 48, 1e11, " Float"
"""Backward passes; wall clock times lie before; 32 bits, as the flight recorder calls them."""


def replicas_of(dump: Mapping[str, Any]) -> tuple[Replica, ...]:
    """The models of a rank, as preflight_model.py tells of them."""
    told = dump.get("models")
    entries = told[:MODELS] if isinstance(told, list) else []
    return tuple(_replica(entry) for entry in entries if isinstance(entry, dict))


def loads_of(dump: Mapping[str, Any]) -> tuple[Load, ...]:
    """State dicts of which a model of the rank took nothing."""
    told = dump.get("loads")
    found = []
    for entry in told[:MODELS] if isinstance(told, list) else ():
        match entry:
            case [frame, int(keys), str(given), str(wanted)] if 0 < keys < 1 << 32:
                where = frame_from_json(frame)
                found.append(Load(where, keys, one_line(given, NAME), one_line(wanted, NAME)))
    return tuple(found)


def _replica(entry: Mapping[str, Any]) -> Replica:
    names, shapes = (texts_of(entry.get(name)) for name in ("names", "shapes"))
    options = mapping_or_empty(entry.get("options"))
    rates = entry.get("rates")
    seed = entry.get("seed")
    return Replica(
        kind="ddp" if entry.get("kind") == "ddp" else "optimizer",
        frame=frame_from_json(entry.get("frame")),
        device=one_line(entry.get("device", ""), 20),
        bytes=count_of(entry, "size"),
        names=names,
        paths=texts_of(entry.get("paths"))[: len(names)],
        shapes=shapes[: len(names)],
        trained=_flags(entry.get("trained")),
        had=_flags(entry.get("had")),
        given=_flags(entry.get("given")),
        modes=_modes(entry.get("modes")),
        called=entry.get("called") is not False,
        options=tuple(one_line(name, 40) for name, on in list(options.items())[:8] if on is True),
        rates=tuple(
            float(rate)
            for rate in (rates[:8] if isinstance(rates, list) else [])
            if isinstance(rate, (int, float)) and math.isfinite(rate)
        ),
        hooks=texts_of(entry.get("hooks"))[:4],
        unfrozen=tuple(_since(entry.get("unfrozen"), len(names))),
        replaced=tuple(_since(entry.get("replaced"), len(names))),
        unreduced=_steps(entry.get("unreduced")),
        stepped=frame_from_json(entry.get("stepped")),
        seed=seed if type(seed) is int and abs(seed) < 1 << 64 else 0,
        checks=tuple(looks_of(entry.get("checks"))),
        buffers=texts_of(entry.get("buffers")),
        held=tuple(looks_of(entry.get("held"))),
        placed=texts_of(entry.get("placed"), PLACED),
        graded=tuple(looks_of(entry.get("graded"))),
        touched=entry.get("touched") is True,
    )


def texts_of(told: object, long: int = NAME) -> tuple[str, ...]:
    return tuple(one_line(t, long) for t in told[:NAMES]) if isinstance(told, list) else ()


def _flags(told: object) -> tuple[bool, ...]:
    return tuple(letter == "1" for letter in told[:NAMES]) if isinstance(told, str) else ()


def _modes(told: object) -> tuple[int, int]:
    match told:
        case [int(trains), int(evaluates)] if (
            0 <= min(trains, evaluates) < LARGEST > max(trains, evaluates)
        ):
            return trains, evaluates
    return 0, 0


def _since(told: object, names: int) -> Iterator[tuple[int, int]]:
    for entry in told[:names] if isinstance(told, list) else ():
        match entry:
            case [int(number), int(step)] if 0 <= number < names and step >= 0:
                yield number, step


def _steps(told: object) -> tuple[int, ...]:
    return sane_numbers(told[:CHECKS]) if isinstance(told, list) else ()


def looks_of(told: object) -> Iterator[Sampled]:
    for entry in told[:CHECKS] if isinstance(told, list) else ():
        match entry:
            case [int(step), str(sums), str(sizes)] if step >= 0:
                values = [tuple(_numbers(text)) for text in (sums, sizes)]
                if len(values[0]) == len(values[1]):
                    yield Sampled(step, *values)


def _numbers(text: str) -> Iterator[float | None]:
    for word in text.split()[:NAMES]:
        try:
            yield float(word)
        except ValueError:
            yield None


def dealt_of(dump: Mapping[str, Any]) -> tuple[Dealt, ...]:
    """The passes of a rank over data that a DistributedSampler deals out."""
    told = dump.get("dealt")
    return tuple(_dealt(told[:DEALT] if isinstance(told, list) else ()))


def _dealt(told: Sequence[Any]) -> Iterator[Dealt]:
    for entry in told:
        match entry:
            case {
                "steps": int(steps),
                "replicas": int(replicas),
                "rank": int(rank),
                "seed": int(seed),
                "epoch": int(epoch),
                "shuffle": bool(shuffle),
                "length": int(length),
            } if (
                0 <= rank < replicas
                and min(steps, length) >= 0
                and max(map(abs, (steps, replicas, seed, epoch, length))) < LARGEST
            ):
                frame = frame_from_json(entry.get("frame"))
                trains = entry.get("trains") is True
                yield Dealt(steps, replicas, rank, seed, epoch, shuffle, length, frame, trains)


def shares_of(dump: Mapping[str, Any]) -> tuple[Shares, ...]:
    """The loops of a rank over data that is divided among the ranks, as preflight_shards.py tells
    of them."""
    told = dump.get("shares")
    found = []
    for entry in told[:LOOPS] if isinstance(told, list) else ():
        known = mapping_or_empty(entry)
        if sharers := tuple(_sharers(known.get("sharers"))):
            frame, trains = frame_from_json(known.get("frame")), known.get("trains") is True
            found.append(Shares(frame, trains, sharers, tuple(_samples(known.get("layers")))))
    return tuple(found)


def _sharers(told: object) -> Iterator[Sharer]:
    for entry in told[:SHARERS] if isinstance(told, list) else ():
        match entry:
            case [str(by), int(parts), int(part)] if 1 < parts < 1 << 24 and abs(part) < parts:
                yield Sharer(one_line(by, NAME), parts, part)


def _samples(told: object) -> Iterator[Samples]:
    for entry in told[:SAMPLES] if isinstance(told, list) else ():
        match entry:
            case {
                "kind": str(kind),
                "length": int(length),
                "of": int(of),
                "marks": list(marks),
                "span": [int(first), int(last), int(step)],
                "order": int(order),
            } if max(map(abs, (length, of, first, last, step, order))) < LARGEST:
                numbers = tuple(m for m in marks[:MARKS] if type(m) is int and 0 <= m < 1 << 32)
                span = (first, last, step)
                yield Samples(one_line(kind, NAME), length, of, numbers, span, order)


def parts_of(dump: Mapping[str, Any]) -> StepParts:
    """Where the time of a rank's steps went, and its batches, as preflight_phases.py tells."""
    told = mapping_or_empty(dump.get("parts"))
    samples, elements, squares, size = _sums(told.get("sums"))
    return StepParts(
        forward=_seconds(told.get("forward")),
        backward=_seconds(told.get("backward")),
        optimizer=_seconds(told.get("optimizer")),
        steps=count_of(told, "steps"),
        batches=count_of(told, "batches"),
        samples=samples,
        elements=elements,
        squares=squares,
        bytes=size,
        shape=one_line(told.get("shape", ""), 60),
        forwards=count_of(told, "forwards"),
        between=_seconds(told.get("between")),
        after=_seconds(told.get("after")),
        cpu=_seconds(told.get("cpu")),
        passes=tuple(_passes(told.get("windows"), mapping_or_empty(dump.get("recorded")))),
        latest=tuple(_latest(told.get("latest"), mapping_or_empty(dump.get("recorded")))),
        marks=tuple(_marks(told.get("marks"))),
        inputs=BatchAmount(
            *_sums(told.get("taken")),
            one_line(told.get("form", ""), 60),
            frame_from_json(told.get("line")),
            count_of(told, "ranks"),
        ),
        threads=min(count_of(told, "threads"), THREADS),
        labels=tuple(_labels(told.get("labels"))),
        contents=tuple(_contents(told.get("contents"))),
        draws=tuple(_draws(dump.get("draws"))),
    )


def _sums(told: object) -> tuple[int, int, int, int]:
    match told:
        case [int(one), int(two), int(three), int(four)] if (
            min(one, two, three, four) >= 0 and max(one, two, three, four) < 1 << 80
        ):
            return one, two, three, four
    return 0, 0, 0, 0


def _marks(told: object) -> Iterator[tuple[int, int]]:
    for entry in told[:CHECKS] if isinstance(told, list) else ():
        match entry:
            case [int(step), int(mark)] if 0 <= step < LARGEST and 0 <= mark < LARGEST:
                yield step, mark


def _labels(told: object) -> Iterator[Labels]:
    for entry in told[:CHECKS] if isinstance(told, list) else ():
        match entry:
            case [int(step), int(counted), int(of)] if (
                0 <= step < LARGEST and 0 <= counted <= of < LARGEST
            ):
                yield Labels(step, counted, of)


def _contents(told: object) -> Iterator[tuple[int, int, int]]:
    for entry in told[:CHECKS] if isinstance(told, list) else ():
        match entry:
            case [int(step), int(whole), int(rest)] if (
                min(step, whole, rest) >= 0 and max(step, whole, rest) < LARGEST
            ):
                yield step, whole, rest


def _draws(told: object) -> Iterator[Draw]:
    for entry in told[:CHECKS] if isinstance(told, list) else ():
        match entry:
            case [int(step), int(cpu), int(drawn), (int() | None) as gpu, int(counted)] if (
                min(step, cpu, drawn, gpu or 0, counted) >= 0
                and max(step, cpu, drawn, gpu or 0, counted) < LARGEST
            ):
                yield Draw(step, cpu, drawn, gpu, counted)


def _passes(told: object, recorded: Mapping[str, Any]) -> Iterator[Backward]:
    """The backward passes with what was called meanwhile; not those from before the first call that
    each group still knows."""
    known = [
        [
            call
            for call in calls[-CALLS:]
            if isinstance(call, dict) and _seconds(call.get("at"), ERA)
        ]
        for calls in recorded.values()
        if isinstance(calls, list)
    ]
    since = max((calls[0]["at"] for calls in known if len(calls) == CALLS), default=0.0)
    sent = sorted(
        (call["at"], count_of(call, "bytes"), str(call.get("shape", "")).endswith(SINGLE))
        for calls in known
        for call in calls
        if call.get("p2p") is not True
    )
    for window in told[-PASSES:] if isinstance(told, list) else ():
        match window:
            case [int() | float() as began, int() | float() as took] if since <= began < ERA:
                seconds = _seconds(took)
                calls = [(at - began, *of) for at, *of in sent if began <= at <= began + seconds]
                if len(calls) <= CALLS // 4:
                    yield Backward(seconds, tuple(Sent(round(a, 6), b, s) for a, b, s in calls))


def _latest(told: object, recorded: Mapping[str, Any]) -> Iterator[Timed]:
    """Parts of the latest steps. What is left of a backward pass after its last collective was
    begun is waiting."""
    begun = [
        _seconds(call.get("at"), ERA)
        for calls in recorded.values()
        if isinstance(calls, list)
        for call in calls[-CALLS:]
        if isinstance(call, dict) and call.get("p2p") is not True
    ]
    for entry in told[-LATEST:] if isinstance(told, list) else ():
        match entry:
            case [str(name), int() | float() as start, int() | float() as took] if (
                name in PARTS and 0 <= start < ERA
            ):
                seconds, waits = _seconds(took), 0.0
                if name == StepPart.BACKWARD:
                    inside = [at for at in begun if start <= at <= start + seconds]
                    waits = start + seconds - max(inside) if inside else 0.0
                yield Timed(StepPart(name), float(start), seconds, round(waits, 6))


def _seconds(told: object, most: float = 1e7) -> float:
    return float(told) if isinstance(told, (int, float)) and 0 <= told < most else 0.0


def backends_of(
    rank: int | None, dump: Mapping[str, Any], word: Mapping[str, Any] | None, end: End | None
) -> Backends:
    """What a rank has asked for (`word`: its call of init_process_group) and got."""
    told, members, labels = (
        mapping_or_empty(dump.get(name)) for name in ("backends", "members", "labels")
    )
    groups = []
    for name, carried in list(told.items())[:64]:
        pairs = list(mapping_or_empty(carried).items())[:8]
        ranks = members.get(name)
        groups.append(
            GroupBackends(
                name=one_line(name, 40),
                carried=tuple((one_line(d, 20), one_line(b, 20)) for d, b in pairs),
                ranks=sane_numbers(ranks[:4096]) if isinstance(ranks, list) else (),
                label=one_line(labels.get(name, ""), 40),
            )
        )
    raised = end is not None and end.how == "raised"
    return Backends(
        rank=rank,
        called=word is not None,
        asked=one_line(word.get("backend", ""), 40) if word is not None else "",
        frame=frame_from_json(word.get("frame")) if word is not None else None,
        groups=tuple(groups),
        models=tuple(dict.fromkeys(r.device for r in replicas_of(dump) if r.kind == "ddp")),
        failed=end.text[:TEXT] if end is not None and raised else "",
        raised=next((f for f in end.frames if f.own), None) if end is not None and raised else None,
        settings=_settings(word.get("settings")) if word is not None else (),
        strided=tuple(_strided(dump.get("strided"), told)),
    )


def _strided(told: object, backends: Mapping[str, Any]) -> Iterator[StridedCall]:
    """Of Gloo's alone: NCCL and MPI refuse such views."""
    for entry in told[:STRIDED] if isinstance(told, list) else ():
        match entry:
            case [str(op), str(group), list(shape), list(strides), int(calls), frame] if (
                0 < calls < ERA and len(shape) == len(strides)
            ):
                given = sane_numbers(shape), sane_numbers(strides)
                carried = mapping_or_empty(backends.get(group))
                if len(given[0]) == len(given[1]) and carried.get("cpu") == "gloo":
                    yield StridedCall(one_line(op, 40), *given, calls, frame_from_json(frame))


def _settings(told: object) -> tuple[tuple[str, str], ...]:
    """Those that must be the same on all ranks; paths and addresses may well differ."""
    names = fatal_if_different()
    known = [(n, str(v)) for n, v in list(mapping_or_empty(told).items())[:64] if n in names]
    return tuple((name, redact(name, one_line(value, 80), 80)) for name, value in sorted(known))
